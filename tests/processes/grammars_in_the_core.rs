//! The core with constraints that no frontend has checked: nothing that a client sends harms it or
//! another's request.

use protocol::{
    EngineCoreEventType, EngineCoreMessage, FinishReason, RequestError, RequestErrorCode,
    SamplingParams, StructuredOutputsConstraint, StructuredOutputsParams, Whitespace,
};

use crate::hostile_constraints::hostile;
use crate::support::{Client, greedy, launch, small_config};

fn constrained(constraint: StructuredOutputsConstraint) -> SamplingParams {
    SamplingParams {
        structured_outputs: Some(StructuredOutputsParams::new(constraint).into()),
        max_tokens: Some(40),
        temperature: 0.0,
        ..SamplingParams::default()
    }
}

/// How a request ends, whatever else comes.
fn refusal(client: &mut Client, id: &str) -> RequestError {
    let (token_ids, reason, last) = client.finish(id);
    assert_eq!((token_ids.len(), reason), (0, FinishReason::Error), "{id}");
    last.error.expect("it says why")
}

#[test]
fn hostile_grammars_harm_nobody() {
    let (_process, mut client, _) = launch(small_config());
    client.add("alone", greedy(100));
    let (alone, _, _) = client.finish("alone");

    for (name, constraint) in hostile() {
        client.add("neighbour", greedy(100));
        client.add("hostile", constrained(constraint));
        let mut neighbour = Vec::new();
        let (mut refused, mut finished) = (None, false);
        while refused.is_none() || !finished {
            for output in client.outputs() {
                if output.request_id == "hostile" {
                    assert_eq!(output.finish_reason, Some(FinishReason::Error), "{name}");
                    refused = output.error;
                } else {
                    neighbour.extend(output.new_token_ids);
                    finished |= output.finish_reason.is_some();
                }
            }
        }
        let error = refused.expect("it says why");
        assert_eq!(
            error.code,
            RequestErrorCode::GrammarRefused,
            "{name}: {}",
            error.message
        );
        assert!(error.message.len() < 1000, "{name}");
        assert_eq!(neighbour, alone, "{name}");
    }
}

#[test]
fn a_request_is_admitted_before_its_first_token() {
    let (_process, mut client, _) = launch(small_config());
    let regex = StructuredOutputsConstraint::Regex("[a-z]{3}".to_owned());
    client.add("one", constrained(regex));
    let mut events = Vec::new();
    let mut has_tokens = false;
    while !has_tokens {
        let EngineCoreMessage::Outputs(outputs) = client.message().unwrap() else {
            panic!("the core died");
        };
        for output in outputs.outputs {
            let is_admitted = |event: &protocol::EngineCoreEvent| {
                event.event_type == EngineCoreEventType::Admitted
            };
            if output.events.iter().any(is_admitted) {
                assert!(
                    output.new_token_ids.is_empty(),
                    "the admission comes by itself"
                );
                events.push("admitted");
            }
            has_tokens |= !output.new_token_ids.is_empty();
        }
    }
    assert_eq!(events, ["admitted"]);
}

#[test]
fn what_can_never_fit_is_refused_with_both_numbers() {
    let (_process, mut client, _) = launch(small_config());
    let regex = StructuredOutputsConstraint::Regex("[0-9]{77}".to_owned());
    client.add("one", constrained(regex));
    let error = refusal(&mut client, "one");
    assert_eq!(error.code, RequestErrorCode::GrammarRefused);
    assert!(error.message.contains("fit in 77 tokens"), "{error:?}");
    let limit = error.problem.and_then(|problem| problem.limit).unwrap();
    assert_eq!((limit.name.as_str(), limit.value), ("max_tokens", 40));
}

#[test]
fn many_requests_of_one_grammar_and_aborts_while_it_compiles() {
    let (_process, mut client, _) = launch(small_config());
    let mut params = constrained(StructuredOutputsConstraint::JsonObject);
    let structured_outputs = params.structured_outputs.as_mut().unwrap();
    structured_outputs.make_mut().whitespace = Whitespace::Spaced;
    let ids: Vec<String> = (0..30).map(|index| format!("r{index}")).collect();
    for id in &ids {
        client.add(id, params.clone());
    }
    client.send(&protocol::EngineCoreRequestType::Abort(ids[..15].to_vec()));
    let mut texts = Vec::new();
    let mut done = 0;
    let mut tokens = std::collections::HashMap::<String, Vec<u32>>::new();
    while done < 15 {
        for output in client.outputs() {
            let collected = tokens.entry(output.request_id.clone()).or_default();
            collected.extend(&output.new_token_ids);
            if output.finish_reason == Some(FinishReason::Stop)
                && ids[15..].contains(&output.request_id)
            {
                assert_eq!(output.structured_output_complete, Some(true));
                texts.push(collected.clone());
                done += 1;
            }
        }
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "greedy answers to one prompt");
}
