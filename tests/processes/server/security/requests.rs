//! What a request asks for costs no more than its share: findings 1, 5 and 6.

use serde_json::{Value, json};

use super::memory::{AtOnce, Peak, warm_up};
use crate::server::support::Server;

const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const MIB: usize = 1 << 20;

/// A server whose cache is small, and touched.
fn server(flags: &[&str]) -> Server {
    let flags = [&["--num-blocks-override", "512"], flags].concat();
    let server = Server::start(&flags);
    warm_up(|path, body| server.post(path, body).status);
    server
}

/// The status of a request, and the field at fault, once its memory was found to be its share.
fn checked(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    let sent = body.to_string().len();
    let peak = Peak::begin(server);
    let answer = server.post(path, body);
    let fields: Vec<&String> = body.as_object().unwrap().keys().collect();
    peak.check(&format!("{path} {fields:?}"), sent);
    let param = match answer.status {
        200 => Value::Null,
        _ => answer.error()["param"].clone(),
    };
    (answer.status, param)
}

/// Finding 1: 290 bytes for each byte of a prompt, however long.
#[test]
fn a_prompt_far_beyond_the_context_is_refused_before_it_is_tokenized() {
    let server = server(&[]);
    let ones = "1".repeat(4 * MIB);
    for body in [
        json!({"prompt": ones}),
        json!({"prompt": ones, "return_token_strs": true}),
        json!({"messages": [{"role": "user", "content": ones}]}),
    ] {
        let (status, _) = checked(&server, "/tokenize", &body);
        assert_eq!(status, 400);
    }
    for side in ["left", "right"] {
        let body = json!({
            "prompt": ones, "max_tokens": 1, "truncate_prompt_tokens": 8, "truncation_side": side,
        });
        checked(&server, COMPLETIONS, &body);
    }
    let body = json!({"tokens": vec![1; MIB]});
    checked(&server, "/detokenize", &body);
}

/// Finding 5: each of `n` answers had a copy of the whole request.
#[test]
fn answers_share_their_request() {
    let server = server(&[]);
    let ids: Vec<u32> = (0..4000).collect();
    let bias: serde_json::Map<String, Value> =
        ids.iter().map(|id| (id.to_string(), json!(1))).collect();
    let property = |i: usize| (format!("property_{i}"), json!({"type": "string"}));
    let properties: serde_json::Map<String, Value> = (0..600).map(property).collect();
    let schema = json!({"type": "object", "properties": properties});
    for (n, field, value) in [
        (4096, "allowed_token_ids", json!(ids)),
        (4096, "logit_bias", json!(bias)),
        (4096, "stop_token_ids", json!(ids[1000..2000])),
        (4096, "bad_words", json!(vec!["word"; 100])),
        // As many as may wait for a grammar.
        (1024, "guided_json", schema.clone()),
        (4096, "prompt", json!("a ".repeat(500))),
    ] {
        let mut body = json!({"prompt": "Hi", "max_tokens": 1, "n": n});
        if field == "guided_json" {
            // The shortest answer is "{}".
            body["max_tokens"] = json!(4);
        }
        body[field] = value;
        let wanted = (200, Value::Null);
        assert_eq!(checked(&server, COMPLETIONS, &body), wanted, "{field}");
        body["n"] = json!(4);
        body["prompt"] = json!(vec!["Hi"; n / 4]);
        assert_eq!(checked(&server, COMPLETIONS, &body), wanted, "{field}");
        // More than ever run and wait.
        body["n"] = json!(16_384);
        body["prompt"] = json!("Hi");
        assert_eq!(checked(&server, COMPLETIONS, &body).0, 400, "{field}");
    }
    let tool = |i: usize| {
        let function = json!({"name": format!("f{i}"), "parameters": schema});
        json!({"type": "function", "function": function})
    };
    let tools: Vec<Value> = (0..4).map(tool).collect();
    let body = json!({
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "n": 4096,
        "tools": tools, "tool_choice": "auto",
    });
    checked(&server, "/v1/chat/completions", &body);
}

/// Finding 6: a stop string of 16 MB delayed everybody by 23 s.
#[test]
fn stop_strings_are_at_most_1_kib_each_and_16_kib_together() {
    let server = server(&[]);
    let with_stop = |stop: Value| json!({"prompt": "Hi", "max_tokens": 2, "stop": stop});
    let kib = "x".repeat(1024);
    let refused = (400, json!("stop"));
    for (stop, wanted) in [
        (json!(kib), (200, Value::Null)),
        (json!(vec![&kib; 16]), (200, Value::Null)),
        (json!(format!("{kib}x")), refused.clone()),
        (json!([kib.as_str(), &format!("{kib}x")]), refused.clone()),
        (json!("x".repeat(16 * MIB)), refused.clone()),
    ] {
        assert_eq!(checked(&server, COMPLETIONS, &with_stop(stop)), wanted);
    }
    let mut too_many = vec![kib.as_str(); 16];
    too_many.push("x");
    assert_eq!(
        checked(&server, COMPLETIONS, &with_stop(json!(too_many))),
        refused
    );
}

