//! What people want to know of a constraint.

use std::sync::{Arc, OnceLock};

use protocol::{Shared, StructuredOutputsParams};
use structured_output::{CancelFlag, TokenizerInfo};
use tokenizer::Tokenizer;

use super::{AsyncLLM, internal_error};
use crate::error::GenerateError;
use crate::input_processor::InputProcessor;
use crate::structured_outputs::{
    CheckThread, ConstraintKeywords, ConstraintReport, ReportError, report,
};

/// What reports about constraints need.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Started by the first.
    thread: OnceLock<CheckThread>,
    /// Empty for a vocabulary that the core refuses too.
    vocabulary: Arc<OnceLock<Option<Arc<TokenizerInfo>>>>,
}

/// The bytes, and a model's stop and control tokens.
fn byte_vocabulary(tokenizer: &Tokenizer) -> Option<Arc<TokenizerInfo>> {
    let info = tokenizer.tokenizer_info(tokenizer.vocab_size()).ok()?;
    Some(Arc::new(info.over_bytes()))
}

impl AsyncLLM {
    /// Runs checks of constraints on the thread of the reports, once those that asked before have had theirs.
    ///
    /// # Errors
    /// They panicked, or there is no thread for them.
    pub(crate) async fn check_aside<T: Send + 'static>(
        &self,
        check: impl FnOnce(&InputProcessor, &CancelFlag) -> T + Send + 'static,
    ) -> Result<T, GenerateError> {
        let thread = self.reports.thread.get_or_init(CheckThread::new);
        let processor = self.input_processor.clone();
        let work = move |cancel: &CancelFlag| check(&processor, cancel);
        let done = match thread.turn().await {
            Some(turn) => turn.run(work).await,
            None => None,
        };
        done.ok_or_else(|| internal_error("the constraint's check failed"))
    }

    /// What a constraint says, and how far a text fits it; of one that holds, the keywords of its schemas that are
    /// enforced. One after the other, on a thread of its own that leaves the others their time.
    ///
    /// # Errors
    /// It panicked, or there is no thread or vocabulary for it.
    pub(crate) async fn report(
        &self,
        params: Shared<StructuredOutputsParams>,
        text: Option<String>,
    ) -> Result<(Vec<String>, Result<ConstraintReport, ReportError>), GenerateError> {
        let thread = self.reports.thread.get_or_init(CheckThread::new);
        let (tokenizer, vocabulary) = (self.tokenizer.clone(), self.reports.vocabulary.clone());
        let work = move |cancel: &CancelFlag| {
            let vocabulary = vocabulary.get_or_init(|| byte_vocabulary(&tokenizer));
            let report = report(vocabulary.as_ref()?, &params, text.as_deref(), cancel);
            // The compiler has limits for the values of a schema, and these are read without.
            let holds = report.is_ok();
            let keywords = holds.then(|| ConstraintKeywords::of(&params.constraint));
            let keywords = keywords.flatten();
            let keywords = keywords.iter().flat_map(ConstraintKeywords::enforced);
            let keywords = keywords.map(str::to_owned).collect();
            Some((keywords, report))
        };
        let done = match thread.turn().await {
            Some(turn) => turn.run(work).await,
            None => None,
        };
        let failed = || internal_error("the constraint's check failed");
        done.flatten().ok_or_else(failed)
    }
}
