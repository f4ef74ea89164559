//! What a model's hidden states are made into: by its folder, and by flags for what the folder doesn't say.

mod hf_overrides;

use std::io::Read;
use std::path::Path;

use clap::ValueEnum;
use protocol::{PoolingType, RunnerType};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokenizer::{ModelFileError, open_model_file};

use crate::error::{ValidationError, cut_short};
use crate::json_problem::json_problem;
pub use hf_overrides::HfOverrides;

/// Most bytes of a file that says how a model is pooled.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// `--runner`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum RunnerArg {
    /// As the model's folder says
    #[default]
    Auto,
    /// Generates text
    Generate,
    /// Makes embeddings or scores
    Pooling,
}

/// `--convert`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ConvertArg {
    /// As the model's folder says
    #[default]
    Auto,
    /// No conversion
    None,
    /// Embeddings of a model that generates text
    Embed,
    /// Scores of a model that generates text
    Classify,
}

/// `--pooler-config`, under vLLM's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolerOverride {
    /// `LAST`, `CLS` or `MEAN`.
    #[serde(alias = "seq_pooling_type")]
    pub pooling_type: Option<PoolingType>,
    /// Whether embeddings have length 1, and scores are probabilities.
    #[serde(alias = "normalize", alias = "softmax", alias = "activation")]
    pub use_activation: Option<bool>,
}

impl PoolerOverride {
    /// Reads the flag.
    ///
    /// # Errors
    /// It isn't JSON, has other fields, or names a kind of pooling that isn't there.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| json_problem(&error))
    }
}

/// The flags that choose what a model is for.
#[derive(Debug, Clone, Copy)]
pub struct PoolerFlags<'a> {
    /// `--model`.
    pub model: Option<&'a Path>,
    /// `--runner`.
    pub runner: RunnerArg,
    /// `--convert`.
    pub convert: ConvertArg,
    /// `--hf-overrides`.
    pub hf_overrides: Option<&'a HfOverrides>,
    /// `--pooler-config`.
    pub pooler_config: Option<PoolerOverride>,
    /// `--chat-template`.
    pub chat_template: Option<&'a str>,
}

/// How two texts are scored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScoreKind {
    /// By the cosine of their embeddings.
    Cosine,
    /// By the model's classifier.
    Classifier,
    /// By the probability of one token against another, next after both texts.
    Tokens {
        /// The token that says no.
        no: String,
        /// The token that says yes.
        yes: String,
    },
}

/// What a pooling model does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolerConfig {
    /// How two texts are scored. Embeddings are made by a [`ScoreKind::Cosine`] alone.
    pub score: ScoreKind,
    /// Which hidden states are pooled.
    pub pooling_type: PoolingType,
    /// Whether embeddings have length 1, and scores are probabilities.
    pub use_activation: bool,
    /// Whether embeddings may be cut to fewer dimensions.
    pub is_matryoshka: bool,
    /// The only numbers of dimensions that they may be cut to, where the model says so.
    pub matryoshka_dimensions: Option<Vec<u32>>,
    /// Whether the tokenizer has a form of its own for two texts: that of encoders.
    pub is_encoder: bool,
    /// Longest text in tokens that sentence-transformers would read.
    pub max_seq_length: Option<u32>,
}

