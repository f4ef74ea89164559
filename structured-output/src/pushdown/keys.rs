//! The text of a lexeme so far, interned byte by byte.

use hashbrown::HashMap;

use crate::held::with_room;

/// An interned text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct KeyId(u32);

/// The empty text, and that of lexemes whose text isn't needed.
pub(crate) const NO_KEY: KeyId = KeyId(0);

/// In place of a text that is left out: with more bytes, it still is. What follows it is what would
/// follow if it were none of those that may come later.
pub(crate) const UNREAD: KeyId = KeyId(u32::MAX);

/// All texts of a generation, as a trie from the leaves up. Text `n` has its entry at `n - 1`.
#[derive(Default)]
pub(crate) struct Keys {
    entries: Vec<(KeyId, u8)>,
    ids: HashMap<(KeyId, u8), KeyId>,
}

impl Keys {
    /// A text with one more byte.
    pub(crate) fn push(&mut self, before: KeyId, byte: u8) -> KeyId {
        if before == UNREAD {
            return UNREAD;
        }
        *self.ids.entry((before, byte)).or_insert_with(|| {
            self.entries.push((before, byte));
            KeyId(self.entries.len() as u32)
        })
    }

    /// The bytes of a text that is not left out.
    pub(crate) fn text(&self, mut key: KeyId) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(at) = (key.0 as usize).checked_sub(1) {
            let (before, byte) = self.entries[at];
            bytes.push(byte);
            key = before;
        }
        bytes.reverse();
        bytes
    }

    /// A text without its last byte, and that byte; `None` of the empty text, and where it is left out.
    pub(crate) fn last(&self, key: KeyId) -> Option<(KeyId, u8)> {
        let at = (key.0 as usize).checked_sub(1)?;
        self.entries.get(at).copied()
    }

    /// Whether a text has at least so many bytes.
    pub(crate) fn is_long(&self, mut key: KeyId, bytes: usize) -> bool {
        for _ in 0..bytes {
            match (key.0 as usize).checked_sub(1) {
                Some(at) if at < self.entries.len() => key = self.entries[at].0,
                _ => return false,
            }
        }
        true
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        with_room(self.entries.len() * (8 + 13))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one() {
        let mut keys = Keys::default();
        let mut of = |text: &[u8]| text.iter().fold(NO_KEY, |key, &byte| keys.push(key, byte));
        let (ab, ac, again) = (of(b"ab"), of(b"ac"), of(b"ab"));
        assert!(ab == again && ab != ac);
        assert_eq!(keys.text(ac), b"ac");
        assert_eq!(keys.text(NO_KEY), b"");
        assert_eq!(keys.entries.len(), 3);
        assert_eq!(keys.push(UNREAD, b'a'), UNREAD);
    }
}
