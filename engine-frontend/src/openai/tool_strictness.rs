//! `tool_strictness`: what becomes of a request one of whose tools has a schema that can't be enforced.
//!
//! Whether it can is known only where it is compiled. The frontend's check says it of most, one tool after another.
//! What that leaves to the core is found out by a request of one token that the core refuses or admits: it compiles
//! what the real request will need, so that nothing is compiled twice.

use std::mem;

use protocol::SamplingParams;
use serde::Deserialize;
use serde_json::Value;
use structured_output::CancelFlag;

use super::chat::ChatCompletionRequest;
use super::error::ServingError;
use super::fields::Fields;
use super::own_words::OwnWords;
use super::serving::{OpenAIServing, RequestContext};
use super::tool_choice::ToolChoice;
use super::tools::{self, name_of};
use super::warnings::Warnings;
use crate::error::{ValidationError, cut_short};
use crate::input_processor::{GenerateRequest, InputProcessor, Prompt};

/// Most tools of a request that are left out for what only the core finds: each costs it another compilation.
const MAX_REFUSALS_OF_CORE: usize = 8;

/// What becomes of a request one of whose tools has a schema that can't be enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStrictness {
    /// It is refused.
    #[default]
    Refuse,
    /// It goes on without the tool, which is told in a warning.
    Skip,
}

/// The number of the tool whose schema an error is about.
fn tool_at_fault(error: &ServingError) -> Option<usize> {
    let error = error.to_response().error;
    let field = error.param.filter(|_| error.code == 400)?;
    let (index, rest) = field.strip_prefix("tools[")?.split_once(']')?;
    let is_of_schema = rest.starts_with(".function.parameters");
    index.parse().ok().filter(|_| is_of_schema)
}

impl OpenAIServing {
    /// Leaves out the tools whose schemas can't be enforced, where the request says so, and warns of each.
    ///
    /// # Errors
    /// The request names another model; no tool is left, and the answer must be a call; the core refuses one tool
    /// after another.
    pub async fn skip_tools(
        &self,
        request: &mut ChatCompletionRequest,
        context: &RequestContext,
    ) -> Result<Warnings, ServingError> {
        let mut warnings = Warnings::default();
        if request.tool_strictness == ToolStrictness::Refuse
            || request.tool_choice == ToolChoice::None
        {
            return Ok(warnings);
        }
        self.check_model(request.common.model.as_deref())?;
        let mut last = None;
        let num_tools = request.tools.as_ref().map_or(0, Vec::len);
        for i in 0..num_tools {
            if let Err(error) = self.check_tool(request, i).await? {
                let error = error.into();
                leave_out(request, i, &error, &mut warnings);
                last = Some(error);
            }
        }
        for refusals in 0.. {
            let Err(error) = self.ask_core(request, context).await else {
                break;
            };
            // What is no tool's fault the request itself is told.
            let Some(i) = tool_at_fault(&error) else {
                break;
            };
            if refusals == MAX_REFUSALS_OF_CORE {
                return Err(error);
            }
            leave_out(request, i, &error, &mut warnings);
            last = Some(error);
        }
        match last {
            Some(error) => choose_among_the_rest(request, error).map(|()| warnings),
            None => Ok(warnings),
        }
    }

    /// The same for the request of another API, in its words. The warnings are the request's.
    ///
    /// # Errors
    /// As [`skip_tools`](Self::skip_tools).
    pub(crate) async fn skip_tools_in_words(
        &self,
        request: &mut ChatCompletionRequest,
        words: &OwnWords,
        context: &RequestContext,
    ) -> Result<(), ServingError> {
        let skipped = self.skip_tools(request, context).await;
        let mut skipped = skipped.map_err(|error| words.of_serving_error(error))?;
        skipped.rename(|field| words.of_field(field));
        request.common.warnings.extend(skipped);
        Ok(())
    }

