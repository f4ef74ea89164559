//! Backends and jobs for tests.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use protocol::{SamplingParams, Shared, StructuredOutputsConstraint, StructuredOutputsParams};
use structured_output::{
    CancelFlag, CompileEffort, MaskRef, MatcherError, RenewError, RequestMemory, TextSearch,
    TokenizerInfo,
};

use super::backend::{CompileGrammarError, StructuredOutputBackend, StructuredOutputGrammar};
use super::backend_formwork::FormworkBackend;
use super::compile_job::{CompileJob, CompiledGrammar, Purpose};
use super::constraint::NamedConstraint;
use crate::lock::lock;

/// The end of text. The other tokens are bytes.
pub(crate) const EOS: u32 = 256;

/// A backend that only has memory for grammars, or none.
pub(super) struct Memory(pub(super) AtomicBool);

impl StructuredOutputBackend for Memory {
    fn compile_grammar(
        &self,
        _: &StructuredOutputsParams,
        _: &[u32],
        _: CompileEffort,
        _: &CancelFlag,
    ) -> Option<Result<Box<dyn StructuredOutputGrammar>, CompileGrammarError>> {
        None
    }

    fn has_own_memory(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn stop_token_ids(&self) -> &[u32] {
        &[]
    }
}

/// The job of a new request under a regular expression, whose id it is; and who waits for it.
pub(super) fn job(pattern: &str) -> (CompileJob, Receiver<CompiledGrammar>) {
    let constraint = StructuredOutputsConstraint::Regex(pattern.to_owned());
    job_of(constraint, pattern)
}

/// The same under any constraint.
pub(super) fn job_of(
    constraint: StructuredOutputsConstraint,
    id: &str,
) -> (CompileJob, Receiver<CompiledGrammar>) {
    let constraint = Shared::from(StructuredOutputsParams::new(constraint));
    let named = NamedConstraint::new(&constraint);
    let params = SamplingParams {
        structured_outputs: Some(constraint),
        max_tokens: Some(100_000),
        ..SamplingParams::default()
    };
    let (sender, compiled) = bounded(1);
    let source_bytes = named.source_bytes();
    let constraint = Some(named.constraint());
    let (purpose, cancel) = (
        Purpose::start(None, Vec::new(), RequestMemory::default()),
        CancelFlag::new(),
    );
    let job = CompileJob {
        source_bytes,
        constraint,
        ..CompileJob::new(id.into(), Arc::new(params), purpose, cancel, sender)
    };
    (job, compiled)
}

/// The real backend over single bytes, with grammars that do as their patterns say:
/// - `needs N steps`: to find its shortest text takes so many, in parts of any size;
/// - `takes N steps`: so many at once;
/// - `panics`: when it is asked for a mask after its first token; and when it is looked for in the cache.
pub(crate) struct OddBackend {
    real: FormworkBackend,
    /// What is left to do, by pattern.
    left: Mutex<HashMap<String, Arc<AtomicU64>>>,
    /// Calls that were to compile a grammar, or to find it.
    pub(super) num_calls: AtomicU64,
    /// The threads on which grammars ended.
    pub(super) dropped: Receiver<Option<String>>,
    ended: Sender<Option<String>>,
}

impl OddBackend {
    pub(crate) fn new() -> Self {
        let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        vocab.push(b"<eos>".to_vec());
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[EOS]).unwrap();
        let (ended, dropped) = unbounded();
        Self {
            dropped,
            ended,
            real: FormworkBackend::new(info, 64 << 20).unwrap(),
            left: Mutex::default(),
            num_calls: AtomicU64::new(0),
        }
    }
}

impl OddBackend {
    /// Steps that a pattern's shortest text still takes.
    pub(super) fn left(&self, pattern: &str) -> u64 {
        let left = lock(&self.left);
        left.get(pattern)
            .map_or(0, |left| left.load(Ordering::Relaxed))
    }
}

impl StructuredOutputBackend for OddBackend {
    fn compile_grammar(
        &self,
        params: &StructuredOutputsParams,
        stop_token_ids: &[u32],
        effort: CompileEffort,
        cancel: &CancelFlag,
    ) -> Option<Result<Box<dyn StructuredOutputGrammar>, CompileGrammarError>> {
        self.num_calls.fetch_add(1, Ordering::Relaxed);
        let compiled = self
            .real
            .compile_grammar(params, stop_token_ids, effort, cancel)?;
        let StructuredOutputsConstraint::Regex(pattern) = &params.constraint else {
            return Some(compiled);
        };
        let number = pattern.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut left = lock(&self.left);
        let left = left
            .entry(pattern.clone())
            .or_insert_with(|| Arc::new(AtomicU64::new(number.unwrap_or(0))));
        Some(compiled.map(|real| -> Box<dyn StructuredOutputGrammar> {
            Box::new(OddGrammar {
                real,
                left: Arc::clone(left),
                goes_in_parts: pattern.starts_with("needs"),
                panics: pattern == "panics",
                num_accepted: 0,
                granted: None,
                is_spent: Cell::new(false),
                ended: self.ended.clone(),
            })
        }))
    }

    fn is_compiled(&self, params: &StructuredOutputsParams) -> bool {
        let panics = StructuredOutputsConstraint::Regex("panics".to_owned());
        assert_ne!(params.constraint, panics, "a panic for a test");
        self.real.is_compiled(params)
    }

