//! The text of a call, with places for its name, its number and its arguments.

use super::ArgumentStyle;

/// Stands for the function's name.
pub(super) const NAME: &str = "{name}";
/// Stands for the arguments.
const ARGUMENTS: &str = "{arguments}";

/// An identifier of a call, which stands behind the name of its function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::openai) enum CallNumber {
    /// Its number, in digits.
    Index,
    /// Nine letters and digits.
    Letters,
}

impl CallNumber {
    const ALL: [Self; 2] = [Self::Index, Self::Letters];

    /// Stands for it in a format.
    pub(in crate::openai) fn placeholder(self) -> &'static str {
        match self {
            Self::Index => "{index}",
            Self::Letters => "{letters}",
        }
    }

    /// The characters of such an identifier, for error messages.
    fn signs(self) -> &'static str {
        match self {
            Self::Index => "digits",
            Self::Letters => "letters and digits",
        }
    }

    /// As models write it.
    pub(super) fn pattern(self) -> &'static str {
        match self {
            Self::Index => "[0-9]{1,6}",
            Self::Letters => "[a-zA-Z0-9]{9}",
        }
    }

    fn has(self, c: char) -> bool {
        match self {
            Self::Index => c.is_ascii_digit(),
            Self::Letters => c.is_ascii_alphanumeric(),
        }
    }

    /// The number that a text begins with, and the rest.
    pub(super) fn split(self, text: &str) -> (&str, &str) {
        text.split_at(text.find(|c| !self.has(c)).unwrap_or(text.len()))
    }

    pub(super) fn is_whole(self, number: &str) -> bool {
        match self {
            Self::Index => !number.is_empty(),
            Self::Letters => number.len() == 9,
        }
    }
}

/// A spelling of calls: text, the name, text, perhaps a number and text, the arguments, text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallText {
    before_name: String,
    after_name: String,
    /// The number, and what stands between it and the arguments, if there is a number.
    number: Option<(CallNumber, String)>,
    /// What stands after the arguments.
    pub(super) close: String,
}

impl CallText {
    /// Reads a text with `{name}`, `{arguments}` and perhaps `{index}` or `{letters}`.
    ///
    /// # Errors
    /// What is wrong with it, to go on after its field.
    pub(super) fn parse(text: &str, style: ArgumentStyle) -> Result<Self, String> {
        let needs = |place: &str| {
            format!(
                "must have {place} once, and those in this order: {NAME}, {{index}} or {{letters}} if any, \
                 {ARGUMENTS}"
            )
        };
        let (before_name, rest) = text.split_once(NAME).ok_or_else(|| needs(NAME))?;
        let (head, close) = rest.split_once(ARGUMENTS).ok_or_else(|| needs(ARGUMENTS))?;
        let mut number = None;
        let mut after_name = head;
        for kind in CallNumber::ALL {
            if let Some((before, after)) = after_name.split_once(kind.placeholder()) {
                after_name = before;
                number = Some((kind, after.to_owned()));
            }
        }
        let after_number = number.as_ref().map(|(_, after)| after.as_str());
        let parts = [before_name, after_name, after_number.unwrap_or(""), close];
        let places = [NAME, ARGUMENTS].into_iter();
        for place in places.chain(CallNumber::ALL.map(CallNumber::placeholder)) {
            if parts.iter().any(|part| part.contains(place)) {
                return Err(needs(place));
            }
        }
        if after_name.starts_with(is_of_name) || (after_name.is_empty() && number.is_some()) {
            return Err(format!(
                "has a letter, digit, underscore or hyphen behind {NAME}, so nobody knows where a name ends"
            ));
        }
        if let Some((kind, after)) = &number
            && (after.is_empty() || after.starts_with(|c| kind.has(c)))
        {
            return Err(format!(
                "has no text but {} behind {}, so nobody knows where a number ends",
                kind.signs(),
                kind.placeholder()
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
            number,
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

    /// The number, and what stands between it and the arguments, if there is a number.
    pub(super) fn number(&self) -> Option<(CallNumber, &str)> {
        self.number
            .as_ref()
            .map(|(kind, after)| (*kind, after.as_str()))
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
