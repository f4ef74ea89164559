//! From the busy loop to the frontends: one queue and one thread per client, so that a client
//! that doesn't read delays nobody else.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use protocol::codec::CodecError;
use protocol::transport::{Closer, FrameWriter, TransportError};
use protocol::{
    EngineCoreMessage, EngineCoreOutput, EngineCoreOutputs, FinishReason, RequestError,
    RequestErrorCode, UtilityOutput,
};

use crate::lock::lock;

/// Frames that may wait for a client that doesn't read; a client with more is dropped. One step is
/// one frame: minutes of work, and with 20 logprobs for each of 256 requests some 700 MB.
const MAX_WAITING_FRAMES: usize = 16_384;

/// The output queue and thread of every connected client.
#[derive(Clone, Default)]
pub(crate) struct OutputQueues {
    clients: Arc<Mutex<HashMap<u32, Client>>>,
    running: Arc<RunningThreads>,
}

/// The way to one client.
struct Client {
    sender: Sender<EngineCoreMessage>,
    closer: Closer,
}

/// How many output threads still have something to write.
#[derive(Default)]
struct RunningThreads {
    count: Mutex<usize>,
    ended: Condvar,
}

impl OutputQueues {
    /// Opens the queue of a new client and starts the thread that writes it to the socket;
    /// `abort` ends requests whose outputs no frame can hold.
    pub(crate) fn spawn_output_thread(
        &self,
        client_index: u32,
        writer: FrameWriter,
        abort: impl Fn(Vec<String>) + Send + 'static,
    ) -> io::Result<()> {
        let (sender, receiver) = bounded(MAX_WAITING_FRAMES);
        let closer = writer.closer();
        let running = Arc::clone(&self.running);
        *lock(&running.count) += 1;
        let thread = std::thread::Builder::new().name(format!("output-{client_index}"));
        let spawned = thread.spawn(move || {
            process_output_queue(&receiver, writer, client_index, abort);
            running.leave();
        });
        match spawned {
            Ok(_) => {
                lock(&self.clients).insert(client_index, Client { sender, closer });
                Ok(())
            }
            Err(error) => {
                self.running.leave();
                Err(error)
            }
        }
    }

    /// Closes a client's queue; its thread ends when the queue is empty.
    pub(crate) fn remove(&self, client_index: u32) {
        lock(&self.clients).remove(&client_index);
    }

    /// Closes every queue and waits, for at most `timeout`, until the clients have what is in it.
    pub(crate) fn flush(&self, timeout: Duration) {
        lock(&self.clients).clear();
        let count = lock(&self.running.count);
        // On a timeout the process ends all the same: a client that doesn't read can't stop it.
        let _ = self
            .running
            .ended
            .wait_timeout_while(count, timeout, |count| *count > 0);
    }

    /// Queues a message for one client. False for a client that is gone. One that is so far
    /// behind that its queue is full is dropped: its connection closes, so that it notices.
    pub(crate) fn send(&self, client_index: u32, message: EngineCoreMessage) -> bool {
        let mut clients = lock(&self.clients);
        let Some(client) = clients.get(&client_index) else {
            return false;
        };
        match client.sender.try_send(message) {
            Ok(()) => true,
            Err(error) => {
                if matches!(error, TrySendError::Full(_)) {
                    tracing::warn!(
                        client_index,
                        MAX_WAITING_FRAMES,
                        "client doesn't read: dropped"
                    );
                }
                if let Err(error) = client.closer.close() {
                    tracing::warn!(client_index, %error, "its connection can't be closed");
                }
                clients.remove(&client_index);
                false
            }
        }
    }

    /// Queues one request's output outside a step.
    pub(crate) fn send_output(&self, client_index: u32, output: EngineCoreOutput) {
        let outputs = EngineCoreOutputs {
            outputs: vec![output],
            ..Default::default()
        };
        self.send(client_index, EngineCoreMessage::Outputs(outputs));
    }

