//! Parts of a request that have no effect, told to whoever sent it: in a header, in the log, and on
//! request in the answer.

use crate::error::cut_short;

/// Most warnings about one request.
const MAX_WARNINGS: usize = 16;
/// Longest value of the header in bytes, without what is said of warnings left out.
const MAX_HEADER_BYTES: usize = 2048;

/// Warnings about one request: all tools that were left out, at most 16 others, and how many more there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Warnings {
    tools: Vec<Warning>,
    named: Vec<Warning>,
    num_more: usize,
}

/// A part of a request that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Warning {
    field: String,
    message: String,
}

impl Warnings {
    /// Adds one, unless there are enough. `message` is what follows the field's name.
    pub(crate) fn push(&mut self, field: &str, message: &str) {
        if self.named.len() >= MAX_WARNINGS {
            self.num_more += 1;
            return;
        }
        self.named.push(Warning {
            field: cut_short(field),
            message: cut_short(message),
        });
    }

    /// Adds one about a tool that is left out.
    pub(super) fn push_tool(&mut self, field: &str, message: &str) {
        self.tools.push(Warning {
            field: field.to_owned(),
            message: cut_short(message),
        });
    }

    /// Counts some that aren't named.
    pub(super) fn leave_out(&mut self, num_more: usize) {
        self.num_more += num_more;
    }

    /// Adds others, but for those that are there already.
    pub(crate) fn extend(&mut self, mut others: Self) {
        self.tools.append(&mut others.tools);
        others.named.retain(|warning| !self.named.contains(warning));
        let left = MAX_WARNINGS.saturating_sub(self.named.len());
        self.num_more += others.num_more + others.named.len().saturating_sub(left);
        self.named.extend(others.named.into_iter().take(left));
    }

    /// Gives fields other names.
    pub(crate) fn rename(&mut self, name: impl Fn(&str) -> String) {
        for warning in self.tools.iter_mut().chain(&mut self.named) {
            warning.field = name(&warning.field);
        }
    }

    /// The warnings as sentences, each beginning with its field; the last says how many were left out, if any.
    pub fn texts(&self) -> Vec<String> {
        let named = self.tools.iter().chain(&self.named);
        let named = named.map(|w| format!("{}{}", w.field, w.message));
        let more = (self.num_more > 0).then(|| format!("and {} more", self.num_more));
        named.chain(more).collect()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.named.is_empty()
    }

    /// A header's value: the warnings in printable ASCII, with escapes for everything else, `; ` between
    /// them. Those that don't fit are counted.
    pub fn to_header(&self) -> String {
        let mut value = String::new();
        let num_named = self.tools.len() + self.named.len();
        for (i, warning) in self.texts().iter().enumerate() {
            let escaped: String = warning
                .chars()
                .flat_map(|c| match c {
                    ' '..='~' => vec![c],
                    other => other.escape_unicode().collect(),
                })
                .collect();
            if value.len() + escaped.len() > MAX_HEADER_BYTES && i < num_named {
                let left = num_named - i + self.num_more;
                let between = if i == 0 { "" } else { "; " };
                value += &format!("{between}and {left} more");
                break;
            }
            if i > 0 {
                value.push_str("; ");
            }
            value.push_str(&escaped);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_bounded_and_printable() {
        let mut warnings = Warnings::default();
        assert!(warnings.is_empty());
        warnings.push("f", ": a\r\nb\u{e9}");
        assert_eq!(warnings.to_header(), "f: a\\u{d}\\u{a}b\\u{e9}");
        warnings.push("g", "");
        assert_eq!(warnings.to_header(), "f: a\\u{d}\\u{a}b\\u{e9}; g");
        for _ in 0..100 {
            warnings.push(&"x".repeat(1 << 20), "");
        }
        let texts = warnings.texts();
        assert_eq!(texts.len(), MAX_WARNINGS + 1);
        assert_eq!(texts.last().unwrap(), "and 86 more");
        let header = warnings.to_header();
        assert!(header.len() < MAX_HEADER_BYTES + 20, "{}", header.len());
        let shown = header.matches("xxx...").count();
        let left = format!("; and {} more", 102 - 2 - shown);
        assert!(header.ends_with(&left), "{header}");
    }

    #[test]
    fn every_tool_that_is_left_out_is_named() {
        let mut warnings = Warnings::default();
        for i in 0..100 {
            let mut more = Warnings::default();
            more.push_tool(&format!("tools[{i}]"), ": left out");
            warnings.extend(more);
            warnings.push("f", "");
        }
        let texts = warnings.texts();
        assert_eq!(texts.len(), 100 + MAX_WARNINGS + 1);
        assert_eq!(texts[99], "tools[99]: left out");
        assert!(warnings.to_header().ends_with(" more"));
    }
}
