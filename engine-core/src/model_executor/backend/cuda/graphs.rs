//! Steps of decode as CUDA graphs: the launches of a step are captured once, and then launched as one.
//!
//! A graph's sizes are those of its capture, so a step is filled up to the next power of two of rows. What it is filled up with
//! is written nowhere and read by nobody; a row's own results don't depend on it.

use std::collections::HashMap;

use cuda_device::{Device, Graph};

use crate::model_executor::error::ModelError;

/// What the captured launches depend on, beside buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GraphKey {
    /// Rows, filled up.
    pub(super) rows: usize,
    /// Positions that attention counts with.
    pub(super) longest: usize,
}

/// How far a step of decode is.
enum State {
    /// It ran once, so that all memory which its operations need beside their buffers is there.
    Seen,
    Captured(Graph),
}

/// The graphs of a model.
#[derive(Default)]
pub(super) struct Graphs {
    states: HashMap<GraphKey, State>,
    capturing: Option<GraphKey>,
}

impl Graphs {
    /// Launches the graph of a step, and says whether there is one. If not, the operations up to [`Self::end`] are captured,
    /// where they ran once.
    ///
    /// # Safety
    /// All buffers that the captured operations were given must still be there.
    pub(super) unsafe fn begin(
        &mut self,
        device: &Device,
        key: GraphKey,
    ) -> Result<bool, ModelError> {
        match self.states.get(&key) {
            None => {
                self.states.insert(key, State::Seen);
                Ok(false)
            }
            Some(State::Seen) => {
                device.begin_capture()?;
                self.capturing = Some(key);
                Ok(false)
            }
            Some(State::Captured(graph)) => {
                // SAFETY: passed on to the caller.
                unsafe { device.launch_graph(graph) }?;
                Ok(true)
            }
        }
    }

    /// Ends a capture, and launches what was captured.
    ///
    /// # Safety
    /// As for [`Self::begin`].
    pub(super) unsafe fn end(&mut self, device: &Device) -> Result<(), ModelError> {
        let Some(key) = self.capturing.take() else {
            return Ok(());
        };
        let graph = device.end_capture()?;
        // SAFETY: passed on to the caller.
        unsafe { device.launch_graph(&graph) }?;
        self.states.insert(key, State::Captured(graph));
        Ok(())
    }

    /// Graphs that were captured.
    #[cfg(test)]
    pub(super) fn num_captured(&self) -> usize {
        let states = self.states.values();
        states
            .filter(|state| matches!(state, State::Captured(_)))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use cuda_device::{Device, ThreadOrder};

    use super::*;

    #[test]
    fn a_step_runs_is_captured_and_is_replayed() {
        let device = Device::simulator(ThreadOrder::Ascending).unwrap();
        let mut graphs = Graphs::default();
        let mut values = device.allocate(4).unwrap();
        let key = GraphKey {
            rows: 1,
            longest: 256,
        };
        let other = GraphKey { rows: 2, ..key };
        let mut read = |expected: f32, step: &mut dyn FnMut(&mut cuda_device::Buffer)| {
            device
                .upload(&mut values, 0, &30_f32.to_le_bytes())
                .unwrap();
            step(&mut values);
            let mut bytes = [0; 4];
            device.download(&values, 0, &mut bytes).unwrap();
            assert!((f32::from_le_bytes(bytes) - expected).abs() < 1e-3);
        };
        let mut has_run = Vec::new();
        for key in [key, key, other, key, key, other] {
            read(10.0 * 3_f32.tanh(), &mut |values| {
                // SAFETY: the buffer outlives the graphs.
                let is_replayed = unsafe { graphs.begin(&device, key) }.unwrap();
                has_run.push(is_replayed);
                if !is_replayed {
                    device.softcap(values, 1, 10.0).unwrap();
                    // SAFETY: as above.
                    unsafe { graphs.end(&device) }.unwrap();
                }
            });
        }
        assert_eq!(has_run, [false, false, false, true, true, false]);
        assert_eq!(graphs.num_captured(), 2);
    }
}