/// Finding 6: lists of tokens were walked for each answer and step.
#[test]
fn long_lists_of_tokens_cost_no_more_than_their_bytes() {
    let server = server(&[]);
    for (field, len, wanted) in [
        ("allowed_token_ids", 4000, 200),
        ("allowed_token_ids", 100_000, 400),
        ("stop_token_ids", 1000, 200),
        ("stop_token_ids", 100_000, 400),
    ] {
        // 0 to 3999, again and again.
        let ids: Vec<u32> = (0..len).map(|id| id % 4000).collect();
        let mut body = json!({"prompt": "Hi", "max_tokens": 2, "n": 64});
        body[field] = json!(ids);
        let (status, param) = checked(&server, COMPLETIONS, &body);
        assert_eq!(status, wanted, "{field}");
        if wanted == 400 {
            assert_eq!(param, field);
        }
    }
}

/// Texts that are embedded or scored: many short ones, long ones that are cut, a query before each document.
#[test]
fn texts_to_embed_and_to_score_take_their_share() {
    let many = vec!["a cat"; 2048];
    let long = "cat ".repeat(50_000);
    let embedded = [
        (json!({"input": many}), 200),
        (json!({"input": vec![vec![7; 60]; 2048]}), 200),
        (
            json!({"input": [long, long], "truncate_prompt_tokens": 8}),
            200,
        ),
        (json!({"input": vec!["a"; 100_000]}), 400),
        (json!({"input": vec![json!([1]); 100_000]}), 400),
    ];
    let pairs = [
        (json!({"text_1": "a cat", "text_2": many}), 200),
        (json!({"text_1": many, "text_2": many}), 200),
        (
            json!({"text_1": long, "text_2": many[..100], "truncate_prompt_tokens": -1}),
            200,
        ),
        // Tokenizing all pairs would take minutes.
        (
            json!({"text_1": long, "text_2": many, "truncate_prompt_tokens": -1}),
            400,
        ),
        (json!({"text_1": long, "text_2": many[..100]}), 400),
    ];
    for (model, path, cases) in [
        ("bert_mean", "/v1/embeddings", &embedded),
        ("bert_mean", "/v1/score", &pairs),
        ("bert_reranker", "/v1/score", &pairs),
    ] {
        let folder = integration_tests::workspace()
            .join("tests/data/pooling")
            .join(model);
        let folder = folder.to_str().unwrap();
        let server = Server::start(&["--model", folder, "--num-blocks-override", "512"]);
        // What a step needs is there afterwards.
        for _ in 0..2 {
            assert_eq!(server.post(path, &cases[0].0).status, 200);
        }
        for (body, right) in cases {
            let (status, param) = checked(&server, path, body);
            // A cosine needs no pairs: the long text is tokenized once.
            let is_cosine = model == "bert_mean" && path == "/v1/score";
            let is_right = status == *right || (is_cosine && status == 200);
            assert!(is_right, "{model} {path}: {status} {param}");
        }
    }
}

/// Constraints whose shortest text takes many states to find. What is refused is still in the memory that all share.
#[test]
fn constraints_that_take_too_much_to_begin_take_their_share() {
    for schema in [
        json!({"type": "string", "minLength": 5000, "maxLength": 5001, "format": "email"}),
        json!({"type": "string", "minLength": 1000, "maxLength": 2000, "pattern": "^[^a]*(b.{100})+$"}),
        json!({"type": "string", "minLength": 1000, "maxLength": 1900, "pattern": "^(.*b.{30})+$"}),
    ] {
        let server = server(&[]);
        let constraint = json!({"json": schema});
        let body = json!({"prompt": "Hi", "max_tokens": 1900, "structured_outputs": constraint});
        let (status, _) = checked(&server, COMPLETIONS, &body);
        assert_eq!(status, 400, "{schema}");
    }
}

