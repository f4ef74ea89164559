//! Which of a repository's files are wanted.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::error::HubError;
use crate::name::{is_gguf, is_relative_path};

pub(crate) const CONFIG: &str = "config.json";
pub(crate) const TOKENIZER: &str = "tokenizer.json";
pub(crate) const WEIGHTS: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// What PEFT calls an adapter's own files.
const ADAPTER: &str = "adapter_config.json";
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// The files that Formwork reads beside the weights, where a repository has them.
const SMALL_FILES: [&str; 14] = [
    CONFIG,
    "generation_config.json",
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    // sentence-transformers: how hidden states are pooled.
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "2_Normalize/config.json",
    INDEX,
];

/// The files of a repository that are downloaded before its weights.
///
/// # Errors
/// It is no model that Formwork reads: then nothing is downloaded.
pub(crate) fn small_files(repository: &str, files: &[String]) -> Result<Vec<String>, HubError> {
    let has = |name: &str| files.iter().any(|file| file == name);
    let missing = if has(ADAPTER) && !has(CONFIG) {
        Some(
            "model of its own but an adapter (LoRA), to be merged into its base model by PEFT's merge_and_unload",
        )
    } else if !has(INDEX) && unlisted_weights(files).is_empty() {
        Some("weights as *.safetensors")
    } else {
        [CONFIG, TOKENIZER].into_iter().find(|name| !has(name))
    };
    if let Some(missing) = missing {
        return Err(HubError::NotAModel {
            repository: repository.to_owned(),
            missing: missing.to_owned(),
            gguf_files: gguf_files(files),
        });
    }
    let wanted = SMALL_FILES.into_iter().filter(|name| has(name));
    Ok(wanted.map(str::to_owned).collect())
}

/// The part of `model.safetensors.index.json` that names files.
#[derive(Deserialize)]
struct Index {
    weight_map: std::collections::HashMap<String, String>,
}

/// The files of weights among those that there are: those that the index names, whether they are there or not, or where
/// there is none `model.safetensors`, or else all others.
///
/// # Errors
/// Why the index can't be read.
pub(crate) fn weight_files(index: Option<&[u8]>, files: &[String]) -> Result<Vec<String>, String> {
    let Some(index) = index else {
        return Ok(unlisted_weights(files));
    };
    let index: Index = serde_json::from_slice(index).map_err(|error| error.to_string())?;
    let names: BTreeSet<String> = index.weight_map.into_values().collect();
    // The loader takes files of the folder itself alone.
    let is_good = |name: &&String| is_relative_path(name) && !name.contains('/');
    match names.iter().find(|name| !is_good(name)) {
        Some(name) => Err(format!("{name:?} is no name of a file")),
        None => Ok(names.into_iter().collect()),
    }
}

/// The files of weights of a repository without an index, all parts of those that are split. What vendors call
/// `consolidated` is a copy in names of their own.
fn unlisted_weights(files: &[String]) -> Vec<String> {
    if files.iter().any(|file| file == WEIGHTS) {
        return vec![WEIGHTS.to_owned()];
    }
    let is_weights = |file: &&String| {
        file.ends_with(".safetensors")
            && !file.contains('/')
            && !file.starts_with("consolidated")
            && *file != ADAPTER_WEIGHTS
    };
    let all = files.iter().filter(is_weights);
    let all: BTreeSet<String> = all.flat_map(|file| all_parts(file)).collect();
    all.into_iter().collect()
}

/// The GGUF file that a name means by its part behind the colon: a path, or a tag such as `Q4_K_M`, which
/// Ollama and llama.cpp have there. Of a split file it is the first part.
///
/// # Errors
/// No file has the tag, or several have it.
pub(crate) fn gguf_file(
    repository: &str,
    files: &[String],
    wanted: &str,
) -> Result<String, HubError> {
    if is_gguf(wanted) {
        return Ok(wanted.to_owned());
    }
    let is_first = |file: &&String| all_parts(file).first() == Some(*file);
    let tagged = files.iter().filter(|file| is_model_of(file, wanted));
    let tagged: Vec<&String> = tagged.filter(is_first).collect();
    match tagged[..] {
        [file] => Ok(file.clone()),
        [] => Err(HubError::NoFile {
            repository: repository.to_owned(),
            file: wanted.to_owned(),
            gguf_files: gguf_files(files),
        }),
        _ => Err(HubError::ManyFiles {
            repository: repository.to_owned(),
            tag: wanted.to_owned(),
            gguf_files: tagged.into_iter().cloned().collect(),
        }),
    }
}

