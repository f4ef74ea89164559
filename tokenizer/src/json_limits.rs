//! Bounds on what a `tokenizer.json` may ask of the `tokenizers` library.
//!
//! The library believes the file: it asks for as much memory as a charsmap's header says, and lets
//! normalizers multiply a text as often as they are listed. So this looks at the file first, and refuses
//! what no published tokenizer needs.

use std::collections::{HashSet, VecDeque};

use serde_json::Value;

use crate::error::TokenizerError;
use crate::tokenizer_json::{NumItems, TokenizerJson};

/// Most bytes that normalizing may make of one byte of a prompt, in the worst case. NFKC and `▁` for
/// a space make 33; Llama 2's normalizer makes 12.
const MAX_GROWTH: u64 = 64;
/// Most normalizers, pre-tokenizers or post-processors, those in sequences counted one by one.
const MAX_STEPS: usize = 32;
/// Most added tokens: ten times Gemma's.
const MAX_ADDED_TOKENS: usize = 1 << 16;
/// Longest pattern of a normalizer or pre-tokenizer in bytes: ten times GPT-4o's.
const MAX_PATTERN_BYTES: usize = 4 << 10;
/// Most tokens and texts that a post-processor puts together for a prompt.
const MAX_PIECES: usize = 16;
/// Most ids of all special tokens of a post-processor.
const MAX_PIECE_IDS: usize = 256;
/// Most merges of a BPE: nearly twice Gemma's. The library takes about 1.4 kB of memory for each while it reads them.
const MAX_MERGES: usize = 1_000_000;
/// Most tokens of a vocabulary: twice Gemma's. The library takes up to 2 kB of memory for each while it reads them.
const MAX_VOCAB: usize = 600_000;
/// Most merges for each token of the vocabulary: Gemma has 2.2.
const MAX_MERGES_PER_TOKEN: usize = 4;
/// Most units of a charsmap's trie: five times those of SentencePiece's own charsmaps.
const MAX_TRIE_UNITS: usize = 1 << 19;

/// Checks what the library would make of the file.
///
/// # Errors
/// [`TokenizerError::Unsupported`], with the field.
pub(crate) fn check(json: &TokenizerJson) -> Result<(), TokenizerError> {
    let added_tokens = json.added_tokens.as_ref().map_or(0, Vec::len);
    if added_tokens > MAX_ADDED_TOKENS {
        return Err(unsupported(
            "added_tokens",
            format!("{added_tokens} tokens"),
            "at most 65,536 tokens",
        ));
    }
    let count = |items: Option<NumItems>| items.map_or(0, |NumItems(number)| number);
    let (merges, vocab) = (count(json.model.merges), count(json.model.vocab));
    if vocab > MAX_VOCAB {
        let tokens = format!("{vocab} tokens");
        return Err(unsupported("model.vocab", tokens, "at most 600,000 tokens"));
    }
    let most = vocab.saturating_mul(MAX_MERGES_PER_TOKEN);
    if merges > most.min(MAX_MERGES) {
        return Err(unsupported(
            "model.merges",
            format!("{merges} merges"),
            "at most 1,000,000 merges, and four for each token of the vocabulary",
        ));
    }
    check_normalizers(json.normalizer.as_ref())?;
    for step in steps(
        "pre_tokenizer",
        json.pre_tokenizer.as_ref(),
        "pretokenizers",
    )? {
        check_pattern("pre_tokenizer", step)?;
    }
    for step in steps("post_processor", json.post_processor.as_ref(), "processors")? {
        check_pieces(step)?;
    }
    Ok(())
}

fn unsupported(
    field: &'static str,
    value: impl Into<String>,
    supported: &'static str,
) -> TokenizerError {
    TokenizerError::Unsupported {
        field,
        value: value.into().chars().take(80).collect(),
        supported,
    }
}

