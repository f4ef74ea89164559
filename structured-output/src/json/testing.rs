//! What tests of languages ask.

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
