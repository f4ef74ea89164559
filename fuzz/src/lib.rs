//! Fuzz targets of everything that reads bytes from outside.
//!
//! A target takes bytes and panics where a promise is broken. The program `fuzz` (feature `driver`)
//! makes inputs from seeds and needs no other toolchain; `cargo fuzz` calls the same targets from
//! `fuzz_targets/`; and a test runs every seed and every input that was ever found to break
//! something.

// A broken promise is a panic here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chat_template;
mod gguf_file;
mod grammars;
mod http;
mod memory;
mod model_folder;
mod mutate;
mod panics;
mod protocol_frames;
mod random;
mod scratch;
mod seeds;
mod tokenizer_json;

use std::sync::Mutex;

pub use mutate::Mutator;
pub use random::Random;
pub use scratch::remove_scratch;
pub use seeds::{findings, seeds};

/// What is fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Target {
    /// `compile_ebnf`: EBNF and GBNF.
    Ebnf,
    /// `compile_lark`.
    Lark,
    /// `compile_structural_tag`, both forms.
    StructuralTag,
    /// `compile_regex`.
    Regex,
    /// `compile_json_schema`.
    JsonSchema,
    /// A grammar of any kind, a zero byte, and choices of tokens.
    Matcher,
    /// Bytes of a connection to the server.
    Http,
    /// A byte for the kind of message, and a frame's body; or bytes of a connection to the core.
    Protocol,
    /// A GGUF file, for its tokenizer and its model.
    Gguf,
    /// `tokenizer.json`.
    TokenizerJson,
    /// A chat template.
    ChatTemplate,
    /// A byte for the kind of file, and the weight cache, or a file of a model's folder.
    WeightCache,
}

/// Targets share memory counters and servers.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Target {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Ebnf,
        Self::Lark,
        Self::StructuralTag,
        Self::Regex,
        Self::JsonSchema,
        Self::Matcher,
        Self::Http,
        Self::Protocol,
        Self::Gguf,
        Self::TokenizerJson,
        Self::ChatTemplate,
        Self::WeightCache,
    ];

    /// As on the command line, and the name of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ebnf => "ebnf",
            Self::Lark => "lark",
            Self::StructuralTag => "structural_tag",
            Self::Regex => "regex",
            Self::JsonSchema => "json_schema",
            Self::Matcher => "matcher",
            Self::Http => "http",
            Self::Protocol => "protocol",
            Self::Gguf => "gguf",
            Self::TokenizerJson => "tokenizer_json",
            Self::ChatTemplate => "chat_template",
            Self::WeightCache => "weight_cache",
        }
    }

    /// Runs one input. The result says roughly what happened: inputs with another one are worth
    /// mutating further.
    ///
    /// # Panics
    /// Where a promise is broken.
    pub fn run(self, data: &[u8]) -> String {
        let _alone = ONE_AT_A_TIME
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        panics::watch();
        let outcome = match self {
            Self::Http => http::run(data),
            Self::Protocol => protocol_frames::run(data),
            Self::Gguf => on_a_small_stack(|| gguf_file::run(data)),
            Self::TokenizerJson => on_a_small_stack(|| tokenizer_json::run(data)),
            Self::ChatTemplate => on_a_small_stack(|| chat_template::run(data)),
            Self::WeightCache => on_a_small_stack(|| model_folder::run(data)),
            _ => grammars::run(self, data),
        };
        // A server outlives the panic of a thread. Libraries that read files may panic inside ours, which
        // makes an error of it.
        let is_server = matches!(self, Self::Http | Self::Protocol);
        if let Some(panic) = panics::take().filter(|_| is_server) {
            panic!("elsewhere: {panic}");
        }
        outcome
    }

    /// A new input that is mostly well formed.
    fn generate(self, random: &mut Random) -> Vec<u8> {
        match self {
            Self::Http => http::generate(random),
            Self::Protocol => protocol_frames::generate(random),
            Self::Gguf => gguf_file::generate(random),
            Self::TokenizerJson => tokenizer_json::generate(random),
            Self::ChatTemplate => chat_template::generate(random),
            Self::WeightCache => model_folder::generate(random),
            _ => grammars::generate(self, random),
        }
    }

    /// True if inputs hold numbers as bytes.
    fn is_binary(self) -> bool {
        matches!(self, Self::Protocol | Self::Gguf | Self::WeightCache)
    }

    /// The longest input that is made.
    fn max_bytes(self) -> usize {
        match self {
            Self::Http => 1 << 20,
            Self::Protocol | Self::Gguf | Self::TokenizerJson => 64 << 10,
            Self::ChatTemplate | Self::WeightCache => 16 << 10,
            _ => 4 << 10,
        }
    }
}

/// Runs something on a thread like those of a program, which have less stack than its first one.
fn on_a_small_stack(run: impl FnOnce() -> String + Send) -> String {
    const STACK_BYTES: usize = 2 << 20;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, run).unwrap();
        let outcome = thread.join();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A message without what it quotes and counts.
pub(crate) fn sketch(message: &str) -> String {
    let mut is_quoted = false;
    let kept = message.chars().filter(|&c| {
        is_quoted ^= c == '`' || c == '"';
        !is_quoted && !c.is_ascii_digit()
    });
    kept.take(120).collect()
}
