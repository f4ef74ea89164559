//! `/v1/chat/completions/batch`: several conversations in one request.

use std::net::Shutdown;

use serde_json::{Value, json};

use super::client::start;
use super::support::{Server, eventually};

const PATH: &str = "/v1/chat/completions/batch";
const CHAT: &str = "/v1/chat/completions";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// Conversations of several lengths, two of which are equal.
fn conversations() -> Vec<Value> {
    vec![
        json!([user("Name a colour.")]),
        json!([{"role": "system", "content": "Be short."}, user("What is Formwork?")]),
        json!([user("Hi"), {"role": "assistant", "content": "Hello."}, user("Tell me about stone.")]),
        json!([user("Name a colour.")]),
        json!([user(&"Tell me about water and wood. ".repeat(20))]),
    ]
}

/// A request of these conversations, with more fields.
fn request(conversations: &[Value], more: &Value) -> Value {
    let mut body = json!({"messages": conversations, "max_tokens": 24});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn sum<'a>(answers: impl IntoIterator<Item = &'a Value>, pointer: &str) -> u64 {
    let numbers = answers.into_iter().map(|answer| answer.pointer(pointer));
    numbers
        .map(|number| number.unwrap().as_u64().unwrap())
        .sum()
}

/// The choices of the same requests one by one, with the indices of a batch, and their whole answers.
fn one_by_one(server: &Server, conversations: &[Value], more: &Value) -> (Vec<Value>, Vec<Value>) {
    let answers: Vec<Value> = (conversations.iter())
        .map(|conversation| {
            let mut body = request(&[], more);
            body["messages"] = conversation.clone();
            server.post(CHAT, &body).json()
        })
        .collect();
    let choices = answers.iter().enumerate().map(|(i, answer)| {
        let mut choice = answer["choices"][0].clone();
        choice["index"] = json!(i);
        choice
    });
    (choices.collect(), answers)
}

#[test]
fn answers_are_those_of_the_same_requests_one_by_one() {
    let server = Server::shared();
    let conversations = conversations();
    for more in [
        json!({"temperature": 0}),
        json!({"temperature": 0.8, "seed": 7, "top_k": 20}),
        json!({"temperature": 0, "logprobs": true, "top_logprobs": 2, "return_token_ids": true}),
        json!({"temperature": 0, "continue_final_message": true}),
        json!({"temperature": 0, "stop": ["e"], "max_completion_tokens": 24}),
        json!({"temperature": 0.7, "seed": 1, "structured_outputs": {"regex": "[a-z]{5,30}"}}),
    ] {
        let answer = server.post(PATH, &request(&conversations, &more)).json();
        let (choices, answers) = one_by_one(server, &conversations, &more);
        assert_eq!(answer["choices"].as_array().unwrap(), &choices, "{more}");
        assert_eq!(answer["object"], "chat.completion");
        for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            let pointer = format!("/usage/{count}");
            assert_eq!(sum([&answer], &pointer), sum(&answers, &pointer), "{more}");
        }
        assert_eq!(answer.get("prompt_token_ids"), None);
    }
}

#[test]
fn each_answer_is_under_the_constraint() {
    let schema = json!({
        "type": "object", "required": ["answer", "why"], "additionalProperties": false,
        "properties": {"answer": {"enum": ["yes", "no"]}, "why": {"type": "string", "maxLength": 20}},
    });
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    let more = json!({"response_format": format, "temperature": 1, "max_tokens": 60});
    let conversations: Vec<Value> = (0..32)
        .map(|i| json!([user(&format!("Is {i} a prime?"))]))
        .collect();
    let answer = Server::shared().post(PATH, &request(&conversations, &more));
    let answer = answer.json();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 32);
    for (i, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], i);
        assert_eq!(choice["structured_output_complete"], true, "{choice}");
        let content = choice["message"]["content"].as_str().unwrap();
        let value: Value = serde_json::from_str(content).unwrap();
        assert!(["yes", "no"].contains(&value["answer"].as_str().unwrap()));
    }
}

