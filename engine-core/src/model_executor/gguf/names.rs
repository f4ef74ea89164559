//! The names of tensors: from a Hugging Face checkpoint's to a GGUF file's.

/// Where a tensor stands in a GGUF file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its name there.
    pub(super) tensor: String,
    /// Index along the first dimension, for the matrices of experts, which are one tensor.
    pub(super) expert: Option<usize>,
    /// Whether its rows are rotated: queries and keys.
    pub(super) rotated: bool,
}

impl Place {
    /// The place of `model.layers.3.mlp.up_proj.weight` and the like; `None` for names that no
    /// family has. `norms_after` says whether the blocks of a layer have norms on both sides: then
    /// the one after the attention is the block's own, else it is the MLP's.
    pub(super) fn of(name: &str, norms_after: bool) -> Option<Self> {
        let (stem, kind) = name.rsplit_once('.')?;
        let place = |tensor: String| Self {
            tensor: format!("{tensor}.{kind}"),
            expert: None,
            rotated: false,
        };
        match stem {
            "model.embed_tokens" => return Some(place("token_embd".to_owned())),
            "model.norm" => return Some(place("output_norm".to_owned())),
            "lm_head" => return Some(place("output".to_owned())),
            _ => {}
        }
        let (layer, part) = stem.strip_prefix("model.layers.")?.split_once('.')?;
        if let Some((expert, part)) = expert(part) {
            return Some(Self {
                expert: Some(expert),
                ..place(format!("blk.{layer}.{part}"))
            });
        }
        let in_file = match part {
            "input_layernorm" => "attn_norm",
            "self_attn.q_proj" => "attn_q",
            "self_attn.k_proj" => "attn_k",
            "self_attn.v_proj" => "attn_v",
            "self_attn.qkv_proj" => "attn_qkv",
            "self_attn.o_proj" => "attn_output",
            "self_attn.q_norm" => "attn_q_norm",
            "self_attn.k_norm" => "attn_k_norm",
            "post_attention_layernorm" if norms_after => "post_attention_norm",
            "post_attention_layernorm" | "pre_feedforward_layernorm" => "ffn_norm",
            "post_feedforward_layernorm" => "post_ffw_norm",
            "mlp.gate_proj" => "ffn_gate",
            // Phi-3's file has both in what else is the latter.
            "mlp.up_proj" | "mlp.gate_up_proj" => "ffn_up",
            "mlp.down_proj" => "ffn_down",
            "mlp.gate" | "block_sparse_moe.gate" => "ffn_gate_inp",
            _ => return None,
        };
        Some(Self {
            rotated: matches!(part, "self_attn.q_proj" | "self_attn.k_proj"),
            ..place(format!("blk.{layer}.{in_file}"))
        })
    }
}

/// Index and tensor of `mlp.experts.5.up_proj` and `block_sparse_moe.experts.5.w3`.
fn expert(part: &str) -> Option<(usize, &'static str)> {
    let rest = part
        .strip_prefix("mlp.experts.")
        .or_else(|| part.strip_prefix("block_sparse_moe.experts."))?;
    let (index, part) = rest.split_once('.')?;
    let tensor = match part {
        "gate_proj" | "w1" => "ffn_gate_exps",
        "up_proj" | "w3" => "ffn_up_exps",
        "down_proj" | "w2" => "ffn_down_exps",
        _ => return None,
    };
    Some((index.parse().ok()?, tensor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> (String, Option<usize>, bool) {
        let place = Place::of(name, false).unwrap();
        (place.tensor, place.expert, place.rotated)
    }

    #[test]
    fn names_of_all_families() {
        for (name, tensor, expert, rotated) in [
            (
                "model.embed_tokens.weight",
                "token_embd.weight",
                None,
                false,
            ),
            ("model.norm.weight", "output_norm.weight", None, false),
            ("lm_head.weight", "output.weight", None, false),
            (
                "model.layers.12.self_attn.q_proj.weight",
                "blk.12.attn_q.weight",
                None,
                true,
            ),
            (
                "model.layers.0.self_attn.k_proj.bias",
                "blk.0.attn_k.bias",
                None,
                true,
            ),
            (
                "model.layers.0.self_attn.v_proj.bias",
                "blk.0.attn_v.bias",
                None,
                false,
            ),
            (
                "model.layers.0.post_attention_layernorm.weight",
                "blk.0.ffn_norm.weight",
                None,
                false,
            ),
            (
                "model.layers.0.mlp.gate_up_proj.weight",
                "blk.0.ffn_up.weight",
                None,
                false,
            ),
            (
                "model.layers.3.mlp.experts.17.up_proj.weight",
                "blk.3.ffn_up_exps.weight",
                Some(17),
                false,
            ),
            (
                "model.layers.3.block_sparse_moe.experts.0.w2.weight",
                "blk.3.ffn_down_exps.weight",
                Some(0),
                false,
            ),
            (
                "model.layers.3.mlp.gate.weight",
                "blk.3.ffn_gate_inp.weight",
                None,
                false,
            ),
        ] {
            assert_eq!(place(name), (tensor.to_owned(), expert, rotated), "{name}");
        }
        let gemma = Place::of("model.layers.1.post_attention_layernorm.weight", true);
        assert_eq!(gemma.unwrap().tensor, "blk.1.post_attention_norm.weight");
        for name in [
            "",
            "model",
            "model.layers.1",
            "model.layers.1.x.weight",
            "mlp.experts.x.w1.weight",
        ] {
            assert_eq!(Place::of(name, false), None, "{name}");
        }
    }
}
