//! What a GGUF file's metadata says of its model, as the `config.json` of the same model would.

use ::gguf::{GgufError, GgufFile, Metadata};
use serde_json::{Map, Value, json};

use super::GgufModel;
use crate::model_executor::config::HfConfig;
use crate::model_executor::error::ModelError;
use crate::model_executor::rotary::RopeScaling;

/// Key of the family's name.
const ARCHITECTURE: &str = "general.architecture";

const ARCHITECTURES: &str = "llama, qwen2, qwen3, qwen3moe, gemma2, gemma3, phi3 or smollm3";

/// Divisors of the rotation's frequencies, where a Llama has them.
const ROPE_FREQS: &str = "rope_freqs.weight";

/// LongRoPE's divisors, for short and for long texts.
const ROPE_FACTORS: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];

/// Fields of `config.json` and the keys that they come from, without the family's name.
const KEYS: [(&str, &str); 18] = [
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("max_position_embeddings", "context_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("sliding_window", "attention.sliding_window"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("rope_theta", "rope.freq_base"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("rope_scaling.factor", "rope.scaling.factor"),
    ("rope_scaling.attention_factor", "rope.scaling.attn_factor"),
];

/// The tensors that [`parse`] has read: they become settings and no weights.
pub(super) fn rope_tensors(file: &GgufFile) -> &'static [&'static str] {
    let has = |name: &&str| file.tensor(name).is_some();
    if has(&ROPE_FREQS) {
        &[ROPE_FREQS]
    } else if ROPE_FACTORS.iter().all(has) {
        &ROPE_FACTORS
    } else {
        &[]
    }
}

/// The configuration of the model in a file.
///
/// # Errors
/// [`ModelError::Gguf`] where the metadata lacks a key, has another type, or asks for something
/// that isn't implemented; [`ModelError::File`] where what it says can't be a model.
pub(crate) fn parse(model: &GgufModel) -> Result<HfConfig, ModelError> {
    let reader = Reader::new(model).map_err(|source| in_file(model, source))?;
    let config = reader.config().map_err(|source| in_file(model, source))?;
    let mut config =
        HfConfig::parse(config.to_string().as_bytes()).map_err(|error| match error {
            ModelError::Config { field, problem } => {
                let words: Vec<String> =
                    problem.split(' ').map(|word| reader.named(word)).collect();
                ModelError::File {
                    file: model.name.clone(),
                    problem: format!("{}: {}", reader.named(&field), words.join(" ")),
                }
            }
            other => other,
        })?;
    if let Some(factors) = reader
        .rope_freqs(config.head_dim)
        .map_err(|source| in_file(model, source))?
    {
        // Each pair has its divisor, whatever the length: LongRoPE with equal lists.
        for rope in &mut config.ropes {
            let stretch = match rope.scaling {
                RopeScaling::Linear { factor } => factor,
                _ => 1.0,
            };
            let factors: Vec<f64> = factors.iter().map(|factor| factor * stretch).collect();
            rope.scaling = RopeScaling::LongRope {
                short_factor: factors.clone(),
                long_factor: factors,
                original_max_position_embeddings: config.max_position_embeddings,
                attention_factor: 1.0,
            };
        }
    }
    Ok(config)
}

fn in_file(model: &GgufModel, source: GgufError) -> ModelError {
    ModelError::Gguf {
        file: model.name.clone(),
        source: Box::new(source),
    }
}

/// Reads the keys of one family.
struct Reader<'a> {
    model: &'a GgufModel,
    metadata: &'a Metadata,
    /// The family's name, before its keys.
    family: &'a str,
}