#[test]
fn what_is_wrong_is_told_by_the_conversation() {
    let server = Server::start(&["--max-num-seqs", "4", "--max-num-queued-reqs", "4"]);
    let refused = |messages: Value, more: Value| {
        let mut body = request(&[], &more);
        body["messages"] = messages;
        let answer = server.post(PATH, &body);
        assert_eq!(answer.status, 400, "{answer:?}");
        let error = answer.error();
        let field = error["param"].as_str().unwrap().to_owned();
        (field, error["message"].as_str().unwrap().to_owned())
    };
    let good = json!([user("Hi")]);
    let long = json!([user(&"a long word ".repeat(3000))]);
    let none = json!({});
    for (messages, more, field, says) in [
        (
            json!([good, []]),
            &none,
            "messages[1]",
            "at least one message",
        ),
        (
            json!([good, good, [user("a"), {"role": "me"}]]),
            &none,
            "messages[2][1].role",
            "system",
        ),
        (
            json!([user("Hi")]),
            &none,
            "messages[0]",
            "list of messages",
        ),
        (json!([]), &none, "messages", "1 to 1024"),
        (
            json!([good, long]),
            &none,
            "messages[1]",
            "maximum context length",
        ),
        (
            json!([good]),
            &json!({"stream": true}),
            "stream",
            "/v1/chat/completions",
        ),
        (json!([good]), &json!({"n": 2}), "n", "/v1/chat/completions"),
        (
            json!([good]),
            &json!({"temperature": 3}),
            "temperature",
            "between 0 and 2",
        ),
        (
            json!([good, good]),
            &json!({"guided_regex": "("}),
            "guided_regex",
            "guided_regex",
        ),
        (
            json!([good]),
            &json!({"chat_template": "x"}),
            "chat_template",
            "--trust-request",
        ),
        (
            json!(vec![good.clone(); 9]),
            &none,
            "messages",
            "max_num_queued_reqs is 4",
        ),
    ] {
        let (at, message) = refused(messages, more.clone());
        assert_eq!(at, field, "{message}");
        assert!(message.contains(says) && message.len() < 1000, "{message}");
    }
    let mut body = request(std::slice::from_ref(&good), &json!({"model": "other"}));
    assert_eq!(server.post(PATH, &body).status, 404);
    body["model"] = json!("formwork-builtin");
    assert_eq!(server.post(PATH, &body).status, 200);
    assert_eq!(
        server.post(PATH, &request(&vec![good; 8], &none)).status,
        200
    );
    assert_eq!(server.get(PATH).status, 405);
}

#[test]
fn a_conversation_that_leaves_a_constraint_no_room_is_named() {
    let server = Server::start(&["--max-model-len", "128"]);
    let num_tokens = |conversation: &Value| {
        let answer = server.post("/tokenize", &json!({"messages": conversation}));
        answer.json()["count"].as_u64().unwrap()
    };
    // What fits the context, and leaves the answer next to nothing.
    let mut lengths = (1..).map(|words| json!([user(&"word ".repeat(words))]));
    let long = lengths
        .find(|conversation| num_tokens(conversation) > 100)
        .unwrap();
    let more = json!({"structured_outputs": {"regex": "z{80}"}, "max_tokens": 100});
    let body = request(&[json!([user("Hi")]), long], &more);
    let answer = server.post(PATH, &body);
    assert_eq!(answer.status, 400, "{answer:?}");
    let error = answer.error();
    assert_eq!(error["param"], "structured_outputs.regex");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("messages[1]: "), "{message}");
}

#[test]
fn warnings_name_the_conversation() {
    let named =
        json!([user("Hi"), {"role": "assistant", "content": "a", "refusal": "b"}, user("c")]);
    let more = json!({"chat_template_kwargs": {"unread": 1}, "include_warnings": true});
    let body = request(&[json!([user("Hi")]), named], &more);
    let answer = Server::shared().post(PATH, &body);
    let header = &answer.headers["x-formwork-warnings"];
    assert!(header.contains("messages[1][1].refusal"), "{header}");
    assert_eq!(
        header.matches("chat_template_kwargs.unread").count(),
        1,
        "{header}"
    );
    assert_eq!(answer.json()["warnings"].as_array().unwrap().len(), 2);
}

#[test]
fn a_key_is_asked_for() {
    let server = Server::start(&["--api-key", "one", "--open-routes"]);
    let body = request(&conversations(), &json!({"temperature": 0})).to_string();
    let ask = |headers: &str| {
        let headers = format!("Content-Type: application/json\r\n{headers}");
        start(&server.address, "POST", PATH, &headers, body.as_bytes()).finish()
    };
    assert_eq!(ask("").status, 401);
    assert_eq!(ask("Authorization: Bearer two\r\n").status, 401);
    assert_eq!(ask("x-api-key: one\r\n").status, 200);
}

#[test]
fn a_client_that_leaves_ends_all_conversations() {
    let server = Server::start(&[]);
    let more = json!({"max_tokens": 1900, "ignore_eos": true, "temperature": 1});
    let body = request(&conversations(), &more);
    let mut client = server.begin(PATH, &body);
    eventually("they run", || {
        server.metric("vllm:num_requests_running") == 5.0
    });
    client.stream().shutdown(Shutdown::Both).unwrap();
    drop(client);
    eventually("they end", || {
        server.metric("vllm:num_requests_running") == 0.0
    });
    let aborted = || {
        let text = server.get("/metrics").body;
        let mut lines = text.lines();
        let line =
            lines.find(|l| l.starts_with("vllm:request_success_total") && l.contains("\"abort\""));
        line.unwrap().ends_with(" 5")
    };
    eventually("they are aborted", || {
        // Whoever comes next hears of what the step before did.
        server.post(PATH, &request(&[json!([user("Hi")])], &json!({})));
        aborted()
    });
}