    fn stop_token_ids(&self) -> &[u32] {
        self.real.stop_token_ids()
    }
}

struct OddGrammar {
    real: Box<dyn StructuredOutputGrammar>,
    left: Arc<AtomicU64>,
    goes_in_parts: bool,
    panics: bool,
    num_accepted: usize,
    granted: Option<u64>,
    /// Whether all of that was taken.
    is_spent: Cell<bool>,
    ended: Sender<Option<String>>,
}

impl Drop for OddGrammar {
    fn drop(&mut self) {
        let thread = std::thread::current();
        let _ = self.ended.send(thread.name().map(str::to_owned));
    }
}

impl StructuredOutputGrammar for OddGrammar {
    fn accept_token(&mut self, token_id: u32) -> Result<bool, MatcherError> {
        let accepted = self.real.accept_token(token_id)?;
        self.num_accepted += usize::from(accepted);
        Ok(accepted)
    }

    fn next_token_mask(&self) -> Result<MaskRef, MatcherError> {
        assert!(!self.panics || self.num_accepted == 0, "a panic for a test");
        self.real.next_token_mask()
    }

    fn min_tokens_to_complete(&self) -> Result<u32, MatcherError> {
        const MAX: u64 = 2_000_000;
        let left = self.left.load(Ordering::Relaxed);
        match self.granted {
            Some(granted) if granted < left => {
                let done = if self.goes_in_parts { granted } else { 0 };
                self.left.store(left - done, Ordering::Relaxed);
                self.is_spent.set(true);
                Err(MatcherError::AllowanceSpent)
            }
            None if left > MAX => {
                let done = if self.goes_in_parts { MAX } else { 0 };
                self.left.store(left - done, Ordering::Relaxed);
                Err(MatcherError::StepsExhausted { max: MAX })
            }
            _ => {
                self.left.store(0, Ordering::Relaxed);
                self.real.min_tokens_to_complete()
            }
        }
    }

    fn set_allowance(&mut self, steps: Option<u64>) {
        self.granted = steps;
        self.is_spent.set(false);
        self.real.set_allowance(steps);
    }

    fn set_max_bytes(&mut self, max_bytes: Option<usize>) {
        self.real.set_max_bytes(max_bytes);
    }

    fn bytes_left(&self) -> Option<usize> {
        self.real.bytes_left()
    }

    fn set_request_memory(&mut self, memory: &RequestMemory, num_added_bytes: usize) {
        self.real.set_request_memory(memory, num_added_bytes);
    }

    fn set_patient_allowance(&mut self, steps: u64) {
        self.granted = Some(steps);
        self.is_spent.set(false);
        self.real.set_patient_allowance(steps);
    }

    fn rollback(&mut self, num_tokens: usize) -> Result<(), MatcherError> {
        self.num_accepted -= num_tokens;
        self.real.rollback(num_tokens)
    }

    fn validate_tokens(&self, token_ids: &[u32]) -> Result<usize, MatcherError> {
        self.real.validate_tokens(token_ids)
    }

    fn tokenizer_info(&self) -> &TokenizerInfo {
        self.real.tokenizer_info()
    }

    fn next_token_mask_within(&self, num_tokens: u32) -> Result<MaskRef, MatcherError> {
        self.real.next_token_mask_within(num_tokens)
    }

    fn next_token_mask_completing(&self, num_tokens: u32) -> Result<MaskRef, MatcherError> {
        self.real.next_token_mask_completing(num_tokens)
    }

    fn min_bytes_to_complete(&self) -> Result<u32, MatcherError> {
        self.real.min_bytes_to_complete()
    }

    fn min_tokens_bound(&self) -> Result<u32, MatcherError> {
        self.real.min_tokens_bound()
    }

    fn next_token_mask_of_fewest(
        &self,
        search: TextSearch,
        num_tokens: u32,
    ) -> Result<Option<MaskRef>, MatcherError> {
        self.real.next_token_mask_of_fewest(search, num_tokens)
    }

    fn fewest_tokens_to_complete(
        &self,
        search: TextSearch,
        limit: u32,
    ) -> Result<Option<u32>, MatcherError> {
        self.real.fewest_tokens_to_complete(search, limit)
    }

    fn has_forced_byte(&self) -> Result<bool, MatcherError> {
        self.real.has_forced_byte()
    }

    fn find_jump_forward_string(&self) -> Result<String, MatcherError> {
        self.real.find_jump_forward_string()
    }

    fn is_completed(&self) -> bool {
        self.real.is_completed()
    }

    fn is_terminated(&self) -> bool {
        self.real.is_terminated()
    }

    fn check_opening(&self) -> Result<(), MatcherError> {
        self.real.check_opening()
    }

    fn reset(&mut self) {
        self.num_accepted = 0;
        self.real.reset();
    }

    fn let_others_pass(&self) {
        self.real.let_others_pass();
    }

    fn allowance(&self) -> Option<u64> {
        match self.is_spent.get() {
            true => Some(0),
            false => self.real.allowance(),
        }
    }

    fn move_apart(&mut self, cancel: &CancelFlag) -> Result<(), RenewError> {
        self.real.move_apart(cancel)
    }

    fn is_apart(&self) -> bool {
        self.real.is_apart()
    }

    fn renew(&mut self, cancel: &CancelFlag) -> Result<(), RenewError> {
        self.real.renew(cancel)
    }
}
