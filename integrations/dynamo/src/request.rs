//! Dynamo's requests as the engine's.
//!
//! Dynamo's sampling options, stop conditions and guided decoding are written down by their names and read as the
//! `sampling_params` of our own `/inference/v1/generate`, which knows vLLM's names, checks each value and refuses an
//! unknown field. So an option that a later Dynamo adds is refused until somebody has looked at it, and none is
//! dropped in silence.

use std::collections::BTreeSet;
use std::sync::Arc;

use dynamo_backend_common::{
    DynamoError, GuidedDecodingOptions, PreprocessedRequest, StopConditions,
};
use engine_frontend::openai::{DefaultSamplingParams, TokenGenerateRequest};
use engine_frontend::{GenerateRequest, RequestOutputKind};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::{in_dynamos_words, invalid, not_supported, of_validation};

const SAMPLING_PARAMS: &str = "sampling_params";

/// A request for the engine, and what its sender should know.
#[derive(Debug)]
pub struct EngineRequest {
    /// For [`engine_frontend::AsyncLLM::generate`]; its outputs are deltas.
    pub request: GenerateRequest,
    /// How many of the most probable tokens each token's logprobs show; `None` without logprobs.
    pub num_logprobs: Option<u32>,
    /// Options that have no effect, as sentences.
    pub warnings: Vec<String>,
}

impl EngineRequest {
    /// Reads Dynamo's request. `defaults` are the model's own, for options that it leaves open.
    ///
    /// # Errors
    /// The first option that is wrong, or that this engine doesn't have, by name.
    pub fn new(
        request_id: &str,
        mut request: PreprocessedRequest,
        defaults: &DefaultSamplingParams,
    ) -> Result<Self, DynamoError> {
        refuse_unsupported(&request)?;
        let mut body = Map::new();
        let mut sampling = sampling_params(&mut request)?;
        take_extra_args(&request, &mut sampling, &mut body)?;
        take_routing(&request, &mut body)?;
        // The tokens themselves don't go through JSON.
        body.insert("token_ids".to_owned(), json!([0]));
        body.insert(SAMPLING_PARAMS.to_owned(), Value::Object(sampling));
        let read = TokenGenerateRequest::from_json(Value::Object(body));
        let mut read = read.map_err(|problem| of_validation(&problem))?;
        if request.token_ids.is_empty() {
            return Err(invalid("token_ids must hold at least one token id, got []"));
        }
        read.token_ids = Arc::unwrap_or_clone(request.token_ids);
        let mut generate = read.take_generate_request(request_id, defaults);
        generate.sampling_params.output_kind = RequestOutputKind::Delta;
        let warnings = read.common.warnings.texts();
        Ok(Self {
            request: generate,
            num_logprobs: request.output_options.logprobs,
            warnings: warnings.iter().map(|text| in_dynamos_words(text)).collect(),
        })
    }
}

/// Refuses what isn't an option of sampling: other inputs than tokens, several answers, other workers' states.
fn refuse_unsupported(request: &PreprocessedRequest) -> Result<(), DynamoError> {
    const TEXT_ALONE: &str = "the engine reads and writes text alone";
    const AGGREGATED: &str = "this worker computes prompts and answers itself (aggregated serving)";
    let given = |name, is_given: bool, why| match is_given {
        true => Err(not_supported(name, why)),
        false => Ok(()),
    };
    given("prompt_embeds", request.prompt_embeds.is_some(), TEXT_ALONE)?;
    let has_media = request.multi_modal_data.as_ref();
    let has_media = has_media.is_some_and(|media| media.values().any(|part| !part.is_empty()));
    given("multi_modal_data", has_media, TEXT_ALONE)?;
    given(
        "encoder_result",
        request.encoder_result.is_some(),
        TEXT_ALONE,
    )?;
    given(
        "prefill_result",
        request.prefill_result.is_some(),
        AGGREGATED,
    )?;
    given(
        "bootstrap_info",
        request.bootstrap_info.is_some(),
        AGGREGATED,
    )?;
    // The trait's stream ends with the first answer that is finished.
    match request.sampling_options.n {
        None | Some(1) => Ok(()),
        Some(n) => Err(invalid(format!(
            "n must be 1, got {n}: a Dynamo worker streams one answer for a request; send {n} requests"
        ))),
    }
}

