//! A tokenizer from the metadata of a GGUF file, written as the files of a Hugging Face folder.
//!
//! Two kinds: `gpt2`, a byte-level BPE with its merges and the name of a pre-tokenizer, and
//! `llama`, a SentencePiece vocabulary whose scores say which pair is merged first. Both end as
//! the `tokenizer.json` that the model's publisher would ship (some files hold it whole), so that everything else is as with
//! a folder: the same library encodes, and the same text means the same ids.

mod merges;
pub(crate) mod pre_tokenizer;
mod vocabulary;

use std::borrow::Cow;
use std::path::Path;

use ::gguf::{GgufError, GgufFile, Metadata};
use serde_json::{Map, Value, json};

use self::pre_tokenizer::PreTokenizer;
use self::vocabulary::{TokenType, Vocabulary};
use crate::files::TokenizerFiles;

/// Kind of the tokenizer.
const MODEL: &str = "tokenizer.ggml.model";
const MODELS: &str = "\"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece); a file without a tokenizer \
                      can't be served";
/// Merges of a byte-level BPE, `left right`, the first first.
const MERGES: &str = "tokenizer.ggml.merges";
/// Name of the pre-tokenizer of a byte-level BPE.
const PRE: &str = "tokenizer.ggml.pre";
/// The publisher's `tokenizer.json` as a whole, which some converters keep.
const TOKENIZER_JSON: &str = "tokenizer.huggingface.json";
/// The default chat template.
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";
/// Names of further chat templates.
const CHAT_TEMPLATES: &str = "tokenizer.chat_templates";

/// What SentencePiece writes for a space.
const SPACE: &str = "▁";

/// The files that say what the metadata of the GGUF file at `path` says of its tokenizer.
///
/// # Errors
/// As [`files`]; also where the file can't be read.
pub(crate) fn open(path: &Path) -> Result<TokenizerFiles<'static>, GgufError> {
    files(GgufFile::open(path)?.metadata())
}

/// The files that say what `metadata` says of its tokenizer.
///
/// # Errors
/// [`GgufError`], which names the key: one is missing, has another type, or holds a kind of
/// tokenizer or pre-tokenizer that isn't supported.
fn files(metadata: &Metadata) -> Result<TokenizerFiles<'static>, GgufError> {
    let vocabulary = Vocabulary::read(metadata)?;
    let tokenizer_json = match metadata.str(TOKENIZER_JSON)? {
        Some(json) => json.to_owned(),
        None => match metadata.required_str(MODEL)? {
            "gpt2" => byte_level(metadata, &vocabulary)?.to_string(),
            "llama" => sentence_piece(metadata, &vocabulary)?.to_string(),
            _ => return Err(metadata.wrong(MODEL, MODELS)),
        },
    };
    let bytes = |value: &Value| Some(Cow::Owned(value.to_string().into_bytes()));
    Ok(TokenizerFiles {
        tokenizer_json: Cow::Owned(tokenizer_json.into_bytes()),
        tokenizer_config_json: bytes(&tokenizer_config(metadata, &vocabulary)?),
        chat_template_jinja: None,
        generation_config_json: bytes(&generation_config(metadata, &vocabulary)?),
    })
}

/// `tokenizer.json` of a byte-level BPE.
fn byte_level(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<Value, GgufError> {
    let pre_tokenizer = PreTokenizer::named(metadata, PRE)?;
    let ids = vocabulary.ids();
    let merges = metadata.required_strings(MERGES)?;
    let merges: Vec<Value> = merges
        .iter()
        .map(|merge| {
            // The first character may be a space itself.
            let from = merge.chars().next().map_or(0, char::len_utf8);
            let pair = merge[from..].find(' ').map(|at| {
                let (left, right) = merge.split_at(from + at);
                (left, &right[1..])
            });
            let shown = || merge.chars().take(80).collect::<String>();
            let Some((left, right)) = pair else {
                let expected = format!(
                    "pairs of tokens with a space between them; {:?} is none",
                    shown()
                );
                return Err(metadata.wrong(MERGES, &expected));
            };
            let is_token = |text: &str| ids.contains_key(text);
            if !is_token(left) || !is_token(right) || !is_token(&format!("{left}{right}")) {
                let expected = format!(
                    "pairs of tokens that join to a token; {:?} is none",
                    shown()
                );
                return Err(metadata.wrong(MERGES, &expected));
            }
            Ok(json!([left, right]))
        })
        .collect::<Result<_, _>>()?;
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": pre_tokenizer.normalizer(),
        "pre_tokenizer": pre_tokenizer.steps(),
        "post_processor": post_processor(metadata, vocabulary, pre_tokenizer.adds_bos())?,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                    "use_regex": true},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": pre_tokenizer.ignores_merges(),
            "vocab": ids,
            "merges": merges,
        },
    }))
}