impl PoolerConfig {
    /// What the model of these flags does; `None` where it generates text.
    ///
    /// # Errors
    /// Flags that contradict the model, or a file of its folder that can't be read.
    pub fn resolve(flags: PoolerFlags<'_>) -> Result<Option<Self>, ValidationError> {
        let folder = flags.model.filter(|path| path.is_dir());
        let config: Map<String, Value> = read(folder, "config.json")?.unwrap_or_default();
        let overrides = flags.hf_overrides.cloned().unwrap_or_default();
        let architecture = architecture(&config, &overrides);
        let is_encoder = is_encoder(&architecture);
        let has_classifier = architecture.ends_with("ForSequenceClassification");
        let tokens = classifier_tokens(&config, &overrides)?;
        let modules = Modules::read(folder)?;
        let is_pooling = is_encoder || has_classifier || tokens.is_some() || modules.is_some();
        let runner = match (flags.runner, flags.convert) {
            (RunnerArg::Generate, ConvertArg::Embed | ConvertArg::Classify) => {
                let message = "--convert makes a pooling model of one that generates: leave out --runner generate";
                return Err(ValidationError::about("convert", message));
            }
            (RunnerArg::Generate, _) if is_encoder || (has_classifier && tokens.is_none()) => {
                let message = format!(
                    "--runner generate: {architecture} generates no text; leave it out, or say pooling"
                );
                return Err(ValidationError::about("runner", message));
            }
            (RunnerArg::Generate, _) => RunnerType::Generate,
            (RunnerArg::Pooling, _) | (_, ConvertArg::Embed | ConvertArg::Classify) => {
                RunnerType::Pooling
            }
            (RunnerArg::Auto, _) if is_pooling => RunnerType::Pooling,
            (RunnerArg::Auto, _) => RunnerType::Generate,
        };
        if runner == RunnerType::Generate {
            return Ok(None);
        }
        if let Some(template) = flags.chat_template {
            let message = "--chat-template: embeddings and scores are made without a template: leave it out, and write \
                           what the model needs around the texts";
            return Err(ValidationError::field("chat_template", template, message));
        }
        let score = match (tokens, has_classifier, flags.convert) {
            (Some([no, yes]), _, ConvertArg::Auto | ConvertArg::Classify) => {
                ScoreKind::Tokens { no, yes }
            }
            (None, true, ConvertArg::Auto | ConvertArg::Classify | ConvertArg::None) => {
                ScoreKind::Classifier
            }
            (None, false, ConvertArg::Classify) => {
                let message = "--convert classify needs a model with a classifier (...ForSequenceClassification), or \
                               --hf-overrides '{\"classifier_from_token\": [\"no\", \"yes\"]}' for one that answers \
                               by tokens";
                return Err(ValidationError::about("convert", message));
            }
            _ => ScoreKind::Cosine,
        };
        let asked = flags.pooler_config.unwrap_or_default();
        let found = modules.as_ref().filter(|_| score == ScoreKind::Cosine);
        let default_type = match is_encoder {
            true => PoolingType::Cls,
            false => PoolingType::Last,
        };
        Ok(Some(Self {
            pooling_type: (asked.pooling_type)
                .or(found.map(|modules| modules.pooling_type))
                .unwrap_or(default_type),
            use_activation: match (asked.use_activation, &score) {
                (Some(use_activation), _) => use_activation,
                (None, ScoreKind::Classifier) => has_activation(&config)?,
                (None, _) => found.is_none_or(|modules| modules.normalizes),
            },
            is_matryoshka: match overrides.is_matryoshka {
                Some(is_matryoshka) => is_matryoshka,
                None => config.get("is_matryoshka") == Some(&Value::Bool(true)),
            } || config.contains_key("matryoshka_dimensions")
                || overrides.matryoshka_dimensions.is_some(),
            matryoshka_dimensions: match overrides.matryoshka_dimensions {
                Some(dimensions) => Some(dimensions),
                None => config
                    .get("matryoshka_dimensions")
                    .and_then(|value| Vec::<u32>::deserialize(value).ok()),
            },
            // As long as the model itself can is no limit; a few positions may be the padding's.
            max_seq_length: modules.as_ref().and_then(|modules| {
                let places = config
                    .get("max_position_embeddings")
                    .or_else(|| config.get("n_positions"));
                let places = places.and_then(Value::as_u64).unwrap_or(0);
                let length = modules.max_seq_length?;
                (u64::from(length) + 2 <= places).then_some(length)
            }),
            score,
            is_encoder,
        }))
    }

    /// What the core is to do.
    pub fn runner(config: Option<&Self>) -> RunnerType {
        match config {
            Some(_) => RunnerType::Pooling,
            None => RunnerType::Generate,
        }
    }