    /// Checks a tool as far as that can be done here.
    async fn check_tool(
        &self,
        request: &mut ChatCompletionRequest,
        i: usize,
    ) -> Result<Result<(), ValidationError>, ServingError> {
        let tools = request.tools.as_deref_mut().unwrap_or_default();
        let Some(tool) = tools.get_mut(i) else {
            return Ok(Ok(()));
        };
        if !name_of(tool).is_some_and(|name| request.tool_choice.allows(name)) {
            return Ok(Ok(()));
        }
        // It may be large: it goes to the thread that reads it, and comes back.
        let taken = mem::take(tool);
        let format = self.tool_call_format();
        let check = move |processor: &InputProcessor, cancel: &CancelFlag| {
            let checked = tools::part(i, &taken).and_then(|(part, _)| {
                tools::grammar(&part, format.as_ref())?;
                processor.check_part(&part, cancel)
            });
            (taken, checked)
        };
        let (taken, checked) = self.engine().check_aside(check).await?;
        *tool = taken;
        Ok(checked)
    }

    /// Lets the core compile what the tools that are left make of the answer.
    async fn ask_core(
        &self,
        request: &mut ChatCompletionRequest,
        context: &RequestContext,
    ) -> Result<(), ServingError> {
        let size = request.num_bytes();
        let tools = mem::take(&mut request.tools);
        let choice = request.tool_choice.clone();
        let (parallel, format) = (request.parallel_tool_calls, self.tool_call_format());
        let put_together = move |_: &CancelFlag| {
            let known = tools.as_deref().unwrap_or_default();
            let constraint = tools::constraint(&choice, known, parallel, format.clone(), None);
            (tools, constraint)
        };
        let (tools, constraint) = self.engine().run_by_size(size, put_together).await?;
        request.tools = tools;
        let constraint = match constraint? {
            Some(tools) if !tools.constraint.parts.is_empty() => tools.constraint,
            _ => return Ok(()),
        };
        let id = format!("tools-{}", context.request_id);
        let prompt = Prompt::TokenIds(vec![0]);
        let mut probe = GenerateRequest::new(id, prompt, SamplingParams::default());
        // As many as the context has: too few for a call are the real request's fault.
        probe.sampling_params.max_tokens = None;
        probe.owner = context.owner;
        probe.priority = request.common.priority;
        probe.constrain(constraint);
        // Dropped, and so aborted, once it is admitted.
        Ok(self.engine().generate(probe).await?.admitted().await?)
    }
}

/// Brings a request's choice in order after tools were left out, the last of them for `error`.
fn choose_among_the_rest(
    request: &mut ChatCompletionRequest,
    error: ServingError,
) -> Result<(), ServingError> {
    let tools = request.tools.as_deref().unwrap_or_default();
    let mut names = tools.iter().filter_map(name_of);
    if !names.any(|name| request.tool_choice.allows(name)) {
        if request.tool_choice.forces_a_call() {
            return Err(error);
        }
        request.tool_choice = ToolChoice::None;
    }
    if tools.iter().all(Value::is_null) {
        request.tools = None;
    }
    Ok(())
}

/// Takes a tool out of a request. The others keep their numbers.
fn leave_out(
    request: &mut ChatCompletionRequest,
    i: usize,
    error: &ServingError,
    warnings: &mut Warnings,
) {
    let tools = request.tools.as_deref_mut().unwrap_or_default();
    let Some(tool) = tools.get_mut(i) else { return };
    let name = cut_short(name_of(tool).unwrap_or_default());
    let error = error.to_response().error.message;
    let field = format!("tools[{i}].function.parameters: ");
    let why = error.strip_prefix(&field).unwrap_or(&error);
    let message = format!(": the tool {name} is left out, its schema can't be enforced: {why}");
    warnings.push_tool(&format!("tools[{i}]"), &message);
    *tool = Value::Null;
}

/// Takes `tool_strictness`.
pub(super) fn take(fields: &mut Fields) -> Result<ToolStrictness, ValidationError> {
    Ok(fields.take("tool_strictness")?.unwrap_or_default())
}
