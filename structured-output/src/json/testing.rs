//! What tests of languages ask.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon};

/// The state after a text, [`EMPTY`] where there is none.
fn after(lexicon: &mut Lexicon, mut expr: ExprId, text: &[u8]) -> ExprId {
    for &byte in text {
        let mut fuel = Fuel::new(1_000_000);
        expr = lexicon.derivative(expr, byte, &mut fuel).unwrap();
    }
    expr
}

/// Whether a text is in a language.
pub(super) fn accepts(lexicon: &mut Lexicon, expr: ExprId, text: &[u8]) -> bool {
    let end = after(lexicon, expr, text);
    lexicon.is_nullable(end)
}

/// Whether a text begins one in the language.
pub(super) fn live_after(lexicon: &mut Lexicon, expr: ExprId, text: &[u8]) -> bool {
    let end = after(lexicon, expr, text);
    end != EMPTY && lexicon.is_live(end, &mut Fuel::new(1_000_000)).unwrap()
}

/// Whether a text is a number as it may be written under a constraint.
pub(super) fn is_decimal(text: &str) -> bool {
    static FORM: LazyLock<regex::Regex> = LazyLock::new(|| {
        regex::Regex::new(r"^-?(0|[1-9][0-9]*)(\.(0{1,4}|[0-9]*[1-9]0{0,4}))?$").unwrap()
    });
    FORM.is_match(text)
}

/// A folder of shared test data; `None`, with a note, where there is none.
pub(super) fn shared(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FORMWORK_SHARED").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let path = root.unwrap_or(beside).join(folder);
    if path.is_dir() {
        return Some(path);
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{} is missing",
        path.display()
    );
    eprintln!("skipped: {} is missing", path.display());
    None
}
