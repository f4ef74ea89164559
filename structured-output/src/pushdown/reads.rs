//! What a walk of the machine has looked at: on what its answer depends.

use super::{Machine, StackId};

/// The frames that a walk has looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reads {
    /// The depth of the lowest.
    pub(crate) lowest: u32,
    /// The last stack that was entered whose top frame depends on the text of a key or an item.
    pub(crate) text: Option<StackId>,
    /// Whether a frame with a text that was skipped might allow what it doesn't without.
    pub(crate) may_widen: bool,
    /// The same, of any since the recording started.
    pub(crate) has_widened: bool,
}

impl Reads {
    /// Nothing yet.
    pub(super) const NONE: Self = Self {
        lowest: u32::MAX,
        text: None,
        may_widen: false,
        has_widened: false,
    };
}

impl Reads {
    /// Whether what was entered last depends on the text of a key or an item; forgets that.
    pub(crate) fn takes_text(&mut self) -> bool {
        let widens = std::mem::take(&mut self.may_widen);
        self.text.take().is_some() || widens
    }
}

impl Machine {
    /// Starts to record what is read, in `reads`.
    pub(crate) fn start_recording(&mut self) {
        self.reads = Reads::NONE;
        self.key_frames.clear();
        self.is_recording = true;
    }

    /// Ends the recording: what was read.
    pub(crate) fn stop_recording(&mut self) -> Reads {
        self.key_frames.clear();
        self.is_recording = false;
        self.reads
    }

    /// Whether a frame was made after a key since the recording started.
    pub(crate) fn has_key_frames(&self) -> bool {
        !self.key_frames.is_empty()
    }

    pub(super) fn read(&mut self, stack: StackId) {
        self.reads.lowest = self.reads.lowest.min(self.stacks.depth(stack));
    }

    /// The frame after a key's member is the same one after the comma.
    pub(super) fn follow_key_frame(&mut self, stack: StackId, next: StackId) {
        let (Some(top), Some(after)) = (self.stacks.top(stack), self.stacks.top(next)) else {
            return;
        };
        if self.key_frames.contains(&top) && self.is_after_comma(next) {
            self.key_frames.push(after);
        }
    }
}