    /// The route that the model is for, for errors.
    pub(crate) fn routes(&self) -> &'static str {
        match self.score {
            ScoreKind::Cosine => "/v1/embeddings, /v1/score and /v1/rerank",
            ScoreKind::Classifier | ScoreKind::Tokens { .. } => "/v1/score and /v1/rerank",
        }
    }
}

/// The class of the model: the last word has `--hf-overrides`.
fn architecture(config: &Map<String, Value>, overrides: &HfOverrides) -> String {
    let overridden = overrides.architectures.as_ref();
    let overridden = overridden.and_then(|list| list.first().cloned());
    overridden.unwrap_or_else(|| {
        let first = config.get("architectures").and_then(|list| list.get(0));
        first.and_then(Value::as_str).unwrap_or_default().to_owned()
    })
}

/// True for the classes of encoders, which end in no head or in a classifier.
fn is_encoder(architecture: &str) -> bool {
    ["Bert", "Roberta", "XLMRoberta", "NomicBert"]
        .iter()
        .any(|family| {
            let rest = architecture.strip_prefix(family);
            rest.is_some_and(|rest| ["Model", "ForSequenceClassification"].contains(&rest))
        })
}

/// Whether a cross-encoder's scores are probabilities: by its `sentence_transformers.activation_fn`, else by the
/// field of older releases, in vLLM's order; true where neither is there.
fn has_activation(config: &Map<String, Value>) -> Result<bool, ValidationError> {
    const OLDER: &str = "sbert_ce_default_activation_function";
    let newer = config.get("sentence_transformers");
    let newer = newer.and_then(|value| value.get("activation_fn"));
    let newer = newer.map(|value| ("sentence_transformers.activation_fn", value));
    let older = config.get(OLDER).map(|value| (OLDER, value));
    let mut found = [newer, older].into_iter().flatten();
    let Some((field, value)) = found.find(|(_, value)| !value.is_null()) else {
        return Ok(true);
    };
    match value.as_str() {
        Some("torch.nn.modules.linear.Identity") => Ok(false),
        Some("torch.nn.modules.activation.Sigmoid") => Ok(true),
        _ => {
            let message = format!(
                "config.json: {field} must be torch.nn.modules.linear.Identity or \
                 torch.nn.modules.activation.Sigmoid, got {}; --pooler-config '{{\"use_activation\": false}}' makes \
                 scores without an activation",
                cut_short(&value.to_string())
            );
            Err(ValidationError::field(field, value, message))
        }
    }
}

/// The tokens that say no and yes.
fn classifier_tokens(
    config: &Map<String, Value>,
    overrides: &HfOverrides,
) -> Result<Option<[String; 2]>, ValidationError> {
    const FIELD: &str = "classifier_from_token";
    if let Some(tokens) = &overrides.classifier_from_token {
        return Ok(Some(tokens.clone()));
    }
    if overrides.is_original_qwen3_reranker {
        return Ok(Some(["no".to_owned(), "yes".to_owned()]));
    }
    let Some(value) = config.get(FIELD).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    <[String; 2]>::deserialize(value).map(Some).map_err(|_| {
        let message = format!(
            "config.json: {FIELD} must be two tokens, those of no and yes, got {}",
            cut_short(&value.to_string())
        );
        ValidationError::field(FIELD, value, message)
    })
}

/// What sentence-transformers' files say.
struct Modules {
    pooling_type: PoolingType,
    normalizes: bool,
    max_seq_length: Option<u32>,
}

/// One entry of `modules.json`.
#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// `sentence_bert_config.json`.
#[derive(Deserialize, Default)]
struct SentenceBertConfig {
    max_seq_length: Option<u32>,
}

