use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::openai::ToolCallFormat;

/// An answer under tools `f` and `g`, whole or in events.
fn answer(is_stream: bool) -> Answer {
    let response = AnthropicMessagesResponse {
        id: "msg_1".to_owned(),
        kind: "message",
        role: "assistant",
        model: "m".to_owned(),
        content: Vec::new(),
        end: Default::default(),
        usage: Default::default(),
        warnings: None,
    };
    let hermes = ToolCallFormat::from_name("hermes").unwrap();
    let schema = RawValue::from_string("{}".to_owned()).unwrap();
    let openings = Openings::new(hermes, [("f", &*schema), ("g", &*schema)]);
    let answer = Answer::new(response, Some(openings), false);
    match is_stream {
        true => answer.in_events(),
        false => answer,
    }
}

fn output(completion: CompletionOutput) -> RequestOutput {
    RequestOutput {
        request_id: String::new(),
        prompt: None,
        prompt_token_ids: [1, 2, 3].into(),
        prompt_logprobs: None,
        scores: Vec::new(),
        pooling_output: None,
        finished: completion.finished(),
        outputs: vec![completion],
        num_cached_tokens: 2,
    }
}

fn text(text: &str) -> CompletionOutput {
    CompletionOutput {
        text: text.to_owned(),
        token_ids: vec![0; 2],
        ..CompletionOutput::default()
    }
}

/// The events that follow, without the calls' ids, which are random.
fn events(answer: &mut Answer) -> Vec<Value> {
    let events = answer.take_events().into_iter().map(|piece| {
        let mut event: Value = piece.to_value();
        assert_eq!(piece.event, event["type"].as_str());
        if let Some(block) = event
            .get_mut("content_block")
            .and_then(Value::as_object_mut)
            && let Some(id) = block.remove("id")
        {
            assert!(id.as_str().unwrap().starts_with("toolu_"), "{id}");
        }
        event
    });
    events.collect()
}

#[test]
fn an_answer_is_told_in_blocks() {
    let mut answer = answer(true);
    answer.push(output(CompletionOutput {
        reasoning: Some("hm".to_owned()),
        num_reasoning_tokens: 2,
        ..text("")
    }));
    let usage = |output: u32, thinking: u32| {
        json!({
            "input_tokens": 3, "output_tokens": output, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens_details": {"thinking_tokens": thinking},
        })
    };
    let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
    assert_eq!(
        events(&mut answer),
        [
            json!({"type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": usage(0, 0),
            }}),
            json!({"type": "ping"}),
            start(
                0,
                json!({"type": "thinking", "thinking": "", "signature": ""})
            ),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        ]
    );
    let thinks = |completion| CompletionOutput {
        num_reasoning_tokens: 2,
        ..completion
    };
    answer.push(output(thinks(text("Let"))));
    answer.push(output(thinks(text(
        " me.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":",
    ))));
    answer.push(output(CompletionOutput {
        finish_reason: Some(FinishReason::Stop),
        structured_output_complete: Some(true),
        ..thinks(text(" 1}}\n</tool_call>"))
    }));
    let signature = blake3::hash(b"hm").to_hex().to_string();
    assert_eq!(
        events(&mut answer),
        [
            delta(
                0,
                json!({"type": "signature_delta", "signature": signature})
            ),
            stop(0),
            start(1, json!({"type": "text", "text": ""})),
            delta(1, json!({"type": "text_delta", "text": "Let"})),
            delta(1, json!({"type": "text_delta", "text": " me."})),
            stop(1),
            start(2, json!({"type": "tool_use", "name": "f", "input": {}})),
            delta(
                2,
                json!({"type": "input_json_delta", "partial_json": "{\"a\":"})
            ),
            delta(
                2,
                json!({"type": "input_json_delta", "partial_json": " 1}"})
            ),
            stop(2),
            json!({
                "type": "message_delta", "usage": usage(8, 2),
                "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            }),
            json!({"type": "message_stop"}),
        ]
    );
    let whole = serde_json::to_value(answer.into_response().unwrap()).unwrap();
    let mut content = whole["content"].clone();
    content[2].as_object_mut().unwrap().remove("id");
    assert_eq!(
        content,
        json!([
            {"type": "thinking", "thinking": "hm", "signature": signature},
            {"type": "text", "text": "Let me."},
            {"type": "tool_use", "name": "f", "input": {"a": 1}},
        ])
    );
    assert_eq!(
        (&whole["stop_reason"], &whole["usage"]),
        (&json!("tool_use"), &usage(8, 2))
    );
}

#[test]
fn an_end_has_its_reason() {
    let end = |completion: CompletionOutput| {
        let mut answer = answer(false).with_cached_tokens(true);
        answer.push(output(completion));
        answer.into_response().map(|response| {
            assert_eq!(response.usage.input_tokens, 1);
            assert_eq!(response.usage.cache_read_input_tokens, 2);
            serde_json::to_value(response).unwrap()
        })
    };
    let stopped = |reason, stop_reason| CompletionOutput {
        finish_reason: Some(reason),
        stop_reason,
        ..text("a")
    };
    let word = Some(StopReason::String("x".to_owned()));
    for (reason, stop, told, sequence) in [
        (FinishReason::Stop, None, "end_turn", Value::Null),
        (
            FinishReason::Stop,
            Some(StopReason::TokenId(1)),
            "end_turn",
            Value::Null,
        ),
        (FinishReason::Stop, word, "stop_sequence", json!("x")),
        (FinishReason::Length, None, "max_tokens", Value::Null),
        (FinishReason::Repetition, None, "end_turn", Value::Null),
    ] {
        let message = end(stopped(reason, stop)).unwrap();
        assert_eq!(message["stop_reason"], told);
        assert_eq!(message["stop_sequence"], sequence);
    }
    // A call that was cut off.
    let cut = CompletionOutput {
        structured_output_complete: Some(false),
        text: "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":".to_owned(),
        ..stopped(FinishReason::Length, None)
    };
    let message = end(cut).unwrap();
    assert_eq!(message["stop_reason"], "max_tokens");
    assert_eq!(message["structured_output_complete"], false);
    assert_eq!(message["content"], json!([]));
    // Calls of which the last was led to its end by the limit of tokens.
    for reason in [FinishReason::Stop, FinishReason::Length] {
        let call = |a: u32| {
            format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {{\"a\": {a}}}}}\n</tool_call>")
        };
        let led = CompletionOutput {
            structured_output_complete: Some(true),
            structured_output_completed_by_budget: true,
            text: format!("{}\n{}", call(1), call(2)),
            ..stopped(reason, None)
        };
        let message = end(led).unwrap();
        assert_eq!(message["stop_reason"], "max_tokens");
        assert_eq!(message["structured_output_completed_by_budget"], true);
        let calls = message["content"].as_array().unwrap();
        assert_eq!((calls.len(), &calls[0]["input"]["a"]), (1, &json!(1)));
    }
    for reason in [FinishReason::Abort, FinishReason::Error] {
        let error = end(stopped(reason, None)).unwrap_err().to_response().error;
        assert_eq!(error.code, 500);
        assert!(error.message.contains("ended early"), "{error:?}");
    }
}
