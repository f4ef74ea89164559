"""The network: Qwen3's layout in plain PyTorch.

Parameter names are those of a Hugging Face `Qwen3ForCausalLM`, so `state_dict()` is the checkpoint.
`forward` returns hidden states; `logits` is a separate step, since training needs only the rows of
the answer's tokens and the head is a fifth of the work.
"""
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    """The sizes of the network; the defaults are the built-in model's."""

    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 768
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 32
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 2048

    def hugging_face_config(self, eos_token_id: int, pad_token_id: int) -> dict:
        """The contents of `config.json`."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            **asdict(self),
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": None,
            "eos_token_id": eos_token_id,
            "pad_token_id": pad_token_id,
            "hidden_act": "silu",
            "initializer_range": 0.02,
            "rope_scaling": None,
            "sliding_window": None,
            "use_sliding_window": False,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "use_cache": True,
        }


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotary_table(shape: Shape, length: int):
    """Cosines and sines for positions 0..length, each `[length, head_dim]`."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), shape.rope_theta**-half)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Turns each head's halves by the position's angles (the "neox" layout)."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        hidden, dim = shape.hidden_size, shape.head_dim
        self.q_proj = nn.Linear(hidden, shape.num_attention_heads * dim, bias=False)
        self.k_proj = nn.Linear(hidden, shape.num_key_value_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, shape.num_key_value_heads * dim, bias=False)
        self.o_proj = nn.Linear(shape.num_attention_heads * dim, hidden, bias=False)
        self.q_norm = RMSNorm(dim, shape.rms_norm_eps)
        self.k_norm = RMSNorm(dim, shape.rms_norm_eps)

    def forward(self, x, cos, sin, cache=None, mask=None):
        batch, length, _ = x.shape
        dim = self.shape.head_dim
        q = self.q_norm(self.q_proj(x).view(batch, length, -1, dim)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(batch, length, -1, dim)).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, -1, dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            k, v = cache.append(self, k, v)
        groups = self.shape.num_attention_heads // self.shape.num_key_value_heads
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and length > 1)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)

    def forward(self, x, cos, sin, cache=None, mask=None):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class KeyValueCache:
    """Keys and values of the tokens so far, for one batch of equally long sequences."""

    def __init__(self):
        self.kept = {}
        self.length = 0

    def append(self, layer, k, v):
        if layer in self.kept:
            old_k, old_v = self.kept[layer]
            k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
        self.kept[layer] = (k, v)
        return k, v

    def keep(self, rows):
        """Forgets all sequences of the batch but these."""
        self.kept = {layer: (k[rows], v[rows]) for layer, (k, v) in self.kept.items()}


class Qwen3(nn.Module):
    """The language model. The head shares the embedding's weights."""

    def __init__(self, shape: Shape = Shape()):
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        cos, sin = rotary_table(shape, shape.max_position_embeddings)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.reset_parameters()

    def reset_parameters(self):
        """Small normal weights; the projections back into the residual stream start at zero."""
        for name, weight in self.named_parameters():
            if weight.ndim < 2:
                continue
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(weight)
            else:
                nn.init.normal_(weight, std=0.02 if "embed" in name else weight.shape[1] ** -0.5)

    def forward(self, ids, cache=None, mask=None):
        """Hidden states `[batch, length, hidden]` of token ids `[batch, length]`.

        Attention is causal, unless a `mask` `[batch, 1, length, keys]` says which keys each token sees: boolean, or to be
        added to the scores.
        """
        start = cache.length if cache is not None else 0
        end = start + ids.shape[1]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, self.cos[start:end], self.sin[start:end], cache, mask)
        if cache is not None:
            cache.length = end
        return self.model.norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.model.embed_tokens.weight)