/// `tokenizer.json` of a SentencePiece vocabulary.
fn sentence_piece(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<Value, GgufError> {
    let prefix = metadata
        .bool("tokenizer.ggml.add_space_prefix")?
        .unwrap_or(true);
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    let normalizer = if prefix {
        json!({"type": "Sequence",
               "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]})
    } else {
        replace
    };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let unknown = vocabulary.of_type(TokenType::Unknown).next();
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": normalizer,
        "pre_tokenizer": null,
        "post_processor": post_processor(metadata, vocabulary, true)?,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": unknown.map(|(_, text)| text),
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": true,
            "byte_fallback": vocabulary.of_type(TokenType::Byte).next().is_some(),
            "ignore_merges": false,
            "vocab": vocabulary.ids(),
            "merges": merges::by_score(metadata, vocabulary)?,
        },
    }))
}

/// Beginning- and end-of-text tokens around a prompt, where the file asks for them.
fn post_processor(
    metadata: &Metadata,
    vocabulary: &Vocabulary<'_>,
    bos_by_default: bool,
) -> Result<Value, GgufError> {
    let mut special = Map::new();
    let mut single = vec![json!({"Sequence": {"id": "A", "type_id": 0}})];
    let mut pair = vec![
        json!({"Sequence": {"id": "A", "type_id": 0}}),
        json!({"Sequence": {"id": "B", "type_id": 1}}),
    ];
    for (name, by_default, at_start) in [("bos", bos_by_default, true), ("eos", false, false)] {
        let asked = metadata.bool(&format!("tokenizer.ggml.add_{name}_token"))?;
        let token = vocabulary.special(metadata, &format!("tokenizer.ggml.{name}_token_id"))?;
        let Some((id, text)) = token.filter(|_| asked.unwrap_or(by_default)) else {
            continue;
        };
        special.insert(
            text.to_owned(),
            json!({"id": text, "ids": [id], "tokens": [text]}),
        );
        let token = json!({"SpecialToken": {"id": text, "type_id": 0}});
        for template in [&mut single, &mut pair] {
            let at = if at_start { 0 } else { template.len() };
            template.insert(at, token.clone());
        }
    }
    Ok(
        json!({"type": "TemplateProcessing", "single": single, "pair": pair,
              "special_tokens": special}),
    )
}

/// `tokenizer_config.json`: special tokens by name, and the chat templates.
fn tokenizer_config(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<Value, GgufError> {
    let mut config = Map::new();
    for (field, key) in [
        ("bos_token", "tokenizer.ggml.bos_token_id"),
        ("eos_token", "tokenizer.ggml.eos_token_id"),
        ("unk_token", "tokenizer.ggml.unknown_token_id"),
        ("pad_token", "tokenizer.ggml.padding_token_id"),
    ] {
        if let Some((_, text)) = vocabulary.special(metadata, key)? {
            config.insert(field.to_owned(), text.into());
        }
    }
    let default = metadata.str(CHAT_TEMPLATE)?;
    let names = metadata.strings(CHAT_TEMPLATES)?.unwrap_or_default();
    let mut templates = Vec::new();
    for name in names.iter().filter(|name| *name != "default") {
        if let Some(template) = metadata.str(&format!("{CHAT_TEMPLATE}.{name}"))? {
            templates.push(json!({"name": name, "template": template}));
        }
    }
    if let Some(template) = default {
        let template = if templates.is_empty() {
            template.into()
        } else {
            templates.push(json!({"name": "default", "template": template}));
            Value::Array(templates)
        };
        config.insert("chat_template".to_owned(), template);
    }
    Ok(Value::Object(config))
}

/// Texts of control tokens that end an answer in the supported families. Files name one
/// end-of-text token, models write others as well.
const END_OF_TEXT: [&str; 9] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
];

/// `generation_config.json`: every token that ends a text, and the recommended sampling.
fn generation_config(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<Value, GgufError> {
    let mut ends = Vec::new();
    for name in ["eos", "eot", "eom"] {
        let key = format!("tokenizer.ggml.{name}_token_id");
        ends.extend(vocabulary.special(metadata, &key)?.map(|(id, _)| id));
    }
    let by_text = vocabulary.of_type(TokenType::Control);
    ends.extend(
        by_text
            .filter(|(_, text)| END_OF_TEXT.contains(text))
            .map(|(id, _)| id),
    );
    let mut config = Map::new();
    config.insert("eos_token_id".to_owned(), ends.into());
    for (field, key) in [
        ("temperature", "general.sampling.temp"),
        ("top_p", "general.sampling.top_p"),
        ("min_p", "general.sampling.min_p"),
        ("repetition_penalty", "general.sampling.penalty_repeat"),
    ] {
        if let Some(number) = metadata.f64(key)? {
            config.insert(field.to_owned(), number.into());
        }
    }
    if let Some(top_k) = metadata.f64("general.sampling.top_k")? {
        config.insert("top_k".to_owned(), (top_k as i64).into());
    }
    Ok(Value::Object(config))
}
