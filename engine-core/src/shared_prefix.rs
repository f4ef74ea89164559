//! A list that several requests begin with.

use std::ops::Deref;
use std::sync::Arc;

/// A list that is shared until something is pushed to it. Of thousands of answers to one prompt that wait for
/// their turn, none has a copy of the prompt's tokens or of its blocks' hashes.
#[derive(Debug, Clone)]
pub(crate) struct SharedPrefix<T> {
    /// The list while `own` is empty.
    shared: Arc<[T]>,
    /// The whole list once something was pushed.
    own: Vec<T>,
}

impl<T: Clone> SharedPrefix<T> {
    /// A list that others may have too.
    pub(crate) fn new(shared: Arc<[T]>) -> Self {
        Self {
            shared,
            own: Vec::new(),
        }
    }

    /// Appends values. The first ones cost a copy of what was shared, and let go of it.
    pub(crate) fn extend(&mut self, values: impl IntoIterator<Item = T>) {
        let mut values = values.into_iter().peekable();
        if self.own.is_empty() && values.peek().is_some() {
            self.own.extend_from_slice(&self.shared);
            self.shared = Arc::new([]);
        }
        self.own.extend(values);
    }
}

impl<T> Deref for SharedPrefix<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if self.own.is_empty() {
            &self.shared
        } else {
            &self.own
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_copied_until_something_is_pushed() {
        let prompt: Arc<[u32]> = [1, 2].into();
        let mut list = SharedPrefix::new(Arc::clone(&prompt));
        list.extend([]);
        assert_eq!(list.as_ptr(), prompt.as_ptr());
        list.extend([3]);
        list.extend([4, 5]);
        assert_eq!(*list, [1, 2, 3, 4, 5]);
        assert_eq!(*prompt, [1, 2]);
        assert_eq!(Arc::strong_count(&prompt), 1);
    }
}
