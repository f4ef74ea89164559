//! Threads that compile grammars, apart from the busy loop and below everything else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use protocol::{RequestError, RequestErrorCode, SamplingParams};
use structured_output::{CancelFlag, CompileError};

use super::backend::{CompileGrammarError, StructuredOutputBackend};
use super::request::{Accepted, StructuredOutputRequest};
use crate::panic_message::panic_message;
use crate::request::RequestId;

/// One grammar to compile.
pub(super) struct CompileJob {
    pub(super) request_id: RequestId,
    pub(super) params: Arc<SamplingParams>,
    pub(super) reasoning_ended: Option<bool>,
    /// Output that an earlier core generated.
    pub(super) output_token_ids: Vec<u32>,
    pub(super) cancel: CancelFlag,
    /// To the request itself.
    pub(super) compiled: Sender<CompiledGrammar>,
}

/// What became of a grammar.
pub struct CompiledGrammar {
    pub(crate) outcome: Result<Box<StructuredOutputRequest>, RequestError>,
    /// How long it took, where it was not found in a cache.
    pub(crate) compile_seconds: Option<f64>,
}

/// The threads and their queue. They end when the pool is dropped and their queue is empty.
pub(super) struct CompilePool {
    jobs: Sender<CompileJob>,
}

impl CompilePool {
    /// Starts `num_threads` threads, for which at most `max_queued` jobs wait. The request's id goes
    /// to `done` once its grammar is compiled.
    pub(super) fn new(
        backend: &Arc<dyn StructuredOutputBackend>,
        num_threads: usize,
        max_queued: usize,
        done: &Sender<RequestId>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = bounded(max_queued);
        for index in 0..num_threads {
            let (backend, queue) = (Arc::clone(backend), queue.clone());
            let done = done.clone();
            std::thread::Builder::new()
                .name(format!("grammar-{index}"))
                .spawn(move || run(&*backend, &queue, &done))?;
        }
        Ok(Self { jobs })
    }

    /// Queues a job.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) fn submit(&self, job: CompileJob) -> Result<(), RequestError> {
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => RequestError {
                code: RequestErrorCode::QueueOverflow,
                message: format!(
                    "{} grammars wait to be compiled already: max_num_queued_grammars allows no \
                     more",
                    self.jobs.len()
                ),
                retryable: true,
            },
            TrySendError::Disconnected(_) => RequestError {
                code: RequestErrorCode::InternalError,
                message: "the grammar compiler's threads are gone".to_owned(),
                retryable: false,
            },
        })
    }
}

fn run(
    backend: &dyn StructuredOutputBackend,
    queue: &Receiver<CompileJob>,
    done: &Sender<RequestId>,
) {
    if let Err(error) = lower_priority() {
        tracing::warn!(%error, "a grammar thread runs at the priority of all others");
    }
    for job in queue {
        if job.cancel.is_cancelled() {
            continue;
        }
        let (started, before) = (Instant::now(), backend.num_compilations());
        let outcome = catch_unwind(AssertUnwindSafe(|| compile(backend, &job)));
        let outcome = match outcome {
            Ok(Err(CompileGrammarError::Compile(CompileError::Cancelled))) => continue,
            Ok(Ok(request)) => Ok(Box::new(request)),
            Ok(Err(error)) => Err(refusal(&job.params, &error)),
            Err(panic) => Err(RequestError {
                code: RequestErrorCode::InternalError,
                message: format!("compiling the grammar panicked: {}", panic_message(panic)),
                retryable: false,
            }),
        };
        // Another thread's compilation counts as well: then this one waited for it or ran beside it.
        let was_compiled = backend.num_compilations() > before;
        let compiled = CompiledGrammar {
            outcome,
            compile_seconds: was_compiled.then(|| started.elapsed().as_secs_f64()),
        };
        // A request that is gone needs no answer.
        if job.compiled.try_send(compiled).is_ok() && done.send(job.request_id).is_err() {
            return;
        }
    }
}

/// Compiles, and brings the request to where its output stands. The first mask is made here too: a
/// grammar's start is the one state that nobody has met before.
fn compile(
    backend: &dyn StructuredOutputBackend,
    job: &CompileJob,
) -> Result<StructuredOutputRequest, CompileGrammarError> {
    let Some(structured_outputs) = &job.params.structured_outputs else {
        let missing = "the request has no structured_outputs".to_owned();
        return Err(CompileGrammarError::Unsupported(missing));
    };
    let own_stop_tokens = &job.params.stop_token_ids;
    let grammar = backend.compile_grammar(structured_outputs, own_stop_tokens, &job.cancel)?;
    let mut request = StructuredOutputRequest::new(
        grammar,
        &job.params,
        job.reasoning_ended,
        backend.stop_token_ids(),
    )?;
    for (index, &token_id) in job.output_token_ids.iter().enumerate() {
        // Whether it can still be completed was decided when it was generated.
        if request.accept_token(token_id, u32::MAX)? != Accepted::Yes {
            return Err(CompileGrammarError::Unsupported(format!(
                "output_token_ids: the grammar refuses token {token_id} at index {index}"
            )));
        }
    }
    request.mask(u32::MAX)?;
    Ok(request)
}

/// What the request's caller is told.
fn refusal(params: &SamplingParams, error: &CompileGrammarError) -> RequestError {
    let kind = params
        .structured_outputs
        .as_ref()
        .map_or("", |structured_outputs| {
            structured_outputs.constraint.kind()
        });
    RequestError {
        code: RequestErrorCode::GrammarRefused,
        message: format!("structured_outputs.{kind}: {error}"),
        retryable: false,
    }
}

/// Puts the calling thread behind all others of the machine: the system runs it where a core is
/// idle, and hardly ever (1.5 % of a core) where none is.
#[cfg(target_os = "linux")]
fn lower_priority() -> std::io::Result<()> {
    const LOWEST: libc::c_int = 19;
    // SAFETY: takes three integers, touches no memory of ours. On Linux, who 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Other systems have no priority of single threads that suits.
#[cfg(not(target_os = "linux"))]
fn lower_priority() -> std::io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_compile_thread_yields_to_all_others() {
        let nice = || {
            // SAFETY: takes two integers, touches no memory of ours.
            unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
        };
        let before = nice();
        let lowered = std::thread::spawn(move || {
            lower_priority().unwrap();
            nice()
        });
        assert_eq!(lowered.join().unwrap(), 19);
        // This thread's is as it was.
        assert_eq!(nice(), before);
    }
}