/// The steps of a sequence in order, those of sequences in it too. The library takes steps without a type,
/// or with an unknown one, by their members, so a sequence is what has some.
fn steps<'a>(
    field: &'static str,
    value: Option<&'a Value>,
    members: &str,
) -> Result<Vec<&'a Value>, TokenizerError> {
    let mut steps = Vec::new();
    let mut open: Vec<&Value> = value.into_iter().collect();
    while let Some(value) = open.pop() {
        // A list would be the members' values in order.
        if !value.is_object() && !value.is_null() {
            return Err(unsupported(field, value.to_string(), "objects"));
        }
        match &value[members] {
            Value::Null => {}
            Value::Array(inner) => open.extend(inner.iter().rev()),
            other => return Err(unsupported(field, other.to_string(), "lists of steps")),
        }
        // A sequence counts too: thousands of empty ones are within each other.
        steps.push(value);
        if steps.len() + open.len() > 2 * MAX_STEPS {
            return Err(unsupported(field, "a long sequence", "at most 32 steps"));
        }
    }
    Ok(steps)
}

fn check_normalizers(normalizer: Option<&Value>) -> Result<(), TokenizerError> {
    const FIELD: &str = "normalizer";
    let mut growth: u64 = 1;
    for step in steps(FIELD, normalizer, "normalizers")? {
        check_pattern(FIELD, step)?;
        let has = |field: &str| step.get(field).is_some();
        let text_bytes = |field: &str| step[field].as_str().map_or(0, |text| text.len() as u64);
        // By type, and by members: a step without a type, or with another, is taken by these.
        let of_type = match step["type"].as_str().unwrap_or_default() {
            // The longest expansions of Unicode's normal forms in UTF-8.
            "NFC" | "NFD" => 3,
            "NFKC" | "NFKD" => 11,
            // `Ⱥ` becomes a character of three bytes; a byte of a text becomes one of up to two.
            "Lowercase" | "ByteLevel" => 2,
            "Precompiled" => precompiled_growth(step)?,
            _ if has("precompiled_charsmap") => precompiled_growth(step)?,
            _ => 1,
        };
        // Spaces around each ideograph, and NFD.
        let of_bert = if has("handle_chinese_chars") { 6 } else { 1 };
        // Once for each part of a text between added tokens, so perhaps for each byte.
        let of_prepend = 1 + text_bytes("prepend");
        let of_replace = match has("pattern") || has("content") {
            true => replace_growth(step, text_bytes("content")),
            false => 1,
        };
        for factor in [of_type, of_bert, of_prepend, of_replace] {
            growth = growth.saturating_mul(factor);
        }
    }
    if growth > MAX_GROWTH {
        return Err(unsupported(
            FIELD,
            format!("a sequence that may make {growth} bytes of one"),
            "normalizers that make at most 64 bytes of one",
        ));
    }
    Ok(())
}

/// The most bytes that a `Replace` makes of one byte.
fn replace_growth(step: &Value, content: u64) -> u64 {
    let pattern = &step["pattern"];
    let shortest = match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
        (Some(text), _) => text.len(),
        // Of what this crate doesn't read, such as a look-ahead, anything is expected.
        (None, Some(regex)) => regex_syntax::parse(regex)
            .ok()
            .and_then(|parsed| parsed.properties().minimum_len())
            .unwrap_or(0),
        (None, None) => 0,
    };
    match shortest as u64 {
        // Between all bytes.
        0 => content + 1,
        shortest => content.div_ceil(shortest).max(1),
    }
}

fn check_pattern(field: &'static str, step: &Value) -> Result<(), TokenizerError> {
    let pattern = &step["pattern"];
    let longest = [
        pattern,
        &pattern["String"],
        &pattern["Regex"],
        &step["content"],
    ];
    let longest = longest.iter().filter_map(|text| text.as_str());
    match longest.max_by_key(|text| text.len()) {
        Some(text) if text.len() > MAX_PATTERN_BYTES => Err(unsupported(
            field,
            text,
            "patterns and contents of at most 4,096 bytes",
        )),
        _ => Ok(()),
    }
}