    /// Queues the answer to a utility call.
    pub(crate) fn send_utility_output(&self, client_index: u32, utility_output: UtilityOutput) {
        let outputs = EngineCoreOutputs {
            utility_output: Some(utility_output),
            ..Default::default()
        };
        self.send(client_index, EngineCoreMessage::Outputs(outputs));
    }

    /// Queues a message for every client.
    pub(crate) fn broadcast(&self, message: &EngineCoreMessage) {
        for client in lock(&self.clients).values() {
            // A client whose queue is full or closed learns of it by the closed socket.
            let _ = client.sender.try_send(message.clone());
        }
    }
}

impl RunningThreads {
    fn leave(&self) {
        *lock(&self.count) -= 1;
        self.ended.notify_all();
    }
}

/// Writes a client's queue to its socket until the queue is closed or the client is gone.
fn process_output_queue(
    queue: &Receiver<EngineCoreMessage>,
    mut writer: FrameWriter,
    client_index: u32,
    abort: impl Fn(Vec<String>),
) {
    for message in queue {
        let written = match writer.write(&message) {
            Err(TransportError::Codec(error)) => {
                // Nothing was sent; only logprobs can be so large, and only of single requests.
                let (replacement, failed) = without_oversized_outputs(message, &error);
                abort(failed);
                writer.write(&replacement)
            }
            other => other,
        };
        if let Err(error) = written {
            tracing::debug!(client_index, %error, "client is gone");
            return;
        }
    }
}

/// The message with every output that carries logprobs turned into an error of its request, and
/// the ids of those requests.
fn without_oversized_outputs(
    message: EngineCoreMessage,
    reason: &CodecError,
) -> (EngineCoreMessage, Vec<String>) {
    let EngineCoreMessage::Outputs(mut outputs) = message else {
        return (message, Vec::new());
    };
    let mut failed = Vec::new();
    for output in &mut outputs.outputs {
        if output.new_logprobs.is_some() || output.new_prompt_logprobs.is_some() {
            failed.push(output.request_id.clone());
            *output = EngineCoreOutput {
                request_id: std::mem::take(&mut output.request_id),
                finish_reason: Some(FinishReason::Error),
                error: Some(RequestError::new(
                    RequestErrorCode::ValidationError,
                    format!("the logprobs asked for are too many: {reason}"),
                )),
                ..EngineCoreOutput::default()
            };
        }
    }
    (EngineCoreMessage::Outputs(outputs), failed)
}

#[cfg(test)]
mod tests {
    use protocol::LogprobsLists;

    use super::*;

    #[test]
    fn logprobs_too_large_for_a_frame_fail_their_request_alone() {
        let plain = EngineCoreOutput {
            request_id: "plain".to_owned(),
            new_token_ids: vec![1],
            ..EngineCoreOutput::default()
        };
        let large = EngineCoreOutput {
            request_id: "large".to_owned(),
            new_prompt_logprobs: Some(LogprobsLists::default()),
            ..EngineCoreOutput::default()
        };
        let outputs = vec![plain.clone(), large];
        let message = EngineCoreMessage::Outputs(EngineCoreOutputs {
            outputs,
            ..Default::default()
        });
        let reason = CodecError::MessageTooLarge {
            message_type: "EngineCoreMessage",
            max: 64,
        };
        let (message, failed) = without_oversized_outputs(message, &reason);
        assert_eq!(failed, ["large"]);
        let EngineCoreMessage::Outputs(outputs) = message else {
            panic!("the message became another");
        };
        assert_eq!(outputs.outputs[0], plain);
        assert_eq!(outputs.outputs[1].finish_reason, Some(FinishReason::Error));
        assert!(outputs.outputs[1].new_prompt_logprobs.is_none());
    }

    #[test]
    fn a_client_without_a_queue_gets_nothing() {
        let queues = OutputQueues::default();
        let message = EngineCoreMessage::Outputs(EngineCoreOutputs::default());
        assert!(!queues.send(7, message));
        queues.flush(Duration::ZERO);
    }
}