impl Modules {
    /// Reads `modules.json` and what it names; `None` where there is none, or it pools nothing.
    fn read(folder: Option<&Path>) -> Result<Option<Self>, ValidationError> {
        let Some(modules) = read::<Vec<Module>>(folder, "modules.json")? else {
            return Ok(None);
        };
        let mut pooling_type = None;
        let mut normalizes = false;
        for module in &modules {
            match module.kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => {}
                "Normalize" => normalizes = true,
                "Pooling" => {
                    let name = format!("{}/config.json", module.path);
                    let name = name.trim_start_matches('/');
                    let config: Map<String, Value> = read(folder, name)?.unwrap_or_default();
                    pooling_type = Some(pooling_type_of(name, &config)?);
                }
                other => {
                    let message = format!(
                        "modules.json: a module {} is not supported; Transformer, Pooling and Normalize are",
                        cut_short(other)
                    );
                    return Err(ValidationError::about("modules.json", message));
                }
            }
        }
        let Some(pooling_type) = pooling_type else {
            return Ok(None);
        };
        let config: SentenceBertConfig =
            read(folder, "sentence_bert_config.json")?.unwrap_or_default();
        Ok(Some(Self {
            pooling_type,
            normalizes,
            max_seq_length: config.max_seq_length,
        }))
    }
}

/// The kind of pooling: a name in newer files, a flag for each kind in older ones.
fn pooling_type_of(
    name: &str,
    config: &Map<String, Value>,
) -> Result<PoolingType, ValidationError> {
    let mut modes: Vec<String> = match config.get("pooling_mode") {
        Some(Value::String(mode)) => vec![mode.clone()],
        Some(Value::Array(modes)) => modes.iter().map(|mode| mode.to_string()).collect(),
        _ => Vec::new(),
    };
    for (key, value) in config {
        if let Some(mode) = key.strip_prefix("pooling_mode_")
            && value == &Value::Bool(true)
        {
            modes.push(mode.to_owned());
        }
    }
    let known = |mode: &str| match mode {
        "cls" | "cls_token" => Some(PoolingType::Cls),
        "mean" | "mean_tokens" => Some(PoolingType::Mean),
        "lasttoken" => Some(PoolingType::Last),
        _ => None,
    };
    let found = match &modes[..] {
        [mode] => known(mode),
        _ => None,
    };
    found.ok_or_else(|| {
        let message = format!(
            "{name}: one pooling mode of cls, mean and lasttoken is needed, got {}",
            cut_short(&format!("{modes:?}"))
        );
        ValidationError::about("1_Pooling/config.json", message)
    })
}

