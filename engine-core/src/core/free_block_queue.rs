//! The free blocks in the order in which they are used again.

/// Doubly linked list over block ids, its links in two arrays.
///
/// Every operation is O(1), removal from the middle included: a prefix-cache hit takes a free
/// block out from wherever it stands. `num_blocks` ids exist, `0..num_blocks`; one more place
/// serves as the head and the tail.
#[derive(Debug)]
pub struct FreeKVCacheBlockQueue {
    /// Next id after each id; itself where the id is not in the queue.
    next: Vec<u32>,
    /// Previous id before each id.
    prev: Vec<u32>,
    /// Ids in the queue.
    len: usize,
}

impl FreeKVCacheBlockQueue {
    /// An empty queue for the ids `0..num_blocks`.
    pub fn new(num_blocks: u32) -> Self {
        Self {
            next: (0..=num_blocks).collect(),
            prev: (0..=num_blocks).collect(),
            len: 0,
        }
    }

    /// Ids in the queue.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no id is in the queue.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `block_id` is in the queue.
    pub fn contains(&self, block_id: u32) -> bool {
        self.next[block_id as usize] != block_id
    }

    /// Takes the first id.
    pub fn popleft(&mut self) -> Option<u32> {
        let first = self.next[self.end() as usize];
        self.remove(first).then_some(first)
    }

    /// Puts an id last. Does nothing where it is in the queue already.
    pub fn append(&mut self, block_id: u32) {
        let last = self.prev[self.end() as usize];
        self.insert_between(last, block_id, self.end());
    }

    /// Puts an id first. Does nothing where it is in the queue already.
    pub fn prepend(&mut self, block_id: u32) {
        let first = self.next[self.end() as usize];
        self.insert_between(self.end(), block_id, first);
    }

    /// Takes an id from wherever it stands; false where it was not in the queue.
    pub fn remove(&mut self, block_id: u32) -> bool {
        if block_id == self.end() || !self.contains(block_id) {
            return false;
        }
        let (prev, next) = (self.prev[block_id as usize], self.next[block_id as usize]);
        self.next[prev as usize] = next;
        self.prev[next as usize] = prev;
        self.next[block_id as usize] = block_id;
        self.prev[block_id as usize] = block_id;
        self.len -= 1;
        true
    }

    /// The ids, first to last.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.end();
        std::iter::from_fn(move || {
            at = self.next[at as usize];
            (at != self.end()).then_some(at)
        })
    }

    /// The place that stands before the first and after the last.
    fn end(&self) -> u32 {
        (self.next.len() - 1) as u32
    }

    fn insert_between(&mut self, prev: u32, block_id: u32, next: u32) {
        if self.contains(block_id) {
            return;
        }
        self.next[prev as usize] = block_id;
        self.prev[block_id as usize] = prev;
        self.next[block_id as usize] = next;
        self.prev[next as usize] = block_id;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn queue(ids: &[u32]) -> FreeKVCacheBlockQueue {
        let mut queue = FreeKVCacheBlockQueue::new(8);
        ids.iter().for_each(|&id| queue.append(id));
        queue
    }

    fn listed(queue: &FreeKVCacheBlockQueue) -> Vec<u32> {
        queue.iter().collect()
    }

    #[test]
    fn starts_empty() {
        let mut queue = FreeKVCacheBlockQueue::new(4);
        assert!(queue.is_empty());
        assert_eq!(queue.popleft(), None);
        assert_eq!(listed(&queue), [0_u32; 0]);
    }

    #[test]
    fn pops_in_order_and_ends_empty() {
        let mut queue = queue(&[3, 1, 2]);
        assert_eq!(queue.len(), 3);
        assert_eq!(queue.popleft(), Some(3));
        assert_eq!(queue.popleft(), Some(1));
        assert_eq!(queue.popleft(), Some(2));
        assert_eq!(queue.popleft(), None);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn removes_from_everywhere() {
        let mut queue = queue(&[0, 1, 2, 3]);
        assert!(queue.remove(1));
        assert_eq!(listed(&queue), [0, 2, 3]);
        assert!(queue.remove(3));
        assert_eq!(listed(&queue), [0, 2]);
        assert!(queue.remove(0));
        assert_eq!(listed(&queue), [2]);
        assert!(!queue.remove(0));
        assert!(queue.remove(2));
        assert!(queue.is_empty());
    }

    #[test]
    fn prepends_and_appends() {
        let mut queue = queue(&[4]);
        queue.prepend(5);
        queue.append(6);
        queue.append(4);
        assert_eq!(listed(&queue), [5, 4, 6]);
        assert_eq!(queue.len(), 3);
    }

    proptest! {
        /// Against a plain deque.
        #[test]
        fn behaves_like_a_deque(operations in prop::collection::vec((0u8..4, 0u32..8), 0..200)) {
            let mut queue = FreeKVCacheBlockQueue::new(8);
            let mut model: VecDeque<u32> = VecDeque::new();
            for (operation, id) in operations {
                match operation {
                    0 => {
                        queue.append(id);
                        if !model.contains(&id) { model.push_back(id); }
                    }
                    1 => {
                        queue.prepend(id);
                        if !model.contains(&id) { model.push_front(id); }
                    }
                    2 => prop_assert_eq!(queue.popleft(), model.pop_front()),
                    _ => {
                        let was_there = model.contains(&id);
                        model.retain(|&other| other != id);
                        prop_assert_eq!(queue.remove(id), was_there);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.iter().collect::<Vec<_>>(), Vec::from(model.clone()));
                for id in 0..8 {
                    prop_assert_eq!(queue.contains(id), model.contains(&id));
                }
            }
        }
    }
}
