//! How a text is cut into words before a byte-level BPE, by the names that GGUF files give it.

use ::gguf::{GgufError, Metadata};
use serde_json::{Value, json};

/// A way to cut texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreTokenizer {
    /// GPT-2's pattern.
    Gpt2,
    /// Every digit alone, then GPT-2's pattern.
    SingleDigits,
    /// Llama 3's: up to three digits, contractions in any case.
    Llama3,
    /// Llama 3's pattern with merges only, and without a beginning-of-text token.
    Smaug,
    /// Qwen 2's: Llama 3's with single digits, over text in NFC.
    Qwen2,
    /// The same over text as it is.
    Qwen2AsIs,
    /// Mistral's Tekken: words by upper and lower case.
    Tekken,
    /// GPT-4o's: Tekken's with contractions and up to three digits.
    Gpt4o,
    /// DeepSeek V3's.
    DeepSeek3,
    /// What files without a name are cut by.
    Unnamed,
}

/// GPT-2's pattern. What no part of it matches stays as it is.
pub(crate) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
pub(crate) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3_TEXT: &str = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const NAMES: &str = "default, gpt-2, smollm, llama-bpe, smaug-bpe, qwen2, deepseek-r1-qwen, tekken, \
                     gpt-4o or deepseek-v3, or a name that means the same as one of them";

impl PreTokenizer {
    /// The one whose name stands under `key`.
    pub(super) fn named(metadata: &Metadata, key: &str) -> Result<Self, GgufError> {
        Ok(match metadata.str(key)? {
            None | Some("default") => Self::Unnamed,
            Some("gpt-2" | "phi-2" | "mpt" | "olmo" | "trillion" | "granite-docling") => Self::Gpt2,
            Some(
                "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone"
                | "minerva-7b",
            ) => Self::SingleDigits,
            Some("llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "pixtral" | "lfm2") => {
                Self::Llama3
            }
            Some("smaug-bpe" | "dbrx") => Self::Smaug,
            Some("qwen2") => Self::Qwen2,
            Some("deepseek-r1-qwen" | "stablelm2" | "megrez" | "hunyuan") => Self::Qwen2AsIs,
            Some("tekken") => Self::Tekken,
            Some("gpt-4o" | "llama4") => Self::Gpt4o,
            Some("deepseek-v3" | "hunyuan-dense") => Self::DeepSeek3,
            Some(_) => return Err(metadata.wrong(key, NAMES)),
        })
    }

    /// The pre-tokenizer of `tokenizer.json`.
    pub(super) fn steps(self) -> Value {
        let patterns: &[&str] = match self {
            Self::Gpt2 => &[GPT2],
            Self::SingleDigits => &[r"\p{N}", GPT2],
            Self::Llama3 | Self::Smaug => &[LLAMA3],
            Self::Qwen2 | Self::Qwen2AsIs => &[QWEN2],
            Self::Tekken => &[TEKKEN],
            Self::Gpt4o => &[GPT4O],
            Self::DeepSeek3 => &[r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3_TEXT],
            Self::Unnamed => &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        };
        let mut steps: Vec<Value> = patterns
            .iter()
            .map(|pattern| {
                json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                       "invert": false})
            })
            .collect();
        // Bytes as printable characters; the words are cut already.
        steps.push(
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                          "use_regex": false}),
        );
        json!({"type": "Sequence", "pretokenizers": steps})
    }

    /// The normalizer of `tokenizer.json`. GGUF files don't name it; Qwen's publishers do.
    pub(super) fn normalizer(self) -> Value {
        match self {
            Self::Qwen2 => json!({"type": "NFC"}),
            _ => Value::Null,
        }
    }

    /// Whether a word that is a token is taken whole, though merges lead elsewhere.
    pub(super) fn ignores_merges(self) -> bool {
        matches!(self, Self::Llama3 | Self::Tekken)
    }

    /// Whether prompts begin with the beginning-of-text token where the file doesn't say.
    pub(super) fn adds_bos(self) -> bool {
        matches!(self, Self::Llama3 | Self::Tekken)
    }
}
