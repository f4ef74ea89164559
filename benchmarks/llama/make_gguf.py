"""Writes a Qwen2 checkpoint as GGUF, so that llama.cpp runs the same weights as Formwork.

    python make_gguf.py CHECKPOINT_FOLDER OUTPUT.gguf

Made for the benchmark's random checkpoint, which has no tokenizer: the file says that it has no
vocabulary, only its size, which is all that llama.cpp's benchmarks need. Matrices stay bfloat16;
norms and biases become float32, as llama.cpp wants them.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np

LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """llama.cpp's name of a tensor."""
    module, kind = name.rsplit(".", 1)
    if module == "model.embed_tokens":
        return "token_embd." + kind
    if module == "model.norm":
        return "output_norm." + kind
    _, _, layer, rest = module.split(".", 3)
    return f"blk.{layer}.{LAYER_TENSORS[rest]}.{kind}"


def read_tensors(path: Path):
    """Yields the name, the shape and the raw bfloat16 numbers of each tensor of a safetensors file."""
    with path.open("rb") as file:
        header_len = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_len))
    data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + header_len)
    for name, info in header.items():
        if name == "__metadata__":
            continue
        if info["dtype"] != "BF16":
            raise SystemExit(f"{name} is {info['dtype']}: only BF16 is read here")
        begin, end = info["data_offsets"]
        yield name, info["shape"], data[begin:end].view(np.uint16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", type=Path, help="folder with config.json and model.safetensors")
    parser.add_argument("output", type=Path, help="the file to write")
    arguments = parser.parse_args()

    config = json.loads((arguments.checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(arguments.output, "qwen2")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    for name, shape, numbers in read_tensors(arguments.checkpoint / "model.safetensors"):
        if len(shape) == 1:
            # bfloat16 is the upper half of a float32.
            widened = (numbers.astype(np.uint32) << 16).view(np.float32)
            writer.add_tensor(gguf_name(name), widened)
        else:
            rows = numbers.reshape(shape).view(np.uint8)
            writer.add_tensor(gguf_name(name), rows, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=False)
    writer.close()


if __name__ == "__main__":
    main()