/// A constraint that takes little before its first token, and fills what memory it gets after that: each of the
/// answers adds to it.
#[test]
fn answers_that_fill_the_memory_of_grammars_take_their_share() {
    let server = server(&[]);
    let letter = json!({"prompt": "a", "add_special_tokens": false});
    let letter = server.post("/tokenize", &letter).json()["tokens"][0].clone();
    let mut bias = serde_json::Map::new();
    bias.insert(letter.to_string(), json!(-100));
    let one = "a|z(?=.{500,1400}$)[^a]*(b.{30})+".to_owned();
    let of_many = |index: u8| {
        let letter = char::from(b'b' + index);
        format!("|{letter}(?=.{{500,1400}}$)[^a]*(b.{{{}}})+", 20 + index)
    };
    let many: String = (0..15).map(of_many).collect();
    let prompt = |first: u32| -> Vec<u32> { (0..60).map(|i| 20 + (first + 7 * i) % 200).collect() };
    let prompts: Vec<_> = (0..128).map(prompt).collect();
    let bodies = [
        json!({"prompt": "Hi", "n": 64, "structured_outputs": {"regex": one}}),
        json!({"prompt": prompts, "prompt_logprobs": 20, "structured_outputs": {"regex": format!("a{many}")}}),
    ];
    for mut body in bodies {
        let more = json!({"max_tokens": 1400, "temperature": 1.8, "seed": 3, "logit_bias": bias});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (status, _) = checked(&server, COMPLETIONS, &body);
        assert_eq!(status, 400);
    }
}

/// Values were copied up to four times on the way to the error about their type, or to a text.
#[test]
fn values_within_others_take_their_share_whatever_their_type() {
    let server = server(&[]);
    let zeros = vec![0; 540_000];
    let empty = vec![""; 600_000];
    let parts = |kind: &str| vec![json!({"type": kind, "text": ""}); 100_000];
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    let decision = json!([{"type": "predicate", "name": "a", "instructions": "Is it?"}]);
    let properties = json!({"a": vec![json!({"": 0}); 122_000]});
    let objects = json!({"name": "f", "parameters": {"type": "object", "properties": properties}});
    let mut objects_of_responses = objects.clone();
    objects_of_responses["type"] = json!("function");
    let function = json!({"type": "function", "name": "f"});
    let allowed = |tools: &Value| json!({"type": "allowed_tools", "mode": "auto", "tools": tools});
    let lists = json!({"type": "object", "default": vec![[0]; 240_000]});
    let of_lists = json!({"type": "function", "function": {"name": "f", "parameters": lists}});
    for (path, mut body) in [
        (
            RESPONSES,
            json!({"input": "Hi", "reasoning": {"effort": empty}}),
        ),
        (
            RESPONSES,
            json!({"input": "Hi", "reasoning": {"effort": zeros}}),
        ),
        (
            RESPONSES,
            json!({"input": [{"role": empty, "content": "Hi"}]}),
        ),
        (
            RESPONSES,
            json!({"input": user(parts("input_text").into()), "truncate_prompt_tokens": 100}),
        ),
        (
            RESPONSES,
            json!({"input": [{"type": "function_call_output", "call_id": "c", "output": parts("input_text")}]}),
        ),
        (
            RESPONSES,
            json!({"input": "Hi", "tool_choice": {"type": "allowed_tools", "mode": zeros, "tools": []}}),
        ),
        (
            "/v1/decisions",
            json!({"input": user(parts("input_text").into()), "questions": decision}),
        ),
        (
            "/v1/messages",
            json!({"messages": user("Hi".into()), "tools": [tool], "tool_choice": {"type": "tool", "name": zeros}}),
        ),
        (
            "/v1/messages",
            json!({"messages": user(json!([{"type": zeros}]))}),
        ),
        (
            "/v1/messages/count_tokens",
            json!({"messages": user(json!([{"type": zeros}]))}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": user(parts("text").into())}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": user("Hi".into()), "tools": [{"type": "function", "function": objects}]}),
        ),
        (
            RESPONSES,
            json!({"input": "Hi", "tools": [objects_of_responses]}),
        ),
        (
            RESPONSES,
            json!({"input": "Hi", "tools": [function], "tool_choice": allowed(&json!(zeros))}),
        ),
        (
            RESPONSES,
            json!({"input": "Hi", "tools": [function], "tool_choice": allowed(&json!(vec![&function; 40_000]))}),
        ),
        (
            "/v1/systemone",
            json!({"state": "", "questions": {"a": {"type": "score", "criteria": empty}}}),
        ),
        (
            "/formwork/v1/check",
            json!({"tools": [of_lists], "tool_choice": "required"}),
        ),
        (
            "/formwork/v1/check",
            json!({"structured_outputs": {"json": lists}}),
        ),
        (
            "/v1/messages",
            json!({"messages": user("Hi".into()), "max_tokens": properties["a"]}),
        ),
    ] {
        match path {
            "/v1/decisions" | "/v1/systemone" | "/formwork/v1/check" => {}
            _ if body["max_tokens"].is_array() => {}
            RESPONSES => body["max_output_tokens"] = json!(2),
            _ => body["max_tokens"] = json!(2),
        }
        let sent = body.to_string().len();
        let peak = Peak::begin(&server);
        let status = server.post(path, &body).status;
        assert!(matches!(status, 200 | 400), "{path}: {status}");
        peak.check(&format!("{path}, {sent} bytes"), sent);
    }
}

