//! GGUF files: the header, the tokenizer and the model that they hold.

use gguf::Header;
use tokenizer::Tokenizer;

use crate::grammars::text;
use crate::memory::Meter;
use crate::{Random, model_folder, scratch, tokenizer_json};

#[path = "../../gguf/tests/writer/mod.rs"]
mod writer;

use writer::GgufWriter;

/// Reads the file in all ways that it is read.
pub(crate) fn run(data: &[u8]) -> String {
    let path = &scratch::file("model.gguf");
    std::fs::write(path, data).unwrap();
    let meter = Meter::start();
    let header = match Header::parse(data) {
        Ok(header) => {
            assert!(header.len() <= data.len());
            for (name, _) in header.tensors() {
                assert!(header.tensor(name).is_some());
            }
            "header".to_owned()
        }
        Err(error) => return crate::sketch(&error.to_string()),
    };
    let tokenizer = match Tokenizer::from_files(path) {
        Ok(tokenizer) => tokenizer_json::use_it(&tokenizer),
        Err(error) => crate::sketch(&error.to_string()),
    };
    let model = model_folder::load(path, false);
    meter.check(data.len());
    let model = model.map_or_else(|error| error, |_| "model".to_owned());
    format!("{header}; {tokenizer}; {model}")
}

const TOKENS: [&str; 16] = [
    "<unk>", "<s>", "</s>", "a", "b", "ab", "h", "e", "l", "o", "Ġ", "Ġa", "▁", "<0x41>", "é", "1",
];

/// A small file with a tokenizer, and mostly a model.
pub(crate) fn generate(random: &mut Random) -> Vec<u8> {
    let family = *random.pick(&[
        "llama", "llama", "qwen2", "qwen3", "gemma2", "phi3", "other",
    ]);
    let mut writer = GgufWriter::new(family);
    let is_byte_level = random.once_in(2);
    writer
        .str(
            "tokenizer.ggml.model",
            if is_byte_level { "gpt2" } else { "llama" },
        )
        .str(
            "tokenizer.ggml.pre",
            &text(random, &["gpt-2", "llama-bpe", "qwen2", "default"]),
        )
        .strings("tokenizer.ggml.tokens", &TOKENS)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .str("tokenizer.chat_template", "{{ messages }}");
    let types: Vec<i32> = TOKENS.iter().map(|_| random.below(8) as i32).collect();
    writer.i32s(
        "tokenizer.ggml.token_type",
        if random.once_in(3) { &types } else { &[1; 16] },
    );
    let scores: Vec<f32> = (0..TOKENS.len()).map(|id| -(id as f32)).collect();
    writer.f32s("tokenizer.ggml.scores", &scores);
    writer.strings("tokenizer.ggml.merges", &["a b", "Ġ a"]);
    if random.once_in(6) {
        let json = tokenizer_json::generate(random);
        writer.str(
            "tokenizer.huggingface.json",
            &String::from_utf8_lossy(&json),
        );
    }
    if random.once_in(8) {
        writer.remove(&text(
            random,
            &[
                "tokenizer.ggml.tokens",
                "tokenizer.ggml.scores",
                "tokenizer.ggml.model",
            ],
        ));
    }
    if random.once_in(8) {
        // An array of arrays, or of what has another type.
        let bytes: Vec<u8> = (0..random.below(64))
            .map(|_| random.below(256) as u8)
            .collect();
        writer.entry("general.odd", random.below(16) as u32, &bytes);
    }
    for (name, value) in [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", 32),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 16),
        ("attention.value_length", 16),
        ("rope.dimension_count", 16),
    ] {
        let value = if random.once_in(40) {
            random.number() as u32
        } else {
            value
        };
        writer.u32(&format!("{family}.{name}"), value);
    }
    writer.f32(&format!("{family}.attention.layer_norm_rms_epsilon"), 1e-5);
    writer.f32(&format!("{family}.rope.freq_base"), 10_000.0);
    for (name, shape) in [
        ("token_embd.weight", &[16, 32][..]),
        ("output_norm.weight", &[32]),
        ("blk.0.attn_norm.weight", &[32]),
        ("blk.0.attn_q.weight", &[32, 32]),
        ("blk.0.attn_k.weight", &[16, 32]),
        ("blk.0.attn_v.weight", &[16, 32]),
        ("blk.0.attn_output.weight", &[32, 32]),
        ("blk.0.ffn_norm.weight", &[32]),
        ("blk.0.ffn_gate.weight", &[64, 32]),
        ("blk.0.ffn_up.weight", &[64, 32]),
        ("blk.0.ffn_down.weight", &[32, 64]),
    ] {
        let values: usize = shape.iter().product();
        // F32, F16, Q4_0, Q8_0, BF16 and some that have blocks of 256.
        let kind = if shape.len() == 1 {
            0
        } else {
            *random.pick(&[0, 1, 2, 8, 30, 12, 14])
        };
        let bytes = match kind {
            0 => values * 4,
            1 | 30 => values * 2,
            2 => values / 32 * 18,
            8 => values / 32 * 34,
            _ => values / 256 * 210,
        };
        if !random.once_in(60) {
            writer.tensor(name, shape, kind, &vec![random.below(256) as u8; bytes]);
        }
    }
    writer.bytes()
}