/// A small file of JSON in the model's folder; `None` where it is absent, or the model has no folder.
fn read<T: DeserializeOwned>(
    folder: Option<&Path>,
    name: &str,
) -> Result<Option<T>, ValidationError> {
    let Some(folder) = folder else {
        return Ok(None);
    };
    let wrong = |why: String| ValidationError::about(name, format!("{name}: {why}"));
    let file = match open_model_file(folder, name) {
        Ok(file) => file,
        Err(ModelFileError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(format!("more than {MAX_FILE_BYTES} bytes")));
    }
    let value = serde_json::from_slice(&bytes);
    value.map(Some).map_err(|error| wrong(json_problem(&error)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arg_utils::EngineArgs;

    fn folder(files: &[(&str, Value)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value.to_string()).unwrap();
        }
        folder
    }

    fn resolve(
        files: &[(&str, Value)],
        change: impl FnOnce(&mut EngineArgs),
    ) -> Result<Option<PoolerConfig>, String> {
        let folder = folder(files);
        let mut args = EngineArgs::for_model(folder.path());
        change(&mut args);
        args.pooler().map_err(|error| error.to_string())
    }

    const QWEN3: (&str, &str) = ("config.json", "Qwen3ForCausalLM");

    fn config((name, architecture): (&'static str, &str)) -> (&'static str, Value) {
        (
            name,
            json!({"architectures": [architecture], "max_position_embeddings": 512}),
        )
    }

    fn modules(kinds: &[&str]) -> Value {
        let module = |kind: &&str| {
            json!({
                "path": if *kind == "Pooling" { "1_Pooling" } else { "" },
                "type": format!("sentence_transformers.models.{kind}"),
            })
        };
        kinds.iter().map(module).collect()
    }

    #[test]
    fn a_model_of_sentence_transformers_pools() {
        let pooling = json!({"word_embedding_dimension": 8, "pooling_mode_lasttoken": true, "pooling_mode_cls_token": false});
        let files = [
            config(QWEN3),
            (
                "modules.json",
                modules(&["Transformer", "Pooling", "Normalize"]),
            ),
            ("1_Pooling/config.json", pooling),
            ("sentence_bert_config.json", json!({"max_seq_length": 256})),
        ];
        let found = resolve(&files, |_| {}).unwrap().unwrap();
        assert_eq!(found.score, ScoreKind::Cosine);
        assert_eq!(found.pooling_type, PoolingType::Last);
        assert!(found.use_activation && !found.is_matryoshka && !found.is_encoder);
        assert_eq!(found.max_seq_length, Some(256));
        // Flags win over the folder.
        let asked = PoolerOverride::from_json(r#"{"pooling_type": "MEAN", "normalize": false}"#);
        let found = resolve(&files, |args| args.pooler_config = Some(asked.unwrap()));
        let found = found.unwrap().unwrap();
        assert_eq!(found.pooling_type, PoolingType::Mean);
        assert!(!found.use_activation);
        assert_eq!(
            resolve(&files, |args| args.runner = RunnerArg::Generate),
            Ok(None)
        );
        // As newer releases write it.
        let files = [
            config(("config.json", "BertModel")),
            ("modules.json", modules(&["Transformer", "Pooling"])),
            ("1_Pooling/config.json", json!({"pooling_mode": "mean"})),
        ];
        let found = resolve(&files, |_| {}).unwrap().unwrap();
        assert_eq!(found.pooling_type, PoolingType::Mean);
        assert!(!found.use_activation && found.is_encoder);
    }

    #[test]
    fn what_a_model_is_for_follows_its_class_and_flags() {
        let kind = |architecture: &str, change: fn(&mut EngineArgs)| {
            let files = [config(("config.json", architecture))];
            resolve(&files, change)
                .map(|found| found.map(|found| (found.score, found.pooling_type)))
        };
        let (cosine, classifier) = (ScoreKind::Cosine, ScoreKind::Classifier);
        assert_eq!(kind(QWEN3.1, |_| {}), Ok(None));
        assert_eq!(
            kind("BertModel", |_| {}),
            Ok(Some((cosine.clone(), PoolingType::Cls)))
        );
        for architecture in [
            "RobertaForSequenceClassification",
            "XLMRobertaForSequenceClassification",
        ] {
            assert_eq!(
                kind(architecture, |_| {}),
                Ok(Some((classifier.clone(), PoolingType::Cls)))
            );
        }
        assert_eq!(
            kind("Qwen3ForSequenceClassification", |_| {}),
            Ok(Some((classifier, PoolingType::Last)))
        );
        let embed = |args: &mut EngineArgs| args.convert = ConvertArg::Embed;
        assert_eq!(kind(QWEN3.1, embed), Ok(Some((cosine, PoolingType::Last))));
        let reranker = |args: &mut EngineArgs| {
            let overrides = r#"{"architectures": ["Qwen3ForSequenceClassification"],
                "classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": true}"#;
            args.hf_overrides = Some(HfOverrides::from_json(overrides).unwrap());
        };
        let tokens = ScoreKind::Tokens {
            no: "no".to_owned(),
            yes: "yes".to_owned(),
        };
        assert_eq!(
            kind(QWEN3.1, reranker),
            Ok(Some((tokens, PoolingType::Last)))
        );
        for (architecture, change, part) in [
            (
                "BertModel",
                (|args| args.runner = RunnerArg::Generate) as fn(&mut EngineArgs),
                "generates no text",
            ),
            (
                QWEN3.1,
                |args| args.convert = ConvertArg::Classify,
                "classifier_from_token",
            ),
        ] {
            let error = kind(architecture, change).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_cross_encoder_says_what_its_scores_are() {
        const IDENTITY: &str = "torch.nn.modules.linear.Identity";
        const SIGMOID: &str = "torch.nn.modules.activation.Sigmoid";
        let resolve = |fields: Value, change: fn(&mut EngineArgs)| {
            let mut config = json!({"architectures": ["BertForSequenceClassification"]});
            let fields = fields.as_object().unwrap().clone();
            config.as_object_mut().unwrap().extend(fields);
            let found = resolve(&[("config.json", config)], change);
            found.map(|found| found.unwrap().use_activation)
        };
        let newer = |name: &str| json!({"sentence_transformers": {"activation_fn": name}});
        let older = |name: &str| json!({"sbert_ce_default_activation_function": name});
        for (fields, expected) in [
            (json!({}), true),
            (json!({"sentence_transformers": {"version": "4.1.0"}}), true),
            (json!({"sbert_ce_default_activation_function": null}), true),
            (newer(IDENTITY), false),
            (newer(SIGMOID), true),
            (older(IDENTITY), false),
            (older(SIGMOID), true),
            (
                json!({"sentence_transformers": {"activation_fn": IDENTITY},
                       "sbert_ce_default_activation_function": SIGMOID}),
                false,
            ),
        ] {
            assert_eq!(resolve(fields.clone(), |_| {}), Ok(expected), "{fields}");
        }
        let asked = |args: &mut EngineArgs| {
            args.pooler_config = Some(PoolerOverride {
                use_activation: Some(true),
                ..PoolerOverride::default()
            });
        };
        assert_eq!(resolve(newer(IDENTITY), asked), Ok(true));
        const TANH: &str = "torch.nn.modules.activation.Tanh";
        for (fields, field) in [
            (newer(TANH), "sentence_transformers.activation_fn"),
            (older(TANH), "sbert_ce_default_activation_function"),
        ] {
            let error = resolve(fields.clone(), |_| {}).unwrap_err();
            assert!(error.contains(field) && error.contains(TANH), "{error}");
            assert_eq!(resolve(fields, asked), Ok(true));
        }
    }

    #[test]
    fn a_chat_template_is_for_models_that_generate() {
        for (architecture, convert, is_good) in [
            ("BertForSequenceClassification", ConvertArg::Auto, false),
            ("Qwen3ForSequenceClassification", ConvertArg::Auto, false),
            ("BertModel", ConvertArg::Auto, false),
            (QWEN3.1, ConvertArg::Embed, false),
            (QWEN3.1, ConvertArg::Auto, true),
        ] {
            let found = resolve(&[config(("config.json", architecture))], |args| {
                args.chat_template = Some("{{ messages[0].content }}".to_owned());
                args.convert = convert;
            });
            match found {
                Ok(found) => assert!(is_good && found.is_none(), "{architecture}"),
                Err(error) => {
                    assert!(!is_good && error.contains("--chat-template"), "{error}");
                }
            }
        }
    }

    #[test]
    fn what_cant_be_pooled_is_named() {
        for (modules, pooling, part) in [
            (
                modules(&["Pooling", "Dense"]),
                json!({"pooling_mode": "cls"}),
                "module Dense",
            ),
            (
                modules(&["Pooling"]),
                json!({"pooling_mode_max_tokens": true}),
                "max_tokens",
            ),
            (modules(&["Pooling"]), json!({}), "[]"),
            (json!({"a": 1}), json!({}), "modules.json"),
        ] {
            let files = [
                config(("config.json", "BertModel")),
                ("modules.json", modules),
                ("1_Pooling/config.json", pooling),
            ];
            let error = resolve(&files, |_| {}).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert!(PoolerOverride::from_json(r#"{"pooling_type": "MAX"}"#).is_err());
        assert!(HfOverrides::from_json(r#"{"num_labels": 3}"#).is_err());
    }
}
