//! A sentence for every field of the document.
//!
//! A field is found by its name, or by the names on the way to it (`Usage.prompt_tokens`), of which
//! the longest wins. A test holds the table to the document, in both directions.

use serde_json::{Map, Value};

use super::{anthropic, decisions, pooling, tokens};

/// A field, or a path that ends in it, and what it is.
pub(super) type Description = (&'static str, &'static str);

/// Writes the description of every field below the components.
pub(super) fn describe(components: &mut Map<String, Value>) {
    for (name, component) in components {
        describe_fields(component, name);
    }
}

/// The table's line for a path of names: that with most of its names.
pub(super) fn find(path: &str) -> Option<&'static Description> {
    let mut rest = path;
    loop {
        let line = REQUESTS
            .iter()
            .chain(ANSWERS)
            .chain(anthropic::DESCRIPTIONS)
            .chain(decisions::DESCRIPTIONS)
            .chain(pooling::DESCRIPTIONS)
            .chain(tokens::DESCRIPTIONS)
            .find(|(field, _)| *field == rest);
        if line.is_some() {
            return line;
        }
        rest = rest.split_once('.')?.1;
    }
}

fn describe_fields(schema: &mut Value, path: &str) {
    match schema {
        Value::Object(schema) => {
            for (keyword, value) in schema {
                match (keyword.as_str(), value) {
                    ("properties", Value::Object(fields)) => {
                        for (name, field) in fields {
                            describe_field(field, &format!("{path}.{name}"));
                        }
                    }
                    ("items" | "anyOf" | "allOf", value) => describe_fields(value, path),
                    _ => {}
                }
            }
        }
        Value::Array(schemas) => {
            for schema in schemas {
                describe_fields(schema, path);
            }
        }
        _ => {}
    }
}

fn describe_field(field: &mut Value, path: &str) {
    describe_fields(field, path);
    if let (Value::Object(field), Some((_, text))) = (field, find(path)) {
        field.insert("description".to_owned(), Value::from(*text));
    }
}

