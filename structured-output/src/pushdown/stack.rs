//! Frames and stacks, interned.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::held::with_room;
use crate::json::Frame;

/// An interned frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct FrameId(pub(super) u32);

/// An interned stack of frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct StackId(pub(super) u32);

/// The stack without frames.
pub(crate) const EMPTY_STACK: StackId = StackId(0);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Entry {
    top: FrameId,
    below: StackId,
}

/// All frames and stacks of a generation. Stack `n` has its entry at `n - 1`.
#[derive(Default)]
pub(crate) struct Stacks {
    frames: Vec<Frame>,
    frame_ids: HashTable<u32>,
    entries: Vec<Entry>,
    /// By entry.
    depths: Vec<u32>,
    entry_ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Stacks {
    /// A stack with one more frame.
    pub(crate) fn push(&mut self, below: StackId, frame: Frame) -> StackId {
        let top = self.intern(frame);
        let depth = self.depth(below) + 1;
        let entry = Entry { top, below };
        let (entries, hasher) = (&self.entries, &self.hasher);
        let id = *self
            .entry_ids
            .entry(
                hasher.hash_one(entry),
                |&id| entries[id as usize] == entry,
                |&id| hasher.hash_one(entries[id as usize]),
            )
            .or_insert(entries.len() as u32)
            .get();
        if id as usize == self.entries.len() {
            self.entries.push(entry);
            self.depths.push(depth);
        }
        StackId(id + 1)
    }

    fn intern(&mut self, frame: Frame) -> FrameId {
        let (frames, hasher) = (&self.frames, &self.hasher);
        let id = *self
            .frame_ids
            .entry(
                hasher.hash_one(frame),
                |&id| frames[id as usize] == frame,
                |&id| hasher.hash_one(frames[id as usize]),
            )
            .or_insert(frames.len() as u32)
            .get();
        if id as usize == self.frames.len() {
            self.frames.push(frame);
        }
        FrameId(id)
    }

    fn entry(&self, stack: StackId) -> Option<usize> {
        (stack.0 as usize).checked_sub(1)
    }

    /// The frame on top, if any.
    pub(crate) fn top(&self, stack: StackId) -> Option<FrameId> {
        self.entry(stack).map(|entry| self.entries[entry].top)
    }

    /// The stack without its top frame.
    pub(crate) fn below(&self, stack: StackId) -> StackId {
        let entry = self.entry(stack);
        entry.map_or(EMPTY_STACK, |entry| self.entries[entry].below)
    }

    /// How many different frames there are, and how many stacks.
    pub(crate) fn num_different(&self) -> (usize, usize) {
        (self.frames.len(), self.entries.len())
    }

    /// How many frames there are.
    pub(crate) fn depth(&self, stack: StackId) -> u32 {
        self.entry(stack).map_or(0, |entry| self.depths[entry])
    }

    /// What a frame is.
    pub(crate) fn frame(&self, frame: FrameId) -> Frame {
        self.frames[frame.0 as usize]
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        with_room(
            self.frames.len() * (size_of::<Frame>() + 6)
                + self.entries.len() * (size_of::<Entry>() + size_of::<u32>() + 6),
        )
    }
}
