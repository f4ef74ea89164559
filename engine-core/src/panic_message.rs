//! The text of a caught panic.

use std::any::Any;

/// What the panic said, where it said something.
///
/// A payload of another type than `panic!` makes is leaked: its `Drop` might panic in turn, in
/// the middle of whoever has just survived the first panic.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let payload = match payload.downcast::<&'static str>() {
        Ok(text) => return (*text).to_owned(),
        Err(payload) => payload,
    };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => {
            std::mem::forget(payload);
            "no message".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, panic_any};

    use super::*;

    /// A payload whose `Drop` panics.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn texts_are_taken_and_other_payloads_are_not_dropped() {
        let message = |panics: fn()| panic_message(catch_unwind(panics).unwrap_err());
        assert_eq!(message(|| panic!("fixed")), "fixed");
        assert_eq!(message(|| panic!("number {}", 7)), "number 7");
        assert_eq!(message(|| panic_any(Bomb)), "no message");
    }
}
