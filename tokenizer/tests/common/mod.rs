//! Where the tests' tokenizers lie.

use std::path::PathBuf;
use std::sync::OnceLock;

use tokenizer::Tokenizer;

/// The folder of test data that isn't part of the repository: `FORMWORK_SHARED`, or `shared`
/// beside the workspace. Where there is none, a note is printed (and the test should return);
/// under `CI=true` that is a failure.
fn shared() -> Option<PathBuf> {
    let folder = match std::env::var_os("FORMWORK_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    if folder.is_dir() {
        return Some(folder);
    }
    let note = format!("no test data at {}", folder.display());
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{note}");
    eprintln!("skipped: {note}");
    None
}

/// A tokenizer of the tests, with the library's own reading of the same file as the reference.
#[allow(dead_code, reason = "not every test binary needs every field")]
pub(crate) struct Loaded {
    pub(crate) name: &'static str,
    pub(crate) folder: PathBuf,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) reference: tokenizers::Tokenizer,
}

/// Four published tokenizers, and the one that all tiny checkpoints share.
const NAMES: [&str; 5] = [
    "tokenizers/gpt2",
    "tokenizers/llama3_1",
    "tokenizers/qwen2_5",
    "tokenizers/gemma2",
    "checkpoints/llama",
];

/// One of [`NAMES`], loaded once per test binary; `None` where there is no test data.
pub(crate) fn named(name: &str) -> Option<&'static Loaded> {
    static LOADED: [OnceLock<Option<Loaded>>; NAMES.len()] =
        [const { OnceLock::new() }; NAMES.len()];
    let index = NAMES.iter().position(|known| *known == name).unwrap();
    LOADED[index]
        .get_or_init(|| {
            let folder = shared()?.join(name);
            Some(Loaded {
                name: NAMES[index],
                tokenizer: Tokenizer::from_files(&folder).unwrap(),
                reference: tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).unwrap(),
                folder,
            })
        })
        .as_ref()
}

/// All of [`NAMES`]; none where there is no test data.
#[allow(dead_code, reason = "not every test binary needs all")]
pub(crate) fn loaded() -> impl Iterator<Item = &'static Loaded> {
    NAMES.into_iter().filter_map(named)
}
