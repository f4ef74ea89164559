//! `tokenizer.json`: loading, and encoding of short texts.

use std::time::Instant;

use serde_json::{Value, json};
use tokenizer::Tokenizer;

use crate::Random;
use crate::memory::Meter;

/// Texts of some kinds.
const TEXTS: [&str; 6] = [
    "",
    "Hello, world! It's 42.",
    "  é日本 😀\u{301}\n\ta<s></s>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<|x|><|x|> ab abab\u{0}\u{7f}\u{202e}",
    "{\"a\": [1, 2.5e-3, null, true]}",
];

/// Loads the file and encodes and decodes with it.
pub(crate) fn run(data: &[u8]) -> String {
    let meter = Meter::start();
    let outcome = match Tokenizer::from_bytes(&[("tokenizer.json", data)]) {
        Ok(tokenizer) => use_it(&tokenizer),
        Err(error) => crate::sketch(&error.to_string()),
    };
    let num_bytes = data.len() + TEXTS.iter().map(|text| text.len()).sum::<usize>();
    meter.check(num_bytes);
    outcome
}

/// Encodes texts and decodes what comes.
pub(crate) fn use_it(tokenizer: &Tokenizer) -> String {
    let vocab_size = tokenizer.vocab_size();
    let start = Instant::now();
    let mut outcome = format!("{} special", tokenizer.special_token_ids().len().min(3));
    for text in TEXTS {
        match tokenizer.encode(text, true) {
            Ok(ids) => {
                let whole = tokenizer.decode(&ids, false);
                tokenizer.decode(&ids, true);
                outcome.push_str(if whole == text { ", same" } else { ", other" });
            }
            Err(error) => outcome = crate::sketch(&error.to_string()),
        }
    }
    let _ = tokenizer.tokenizer_info(vocab_size);
    let slow = if start.elapsed().as_secs() > 1 {
        ", slow"
    } else {
        ""
    };
    outcome + slow
}

/// A small tokenizer of any kind.
pub(crate) fn generate(random: &mut Random) -> Vec<u8> {
    let words = [
        "a", "b", "ab", "h", "e", "l", "o", "Ġ", "Ġa", "▁", "▁a", "é", "<unk>", "##b", "1",
    ];
    let model = match random.below(4) {
        0 => {
            let vocab: serde_json::Map<String, Value> = words
                .iter()
                .zip(0..)
                .map(|(word, id)| ((*word).into(), id.into()))
                .collect();
            json!({"type": "BPE", "vocab": vocab, "merges": [["a", "b"], ["Ġ", "a"]],
                   "unk_token": random.pick(&["<unk>", "none"]), "fuse_unk": random.once_in(2),
                   "byte_fallback": random.once_in(2), "dropout": null,
                   "continuing_subword_prefix": null, "end_of_word_suffix": null,
                   "ignore_merges": random.once_in(2)})
        }
        1 => {
            let vocab: Vec<Value> = words.iter().map(|word| json!([word, -1.5])).collect();
            json!({"type": "Unigram", "vocab": vocab, "unk_id": random.below(20),
                   "byte_fallback": random.once_in(2)})
        }
        kind => {
            let vocab: serde_json::Map<String, Value> = words
                .iter()
                .zip(0..)
                .map(|(word, id)| ((*word).into(), id.into()))
                .collect();
            let name = if kind == 2 { "WordPiece" } else { "WordLevel" };
            json!({"type": name, "vocab": vocab, "unk_token": "<unk>",
                   "continuing_subword_prefix": "##", "max_input_chars_per_word": random.below(200)})
        }
    };
    let added = json!([
        {"id": words.len(), "content": "<s>", "special": true, "single_word": random.once_in(2),
         "lstrip": random.once_in(2), "rstrip": random.once_in(2), "normalized": random.once_in(2)},
        {"id": random.below(40), "content": "<|x|>", "special": random.once_in(2),
         "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
    ]);
    // Others are refused before anything else is read.
    let decoder = match random.once_in(4) {
        true => step(random, &DECODERS),
        false => serde_json::from_str(DECODERS.all[1]).expect("JSON of ours"),
    };
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": step(random, &NORMALIZERS), "pre_tokenizer": step(random, &PRE_TOKENIZERS),
        "post_processor": step(random, &POST_PROCESSORS), "decoder": decoder,
        "model": model,
    });
    tokenizer.to_string().into_bytes()
}