/// True for a GGUF file with this tag as a word of its path, in whatever case. What stands beside models, for
/// images and for quantizing, is none.
fn is_model_of(file: &str, tag: &str) -> bool {
    let (path, tag) = (file.to_ascii_lowercase(), tag.to_ascii_lowercase());
    let Some(stem) = path.strip_suffix(".gguf") else {
        return false;
    };
    let name = stem.rsplit('/').next().unwrap_or(stem);
    if name.contains("mmproj") || name.contains("imatrix") {
        return false;
    }
    let ends_word = |c: char| matches!(c, '-' | '.' | '/');
    stem.match_indices(&tag).any(|(start, _)| {
        let (before, rest) = stem.split_at(start);
        let behind = rest.get(tag.len()..).unwrap_or_default();
        !before.ends_with(|c: char| c.is_ascii_alphanumeric())
            && (behind.is_empty() || behind.starts_with(ends_word))
    })
}

/// The names of all parts of a GGUF file: itself where it isn't split.
pub(crate) fn all_parts(file: &str) -> Vec<String> {
    part_names(file).unwrap_or_else(|| vec![file.to_owned()])
}

/// The parts of a GGUF file.
///
/// # Errors
/// The repository lacks one.
pub(crate) fn gguf_parts(
    repository: &str,
    files: &[String],
    wanted: &str,
) -> Result<Vec<String>, HubError> {
    let names = all_parts(wanted);
    match names.iter().find(|name| !files.contains(name)) {
        Some(missing) => Err(HubError::NoFile {
            repository: repository.to_owned(),
            file: missing.clone(),
            gguf_files: gguf_files(files),
        }),
        None => Ok(names),
    }
}

/// The names of all parts of a split file: `m-00001-of-00003.gguf` and two more.
fn part_names(name: &str) -> Option<Vec<String>> {
    const DIGITS: usize = 5;
    const MOST_PARTS: u32 = 1000;
    let number = |text: &str| -> Option<u32> {
        let is_number = text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten()
    };
    let (stem, extension) = name.rsplit_once('.')?;
    let (stem, count) = stem.rsplit_once("-of-")?;
    let (stem, part) = stem.rsplit_once('-')?;
    let (part, count) = (number(part)?, number(count)?);
    let is_split = (2..=MOST_PARTS).contains(&count) && (1..=count).contains(&part);
    let name = |part| format!("{stem}-{part:05}-of-{count:05}.{extension}");
    is_split.then(|| (1..=count).map(name).collect())
}

