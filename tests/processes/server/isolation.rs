//! Constrained streams beside grammars that are made to take long.

use serde_json::{Value, json};

use super::client::Pending;
use super::support::{Server, chat, eventually, streamed_text};

const CHAT: &str = "/v1/chat/completions";

fn streamed(question: &str, max_tokens: u32, seed: u64, constraint: &Value) -> Value {
    let mut body = chat(question, max_tokens);
    body["stream"] = json!(true);
    body["temperature"] = json!(1.0);
    body["seed"] = json!(seed);
    body["structured_outputs"] = constraint.clone();
    body
}

fn ordinary() -> Vec<Value> {
    let knight = json!({"json": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer"},
            "weapon": {"enum": ["sword", "axe", "bow"]},
        },
        "required": ["name", "age", "weapon"],
        "additionalProperties": false,
    }});
    let letters = json!({"regex": "[a-z ]{20,60}"});
    (0..4)
        .map(|seed| match seed % 2 {
            0 => streamed("A knight, please.", 120, seed, &knight),
            _ => streamed("Go on.", 80, seed, &letters),
        })
        .collect()
}

/// Each is let in and asks for much work at its tokens.
fn hostile() -> Vec<Value> {
    let branches: Vec<Value> = (0..120)
        .map(|n| {
            let letter = char::from(b'b' + (n % 20) as u8);
            let key = format!("^[a-{letter}]{{1,{}}}x{n}$", 3 + n % 17);
            json!({
                "type": "object",
                "required": ["b"],
                "properties": {
                    format!("k{n}"): {"pattern": key},
                    "b": {"pattern": format!("^(a|b{n})*c$")},
                },
            })
        })
        .collect();
    let values: Vec<String> = (0..800).map(|n| format!("value{n}")).collect();
    let looks: String = ('a'..='e')
        .map(|letter| format!("(?=.*[{letter}-z]{{2,9}}.*{letter})"))
        .collect();
    let open_ended = |mut constraint: Value| {
        constraint["complete_within_max_tokens"] = json!(false);
        constraint
    };
    [
        open_ended(json!({"json": {"oneOf": branches}})),
        open_ended(json!({"regex": "(.{0,5000}x){200}"})),
        open_ended(json!({"regex": format!("{looks}[a-z ]{{9,60}}")})),
        json!({"json": {"type": "array", "uniqueItems": true, "items": {"enum": values}}}),
    ]
    .iter()
    .zip(10..)
    .map(|(constraint, seed)| streamed("Hello", 40, seed, constraint))
    .collect()
}

#[test]
fn hostile_grammars_change_no_stream_and_break_none() {
    let all = [ordinary(), hostile()].concat();
    let alone = Server::start(&[]);
    let expected: Vec<String> = all
        .iter()
        .map(|body| {
            let answer = alone.post(CHAT, body);
            assert_eq!(answer.status, 200, "{answer:?}");
            streamed_text(&answer)
        })
        .collect();
    drop(alone);
    let together = Server::start(&[]);
    let pending: Vec<_> = all.iter().map(|body| together.begin(CHAT, body)).collect();
    for (index, (pending, expected)) in pending.into_iter().zip(&expected).enumerate() {
        let answer = pending.finish();
        assert_eq!(answer.status, 200, "{index}: {answer:?}");
        assert_eq!(streamed_text(&answer), *expected, "{index}");
        let reasons: Vec<Value> = answer
            .events()
            .iter()
            .map(|event| event["choices"][0]["finish_reason"].clone())
            .filter(|reason| !reason.is_null())
            .collect();
        assert!(
            reasons == ["stop"] || reasons == ["length"],
            "{index}: {reasons:?}"
        );
    }
    assert!(together.metric("formwork:structured_output_deferred_answers_total") > 0.0);
}

/// Large grammars, each another one, and all good.
fn crowd() -> Vec<Value> {
    (0..32)
        .map(|number| {
            let rules: String = (0..1500)
                .map(|rule| format!("r{rule} ::= \"w{number}x{rule}\" [a-z]+\n"))
                .collect();
            let names: Vec<String> = (0..1500).map(|rule| format!("r{rule}")).collect();
            let grammar = format!("root ::= {}\n{rules}", names.join(" | "));
            let mut body = chat("Go on.", 40);
            body["structured_outputs"] = json!({"grammar": grammar});
            body
        })
        .collect()
}

/// Neither what was asked before nor what is small waits for a crowd of large grammars.
#[test]
fn small_constraints_are_answered_before_a_crowd_of_large_ones() {
    let server = Server::start(&[]);
    let ask = |choices: Value| {
        let mut body = chat("Which?", 10);
        body["structured_outputs"] = json!({"choice": choices});
        let answer = server.post(CHAT, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    ask(json!(["known", "before"]));
    let mut streams: Vec<_> = crowd()
        .iter()
        .map(|body| server.begin(CHAT, body))
        .collect();
    eventually("the crowd waits in the core, and is counted there", || {
        server.metric("formwork:structured_output_queued_grammars") > 8.0
    });
    ask(json!(["known", "before"]));
    ask(json!(["new", "and", "small"]));
    // All were sent before.
    let is_answered = |stream: &mut Pending| {
        let stream = stream.stream();
        stream.set_nonblocking(true).unwrap();
        let is_answered = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).unwrap();
        is_answered
    };
    let num_answered = streams
        .iter_mut()
        .filter_map(|stream| is_answered(stream).then_some(()));
    assert!(num_answered.count() < 32);
    for stream in streams {
        let answer = stream.finish();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}
