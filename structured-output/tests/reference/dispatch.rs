//! Free text with triggers and what may follow them, by trying each place.

/// A dispatch: each trigger with the texts that may follow it, and texts that don't occur.
#[derive(Debug, Clone)]
pub(crate) struct Dispatch {
    pub(crate) tags: Vec<(String, Vec<String>)>,
    pub(crate) excludes: Vec<String>,
    pub(crate) is_loop: bool,
}

impl Dispatch {
    /// Whether one of the words that may not occur in free text begins before `before` in a text and ends
    /// within it.
    fn is_broken(&self, text: &[u8], before: usize) -> bool {
        let triggers = self.tags.iter().map(|tag| &tag.0);
        let mut words = triggers.chain(&self.excludes);
        words.any(|word| (0..before).any(|at| text[at..].starts_with(word.as_bytes())))
    }

    /// Free text of whole characters in which nothing may occur; where one of the triggers begins and no other
    /// began earlier, a tag.
    pub(crate) fn accepts(&self, text: &[u8]) -> bool {
        if !self.is_broken(text, text.len()) && std::str::from_utf8(text).is_ok() {
            return true;
        }
        (0..text.len()).any(|begin| {
            std::str::from_utf8(&text[..begin]).is_ok()
                && self.tags.iter().any(|(trigger, contents)| {
                    let end = begin + trigger.len();
                    text[begin..].starts_with(trigger.as_bytes())
                        && !self.is_broken(&text[..end], begin)
                        && contents
                            .iter()
                            .filter_map(|content| text[end..].strip_prefix(content.as_bytes()))
                            .any(|rest| match self.is_loop {
                                true => self.accepts(rest),
                                false => rest.is_empty(),
                            })
                })
        })
    }
}
