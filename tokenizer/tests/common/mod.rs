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

/// Texts of many scripts and kinds.
#[allow(dead_code, reason = "not every test binary needs it")]
pub(crate) const CORPUS: &[&str] = &[
    "",
    " ",
    "  ",
    "Hello, world!",
    " leading and trailing ",
    "naïve café, Ünïcödé; ærøskøbing",
    "The quick brown fox jumps over the lazy dog. 0123456789 3.14159 1,000,000",
    "Το γρήγορο καφέ αλεπού πηδάει",
    "Съешь же ещё этих мягких французских булок",
    "敏捷的棕色狐狸跳过懒狗。今日はいい天気ですね。안녕하세요 세계",
    "हिन्दी में लिखा हुआ वाक्य",
    "ภาษาไทยไม่มีช่องว่าง",
    "السلام عليكم ورحمة الله",
    "שלום עולם — \u{202b}RTL\u{202c} mixed \u{200f}marks\u{200e}",
    "👨‍👩‍👧‍👦 👩🏽‍🚀 🏳️‍🌈 🇺🇳 😀😃",
    "e\u{301} a\u{308}\u{304} o\u{302}\u{323} Z\u{351}\u{36b}\u{343}a\u{33d}lgo",
    "nul \0 bell \u{7} escape \u{1b}[0m delete \u{7f} nel \u{85}",
    "line\r\nline\n\n\nline\r\rline\u{2028}line\u{2029}",
    "tabs\t\t\t\tand    spaces        and\u{a0}no-break\u{3000}ideographic\u{200b}zero",
    "                                                                                    x",
    "\u{feff}byte order mark \u{fffd} replacement \u{e000} private \u{10ffff} last",
    "fn main() {\n\tlet x: Vec<u8> = vec![0; 1_000];\n    println!(\"{x:?}\"); // ok\n}\n",
    "{\"a\": [1, 2.5e-3, null, true], \"b\\n\": \"\\u00e9\"}",
    "it's I'll we've THEY'RE he'd 'tis",
    "<|endoftext|",
    "<0x41><0xE4>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "𝕱𝖗𝖆𝖐𝖙𝖚𝖗 𐍈 𓀀 🜁",
];