/// Steps of one kind, each with the field that holds a sequence of them.
struct Steps {
    list: &'static str,
    all: &'static [&'static str],
}

const NORMALIZERS: Steps = Steps {
    list: "normalizers",
    all: &[
        "null",
        "{\"type\": \"NFC\"}",
        "{\"type\": \"NFKD\"}",
        "{\"type\": \"Lowercase\"}",
        "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}",
        "{\"type\": \"StripAccents\"}",
        "{\"type\": \"Prepend\", \"prepend\": \"▁\"}",
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"▁\"}",
        "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"[a-z]\"}, \"content\": \"xx\"}",
        "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAAA\"}",
        "{\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true, \"strip_accents\": null, \"lowercase\": true}",
        "{\"type\": \"ByteLevel\"}",
        "{\"type\": \"Nmt\"}",
    ],
};

const PRE_TOKENIZERS: Steps = Steps {
    list: "pretokenizers",
    all: &[
        "null",
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}",
        "{\"type\": \"Whitespace\"}",
        "{\"type\": \"WhitespaceSplit\"}",
        "{\"type\": \"Punctuation\", \"behavior\": \"Isolated\"}",
        "{\"type\": \"Digits\", \"individual_digits\": true}",
        "{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"always\", \"split\": true}",
        "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{L}+|\\\\s+(?!\\\\S)|.\"}, \"behavior\": \"Isolated\", \"invert\": false}",
        "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": \"MergedWithNext\", \"invert\": true}",
        "{\"type\": \"CharDelimiterSplit\", \"delimiter\": \"a\"}",
        "{\"type\": \"UnicodeScripts\"}",
        "{\"type\": \"FixedLength\", \"length\": 2}",
        "{\"type\": \"BertPreTokenizer\"}",
    ],
};

const POST_PROCESSORS: Steps = Steps {
    list: "processors",
    all: &[
        "null",
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}",
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [15], \"tokens\": [\"<s>\"]}}}",
        "{\"type\": \"BertProcessing\", \"sep\": [\"<s>\", 15], \"cls\": [\"<s>\", 15]}",
        "{\"type\": \"RobertaProcessing\", \"sep\": [\"<s>\", 15], \"cls\": [\"<s>\", 15], \"trim_offsets\": true, \"add_prefix_space\": true}",
    ],
};

const DECODERS: Steps = Steps {
    list: "decoders",
    all: &[
        "null",
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}",
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"▁\"}, \"content\": \" \"}",
        "{\"type\": \"ByteFallback\"}",
        "{\"type\": \"Fuse\"}",
        "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}",
        "{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"always\", \"split\": true}",
        "{\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}",
        "{\"type\": \"BPEDecoder\", \"suffix\": \"</w>\"}",
        "{\"type\": \"CTC\", \"pad_token\": \"<pad>\", \"word_delimiter_token\": \"|\", \"cleanup\": true}",
    ],
};

/// One step, or a few in a row.
fn step(random: &mut Random, steps: &Steps) -> Value {
    let one = |random: &mut Random| -> Value {
        let text = *random.pick(steps.all);
        serde_json::from_str(text).expect("JSON of ours")
    };
    if random.once_in(3) {
        let some: Vec<Value> = (0..1 + random.below(4)).map(|_| one(random)).collect();
        return json!({"type": "Sequence", steps.list: some});
    }
    one(random)
}
