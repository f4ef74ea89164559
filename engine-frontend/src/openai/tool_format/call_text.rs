//! The text of a call, with places for its name, its number and its arguments.

use super::ArgumentStyle;

/// Stands for the function's name.
pub(super) const NAME: &str = "{name}";
/// Stands for the call's number, in digits.
pub(super) const INDEX: &str = "{index}";
/// Stands for the arguments.
const ARGUMENTS: &str = "{arguments}";

/// A spelling of calls: text, the name, text, perhaps a number and text, the arguments, text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallText {
    before_name: String,
    after_name: String,
    /// What stands between the number and the arguments, if there is a number.
    after_index: Option<String>,
    /// What stands after the arguments.
    pub(super) close: String,
}

impl CallText {
    /// Reads a text with `{name}`, `{arguments}` and perhaps `{index}`.
    ///
    /// # Errors
    /// What is wrong with it, to go on after its field.
    pub(super) fn parse(text: &str, style: ArgumentStyle) -> Result<Self, String> {
        let needs = |place: &str| {
            format!(
                "must have {place} once, and those in this order: {NAME}, {INDEX} if any, {ARGUMENTS}"
            )
        };
        let (before_name, rest) = text.split_once(NAME).ok_or_else(|| needs(NAME))?;
        let (head, close) = rest.split_once(ARGUMENTS).ok_or_else(|| needs(ARGUMENTS))?;
        let (after_name, after_index) = match head.split_once(INDEX) {
            Some((before, after)) => (before, Some(after)),
            None => (head, None),
        };
        let parts = [before_name, after_name, after_index.unwrap_or(""), close];
        for place in [NAME, INDEX, ARGUMENTS] {
            if parts.iter().any(|part| part.contains(place)) {
                return Err(needs(place));
            }
        }
        if after_name.starts_with(is_of_name) || (after_name.is_empty() && after_index.is_some()) {
            return Err(format!(
                "has a letter, digit, underscore or hyphen behind {NAME}, so nobody knows where a name ends"
            ));
        }
        if after_index.is_some_and(|after| after.is_empty() || after.starts_with(is_digit)) {
            return Err(format!(
                "has no text but digits behind {INDEX}, so nobody knows where a number ends"
            ));
        }
        match style {
            ArgumentStyle::Json => {}
            ArgumentStyle::Python => {
                if !close.starts_with(')') {
                    return Err(format!("must have `)` behind {ARGUMENTS}"));
                }
            }
            ArgumentStyle::QwenXml => check_close(close, "<parameter=")?,
            ArgumentStyle::MinimaxXml => check_close(close, "<parameter name=")?,
            ArgumentStyle::GlmXml => check_close(close, "<arg_key>")?,
            ArgumentStyle::DeepseekXml => check_close(close, "<｜DSML｜parameter name=")?,
        }
        Ok(Self {
            before_name: before_name.to_owned(),
            after_name: after_name.to_owned(),
            after_index: after_index.map(str::to_owned),
            close: close.to_owned(),
        })
    }

    pub(super) fn begins_with_name(&self) -> bool {
        self.before_name.is_empty()
    }

    /// The text before the name.
    pub(super) fn before_name(&self) -> String {
        self.before_name.clone()
    }

    /// What a call has before its number, or before its arguments if it has none: with `{name}` in it.
    pub(super) fn head(&self) -> String {
        format!("{}{NAME}{}", self.before_name, self.after_name)
    }

    /// The same of one function.
    pub(super) fn head_of(&self, name: &str) -> String {
        format!("{}{name}{}", self.before_name, self.after_name)
    }

    /// What stands between the number and the arguments, if there is a number.
    pub(super) fn after_index(&self) -> Option<&str> {
        self.after_index.as_deref()
    }
}

/// Refuses what closes a call where it doesn't tell the end of the arguments from another one, which begins with
/// `open`.
fn check_close(close: &str, open: &str) -> Result<(), String> {
    match open.starts_with(close.trim()) {
        true => Err(format!(
            "must have text behind {ARGUMENTS} by which they end, and which {open} doesn't begin with"
        )),
        false => Ok(()),
    }
}

/// True for what names of functions are made of.
fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}
