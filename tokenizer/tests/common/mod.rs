//! Where the tests' tokenizers lie.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

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
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) reference: tokenizers::Tokenizer,
}

/// All shared tokenizers, loaded once per test binary: four published ones, and the one that all
/// tiny checkpoints share. Empty where there is no test data.
pub(crate) fn loaded() -> &'static [Arc<Loaded>] {
    static LOADED: OnceLock<Vec<Arc<Loaded>>> = OnceLock::new();
    LOADED.get_or_init(|| {
        let Some(shared) = shared() else {
            return Vec::new();
        };
        [
            "tokenizers/gpt2",
            "tokenizers/llama3_1",
            "tokenizers/qwen2_5",
            "tokenizers/gemma2",
            "checkpoints/llama",
        ]
        .into_iter()
        .map(|name| {
            let folder = shared.join(name);
            Arc::new(Loaded {
                name: name.to_owned(),
                tokenizer: Tokenizer::from_files(&folder).unwrap(),
                reference: tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).unwrap(),
                folder,
            })
        })
        .collect()
    })
}

/// One of [`loaded`] by its folder's name.
#[allow(dead_code, reason = "not every test binary needs it")]
pub(crate) fn named(name: &str) -> Option<&'static Loaded> {
    let found = loaded().iter().find(|loaded| loaded.name.ends_with(name));
    assert!(
        found.is_some() || loaded().is_empty(),
        "{name} is not among the shared tokenizers"
    );
    found.map(Arc::as_ref)
}