/// Fields of requests.
pub(super) const REQUESTS: &[Description] = &[
    // Of all that generate.
    (
        "model",
        "The model, by a name that /v1/models lists. Without it: the one that is served.",
    ),
    (
        "n",
        "Number of answers. Default 1. All share the prompt's work and one constraint.",
    ),
    (
        "temperature",
        "How freely tokens are drawn: 0 takes the most probable one. Default: the model's \
         generation_config.json, else 1.",
    ),
    (
        "top_p",
        "Only the most probable tokens that together reach this probability. Default 1: all.",
    ),
    (
        "top_k",
        "Only this many of the most probable tokens. 0 and -1: all.",
    ),
    (
        "min_p",
        "Only tokens at least this probable, relative to the most probable one. Default 0.",
    ),
    (
        "presence_penalty",
        "Subtracted from the logits of tokens that the answer has already. Default 0.",
    ),
    (
        "frequency_penalty",
        "Subtracted from a token's logit for each time that the answer has it. Default 0.",
    ),
    (
        "repetition_penalty",
        "Divides the logits of tokens that prompt or answer have. Default 1.",
    ),
    (
        "seed",
        "Requests with the same seed and the same body get the same answer.",
    ),
    (
        "stop",
        "Texts at which the answer ends: at most 1 KiB each, 16 KiB together. They are cut off.",
    ),
    ("stop_token_ids", "Tokens at which the answer ends."),
    (
        "include_stop_str_in_output",
        "Keeps the stop text in the answer. Default false.",
    ),
    (
        "ignore_eos",
        "Goes on after the model's end token. Default false.",
    ),
    (
        "max_tokens",
        "Most tokens of the answer. A constrained answer is led to its end within them. Default in \
         chat: as many as the context leaves.",
    ),
    (
        "min_tokens",
        "No end token and no stop before this many tokens. Default 0.",
    ),
    (
        "skip_special_tokens",
        "Leaves special tokens out of the text. Default true.",
    ),
    (
        "spaces_between_special_tokens",
        "Accepted without effect: no supported tokenizer adds such spaces.",
    ),
    (
        "logit_bias",
        "Token id to a number from -100 to 100 that is added to its logit.",
    ),
    ("allowed_token_ids", "No tokens but these are drawn."),
    ("bad_words", "Texts that the answer won't have."),
    (
        "prompt_logprobs",
        "For each token of the prompt its logprob, and those of this many of the most probable \
         tokens in its place; -1: of all.",
    ),
    (
        "logprob_token_ids",
        "Adds the logprobs of these tokens at each place.",
    ),
    (
        "repetition_detection",
        "Ends an answer that repeats itself, with finish_reason repetition. max_pattern_size 0 turns \
         detection off. Without this field each string of a constrained answer that repeats at most 32 \
         tokens 64 times is closed, see structured_output_repetition_closed.",
    ),
    ("max_pattern_size", "Longest pattern looked for, in tokens."),
    (
        "min_pattern_size",
        "Shortest pattern looked for, in tokens.",
    ),
    (
        "min_count",
        "A pattern this many times in a row is a repetition.",
    ),
    (
        "thinking_token_budget",
        "Most tokens of thinking; then the answer begins. -1: no bound.",
    ),
    (
        "truncate_prompt_tokens",
        "Keeps only this many tokens of the prompt. -1: as many as the context holds.",
    ),
    (
        "truncation_side",
        "The side on which truncate_prompt_tokens cuts.",
    ),
    (
        "stream",
        "Sends the answer in pieces, as server-sent events. Default false.",
    ),
    ("stream_options", "Options of a stream."),
    (
        "include_usage",
        "A last piece of the stream has the usage. Default false.",
    ),
    (
        "continuous_usage_stats",
        "Every piece of the stream has the usage so far. Default false.",
    ),
    (
        "stream_interval",
        "Sends a piece for this many tokens. Default: --stream-interval.",
    ),
    (
        "priority",
        "Lower comes first, with --scheduling-policy priority. Default 0.",
    ),
    (
        "request_id",
        "The request's name in answers and logs. The header X-Request-Id does the same.",
    ),
    (
        "cache_salt",
        "Shares cached prompts only with requests of the same salt.",
    ),
    (
        "include_warnings",
        "Lists the parts of the request that have no effect, in warnings. Default false.",
    ),
    (
        "return_token_ids",
        "Adds the tokens of prompt and answer. Default false.",
    ),
    (
        "return_tokens_as_token_ids",
        "Writes tokens in logprobs as token_id:N. Default false.",
    ),
    (
        "CheckRequest.text",
        "An answer, or its beginning, that is held against the constraint; at most 1 MiB.",
    ),
    (
        "include_trace",
        "Adds to each answer what each of its tokens was chosen from: its probability before and under \
         the constraint's mask, how many tokens were allowed, whether it was forced. Default false.",
    ),
    (
        "add_special_tokens",
        "Adds the tokenizer's own tokens, such as a begin token, to the prompt. Default: true for \
         text, false for messages.",
    ),
    (
        "response_format",
        "The shape of the answer, as OpenAI has it.",
    ),
    (
        "structured_outputs",
        "The shape of the answer: one constraint, and options for it.",
    ),
    ("guided_json", "As structured_outputs.json."),
    ("guided_json_object", "As structured_outputs.json_object."),
    ("guided_regex", "As structured_outputs.regex."),
    ("guided_choice", "As structured_outputs.choice."),
    ("guided_grammar", "As structured_outputs.grammar."),
    (
        "guided_whitespace_pattern",
        "As structured_outputs.whitespace_pattern.",
    ),
    ("guided_decoding_backend", "As structured_outputs.backend."),
    (
        "grammar",
        "The answer is a sentence of this grammar: EBNF as llama.cpp and XGrammar write it, or Lark.",
    ),
    (
        "json_schema",
        "As structured_outputs.json, in llama.cpp's words.",
    ),
    (
        "n_predict",
        "As max_tokens, in llama.cpp's words; -1: as many as the context leaves.",
    ),
    (
        "cache_prompt",
        "llama.cpp's: false keeps the prompt out of the cache of prompts.",
    ),
    (
        "id_slot",
        "llama.cpp's: accepted without effect, there are no slots.",
    ),
    (
        "use_beam_search",
        "Beam search is not supported: false only.",
    ),
    ("length_penalty", "Of beam search: 1 only."),
    ("best_of", "1 only: use n."),
    ("return_weight_versions", "false only."),
    ("store", "No effect: nothing is stored."),
    ("functions", "The older form of tools: empty only."),
    (
        "function_call",
        "The older form of `tool_choice`: no effect, since there are no functions.",
    ),
    ("vllm_xargs", "There are no extensions: empty only."),
    ("session_id", "Empty only."),
    ("lora", "There are no adapters: empty only."),
    ("lora_request", "There are no adapters: empty only."),
    ("user", "The caller's name for who asks. No effect."),
    (
        "metadata",
        "The caller's own notes. No effect on the answer.",
    ),
    ("service_tier", "No effect."),
    ("safety_identifier", "No effect."),
    (
        "prompt_cache_key",
        "No effect: prompts are cached by their content.",
    ),
    ("prompt_cache_retention", "No effect."),
    ("prompt_cache_options", "No effect: every prefix is cached."),
    // Of completions.
    (
        "CompletionRequest.prompt",
        "The text to continue, or its tokens, or a list of either.",
    ),
    (
        "CompletionRequest.echo",
        "Puts the prompt before the answer. Default false.",
    ),
    (
        "suffix",
        "Text after the answer is not supported: empty only.",
    ),
    (
        "CompletionRequest.logprobs",
        "Adds the logprobs of the answer's tokens, and of this many of the most probable ones.",
    ),
    // Of chat.
    ("messages", "The conversation so far."),
    (
        "BatchChatCompletionRequest.messages",
        "Conversations. The answer has one choice for each, in their order.",
    ),
    (
        "BatchChatCompletionRequest.n",
        "One answer to each conversation.",
    ),
    ("BatchChatCompletionRequest.stream", "false only."),
    (
        "BatchChatCompletionRequest.tool_choice",
        "none only: no tools.",
    ),
    (
        "ChatCompletionRequest.logprobs",
        "Adds the logprobs of the answer's tokens. Default false.",
    ),
    (
        "BatchChatCompletionRequest.logprobs",
        "Adds the logprobs of the answers' tokens. Default false.",
    ),
    (
        "TokenizeRequest.logprobs",
        "No effect: accepted so that a chat request can be counted as it is.",
    ),
    (
        "top_logprobs",
        "Also those of this many of the most probable tokens.",
    ),
    ("max_completion_tokens", "As max_tokens."),
    (
        "include_reasoning",
        "Returns the model's thinking as reasoning_content. Default true.",
    ),
    (
        "reasoning_effort",
        "How much the model thinks: none and minimal switch it off, low, medium and high are budgets of \
         1,024, 4,096 and 16,384 tokens, unless the chat template reads it. No effect on a model that \
         doesn't think.",
    ),
    (
        "add_generation_prompt",
        "Ends the prompt with the head of the answer. Default true.",
    ),
    (
        "continue_final_message",
        "Continues the last message instead of answering it. Default false.",
    ),
    (
        "documents",
        "Documents for chat templates that know of them.",
    ),
    (
        "chat_template_kwargs",
        "More variables for the chat template, such as enable_thinking.",
    ),
    (
        "chat_template",
        "A chat template instead of the model's, with --trust-request-chat-template.",
    ),
    ("echo", "false only."),
    ("return_prompt_text", "false only."),
    ("modalities", "Text only."),
    (
        "tools",
        "Functions that the model may call. Calls are valid under their schemas.",
    ),
    (
        "tool_choice",
        "none: no call. auto: the model decides. required: at least one call. Or the name of one \
         function. Default: auto where there are tools.",
    ),
    (
        "parallel_tool_calls",
        "Allows more than one call in an answer. Default true.",
    ),
    (
        "tool_strictness",
        "skip: a tool whose schema can't be enforced is left out, with a warning. refuse, the default: the \
         request is refused.",
    ),
    ("allowed_tools", "A choice between some of the tools."),
    ("mode", "auto, or required: at least one call."),
    ("allowed_tools.tools", "The tools that may be called."),
    ("tool_choice.type", "The kind of choice."),
    ("tool_choice.name", "The function to call."),
    ("tool_choice.tools", "The tools that may be called."),
    ("tool_choice.tools.type", "Functions only."),
    ("tool_choice.function", "The function to call."),
    ("allowed_tools.tools.type", "Functions only."),
    ("allowed_tools.tools.function", "One of the functions."),
    // Of Responses.
    (
        "input",
        "The conversation: a text, or items as the Responses API has them.",
    ),
    ("instructions", "A system message before the input."),
    ("ResponsesRequest.text", "The shape of the answer."),
    ("text.format", "The shape of the answer's text."),
    ("verbosity", "No effect: say it in the messages."),
    ("prediction", "No effect: the server drafts by itself."),
    ("max_output_tokens", "As max_tokens."),
    ("include", "More that the answer shall have."),
    ("reasoning", "How much the model thinks."),
    ("effort", "As reasoning_effort."),
    ("summary", "No effect: thinking comes whole."),
    ("max_tool_calls", "No effect: the server runs no tools."),
    (
        "client_metadata",
        "The client's notes on itself. No effect.",
    ),
    ("background", "false only."),
    ("truncation", "disabled only."),
    ("include_obfuscation", "No effect: streams bear no padding."),
    // Of tokens.
    ("TokenizeRequest.prompt", "A text, instead of messages."),
    ("TokenizeRequest.n", "No effect."),
    (
        "return_token_strs",
        "Adds each token's text. Default false.",
    ),
    (
        "DetokenizeRequest.tokens",
        "Tokens to turn into their text.",
    ),
    // Of constraints.
    ("json", "The answer is JSON, valid under this schema."),
    ("json_object", "The answer is a JSON object."),
    ("regex", "The answer matches this pattern as a whole."),
    ("choice", "The answer is one of these texts."),
    (
        "structural_tag",
        "Free text with tagged parts, each of a shape of its own.",
    ),
    (
        "whitespace",
        "White space in JSON. usual (the default): nothing or one space after : and ,, and line breaks \
         with at most 16 spaces where pretty printers break. flexible: wherever JSON allows it, one \
         space or a line break with at most 64 spaces. spaced: a space after : and ,. compact: none.",
    ),
    (
        "whitespace_pattern",
        "A regular expression for white space in JSON; empty: none at all.",
    ),
    (
        "disable_any_whitespace",
        "No white space in JSON. Default false.",
    ),
    (
        "disable_additional_properties",
        "Objects that don't say additionalProperties allow none. Default false.",
    ),
    (
        "property_order",
        "schema: properties come in the schema's order. any: in any order. Default schema.",
    ),
    (
        "backend",
        "Accepted for other engines' clients: one engine serves them all.",
    ),
    (
        "complete_within_max_tokens",
        "Leads the answer to its end within max_tokens. Default true.",
    ),
    (
        "enable_in_reasoning",
        "Constrains the model's thinking, too. Default false.",
    ),
    ("type", "The kind, which decides the other fields' meaning."),
    ("ResponseFormat.json_schema", "The schema and its name."),
    ("schema", "The schema: an object, or its text."),
    (
        "strict",
        "Accepted without effect: every schema is enforced.",
    ),
    ("json_schema.name", "A name for the schema. No effect."),
    ("format.name", "A name for the schema. No effect."),
    ("tools.name", "The function's name."),
    ("function.name", "The function's name."),
    (
        "ChatMessageParam.name",
        "Who speaks, for chat templates that show it.",
    ),
    ("description", "A sentence for the model."),
    ("ResponseFormat.format", "The parts of a structural tag."),
    ("structures", "Tags in the older form."),
    ("triggers", "Texts that begin a tag, in the older form."),
    ("function", "The function."),
    ("parameters", "The schema of the function's arguments."),
    // Of messages.
    ("ChatMessageParam.role", "Who says it."),
    (
        "ChatMessageParam.content",
        "Text, or a list of parts of text.",
    ),
    ("text", "The text."),
    (
        "ChatMessageParam.tool_calls",
        "Calls that the assistant made.",
    ),
    ("tool_call_id", "The call that this is the result of."),
];

