//! Tables that were forgotten, and are dropped some entries at a time.
//!
//! What is remembered of masks is some hundred thousand pieces of memory, which take ten milliseconds
//! and more to give back. Whoever finds the tables full waits for none of that: they are put here, and
//! each call that makes something new drops some of them, more where it has added more.

use std::collections::VecDeque;

/// Entries that are dropped at a time.
const FEW: usize = 32;

type Entries = Box<dyn Iterator<Item = ()> + Send>;

/// What is left of forgotten tables, the first to be dropped at the front.
#[derive(Default)]
pub(crate) struct Forgotten {
    tables: VecDeque<Entries>,
    /// Bytes that they held when nothing was dropped yet, and entries.
    num_bytes: usize,
    num_entries: usize,
    /// Entries that are still held.
    num_left: usize,
}

impl Forgotten {
    /// Tables that hold so many bytes together, to be added one by one.
    pub(crate) fn of_bytes(num_bytes: usize) -> Self {
        Self {
            num_bytes,
            ..Self::default()
        }
    }

    /// Adds a table, whose entries are dropped after those of the tables before it.
    pub(crate) fn add<T>(&mut self, table: T)
    where
        T: IntoIterator<Item: 'static, IntoIter: ExactSizeIterator + Send + 'static>,
    {
        let entries = table.into_iter();
        self.num_entries += entries.len();
        self.num_left += entries.len();
        self.tables.push_back(Box::new(entries.map(drop)));
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Bytes held, about: each entry counts alike.
    pub(crate) fn memory_bytes(&self) -> usize {
        let left = self.num_bytes as u128 * self.num_left as u128;
        (left / self.num_entries.max(1) as u128) as usize
    }

    /// Drops a few entries, and then more until no more than some bytes are held.
    pub(crate) fn drop_some(&mut self, max_bytes: usize) {
        while !self.tables.is_empty() {
            self.drop_few();
            if self.memory_bytes() <= max_bytes {
                break;
            }
        }
    }

    fn drop_few(&mut self) {
        for _ in 0..FEW {
            let Some(table) = self.tables.front_mut() else {
                break;
            };
            match table.next() {
                Some(()) => self.num_left -= 1,
                None => drop(self.tables.pop_front()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn entries_are_dropped_as_room_is_needed() {
        let entry = Arc::new(());
        let table = |count| vec![Arc::clone(&entry); count];
        let held = || Arc::strong_count(&entry) - 1;
        let mut forgotten = Forgotten::of_bytes(100_000);
        forgotten.add(table(600));
        forgotten.add(table(400));
        assert_eq!((held(), forgotten.memory_bytes()), (1000, 100_000));
        // A few where there is room.
        forgotten.drop_some(usize::MAX);
        assert_eq!(held(), 1000 - FEW);
        assert_eq!(forgotten.memory_bytes(), held() * 100);
        // As many as are too many.
        forgotten.drop_some(50_000);
        assert!(held() <= 500 && held() > 500 - FEW, "{}", held());
        assert_eq!(forgotten.memory_bytes(), held() * 100);
        for _ in 0..500 / (FEW - 1) + 1 {
            forgotten.drop_some(usize::MAX);
        }
        assert_eq!((held(), forgotten.memory_bytes()), (0, 0));
        assert!(forgotten.is_empty());
    }
}