/// Dynamo's options by our names. Takes the constraint out of the request: a schema may be large.
fn sampling_params(request: &mut PreprocessedRequest) -> Result<Map<String, Value>, DynamoError> {
    let constraint = request.sampling_options.guided_decoding.take();
    let mut sampling = fields_of(&request.sampling_options)?;
    for (name, nothing) in [
        ("best_of", json!(1)),
        ("use_beam_search", json!(false)),
        ("length_penalty", json!(1.0)),
    ] {
        if sampling.remove(name).is_some_and(|value| value != nothing) {
            return Err(not_supported(
                name,
                "answers are sampled, one for a request",
            ));
        }
    }
    if let Some(constraint) = constraint {
        sampling.insert(
            "structured_outputs".to_owned(),
            structured_outputs(constraint),
        );
    }
    let stops = &request.stop_conditions;
    // Whether a stop token is shown is the business of Dynamo's frontend: the engine gives every token.
    let stop_token_ids: BTreeSet<u32> = [
        &stops.stop_token_ids,
        &stops.stop_token_ids_visible,
        &stops.stop_token_ids_hidden,
    ]
    .into_iter()
    .flatten()
    .flatten()
    .copied()
    .collect();
    sampling.extend(fields_of(&StopConditions {
        max_tokens: stops.max_tokens,
        stop: stops.stop.clone(),
        stop_token_ids: (!stop_token_ids.is_empty()).then(|| Vec::from_iter(stop_token_ids)),
        stop_token_ids_visible: None,
        stop_token_ids_hidden: None,
        min_tokens: stops.min_tokens,
        ignore_eos: stops.ignore_eos,
        max_thinking_tokens: None,
    })?);
    let output = &request.output_options;
    // The other output options are about the text, which Dynamo's frontend makes.
    for (name, value) in [
        ("thinking_token_budget", json!(stops.max_thinking_tokens)),
        ("logprobs", json!(output.logprobs)),
        ("prompt_logprobs", json!(output.prompt_logprobs)),
        ("skip_special_tokens", json!(output.skip_special_tokens)),
    ] {
        if !value.is_null() {
            sampling.insert(name.to_owned(), value);
        }
    }
    Ok(sampling)
}

/// A constraint by our names, which are the same.
fn structured_outputs(constraint: GuidedDecodingOptions) -> Value {
    let GuidedDecodingOptions {
        json,
        regex,
        choice,
        grammar,
        backend,
        whitespace_pattern,
        structural_tag,
    } = constraint;
    let fields = [
        ("json", json),
        ("regex", regex.map(Value::String)),
        // An empty list is Dynamo's word for no choice.
        (
            "choice",
            choice.filter(|choice| !choice.is_empty()).map(Value::from),
        ),
        ("grammar", grammar.map(Value::String)),
        ("backend", backend.map(Value::String)),
        ("whitespace_pattern", whitespace_pattern.map(Value::String)),
        ("structural_tag", structural_tag),
    ];
    let given = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect())
}

/// The fields of a struct that are given.
fn fields_of(options: &impl Serialize) -> Result<Map<String, Value>, DynamoError> {
    match serde_json::to_value(options) {
        Ok(Value::Object(mut fields)) => {
            fields.retain(|_, value| !value.is_null());
            Ok(fields)
        }
        Ok(_) => Ok(Map::new()),
        Err(problem) => Err(invalid(problem.to_string())),
    }
}