/// Fields of answers.
pub(super) const ANSWERS: &[Description] = &[
    ("id", "The answer's own name."),
    ("object", "The kind of object."),
    ("created", "When, in seconds of Unix time."),
    ("created_at", "When, in seconds of Unix time."),
    ("choices", "One for each answer."),
    ("usage", "Tokens of prompt and answer."),
    ("system_fingerprint", "The server's version."),
    ("index", "Which answer, from 0."),
    (
        "finish_reason",
        "Why the answer ended. stop: by itself. length: at max_tokens or the context's end. \
         tool_calls: with calls. repetition: see repetition_detection.",
    ),
    (
        "stop_reason",
        "The stop text or token that ended the answer.",
    ),
    (
        "structured_output_complete",
        "True if the text is a whole text of the constraint.",
    ),
    (
        "structured_output_completed_by_budget",
        "Present where max_tokens led the answer to its end: it is whole, and may say less than the \
         model would have.",
    ),
    (
        "structured_output_repetition_closed",
        "Present where a string of the answer repeated itself and was closed, see \
         repetition_detection.",
    ),
    ("token_ids", "The answer's tokens."),
    (
        "enforced",
        "True if answers can be held to the constraint, but for what the warnings name.",
    ),
    (
        "kind",
        "What the constraint is written in; tools for calls.",
    ),
    ("warnings", "Parts of the constraint that have no effect."),
    (
        "CheckResponse.error",
        "Why the constraint is refused, or why it could not be checked; null if it is enforced.",
    ),
    (
        "error.location",
        "Where the constraint in the field at fault is wrong. Absent in other errors.",
    ),
    (
        "error.limit",
        "The limit that the constraint meets. Absent in other errors.",
    ),
    ("limit.name", "The limit, such as max_states or max_tokens."),
    ("limit.value", "Its value."),
    ("pointer", "The JSON pointer to the part at fault."),
    ("line", "The line at fault, from 1."),
    ("column", "The column at fault in characters, from 1."),
    (
        "keywords",
        "Keywords of the constraint's schemas that are enforced.",
    ),
    (
        "num_states",
        "States of the constraint's automaton over single bytes, as far as they are made.",
    ),
    ("CheckResponse.bytes", "Bytes of memory that these take."),
    (
        "compile_ms",
        "Milliseconds that the constraint took to compile.",
    ),
    ("shortest", "A shortest text under the constraint."),
    ("sample", "Some text under the constraint."),
    (
        "CheckResponse.text",
        "How far the request's text fits; null without one.",
    ),
    ("is_complete", "True if the text is a whole one."),
    (
        "is_prefix",
        "True if the text is the beginning of a whole one, or one.",
    ),
    (
        "accepted_bytes",
        "Bytes before the first character that can't stand there; all of them, if the text is a beginning.",
    ),
    ("accepted_chars", "The same in characters."),
    (
        "expected",
        "What may follow there, the most telling first: characters in quotes, or what they have in common.",
    ),
    (
        "trace",
        "What each token was chosen from, with include_trace; of a streamed piece, each of its tokens.",
    ),
    ("token_id", "The token."),
    (
        "TracedToken.probability",
        "The model's probability of the token before the constraint's mask, at temperature 1 and without \
         penalties; null of a forced token.",
    ),
    (
        "masked_probability",
        "The same among the tokens that the constraint allowed; 1 of a forced token.",
    ),
    (
        "num_allowed",
        "Tokens that the constraint allowed; the vocabulary's size where nothing constrains.",
    ),
    ("is_constrained", "False in free text and in thinking."),
    (
        "is_forced",
        "True if the token was appended without a forward pass, since nothing else could come.",
    ),
    (
        "step_ms",
        "Milliseconds since the token before; of the first, since the engine took the request.",
    ),
    (
        "top",
        "The ten most probable tokens before the mask, best first; empty for a forced token.",
    ),
    (
        "TracedAlternative.probability",
        "The model's probability, before the mask.",
    ),
    ("is_allowed", "True if the constraint allowed it."),
    ("prompt_token_ids", "The prompt's tokens."),
    (
        "CompletionChoice.prompt_logprobs",
        "The logprobs of the prompt's tokens.",
    ),
    (
        "ChatCompletionResponse.prompt_logprobs",
        "The logprobs of the prompt's tokens.",
    ),
    ("message", "The answer."),
    ("logprobs", "The logprobs of the answer's tokens."),
    ("role", "assistant"),
    ("content", "The text; null where there are only calls."),
    ("reasoning_content", "The model's thinking."),
    ("tool_calls", "Calls of functions."),
    (
        "ToolCall.id",
        "The call's name, for the message with its result.",
    ),
    ("arguments", "The arguments, as the text of a JSON object."),
    ("ChatLogprobs.content", "One for each token."),
    ("token", "The token's text."),
    ("logprob", "The natural logarithm of its probability."),
    ("bytes", "The token's bytes."),
    ("TokenLogprob.top_logprobs", "The most probable tokens."),
    ("text_offset", "Where each token begins in the text."),
    ("token_logprobs", "Each token's logprob."),
    ("CompletionLogprobs.tokens", "Each token's text."),
    (
        "CompletionLogprobs.top_logprobs",
        "For each token, the most probable ones with their logprobs.",
    ),
    ("prompt_tokens", "Tokens of the prompt."),
    ("completion_tokens", "Tokens of the answers."),
    ("total_tokens", "Both together."),
    ("prompt_tokens_details", "Details of the prompt's tokens."),
    ("cached_tokens", "Tokens that the cache of prompts had."),
    (
        "completion_tokens_details",
        "Details of the answers' tokens.",
    ),
    ("reasoning_tokens", "Tokens of thinking."),
    ("status", "How far it is."),
    ("output", "What the model said: messages, calls, thinking."),
    ("error", "What went wrong."),
    ("incomplete_details", "Why the answer is incomplete."),
    ("data", "The models."),
    ("Model.id", "The model's name for requests."),
    ("owned_by", "formwork"),
    ("root", "Where it was loaded from."),
    ("parent", "null: there are no adapters."),
    (
        "max_model_len",
        "Most tokens of a prompt and its answer together.",
    ),
    ("permission", "Empty."),
    ("count", "Number of tokens."),
    ("tokens", "The tokens."),
    ("token_strs", "Each token's text."),
    ("DetokenizeResponse.prompt", "The text."),
    ("server_load", "Requests in flight."),
    ("version", "The server's version."),
    ("error.message", "What is wrong, and what would be right."),
    ("error.type", "The kind of error."),
    ("param", "The field at fault."),
    ("code", "The HTTP status."),
];