impl<'a> Reader<'a> {
    fn new(model: &'a GgufModel) -> Result<Self, GgufError> {
        let metadata = model.file.metadata();
        if metadata.u64("split.count")?.is_some_and(|count| count > 1) {
            return Err(metadata.wrong(
                "split.count",
                "1: join the parts with llama.cpp's llama-gguf-split --merge",
            ));
        }
        Ok(Self {
            model,
            metadata,
            family: metadata.required_str(ARCHITECTURE)?,
        })
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.family)
    }

    /// The key that a field of `config.json` comes from; the word itself where it is no such field.
    fn named(&self, field: &str) -> String {
        KEYS.iter()
            .find(|(name, _)| *name == field)
            .map_or_else(|| field.to_owned(), |(_, key)| self.key(key))
    }

    /// A number that counts something.
    fn count(&self, name: &str) -> Result<Option<u64>, GgufError> {
        self.metadata.u64(&self.key(name))
    }

    fn required_count(&self, name: &str) -> Result<u64, GgufError> {
        self.count(name)?.ok_or_else(|| GgufError::MissingKey {
            key: self.key(name),
            expected: "a whole number",
        })
    }

    fn number(&self, name: &str) -> Result<Option<f64>, GgufError> {
        self.metadata.f64(&self.key(name))
    }

    /// Whether a tensor of the file is there.
    fn has(&self, tensor: &str) -> bool {
        self.model.file.tensor(tensor).is_some()
    }

    /// The class that Hugging Face has for the family.
    fn class(&self) -> Result<&'static str, GgufError> {
        let experts = self
            .count("expert_count")?
            .is_some_and(|experts| experts > 0);
        let window = self
            .count("attention.sliding_window")?
            .is_some_and(|window| window > 0);
        Ok(match self.family {
            "llama" if experts => "MixtralForCausalLM",
            "llama" if window => "MistralForCausalLM",
            "llama" => "LlamaForCausalLM",
            "qwen2" => "Qwen2ForCausalLM",
            "qwen3" => "Qwen3ForCausalLM",
            "qwen3moe" => "Qwen3MoeForCausalLM",
            "gemma2" => "Gemma2ForCausalLM",
            "gemma3" => "Gemma3ForCausalLM",
            "phi3" => "Phi3ForCausalLM",
            "smollm3" => "SmolLM3ForCausalLM",
            _ => return Err(self.metadata.wrong(ARCHITECTURE, ARCHITECTURES)),
        })
    }

    /// Keys by which related families change what is computed, and the values that change nothing.
    fn refuse_unsupported(&self, class: &str) -> Result<(), GgufError> {
        for (name, neutral) in [
            ("attention.scale", &[0.0][..]),
            ("attention.output_scale", &[0.0, 1.0]),
            ("attention.clamp_kqv", &[0.0]),
            ("attention.max_alibi_bias", &[0.0]),
            ("attention.temperature_scale", &[0.0]),
            ("attention.temperature_length", &[0.0]),
            ("attention.shared_kv_layers", &[0.0]),
            ("attention.q_lora_rank", &[0.0]),
            ("attention.kv_lora_rank", &[0.0]),
            ("expert_shared_count", &[0.0]),
            ("expert_group_count", &[0.0]),
            ("expert_group_used_count", &[0.0]),
            ("expert_weights_scale", &[0.0, 1.0]),
            // 1 is the softmax over all experts.
            ("expert_gating_func", &[0.0, 1.0]),
            ("router_logit_softcapping", &[0.0]),
            ("leading_dense_block_count", &[0.0]),
            ("interleave_moe_layer_step", &[0.0, 1.0]),
            ("logit_scale", &[0.0]),
            ("residual_scale", &[0.0]),
            ("embedding_scale", &[0.0]),
            ("nextn_predict_layers", &[0.0]),
        ] {
            self.refuse_other(name, neutral)?;
        }
        if !class.starts_with("Gemma2") {
            self.refuse_other("attn_logit_softcapping", &[0.0])?;
        }
        if !class.starts_with("Gemma") {
            self.refuse_other("final_logit_softcapping", &[0.0])?;
        }
        for (name, right) in [
            ("attention.causal", true),
            ("use_parallel_residual", false),
            ("swin_norm", false),
            ("expert_weights_norm", true),
        ] {
            let key = self.key(name);
            if self.metadata.bool(&key)?.is_some_and(|flag| flag != right) {
                let right = format!("{right} or absent: this setting is not supported");
                return Err(self.metadata.wrong(&key, &right));
            }
        }
        Ok(())
    }

    /// Refuses a number that isn't one of those.
    fn refuse_other(&self, name: &str, neutral: &[f64]) -> Result<(), GgufError> {
        match self.number(name)? {
            Some(number) if !neutral.contains(&number) => {
                let neutral: Vec<String> = neutral.iter().map(f64::to_string).collect();
                let neutral = neutral.join(", ");
                let right = format!("{neutral} or absent: this setting is not supported");
                Err(self.metadata.wrong(&self.key(name), &right))
            }
            _ => Ok(()),
        }
    }

    fn config(&self) -> Result<Value, GgufError> {
        let class = self.class()?;
        self.refuse_unsupported(class)?;
        let layers = self.required_count("block_count")?;
        // Memory is taken for each layer before its tensors are looked for.
        let num_tensors = self.model.file.tensors().count();
        if layers > num_tensors as u64 {
            let right = format!("at most the number of tensors ({num_tensors})");
            return Err(self.metadata.wrong(&self.key("block_count"), &right));
        }
        let hidden_size = self.required_count("embedding_length")?;
        let heads = self.required_count("attention.head_count")?;
        let mut config = Map::new();
        let mut set = |field: &str, value: Value| config.insert(field.to_owned(), value);
        set("architectures", json!([class]));
        set("num_hidden_layers", layers.into());
        set("hidden_size", hidden_size.into());
        set("num_attention_heads", heads.into());
        set(
            "intermediate_size",
            self.required_count("feed_forward_length")?.into(),
        );
        set(
            "max_position_embeddings",
            self.required_count("context_length")?.into(),
        );
        set("rms_norm_eps", self.rms_norm_eps()?.into());
        set("vocab_size", self.vocab_size()?.into());
        set("tie_word_embeddings", (!self.has("output.weight")).into());
        let kv_heads = self.count("attention.head_count_kv")?.unwrap_or(heads);
        set("num_key_value_heads", kv_heads.into());
        let key_length = self.count("attention.key_length")?;
        let head_dim = key_length.unwrap_or_else(|| hidden_size.checked_div(heads).unwrap_or(0));
        set("head_dim", head_dim.into());
        if self
            .count("attention.value_length")?
            .is_some_and(|width| width != head_dim)
        {
            let right = format!("the width of a key ({head_dim})");
            return Err(self
                .metadata
                .wrong(&self.key("attention.value_length"), &right));
        }
        if matches!(class, "LlamaForCausalLM" | "SmolLM3ForCausalLM") {
            set("attention_bias", self.has("blk.0.attn_q.bias").into());
            set("mlp_bias", self.has("blk.0.ffn_gate.bias").into());
        }
        if let Some(window) = self.window(class)? {
            set("sliding_window", window.into());
            set("use_sliding_window", true.into());
            self.check_window_pattern(class)?;
        }
        if let Some(experts) = self.count("expert_count")?.filter(|experts| *experts > 0) {
            set("num_experts", experts.into());
            set(
                "num_experts_per_tok",
                self.required_count("expert_used_count")?.into(),
            );
            if let Some(width) = self.count("expert_feed_forward_length")? {
                set("moe_intermediate_size", width.into());
            }
            if class == "Qwen3MoeForCausalLM" {
                set("norm_topk_prob", true.into());
            }
        }
        if class.starts_with("Gemma") {
            // The largest models divide the scores by the width of the stream per head. The
            // metadata doesn't say so; their number of layers tells.
            let largest = matches!(
                (class, layers),
                ("Gemma2ForCausalLM", 46) | ("Gemma3ForCausalLM", 62)
            );
            let scalar = if largest {
                hidden_size / heads.max(1)
            } else {
                head_dim
            };
            set("query_pre_attn_scalar", scalar.into());
            for field in ["attn_logit_softcapping", "final_logit_softcapping"] {
                if let Some(bound) = self.number(field)? {
                    set(
                        field,
                        if bound == 0.0 {
                            Value::Null
                        } else {
                            bound.into()
                        },
                    );
                }
            }
        }
        self.rope(class, head_dim, &mut config)?;
        Ok(Value::Object(config))
    }

    fn rms_norm_eps(&self) -> Result<f64, GgufError> {
        let name = "attention.layer_norm_rms_epsilon";
        self.number(name)?.ok_or_else(|| GgufError::MissingKey {
            key: self.key(name),
            expected: "a number",
        })
    }

    /// Rows of the embedding: it may be padded beyond the tokenizer's vocabulary.
    fn vocab_size(&self) -> Result<usize, GgufError> {
        let name = "token_embd.weight";
        let tensor = self.model.file.tensor(name);
        match tensor.as_ref().map(|tensor| tensor.shape) {
            Some([rows, _]) => Ok(*rows),
            Some(shape) => Err(GgufError::Invalid {
                place: format!("tensor {name}"),
                problem: format!("{} dimensions must be 2", shape.len()),
            }),
            None => Err(GgufError::Invalid {
                place: format!("tensor {name}"),
                problem: "missing; a model's file is needed, no vocabulary or adapter".to_owned(),
            }),
        }
    }

    fn window(&self, class: &str) -> Result<Option<u64>, GgufError> {
        let window = self.count("attention.sliding_window")?;
        Ok(match (class, window) {
            ("Gemma2ForCausalLM", None) => Some(4096),
            (_, window) => window.filter(|window| *window > 0),
        })
    }

    /// Every how many layers one attends to all: the family's, where the file says it.
    fn check_window_pattern(&self, class: &str) -> Result<(), GgufError> {
        let name = "attention.sliding_window_pattern";
        let expected = match class {
            "Gemma2ForCausalLM" => 2,
            "Gemma3ForCausalLM" => 6,
            _ => 0,
        };
        match self.count(name)? {
            Some(found) if found != expected => {
                let right = format!("{expected} or absent: no other pattern is supported");
                Err(self.metadata.wrong(&self.key(name), &right))
            }
            _ => Ok(()),
        }
    }

    /// The rotary settings, in the older spelling.
    fn rope(
        &self,
        class: &str,
        head_dim: u64,
        config: &mut Map<String, Value>,
    ) -> Result<(), GgufError> {
        let mut set = |field: &str, value: Value| config.insert(field.to_owned(), value);
        if let Some(theta) = self.number("rope.freq_base")? {
            set("rope_theta", theta.into());
        }
        if class == "Gemma3ForCausalLM" {
            let theta = self.number("rope.freq_base_swa")?.unwrap_or(10_000.0);
            set("rope_local_base_freq", theta.into());
        }
        if let Some(rotated) = self
            .count("rope.dimension_count")?
            .filter(|rotated| *rotated != head_dim)
        {
            if class != "Phi3ForCausalLM" || rotated > head_dim {
                let right = format!("the width of a head ({head_dim})");
                return Err(self
                    .metadata
                    .wrong(&self.key("rope.dimension_count"), &right));
            }
            set(
                "partial_rotary_factor",
                (rotated as f64 / head_dim as f64).into(),
            );
        }
        let [short, long] = ROPE_FACTORS;
        let (short, long) = (self.factors(short, None)?, self.factors(long, None)?);
        if let (Some(short), Some(long)) = (short, long) {
            let original = self.required_count("rope.scaling.original_context_length")?;
            set(
                "rope_scaling",
                json!({"rope_type": "longrope", "short_factor": short, "long_factor": long,
                       "original_max_position_embeddings": original,
                       "attention_factor": self.number("rope.scaling.attn_factor")?}),
            );
            return Ok(());
        }
        self.refuse_other("rope.scaling.attn_factor", &[0.0, 1.0])?;
        let key = self.key("rope.scaling.type");
        // Files of before 2024 have the factor alone.
        let factor = match self.number("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.number("rope.scale_linear")?,
        };
        match (self.metadata.str(&key)?, factor) {
            (None | Some("linear"), Some(factor)) if factor != 0.0 && factor != 1.0 => {
                set(
                    "rope_scaling",
                    json!({"rope_type": "linear", "factor": factor}),
                );
            }
            (None | Some("none" | "linear"), _) => {}
            (Some(_), _) => return Err(self.metadata.wrong(&key, "\"none\" or \"linear\"")),
        }
        Ok(())
    }

    /// Divisors of the frequencies, one per rotated pair.
    fn rope_freqs(&self, head_dim: usize) -> Result<Option<Vec<f64>>, GgufError> {
        self.factors(ROPE_FREQS, Some(head_dim / 2))
    }

    /// A vector of numbers above 0 in 32 bits.
    fn factors(&self, name: &str, len: Option<usize>) -> Result<Option<Vec<f64>>, GgufError> {
        let Some(tensor) = self.model.file.tensor(name) else {
            return Ok(None);
        };
        let wrong = |problem: String| GgufError::Invalid {
            place: format!("tensor {name}"),
            problem,
        };
        if tensor.tensor_type != gguf::TensorType::F32 || tensor.shape.len() != 1 {
            return Err(wrong(format!(
                "must be a vector in F32, not in {}",
                tensor.tensor_type
            )));
        }
        let values = tensor
            .data
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
        let values: Vec<f64> = values.collect();
        if len.is_some_and(|len| len != values.len()) {
            return Err(wrong(format!(
                "{} factors must be one per rotated pair",
                values.len()
            )));
        }
        if values
            .iter()
            .any(|value| !value.is_finite() || *value <= 0.0)
        {
            return Err(wrong("every factor must be above 0".to_owned()));
        }
        Ok(Some(values))
    }
}
