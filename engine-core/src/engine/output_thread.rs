//! From the busy loop to the frontends: one queue and one thread per client, so that a client
//! that doesn't read delays nobody else.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use protocol::EngineCoreMessage;
use protocol::transport::FrameWriter;

/// Frames that may wait for a client that doesn't read; a client with more is dropped.
const MAX_WAITING_FRAMES: usize = 65_536;

/// The output queue and thread of every connected client.
#[derive(Clone, Default)]
pub(crate) struct OutputQueues {
    senders: Arc<Mutex<HashMap<u32, Sender<EngineCoreMessage>>>>,
    running: Arc<RunningThreads>,
}

/// How many output threads still have something to write.
#[derive(Default)]
struct RunningThreads {
    count: Mutex<usize>,
    ended: Condvar,
}

impl OutputQueues {
    /// Opens the queue of a new client and starts the thread that writes it to the socket.
    pub(crate) fn spawn_output_thread(
        &self,
        client_index: u32,
        writer: FrameWriter,
    ) -> io::Result<()> {
        let (sender, receiver) = bounded(MAX_WAITING_FRAMES);
        let running = Arc::clone(&self.running);
        *lock(&running.count) += 1;
        let thread = std::thread::Builder::new().name(format!("output-{client_index}"));
        let spawned = thread.spawn(move || {
            process_output_queue(&receiver, writer, client_index);
            running.leave();
        });
        match spawned {
            Ok(_) => {
                lock(&self.senders).insert(client_index, sender);
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
        lock(&self.senders).remove(&client_index);
    }

    /// Closes every queue and waits, for at most `timeout`, until the clients have what is in it.
    pub(crate) fn flush(&self, timeout: Duration) {
        lock(&self.senders).clear();
        let count = lock(&self.running.count);
        // On a timeout the process ends all the same: a client that doesn't read can't stop it.
        let _ = self.running.ended.wait_timeout_while(count, timeout, |count| *count > 0);
    }

    /// Queues a message for one client. A client that is gone, or so far behind that its queue
    /// is full, gets nothing more.
    pub(crate) fn send(&self, client_index: u32, message: EngineCoreMessage) {
        let mut senders = lock(&self.senders);
        let Some(sender) = senders.get(&client_index) else {
            return;
        };
        if let Err(error) = sender.try_send(message) {
            if matches!(error, TrySendError::Full(_)) {
                tracing::warn!(client_index, MAX_WAITING_FRAMES, "client doesn't read: dropped");
            }
            senders.remove(&client_index);
        }
    }

    /// Queues a message for every client.
    pub(crate) fn broadcast(&self, message: &EngineCoreMessage) {
        for sender in lock(&self.senders).values() {
            // A client whose queue is full or closed learns of it by the closed socket.
            let _ = sender.try_send(message.clone());
        }
    }
}

impl RunningThreads {
    fn leave(&self) {
        *lock(&self.count) -= 1;
        self.ended.notify_all();
    }
}

/// No code under these locks can leave their data half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a client's queue to its socket until the queue is closed or the client is gone.
fn process_output_queue(
    queue: &Receiver<EngineCoreMessage>,
    mut writer: FrameWriter,
    client_index: u32,
) {
    for message in queue {
        if let Err(error) = writer.write(&message) {
            tracing::debug!(client_index, %error, "client is gone");
            return;
        }
    }
}