/// What Dynamo's frontend passes on of a request's further fields.
fn take_extra_args(
    request: &PreprocessedRequest,
    sampling: &mut Map<String, Value>,
    body: &mut Map<String, Value>,
) -> Result<(), DynamoError> {
    let Some(extra_args) = &request.extra_args else {
        return Ok(());
    };
    let Some(extra_args) = extra_args.as_object() else {
        return Err(invalid(format!(
            "extra_args must be an object, got {extra_args}"
        )));
    };
    for (name, value) in extra_args {
        match name.as_str() {
            "sampling_options" => {
                let options = value.as_object().into_iter().flatten();
                sampling.extend(options.map(|(name, value)| (name.clone(), value.clone())));
            }
            "reasoning_ended" if value == &json!(true) => {
                body.insert(name.clone(), value.clone());
            }
            // Where thinking stands is found out from the prompt.
            "reasoning_ended" | "reasoning_parser_kwargs" => {}
            "nvext" => take_nvext(value, body)?,
            _ if value.is_null() => {}
            _ => return Err(not_supported(&format!("extra_args.{name}"), "leave it out")),
        }
    }
    Ok(())
}

/// Of `extra_args.nvext`: what concerns the engine.
fn take_nvext(nvext: &Value, body: &mut Map<String, Value>) -> Result<(), DynamoError> {
    for (name, value) in nvext.as_object().into_iter().flatten() {
        match name.as_str() {
            "cache_salt" => {
                body.insert(name.clone(), value.clone());
            }
            // What the answer shows, and that the client sent tokens: Dynamo's frontend deals with both.
            "extra_fields" | "token_in" => {}
            _ => return Err(not_supported(&format!("nvext.{name}"), "leave it out")),
        }
    }
    Ok(())
}