/// What the frontend had freed of its values stood beside what the constraint takes in the core.
#[test]
fn values_beside_a_dear_constraint_take_their_share() {
    let schemas = [
        json!({"type": "object", "minProperties": 1000}),
        json!({"type": "object", "minProperties": 300}),
        json!({"type": "array", "minItems": 150, "uniqueItems": true}),
    ];
    let nest: Value = serde_json::from_str(&("[".repeat(90) + &"]".repeat(90))).unwrap();
    for len in [100_000, 740_000] {
        for schema in &schemas {
            let server = server(&[]);
            let body = json!({
                "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1500,
                "chat_template_kwargs": {"a": vec![&nest; len / 181]},
                "structured_outputs": {"json": schema},
            });
            let sent = body.to_string().len();
            let memory = AtOnce::begin(&server);
            let status = server.post("/v1/chat/completions", &body).status;
            assert!(matches!(status, 200 | 400), "{status}");
            memory.check(&format!("{sent} bytes beside {schema}"), sent);
        }
    }
}

/// So had texts that are tokenized to be cut, what a template makes, and the arguments of earlier calls.
#[test]
fn texts_beside_a_dear_constraint_take_their_share() {
    let words = "a ".repeat(65_000);
    // Tokenized as a whole: no tokenizer is known to write a word apart behind a mark.
    let marked = "e\u{301}".repeat(43_600);
    let template =
        "{% set x %}{% for i in range(15) %}{{ 'abcdefghij' * 100000 }}{% endfor %}{% endset %}Hi";
    let arguments = format!("{{\"a\": [{}[0]]}}", "[0],".repeat(25_000));
    let call =
        json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let user = json!({"role": "user", "content": "Hi"});
    for (path, body) in [
        (
            "/v1/completions",
            json!({"prompt": words, "truncate_prompt_tokens": 10}),
        ),
        (
            "/v1/completions",
            json!({"prompt": marked, "truncate_prompt_tokens": 10}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [user], "chat_template": template}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [user, {"role": "assistant", "tool_calls": [call]}, user], "truncate_prompt_tokens": 10}),
        ),
    ] {
        for properties in [200, 1000] {
            let server = server(&["--trust-request-chat-template"]);
            let mut body = body.clone();
            body["max_tokens"] = json!(1900);
            body["structured_outputs"] =
                json!({"json": {"type": "object", "minProperties": properties}});
            let sent = body.to_string().len();
            let memory = AtOnce::begin(&server);
            let status = server.post(path, &body).status;
            assert!(matches!(status, 200 | 400), "{status}");
            memory.check(
                &format!("{path}, {sent} bytes beside {properties} properties"),
                sent,
            );
        }
    }
}

/// Questions were copied for their prompts, their options' tokens kept one by one, and all of an answer was made as
/// values before any of it was written.
#[test]
fn options_of_decisions_take_their_share() {
    let server = server(&[]);
    for (kind, list, name) in [("score", "levels", "label"), ("choice", "choices", "value")] {
        // Options of one token each part at one place.
        let short = (b'!'..=b'~').filter(|byte| *byte != b'q');
        let short = short.map(|byte| char::from(byte).to_string());
        let options = short.chain([format!("q{}", "1".repeat(450))]);
        let options: Value = options.map(|option| json!({name: option})).collect();
        let question = json!({"type": kind, "instructions": "Q", list: options});
        let body = json!({"input": "", "questions": vec![question; 400]});
        let sent = body.to_string().len();
        let peak = Peak::begin(&server);
        let answer = server.post("/v1/decisions", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        peak.check(&format!("{kind}, {sent} bytes"), sent);
    }
}

/// Logprobs of a response were kept as values, and copied for each of the last events; so were its tools.
#[test]
fn responses_take_their_share() {
    let server = server(&[]);
    let mut body = json!({
        "input": "Hi", "max_output_tokens": 1800, "ignore_eos": true, "temperature": 1.8, "seed": 1,
        "include": ["message.output_text.logprobs"], "top_logprobs": 20,
    });
    for stream in [false, true] {
        body["stream"] = json!(stream);
        assert_eq!(checked(&server, RESPONSES, &body).0, 200);
    }
    let schema = json!({"type": "object", "default": vec![0; 440_000]});
    let mut body = json!({
        "input": "Hi", "max_output_tokens": 2, "tool_choice": "none",
        "tools": [{"type": "function", "name": "f", "parameters": schema}],
    });
    for stream in [false, true] {
        body["stream"] = json!(stream);
        assert_eq!(checked(&server, RESPONSES, &body).0, 200);
    }
}
