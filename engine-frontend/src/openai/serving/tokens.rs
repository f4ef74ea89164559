//! Token ids in, token ids out: an answer as a whole.

use structured_output::CancelFlag;

use super::{OpenAIServing, RequestContext, request_id};
use crate::input_processor::GenerateRequest;
use crate::openai::error::ServingError;
use crate::openai::logprobs::PromptLogprobs;
use crate::openai::token_in_token_out::{
    TokenGenerateChoice, TokenGenerateRequest, TokenGenerateResponse, serving_error_in_own_words,
};
use crate::outputs::RequestOutput;

impl OpenAIServing {
    /// Answers a request of token ids as a whole, whatever its `stream` says.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn create_tokens(
        &self,
        request: TokenGenerateRequest,
        context: &RequestContext,
    ) -> Result<TokenGenerateResponse, ServingError> {
        let (request, generate) = self.token_generate_request(request, context)?;
        let id = generate.request_id.clone();
        let outputs = self.generate(vec![generate], context).await;
        let outputs = outputs.map_err(serving_error_in_own_words)?;
        let usage = self.usage(&outputs);
        let mut response = TokenGenerateResponse {
            request_id: id,
            model: self.model_name(),
            created: context.created,
            choices: Vec::new(),
            usage,
            prompt_logprobs: None,
            prompt_token_ids: None,
        };
        let size = outputs.iter().map(RequestOutput::num_bytes).sum();
        let fill = move |_: &CancelFlag| {
            for output in outputs {
                if request.common.return_token_ids {
                    response.prompt_token_ids = Some(output.prompt_token_ids.to_vec());
                }
                response.prompt_logprobs = PromptLogprobs::of(&output);
                let choices = output.outputs.into_iter();
                let choices = choices.map(|answer| TokenGenerateChoice::new(&request, answer));
                response.choices.extend(choices);
            }
            response
        };
        Ok(self.engine.run_by_size(size, fill).await?)
    }

    /// The request without its tokens, and the engine's, which has them and the answer's id.
    pub(in crate::openai) fn token_generate_request(
        &self,
        mut request: TokenGenerateRequest,
        context: &RequestContext,
    ) -> Result<(TokenGenerateRequest, GenerateRequest), ServingError> {
        self.check_model(request.common.model.as_deref())?;
        let own = request.common.request_id.as_deref();
        let id = request_id("generate-tokens", own, context);
        let generate = request.take_generate_request(&id, &self.default_sampling_params);
        Ok((request, generate))
    }
}
