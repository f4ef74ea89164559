//! Which contexts work looks into, for what is remembered of it.

use super::context::ContextId;

/// Stands for contexts of any number and depth, of which nobody kept a list.
pub(crate) const FAR: ContextId = ContextId(u32::MAX);

/// The contexts looked into, while that is recorded; each once, as long as no recording within the
/// recording comes between.
#[derive(Default)]
pub(super) struct Reads {
    list: Option<Vec<ContextId>>,
    /// By context: the recording that noted it last.
    noted: Vec<u32>,
    /// The recording that noted [`FAR`] last.
    noted_far: u32,
    /// The recording that runs.
    own: u32,
    /// As many numbers have been given out.
    num_recordings: u32,
}

/// A recording that another one interrupts.
pub(crate) struct Recording {
    list: Option<Vec<ContextId>>,
    own: u32,
}

impl Reads {
    /// Notes contexts as looked into.
    pub(super) fn note(&mut self, contexts: &[ContextId]) {
        let Some(list) = &mut self.list else { return };
        for &context in contexts {
            let noted = match context {
                FAR => &mut self.noted_far,
                ContextId(at) => {
                    let at = at as usize;
                    if at >= self.noted.len() {
                        self.noted.resize(at + 1, 0);
                    }
                    &mut self.noted[at]
                }
            };
            if *noted != self.own {
                *noted = self.own;
                list.push(context);
            }
        }
    }

    /// The list, while recording, for those that add to it without a look.
    pub(super) fn list(&mut self) -> Option<&mut Vec<ContextId>> {
        self.list.as_mut()
    }

    /// Starts a recording.
    pub(super) fn start(&mut self) -> Recording {
        let interrupted = Recording {
            list: self.list.replace(Vec::new()),
            own: self.own,
        };
        self.own = self.next();
        interrupted
    }

    /// Notes nothing until it is resumed.
    pub(super) fn pause(&mut self) -> Recording {
        Recording {
            list: self.list.take(),
            own: self.own,
        }
    }

    /// Goes on with a recording.
    pub(super) fn resume(&mut self, paused: Recording) {
        self.list = paused.list;
        self.own = paused.own;
    }

    /// Ends a recording: the contexts, in order, each once. What was interrupted goes on, as if they
    /// had been looked into there.
    pub(super) fn stop(&mut self, interrupted: Recording) -> Vec<ContextId> {
        let found = self.list.replace(Vec::new()).unwrap_or_default();
        self.own = self.next();
        self.note(&found);
        let found = self.list.take().unwrap_or_default();
        self.list = interrupted.list;
        self.own = interrupted.own;
        self.note(&found);
        found
    }

    fn next(&mut self) -> u32 {
        self.num_recordings = self.num_recordings.wrapping_add(1);
        if self.num_recordings == 0 {
            self.noted.clear();
            self.noted_far = 0;
            self.num_recordings = 1;
        }
        self.num_recordings
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.noted.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_within_recordings_count_for_both() {
        let context = |number: u32| ContextId(number);
        let mut reads = Reads::default();
        reads.note(&[context(9)]);
        let outermost = reads.start();
        reads.note(&[context(3), context(1), context(3)]);
        let outer = reads.start();
        reads.note(&[context(1), context(2), context(1)]);
        assert_eq!(reads.stop(outer), [1, 2].map(context));
        reads.note(&[context(3), context(4), context(2)]);
        assert_eq!(reads.stop(outermost), [3, 1, 2, 4].map(context));
        let again = reads.start();
        reads.note(&[context(4)]);
        assert_eq!(reads.stop(again), [context(4)]);
    }
}