fn gguf_files(files: &[String]) -> Vec<String> {
    files.iter().filter(|file| is_gguf(file)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &str) -> Vec<String> {
        names.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_what_is_read_is_wanted() {
        let all = files(
            ".gitattributes README.md config.json generation_config.json tokenizer.json tokenizer_config.json \
             chat_template.jinja model.safetensors pytorch_model.bin model.gguf onnx/model.onnx \
             original/params.json vocab.json consolidated.safetensors",
        );
        assert_eq!(
            small_files("o/n", &all).unwrap(),
            files(
                "config.json generation_config.json tokenizer.json tokenizer_config.json chat_template.jinja"
            )
        );
        assert_eq!(weight_files(None, &all).unwrap(), ["model.safetensors"]);
        let index =
            br#"{"metadata": {}, "weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors",
            "c": "m-2.safetensors"}}"#;
        assert_eq!(
            weight_files(Some(index), &[]).unwrap(),
            files("m-1.safetensors m-2.safetensors")
        );
        let outside = br#"{"weight_map": {"a": "../m.safetensors"}}"#;
        assert!(
            weight_files(Some(outside), &[])
                .unwrap_err()
                .contains("../m.safetensors")
        );
        assert!(weight_files(Some(b"{}"), &[]).is_err());
    }

    #[test]
    fn weights_without_an_index_may_have_any_name() {
        let of = |names: &str| weight_files(None, &files(names)).unwrap();
        for (names, wanted) in [
            (
                "weights-v2.safetensors adapter_model.safetensors consolidated.00.safetensors onnx/m.safetensors",
                "weights-v2.safetensors",
            ),
            (
                "model-00002-of-00002.safetensors",
                "model-00001-of-00002.safetensors model-00002-of-00002.safetensors",
            ),
            ("b.safetensors a.safetensors", "a.safetensors b.safetensors"),
            ("b.safetensors model.safetensors", "model.safetensors"),
        ] {
            assert_eq!(of(names), files(wanted));
        }
        assert!(of("README.md").is_empty());
    }

    #[test]
    fn a_repository_that_is_no_model_says_what_it_has_instead() {
        let told = |names: &str| small_files("o/n", &files(names)).unwrap_err().to_string();
        assert_eq!(
            told("config.json tokenizer.json pytorch_model.bin"),
            "o/n has no weights as *.safetensors, so Formwork can't run it"
        );
        assert_eq!(
            told("README.md n-q4.gguf n-q8.gguf"),
            "o/n has no weights as *.safetensors; its GGUF files are n-q4.gguf, n-q8.gguf: name one, as in \
             o/n:n-q4.gguf"
        );
        assert_eq!(
            told("adapter_config.json adapter_model.safetensors tokenizer.json"),
            "o/n has no model of its own but an adapter (LoRA), to be merged into its base model by PEFT's \
             merge_and_unload, so Formwork can't run it"
        );
        assert_eq!(
            told("config.json model.safetensors"),
            "o/n has no tokenizer.json, so Formwork can't run it"
        );
    }

    #[test]
    fn a_tag_means_the_one_file_that_has_it() {
        let all = files(
            "n-Q4_K_M.gguf n-Q4_K_S.gguf n-q8_0.gguf F16/n-F16-00001-of-00002.gguf mmproj-F16.gguf \
             F16/n-F16-00002-of-00002.gguf n-UD-Q4_K_XL.gguf n-IQ4_K.gguf n-Q6_K.gguf n-v2-Q6_K.gguf",
        );
        let of = |tag: &str| gguf_file("o/n", &all, tag).map_err(|error| error.to_string());
        for (tag, file) in [
            ("Q4_K_M", "n-Q4_K_M.gguf"),
            ("Q8_0", "n-q8_0.gguf"),
            ("f16", "F16/n-F16-00001-of-00002.gguf"),
            ("Q4_K_XL", "n-UD-Q4_K_XL.gguf"),
            ("other.gguf", "other.gguf"),
        ] {
            assert_eq!(of(tag).unwrap(), file);
        }
        let none = of("Q4_K").unwrap_err();
        assert!(
            none.starts_with("o/n has no file Q4_K; its GGUF files are n-Q4_K_M.gguf, "),
            "{none}"
        );
        assert_eq!(
            of("Q6_K").unwrap_err(),
            "o/n has several files for Q6_K; its GGUF files are n-Q6_K.gguf, n-v2-Q6_K.gguf: name one, as in \
             o/n:n-Q6_K.gguf"
        );
    }

    #[test]
    fn a_split_file_is_all_of_its_parts() {
        let parts = files("q/m-00001-of-00002.gguf q/m-00002-of-00002.gguf");
        assert_eq!(gguf_parts("o/n", &parts, &parts[1]).unwrap(), parts);
        assert_eq!(
            gguf_parts("o/n", &files("m.gguf"), "m.gguf").unwrap(),
            ["m.gguf"]
        );
        let error = gguf_parts("o/n", &parts[..1], &parts[0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "o/n has no file q/m-00002-of-00002.gguf; its GGUF files are q/m-00001-of-00002.gguf: name one, as \
             in o/n:q/m-00001-of-00002.gguf"
        );
        for name in [
            "m.gguf",
            "m-00003-of-00002.gguf",
            "m-1-of-2.gguf",
            "m-00001-of-99999.gguf",
        ] {
            assert_eq!(part_names(name), None, "{name}");
        }
    }
}
