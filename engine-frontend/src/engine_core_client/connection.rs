//! The task that owns the connection: reads, writes, and notices the end.

use std::collections::HashMap;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::transport::tokio::{FrameReader, FrameWriter};
use protocol::{EngineCoreMessage, EngineCoreOutputs, UtilityOutput, UtilityResult};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::error::EngineDeadError;
use super::process::EngineCoreProcess;

/// How long reading what a core sent before its process ended may take.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// This side asked for it, and nothing went wrong.
    ShutDown,
    /// Nobody asked for it, or it went wrong.
    Dead(EngineDeadError),
}

type UtilityCalls = HashMap<u64, oneshot::Sender<UtilityResult>>;

/// What the connection's task and the callers share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    utility_calls: Mutex<UtilityCalls>,
    /// Set once, when the connection has ended.
    end: watch::Sender<Option<End>>,
    /// Whether a closed connection is what this side asked for.
    pub(super) is_shutting_down: AtomicBool,
    /// Ends the connection now, and the process that belongs to it.
    pub(super) stop: Notify,
}

impl Shared {
    /// The utility calls without an answer, by `call_id`.
    pub(super) fn utility_calls(&self) -> MutexGuard<'_, UtilityCalls> {
        // No holder leaves a half-done change behind, not even one that panics.
        self.utility_calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether and how the connection has ended.
    pub(super) fn end(&self) -> Option<End> {
        self.end.borrow().clone()
    }

    /// Waits for the connection's end.
    pub(super) async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        loop {
            if let Some(end) = end.borrow_and_update().clone() {
                return end;
            }
            // The sender lives in `self`: this waits for a change and can't fail.
            let _ = end.changed().await;
        }
    }

    fn answer(&self, output: UtilityOutput) {
        let call = self.utility_calls().remove(&output.call_id);
        if let Some(call) = call {
            // Fails only where the caller has gone, who needs no answer then.
            let _ = call.send(output.result);
        }
    }
}

/// A connection after the handshake.
pub(super) struct Connection {
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
    /// Encoded frames to send.
    pub(super) frames: mpsc::UnboundedReceiver<Vec<u8>>,
    /// Where outputs go. While it is full nothing is read, so that a slow consumer slows the core.
    pub(super) outputs: mpsc::Sender<EngineCoreOutputs>,
    /// The core's process, where this frontend started it.
    pub(super) process: Option<EngineCoreProcess>,
    pub(super) shared: Arc<Shared>,
}

/// Why a connection is of no use any more.
enum Cause {
    /// The core closed it.
    Closed,
    /// Something went wrong.
    Failed(String),
    /// This side wants no more of it.
    Stopped,
}

impl Connection {
    /// Runs the connection to its end, and makes that known.
    pub(super) async fn run(self) {
        let Self {
            reader,
            writer,
            frames,
            outputs,
            mut process,
            shared,
        } = self;
        let cause = {
            let mut read = Box::pin(read_messages(reader, outputs, &shared));
            tokio::select! {
                cause = &mut read => cause,
                cause = write_frames(writer, frames) => cause,
                () = ended(&mut process) => {
                    // What it sent before is still in the socket.
                    timeout(LAST_WORDS, read).await.unwrap_or(Cause::Closed)
                }
                () = shared.stop.notified() => Cause::Stopped,
            }
        };
        // The socket is closed now, at which a core that this frontend started ends by itself.
        let was_started = process.is_some();
        let exit_status = match process {
            None => None,
            Some(mut process) => match cause {
                Cause::Stopped => process.kill().await,
                Cause::Closed | Cause::Failed(_) => process.end().await,
            },
        };
        let is_shutting_down = shared.is_shutting_down.load(Ordering::Relaxed);
        let end = conclude(cause, exit_status, is_shutting_down, was_started);
        shared.end.send_replace(Some(end));
        // Their callers learn it from `end`.
        shared.utility_calls().clear();
    }
}

/// What the end of a connection means.
fn conclude(
    cause: Cause,
    exit_status: Option<ExitStatus>,
    is_shutting_down: bool,
    was_started: bool,
) -> End {
    let exited_well = exit_status.is_none_or(|status| status.success());
    let reason = match cause {
        Cause::Stopped if !was_started => return End::ShutDown,
        Cause::Closed if is_shutting_down && exited_well => return End::ShutDown,
        Cause::Stopped => "it did not shut down in time and was killed".to_owned(),
        Cause::Closed => "it closed the connection without giving a reason".to_owned(),
        Cause::Failed(reason) => reason,
    };
    End::Dead(EngineDeadError {
        reason,
        exit_status,
    })
}

/// Waits until the process has ended; for ever where there is none.
async fn ended(process: &mut Option<EngineCoreProcess>) {
    match process {
        Some(process) => {
            process.wait().await;
        }
        None => std::future::pending().await,
    }
}

/// Hands on what the core sends, until it sends no more.
async fn read_messages(
    mut reader: FrameReader,
    outputs: mpsc::Sender<EngineCoreOutputs>,
    shared: &Shared,
) -> Cause {
    loop {
        let mut step = match reader.read().await {
            Ok(Some(EngineCoreMessage::Outputs(step))) => step,
            Ok(Some(EngineCoreMessage::EngineDead(dead))) => return Cause::Failed(dead.reason),
            Ok(None) => return Cause::Closed,
            Err(error) => return Cause::Failed(format!("what it sent can't be used: {error}")),
        };
        if let Some(output) = step.utility_output.take() {
            shared.answer(output);
            // The answer travels alone, unless the core had more to say.
            if step.outputs.is_empty() && step.scheduler_stats.is_none() {
                continue;
            }
        }
        if outputs.send(step).await.is_err() {
            return Cause::Stopped;
        }
    }
}

/// Sends frames, one after the other and each of them whole.
async fn write_frames(
    mut writer: FrameWriter,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
) -> Cause {
    while let Some(frame) = frames.recv().await {
        if writer.write_frames(&frame).await.is_err() {
            // The core has closed the connection. Reading finds out whether it said why.
            std::future::pending::<()>().await;
        }
    }
    Cause::Stopped
}
