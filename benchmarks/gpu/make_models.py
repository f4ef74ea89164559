"""Makes checkpoints of random weights in the shapes that the GPU is measured with.

    python3 make_models.py TOKENIZER_FOLDER OUT [SHAPE...]

TOKENIZER_FOLDER has a tokenizer.json of at most 151,936 tokens (Qwen2.5's, for instance), which each checkpoint
gets a copy of. Needs torch and safetensors. The weights are small and random, so a text means nothing; time
doesn't depend on it.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

# Qwen2.5-0.5B, Qwen3-1.7B, and Llama 3.1 8B's layers under Qwen's vocabulary.
SHAPES = {
    "0.5b": dict(
        architecture="Qwen2ForCausalLM", model_type="qwen2", hidden=896, inter=4864, layers=24, heads=14,
        kv_heads=2, head_dim=64, tied=True, bias=True, qk_norm=False,
    ),
    "1.7b": dict(
        architecture="Qwen3ForCausalLM", model_type="qwen3", hidden=2048, inter=6144, layers=28, heads=16,
        kv_heads=8, head_dim=128, tied=True, bias=False, qk_norm=True,
    ),
    "8b": dict(
        architecture="LlamaForCausalLM", model_type="llama", hidden=4096, inter=14336, layers=32, heads=32,
        kv_heads=8, head_dim=128, tied=False, bias=False, qk_norm=False,
    ),
}
VOCAB = 151_936


def tensors(shape):
    """Names and shapes of all tensors of a checkpoint."""
    hidden, inter = shape["hidden"], shape["inter"]
    q, kv = shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    yield "model.embed_tokens.weight", (VOCAB, hidden)
    yield "model.norm.weight", (hidden,)
    if not shape["tied"]:
        yield "lm_head.weight", (VOCAB, hidden)
    for layer in range(shape["layers"]):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (hidden,)
        yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            yield f"{prefix}.self_attn.{name}_proj.weight", (rows, hidden)
            if shape["bias"]:
                yield f"{prefix}.self_attn.{name}_proj.bias", (rows,)
        if shape["qk_norm"]:
            yield f"{prefix}.self_attn.q_norm.weight", (shape["head_dim"],)
            yield f"{prefix}.self_attn.k_norm.weight", (shape["head_dim"],)
        yield f"{prefix}.self_attn.o_proj.weight", (hidden, q)
        yield f"{prefix}.mlp.gate_proj.weight", (inter, hidden)
        yield f"{prefix}.mlp.up_proj.weight", (inter, hidden)
        yield f"{prefix}.mlp.down_proj.weight", (hidden, inter)


def make(name, tokenizer, out):
    """Writes the checkpoint `name` into a folder of `out`, unless it is there."""
    shape, folder = SHAPES[name], Path(out) / name
    if (folder / "model.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    random = torch.Generator(device=device).manual_seed(1)
    weights = {}
    for tensor, size in tensors(shape):
        if tensor.endswith("norm.weight"):
            values = torch.ones(size, device=device)
        else:
            values = torch.randn(size, generator=random, device=device) * 0.02
        weights[tensor] = values.to(torch.bfloat16).cpu()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": [shape["architecture"]],
        "model_type": shape["model_type"],
        "hidden_size": shape["hidden"],
        "intermediate_size": shape["inter"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"],
        "head_dim": shape["head_dim"],
        "vocab_size": VOCAB,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": shape["tied"],
        "torch_dtype": "bfloat16",
        "eos_token_id": 151_645,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        if (Path(tokenizer) / file).exists():
            shutil.copy(Path(tokenizer) / file, folder / file)


if __name__ == "__main__":
    for name in sys.argv[3:] or SHAPES:
        make(name, sys.argv[1], sys.argv[2])