fn check_pieces(step: &Value) -> Result<(), TokenizerError> {
    const FIELD: &str = "post_processor";
    for (template, sequences) in [("single", 1), ("pair", 2)] {
        let (pieces, texts) = match &step[template] {
            Value::Array(pieces) => {
                let is_text = |piece: &&Value| piece.get("Sequence").is_some();
                (pieces.len(), pieces.iter().filter(is_text).count())
            }
            // `[CLS] $A [SEP]`.
            Value::String(pieces) => {
                let pieces = pieces.split_whitespace();
                let texts = pieces.clone().filter(|piece| piece.starts_with('$'));
                (pieces.count(), texts.count())
            }
            _ => (0, 0),
        };
        if pieces > MAX_PIECES || texts > sequences {
            return Err(unsupported(
                FIELD,
                format!("{pieces} pieces, {texts} of them texts"),
                "at most 16 pieces, and each text once",
            ));
        }
    }
    let special = step["special_tokens"].as_object();
    let ids = special.into_iter().flat_map(|tokens| tokens.values());
    let ids: usize = ids
        .map(|token| token["ids"].as_array().map_or(0, Vec::len))
        .sum();
    match ids > MAX_PIECE_IDS {
        true => Err(unsupported(
            FIELD,
            format!("{ids} ids of special tokens"),
            "at most 256 ids",
        )),
        false => Ok(()),
    }
}

/// A unit of a charsmap's trie, as Darts' double arrays have it.
#[derive(Clone, Copy)]
struct Unit(usize);

impl Unit {
    fn has_leaf(self) -> bool {
        (self.0 >> 8) & 1 == 1
    }

    fn value(self) -> usize {
        self.0 & ((1 << 31) - 1)
    }

    fn label(self) -> usize {
        self.0 & ((1 << 31) | 0xff)
    }

    fn offset(self) -> usize {
        (self.0 >> 10) << ((self.0 & (1 << 9)) >> 6)
    }
}

/// Checks a SentencePiece charsmap, every step of whose trie the library takes unchecked, and gives the
/// most bytes that it makes of one byte: a trie's length in bytes, the trie, and the texts that it
/// leads to, each with a zero byte at its end.
fn precompiled_growth(step: &Value) -> Result<u64, TokenizerError> {
    let wrong = |what: &'static str| {
        unsupported(
            "normalizer.precompiled_charsmap",
            what,
            "SentencePiece's format",
        )
    };
    let encoded = step["precompiled_charsmap"].as_str().unwrap_or_default();
    let charsmap = base64::decode(encoded).map_err(|_| wrong("text that is no Base64"))?;
    let (header, rest) = charsmap
        .split_first_chunk::<4>()
        .ok_or_else(|| wrong("no header"))?;
    let declared = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX) & !3;
    if declared > rest.len() || declared / 4 > MAX_TRIE_UNITS {
        return Err(wrong("a trie that is longer than the charsmap"));
    }
    let (trie, texts) = rest.split_at(declared);
    let texts = std::str::from_utf8(texts).map_err(|_| wrong("texts that are not UTF-8"))?;
    let units: Vec<Unit> = trie
        .as_chunks::<4>()
        .0
        .iter()
        .map(|unit| Unit(u32::from_le_bytes(*unit) as usize))
        .collect();
    let out_of_trie = || wrong("a trie that leads out of itself");
    let mut growth = 1;
    let root = units.first().ok_or_else(out_of_trie)?.offset();
    // Nodes with the bytes that lead to them, the fewest first.
    let mut open = VecDeque::from([(root, 1_u64)]);
    let mut seen = HashSet::from([root]);
    while let Some((node, depth)) = open.pop_front() {
        // The library looks at the unit of any byte that comes next.
        for byte in 1..=255 {
            let unit = *units.get(node ^ byte).ok_or_else(out_of_trie)?;
            if unit.label() != byte {
                continue;
            }
            let next = (node ^ byte) ^ unit.offset();
            if unit.has_leaf() {
                let leaf = units.get(next).ok_or_else(out_of_trie)?;
                let text = texts.get(leaf.value()..).ok_or_else(out_of_trie)?;
                let bytes = text.bytes().take_while(|byte| *byte != 0).count() as u64;
                growth = growth.max(bytes.div_ceil(depth));
            }
            if seen.insert(next) {
                open.push_back((next, depth + 1));
            }
        }
    }
    Ok(growth)
}