/// Of the routing hints: what concerns the engine and not the router.
fn take_routing(
    request: &PreprocessedRequest,
    body: &mut Map<String, Value>,
) -> Result<(), DynamoError> {
    let Some(routing) = &request.routing else {
        return Ok(());
    };
    if routing.lora_name.is_some() {
        return Err(not_supported("lora_name", "the engine has no adapters"));
    }
    if let Some(rank) = routing.dp_rank.filter(|rank| *rank != 0) {
        return Err(invalid(format!(
            "dp_rank must be 0, got {rank}: this worker is one rank, and chooses among its cores itself"
        )));
    }
    if let Some(salt) = &routing.cache_namespace {
        body.insert("cache_salt".to_owned(), json!(salt));
    }
    // In Dynamo more is sooner, in vLLM and here less.
    if let Some(priority) = routing.priority {
        body.insert("priority".to_owned(), json!(-i64::from(priority)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dynamo_backend_common::{OutputOptions, SamplingOptions};
    use engine_frontend::{
        SamplingParams, StructuredOutputsConstraint, StructuredOutputsParams, Whitespace,
    };

    use super::*;

    /// A request as it stands on the wire.
    fn read(fields: Value) -> Result<EngineRequest, String> {
        let mut request = json!({"model": "m", "token_ids": [3, 4, 5]});
        request
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let request: PreprocessedRequest = serde_json::from_value(request).unwrap();
        let defaults = DefaultSamplingParams {
            temperature: Some(0.25),
            ..DefaultSamplingParams::default()
        };
        EngineRequest::new("id", request, &defaults).map_err(|error| error.to_string())
    }

    fn params(fields: Value) -> SamplingParams {
        read(fields).unwrap().request.sampling_params
    }

    #[test]
    fn every_option_arrives() {
        let sampling = SamplingOptions {
            n: Some(1),
            best_of: Some(1),
            presence_penalty: Some(0.5),
            frequency_penalty: Some(-0.5),
            repetition_penalty: Some(1.25),
            temperature: Some(0.75),
            top_p: Some(0.5),
            top_k: Some(7),
            min_p: Some(0.125),
            use_beam_search: Some(false),
            length_penalty: Some(1.0),
            seed: Some(-2),
            include_stop_str_in_output: Some(true),
            guided_decoding: None,
        };
        let stops = StopConditions {
            max_tokens: Some(9),
            stop: Some(vec!["a".to_owned(), "b".to_owned()]),
            stop_token_ids: Some(vec![1, 2]),
            stop_token_ids_visible: Some(vec![2, 3]),
            stop_token_ids_hidden: Some(vec![4]),
            min_tokens: Some(2),
            ignore_eos: Some(true),
            max_thinking_tokens: Some(6),
        };
        let output = OutputOptions {
            logprobs: Some(5),
            prompt_logprobs: Some(2),
            skip_special_tokens: Some(false),
            formatted_prompt: Some(true),
            return_tokens_as_token_ids: Some(true),
            no_stop_trim: Some(true),
        };
        let request = read(json!({
            "sampling_options": sampling, "stop_conditions": stops, "output_options": output,
            "routing": {"priority": 4, "cache_salt": "salt", "dp_rank": 0},
            "extra_args": {
                "sampling_options": {"allowed_token_ids": [9, 8], "logprob_token_ids": [1]},
                "nvext": {"extra_fields": ["timing"]}, "reasoning_ended": false,
            },
        }))
        .unwrap();
        let expected = SamplingParams {
            presence_penalty: 0.5,
            frequency_penalty: -0.5,
            repetition_penalty: 1.25,
            temperature: 0.75,
            top_p: 0.5,
            top_k: 7,
            min_p: 0.125,
            seed: Some(u64::MAX - 1),
            include_stop_str_in_output: true,
            max_tokens: Some(9),
            stop: ["a", "b"].map(str::to_owned).to_vec().into(),
            stop_token_ids: vec![1, 2, 3, 4].into(),
            min_tokens: 2,
            ignore_eos: true,
            thinking_token_budget: Some(6),
            logprobs: Some(5),
            prompt_logprobs: Some(2),
            logprob_token_ids: Some(vec![1].into()),
            allowed_token_ids: Some(vec![9, 8].into()),
            skip_special_tokens: false,
            // Stop strings are looked for in text.
            detokenize: true,
            output_kind: RequestOutputKind::Delta,
            ..SamplingParams::default()
        };
        assert_eq!(request.request.sampling_params, expected);
        assert_eq!(request.num_logprobs, Some(5));
        assert_eq!(request.request.priority, -4);
        assert_eq!(request.request.cache_salt.as_deref(), Some("salt"));
        assert_eq!(
            request.request.prompt,
            engine_frontend::Prompt::TokenIds(vec![3, 4, 5])
        );
        assert_eq!(request.request.request_id, "id");
    }

    #[test]
    fn what_is_open_is_the_models() {
        let open = params(json!({}));
        let expected = SamplingParams {
            temperature: 0.25,
            max_tokens: None,
            detokenize: false,
            output_kind: RequestOutputKind::Delta,
            ..SamplingParams::default()
        };
        assert_eq!(open, expected);
        assert_eq!(params(json!({"sampling_options": {"top_k": -1}})).top_k, 0);
    }

    #[test]
    fn constraints_arrive_as_they_are() {
        use StructuredOutputsConstraint as Constraint;
        let constraint = |guided: Value| {
            let params = params(json!({"sampling_options": {"guided_decoding": guided}}));
            (**params.structured_outputs.as_ref().unwrap()).clone()
        };
        let of = StructuredOutputsParams::new;
        let schema = json!({"type": "array", "items": {"type": "integer"}});
        let text = schema.to_string();
        let tag =
            json!({"type": "structural_tag", "format": {"type": "const_string", "value": "a"}});
        for (guided, expected) in [
            (json!({"json": schema}), of(Constraint::Json(text.clone()))),
            (
                json!({"json": text, "backend": "xgrammar"}),
                of(Constraint::Json(text.clone())),
            ),
            (
                json!({"json": schema, "choice": []}),
                of(Constraint::Json(text.clone())),
            ),
            (
                json!({"json": schema, "whitespace_pattern": " ?"}),
                StructuredOutputsParams {
                    whitespace: Whitespace::Pattern(" ?".to_owned()),
                    ..of(Constraint::Json(text.clone()))
                },
            ),
            (
                json!({"regex": "a+"}),
                of(Constraint::Regex("a+".to_owned())),
            ),
            (
                json!({"choice": ["a", "b"]}),
                of(Constraint::Choice(vec!["a".to_owned(), "b".to_owned()])),
            ),
            (
                json!({"grammar": "root ::= \"a\""}),
                of(Constraint::Grammar("root ::= \"a\"".to_owned())),
            ),
            (
                json!({"structural_tag": tag}),
                of(Constraint::StructuralTag(tag.to_string())),
            ),
        ] {
            assert_eq!(constraint(guided.clone()), expected, "{guided}");
        }
        let ended = read(json!({
            "sampling_options": {"guided_decoding": {"regex": "a"}},
            "extra_args": {"reasoning_ended": true, "reasoning_parser_kwargs": {}},
        }));
        let params = ended.unwrap().request.sampling_params;
        assert!(params.structured_outputs.unwrap().enable_in_reasoning);
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        let sampling = |options: Value| json!({"sampling_options": options});
        let guided = |guided: Value| json!({"sampling_options": {"guided_decoding": guided}});
        for (fields, says) in [
            (sampling(json!({"n": 3})), "n must be 1, got 3"),
            (sampling(json!({"best_of": 2})), "best_of is not supported"),
            (
                sampling(json!({"use_beam_search": true})),
                "use_beam_search is not supported",
            ),
            (
                sampling(json!({"length_penalty": 0.5})),
                "length_penalty is not supported",
            ),
            (sampling(json!({"top_k": -2})), "top_k"),
            (json!({"stop_conditions": {"max_tokens": 0}}), "max_tokens"),
            (
                json!({"token_ids": []}),
                "token_ids must hold at least one token id",
            ),
            (
                guided(json!({"json": {}, "regex": "a"})),
                "one kind of structured outputs constraint",
            ),
            (
                guided(json!({"json": 5})),
                "structured_outputs.json must be a JSON schema",
            ),
            (guided(json!({"backend": "xgrammar"})), "none are specified"),
            (
                guided(json!({"regex": "a", "whitespace_pattern": " "})),
                "whitespace_pattern needs a JSON constraint",
            ),
            (
                guided(json!({"json": {}, "backend": "yaml"})),
                "backend must be one of",
            ),
            (
                json!({"prompt_embeds": "AA=="}),
                "prompt_embeds is not supported",
            ),
            (
                json!({"multi_modal_data": {"image_url": [{"RawUrl": "http://a/b.png"}]}}),
                "multi_modal_data is not supported",
            ),
            (
                json!({"encoder_result": {}}),
                "encoder_result is not supported",
            ),
            (
                json!({"prefill_result": {"disaggregated_params": {}}}),
                "prefill_result is not supported",
            ),
            (
                json!({"bootstrap_info": {"bootstrap_host": "a", "bootstrap_port": 1, "bootstrap_room": 2}}),
                "bootstrap_info is not supported",
            ),
            (
                json!({"routing": {"lora_name": "a"}}),
                "lora_name is not supported",
            ),
            (
                json!({"routing": {"dp_rank": 1}}),
                "dp_rank must be 0, got 1",
            ),
            (
                json!({"extra_args": {"vllm_tito": {}}}),
                "extra_args.vllm_tito is not supported",
            ),
            (
                json!({"extra_args": {"nvext": {"metadata_upload": {}}}}),
                "nvext.metadata_upload is not supported",
            ),
            (
                json!({"extra_args": {"sampling_options": {"bad_words_token_ids": [[1]]}}}),
                "bad_words_token_ids",
            ),
            (
                json!({"extra_args": {"nvext": {"cache_salt": ""}}}),
                "cache_salt",
            ),
        ] {
            let message = read(fields.clone()).unwrap_err();
            assert!(message.contains(says), "{fields}: {message}");
            assert!(!message.contains("sampling_params."), "{message}");
        }
    }

    #[test]
    fn an_option_without_effect_is_told() {
        let request = read(json!({
            "stop_conditions": {"ignore_eos": true},
            "sampling_options": {"guided_decoding": GuidedDecodingOptions {
                regex: Some("a".to_owned()),
                ..GuidedDecodingOptions::default()
            }},
        }));
        let warnings = request.unwrap().warnings;
        assert!(
            matches!(warnings.as_slice(), [only] if only.contains("ignore_eos has no effect")),
            "{warnings:?}"
        );
    }
}
