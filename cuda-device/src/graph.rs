//! Launches that are captured once and replayed together, and points in time of a device.

use crate::device::{Device, Engine};
use crate::driver::{DriverEvent, DriverGraph};
use crate::error::{DeviceError, ensure};
use crate::simulator::Step;

/// Operations of a device that are launched as one: a CUDA graph.
pub struct Graph {
    device: Device,
    steps: Steps,
}

enum Steps {
    Driver(DriverGraph),
    Simulator(Vec<Step>),
}

impl Device {
    /// Captures the operations from here on, by whichever thread, instead of running them. Allocations, copies from
    /// and to the host and waiting are errors until [`Self::end_capture`].
    pub fn begin_capture(&self) -> Result<(), DeviceError> {
        let was_capturing = self.set_capturing(true);
        ensure(!was_capturing, "begin_capture", || {
            "launches are being captured already".to_owned()
        })?;
        let begun = match self.engine() {
            Engine::Driver(driver) => driver.begin_capture(),
            Engine::Simulator(simulator) => {
                simulator.begin_capture();
                Ok(())
            }
        };
        if begun.is_err() {
            self.set_capturing(false);
        }
        begun
    }

    /// The operations since [`Self::begin_capture`], none of which has run.
    pub fn end_capture(&self) -> Result<Graph, DeviceError> {
        let was_capturing = self.set_capturing(false);
        ensure(was_capturing, "end_capture", || {
            "no launches are being captured".to_owned()
        })?;
        let steps = match self.engine() {
            Engine::Driver(driver) => Steps::Driver(driver.end_capture()?),
            Engine::Simulator(simulator) => Steps::Simulator(simulator.end_capture()),
        };
        Ok(Graph {
            device: self.clone(),
            steps,
        })
    }

    /// Runs captured operations, with what is in their buffers now. Sizes and other numbers are those of the
    /// capture.
    ///
    /// # Safety
    /// Every buffer that the captured operations were given must still be there, matrices and caches included.
    pub unsafe fn launch_graph(&self, graph: &Graph) -> Result<(), DeviceError> {
        match (self.engine(), &graph.steps) {
            // SAFETY: passed on to the caller. Scratch is kept as long as the device, which the graph keeps.
            (Engine::Driver(driver), Steps::Driver(steps)) => unsafe { driver.launch_graph(steps) },
            (Engine::Simulator(simulator), Steps::Simulator(steps)) => {
                // SAFETY: as above.
                unsafe { simulator.replay(steps) }
            }
            _ => Err(DeviceError::Size {
                operation: "launch_graph",
                problem: "the graph is of another device".to_owned(),
            }),
        }
    }

    /// Marks the point that the device's work has come to when all that was launched before has run; none on the
    /// simulator.
    pub fn record_event(&self) -> Result<Option<Event>, DeviceError> {
        match self.engine() {
            Engine::Driver(driver) => Ok(Some(Event {
                event: driver.record_event()?,
                device: self.clone(),
            })),
            Engine::Simulator(_) => Ok(None),
        }
    }
}

/// A point in time of a device's work.
pub struct Event {
    // Before the device, so that it goes first.
    event: DriverEvent,
    device: Device,
}

impl Event {
    /// Waits for `later` and gives the milliseconds from this point to that.
    pub fn milliseconds_until(&self, later: &Self) -> Result<f32, DeviceError> {
        match self.device.engine() {
            Engine::Driver(driver) => driver.elapsed(&self.event, &later.event),
            Engine::Simulator(_) => Ok(0.0),
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let (Engine::Driver(driver), Steps::Driver(graph)) = (self.device.engine(), &self.steps)
        {
            driver.destroy_graph(graph);
        }
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}
