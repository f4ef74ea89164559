//! `/v1/decisions` and `/v1/systemone`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::client::start;
use super::support::{Server, eventually, long_stream, signal, streamed_text};

const PATH: &str = "/v1/decisions";
const SYSTEM_ONE: &str = "/v1/systemone";
/// How far a probability may be from the reference.
const TOLERANCE: f64 = 1e-4;
/// The tokens that end the built-in model's answers.
const ENDS: [u64; 2] = [4089, 4091];

const TEXT: &str = "I was charged twice for the same subscription, and nobody answers my letters. \
                    It is the third time. Please send the money back, or I will go to another shop.";

fn choice(instructions: &str, values: &[Value]) -> Value {
    let choices: Vec<Value> = values.iter().map(|value| json!({"value": value})).collect();
    json!({"type": "choice", "instructions": instructions, "choices": choices})
}

fn words(instructions: &str, values: &[&str]) -> Value {
    let values: Vec<Value> = values.iter().map(|value| json!(value)).collect();
    choice(instructions, &values)
}

fn request(questions: &[Value]) -> Value {
    json!({"model": "formwork-builtin", "input": TEXT, "questions": questions})
}

/// Questions whose options share beginnings, are beginnings of others, have many tokens, or few letters.
fn questions() -> Vec<Value> {
    let numbers: Vec<String> = (0..40).map(|i| format!("number {}", i * i)).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    vec![
        json!({"type": "predicate", "name": "refund", "instructions": "The customer wants a refund."}),
        words(
            "Which team?",
            &[
                "billing",
                "billing and refunds",
                "bill",
                "technical support",
                "b",
            ],
        ),
        choice(
            "Is it urgent?",
            &[json!("true"), json!(true), json!(false), json!("")],
        ),
        words(
            "Welche Stadt?",
            &["Zürich", "Zürich 🏔️", "Zug", "東京", "東京都", "Αθήνα"],
        ),
        words("How many?", &numbers),
        json!({"type": "score", "name": "anger", "instructions": "How angry is the customer?", "levels": [
            {"label": "not angry at all", "description": "Friendly words"},
            {"label": "not so angry"}, {"label": "very angry"}, {"label": "very, very angry indeed"},
        ]}),
    ]
}

/// Options with their probabilities, as an answer tells them.
fn probabilities(answer: &Value) -> Vec<f64> {
    match answer["type"].as_str() {
        Some("predicate") => {
            let yes = answer["probability"].as_f64().unwrap();
            vec![yes, 1.0 - yes]
        }
        _ => (answer["probabilities"].as_array().unwrap().iter())
            .map(|entry| entry["probability"].as_f64().unwrap())
            .collect(),
    }
}

fn answers(answer: &Value) -> Vec<Vec<f64>> {
    let answers = answer["answers"].as_array();
    answers
        .unwrap_or_else(|| panic!("{answer}"))
        .iter()
        .map(probabilities)
        .collect()
}

fn assert_close(one: &[Vec<f64>], other: &[Vec<f64>]) {
    assert_eq!(one.len(), other.len());
    for (i, (one, other)) in one.iter().zip(other).enumerate() {
        assert_eq!(one.len(), other.len());
        for (p, q) in one.iter().zip(other) {
            assert!(
                (p - q).abs() < TOLERANCE,
                "question {i}: {one:?}, {other:?}"
            );
        }
    }
}

fn token_ids(answer: &Value) -> Vec<u64> {
    let tokens = answer["tokens"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"));
    tokens.iter().map(|id| id.as_u64().unwrap()).collect()
}

/// The logarithms of the probabilities of these tokens behind a prompt, as completions tell them.
fn logprobs(server: &Server, prompt: &[u64], asked: &BTreeSet<u64>) -> Vec<(u64, f64)> {
    let body = json!({
        "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1,
        "logprob_token_ids": asked, "return_tokens_as_token_ids": true,
    });
    let answer = server.post("/v1/completions", &body).json();
    let top = answer["choices"][0]["logprobs"]["top_logprobs"][0].as_object();
    let top = top.unwrap_or_else(|| panic!("{answer}"));
    let of = |id: &u64| (*id, top[&format!("token_id:{id}")].as_f64().unwrap());
    asked.iter().map(of).collect()
}

/// The probabilities of options behind a conversation, one step after another under a mask: at each step what
/// some option has next shares the probability.
fn brute_force(server: &Server, message: &str, options: &[String]) -> Vec<f64> {
    let chat = json!({"messages": [{"role": "user", "content": message}]});
    let prompt = token_ids(&server.post("/tokenize", &chat).json());
    let text = server
        .post("/detokenize", &json!({"tokens": prompt}))
        .json()["prompt"]
        .clone();
    let tokenize = |option: &String| {
        let whole = format!("{}{option}", text.as_str().unwrap());
        let body = json!({"prompt": whole, "add_special_tokens": false});
        let whole = token_ids(&server.post("/tokenize", &body).json());
        whole.strip_prefix(&*prompt).unwrap().to_vec()
    };
    let options: Vec<Vec<u64>> = options.iter().map(tokenize).collect();
    let conditional = |begun: &[u64], taken: &[u64]| -> f64 {
        let next = options
            .iter()
            .flat_map(|option| match option.strip_prefix(begun) {
                Some([first, ..]) => vec![*first],
                Some([]) => ENDS.to_vec(),
                None => Vec::new(),
            });
        let next: BTreeSet<u64> = next.collect();
        if next.iter().all(|id| taken.contains(id)) {
            return 1.0;
        }
        let rows = logprobs(server, &[&prompt, begun].concat(), &next);
        let sum = |ids: &dyn Fn(u64) -> bool| -> f64 {
            let of_ids = rows.iter().filter(|(id, _)| ids(*id));
            of_ids.map(|(_, logprob)| logprob.exp()).sum()
        };
        sum(&|id| taken.contains(&id)) / sum(&|_| true)
    };
    let of_option = |option: &Vec<u64>| {
        let steps = (0..option.len()).map(|i| conditional(&option[..i], &option[i..=i]));
        steps.product::<f64>() * conditional(option, &ENDS)
    };
    options.iter().map(of_option).collect()
}

/// The message that asks a question, with its options as the model writes them: see `docs/decisions.md`.
fn message_of(question: &Value) -> (String, Vec<String>) {
    let listed = |list: &str, name: &str| -> Vec<(Value, Option<String>)> {
        let entries = question[list].as_array().unwrap().iter();
        let description = |entry: &Value| entry["description"].as_str().map(str::to_owned);
        entries
            .map(|entry| (entry[name].clone(), description(entry)))
            .collect()
    };
    let (before, list, options) = match question["type"].as_str().unwrap() {
        "predicate" => (
            "Is this true? ",
            "",
            vec![(json!("yes"), None), (json!("no"), None)],
        ),
        "choice" => ("", "", listed("choices", "value")),
        _ => (
            "",
            ", from the lowest level to the highest",
            listed("levels", "label"),
        ),
    };
    let is_plain = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let as_json = !options.iter().all(|(value, _)| is_plain(value));
    let text = |value: &Value| match as_json {
        true => value.to_string(),
        false => value.as_str().unwrap().to_owned(),
    };
    let lines: String = (options.iter())
        .map(|(value, description)| match description {
            Some(description) => format!("\n- {}: {description}", text(value)),
            None => format!("\n- {}", text(value)),
        })
        .collect();
    let message = format!(
        "Answer the question about the following text with one of its possible answers, exactly as it stands \
         there, and with nothing else.\n\n{TEXT}\n\nPossible answers{list}:{lines}\n\nQuestion: {before}{}",
        question["instructions"].as_str().unwrap()
    );
    (
        message,
        options.iter().map(|(value, _)| text(value)).collect(),
    )
}

#[test]
fn probabilities_are_those_of_steps_under_a_mask() {
    let server = Server::shared();
    let questions = questions();
    let told = server.post(PATH, &request(&questions)).json();
    let expected: Vec<Vec<f64>> = (questions.iter())
        .map(|question| {
            let (message, options) = message_of(question);
            brute_force(server, &message, &options)
        })
        .collect();
    assert_close(&answers(&told), &expected);
    for (question, answer) in questions.iter().zip(told["answers"].as_array().unwrap()) {
        assert_eq!(answer["type"], question["type"]);
        assert_eq!(answer["name"], question["name"]);
        let sum: f64 = probabilities(answer).iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{answer}");
    }
    let score = &told["answers"][5];
    let levels = expected[5].iter().enumerate();
    let mean: f64 = levels.map(|(level, p)| level as f64 * p).sum();
    assert!((score["score"].as_f64().unwrap() - mean).abs() < 4.0 * TOLERANCE);
    assert_eq!(score["probabilities"][2]["label"], "very angry");
    assert_eq!(score["probabilities"][2]["value"], 2);
    assert_eq!(told["usage"]["output_tokens"], 0);
}

#[test]
fn questions_share_the_text_and_generate_nothing() {
    let server = Server::start(&["--enable-prompt-tokens-details"]);
    let questions = vec![questions().remove(0); 10];
    let told = server.post(PATH, &request(&questions)).json();
    let usage = &told["usage"];
    let (input, cached) = (
        &usage["input_tokens"],
        &usage["input_tokens_details"]["cached_tokens"],
    );
    // The text is about 40 tokens, of which full blocks are shared.
    assert!(cached.as_f64().unwrap() >= 9.0 * 32.0, "{usage}");
    // They are counted behind the answer.
    for (name, count) in [
        ("vllm:prefix_cache_hits_total", cached),
        ("vllm:prompt_tokens_total", input),
        ("vllm:generation_tokens_total", &json!(0)),
    ] {
        eventually(name, || server.metric(name) == count.as_f64().unwrap());
    }
    let all = answers(&told);
    assert_close(&all[1..], &vec![all[0].clone(); 9]);
}

#[test]
fn the_other_api_gives_the_same_answers() {
    let server = Server::shared();
    let system_one = json!({"model": "formwork-builtin", "state": TEXT, "questions": {
        "refund": {"type": "noul", "instructions": "The customer wants a refund."},
        "team": {"type": "choice", "instructions": "Which team?", "criteria": {
            "billing": null, "billing and refunds": null, "bill": null, "technical support": null, "b": null,
        }},
        "anger": {"type": "score", "instructions": "How angry?", "criteria": ["Friendly", {"words": "rude"}]},
    }});
    let told = server.post(SYSTEM_ONE, &system_one).json();
    let other = server.post(PATH, &request(&questions()[..2])).json();
    let of_other = answers(&other);
    let noul = told["answers"]["refund"]["noul"].as_f64().unwrap();
    assert!((noul - of_other[0][0]).abs() < TOLERANCE, "{told}");
    let team = told["answers"]["team"]["probabilities"]
        .as_object()
        .unwrap();
    let team: Vec<f64> = team.values().map(|p| p.as_f64().unwrap()).collect();
    assert_close(&[team], &of_other[1..2]);
    assert_eq!(
        told["answers"]["team"]["choice"],
        other["answers"][1]["choice"]
    );
    let anger = &told["answers"]["anger"];
    assert_eq!(
        anger["legend"],
        json!({"0": "Friendly", "1": "{\"words\":\"rude\"}"})
    );
    let score = anger["score"].as_f64().unwrap();
    assert!((score - anger["probabilities"]["1"].as_f64().unwrap()).abs() < 1e-9);
    assert!(told["usage"]["input_tokens"].as_u64().unwrap() > 0);
    assert_eq!(told["usage"]["output_tokens"], 0);
}

#[test]
fn small_steps_and_a_small_cache_change_no_probability() {
    let server = Server::start(&[
        "--max-num-batched-tokens",
        "24",
        "--max-num-seqs",
        "6",
        "--max-model-len",
        "512",
        "--num-gpu-blocks-override",
        "40",
    ]);
    let body = request(&questions());
    let expected = answers(&Server::shared().post(PATH, &body).json());
    // Streams beside them take blocks away, and lose theirs.
    let streams: Vec<_> = (0..3)
        .map(|i| long_stream(&format!("Tell me about number {i}."), 300))
        .collect();
    let alone: Vec<String> = (streams.iter())
        .map(|body| streamed_text(&server.post("/v1/chat/completions", body)))
        .collect();
    let mut pending: Vec<_> = (streams.iter())
        .map(|body| server.begin("/v1/chat/completions", body))
        .collect();
    let decisions: Vec<_> = (0..4).map(|_| server.begin(PATH, &body)).collect();
    for decision in decisions {
        assert_close(&answers(&decision.finish().json()), &expected);
    }
    let texts: Vec<String> = (pending.drain(..))
        .map(|stream| streamed_text(&stream.finish()))
        .collect();
    assert_eq!(texts, alone);
    assert!(server.metric("vllm:num_preemptions_total") > 0.0);
    assert!(server.is_healthy());
}

#[test]
fn two_cores_or_no_prefix_cache_change_no_probability() {
    // Lists of options that several questions have, in another order than theirs.
    let many: Vec<Value> = (questions().into_iter())
        .chain(questions().into_iter().rev().map(|mut question| {
            question["instructions"] = json!("And the other customer?");
            question
        }))
        .collect();
    let body = request(&many);
    let one_by_one: Vec<Vec<f64>> = (many.iter())
        .flat_map(|question| {
            let body = request(std::slice::from_ref(question));
            answers(&Server::shared().post(PATH, &body).json())
        })
        .collect();
    for flags in [
        &[][..],
        &["--data-parallel-size", "2", "--threads", "2"],
        &["--no-enable-prefix-caching"],
    ] {
        let server = Server::start(flags);
        assert_close(&answers(&server.post(PATH, &body).json()), &one_by_one);
    }
}

#[test]
fn questions_outlive_their_core() {
    let server = Server::start(&["--max-num-batched-tokens", "32"]);
    let many: Vec<Value> = (0..20).flat_map(|_| questions()).collect();
    let body = request(&many);
    let expected = answers(&server.post(PATH, &body).json());
    let mut changed = body.clone();
    // Nothing of it is cached.
    changed["input"] = json!(format!("A letter. {TEXT}"));
    let pending = server.begin(PATH, &changed);
    eventually("it runs", || {
        server.metric("vllm:num_requests_running") > 0.0
    });
    let core = server.core();
    signal(core, libc::SIGKILL);
    let answer = pending.finish();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_ne!(server.core(), core);
    let again = server.post(PATH, &changed).json();
    assert_close(&answers(&answer.json()), &answers(&again));
    assert_close(&answers(&server.post(PATH, &body).json()), &expected);
}

/// What the model sees of a conversation stands in `docs/decisions.md`.
#[test]
fn a_conversation_is_a_text_about_which_is_asked() {
    let server = Server::shared();
    let conversation = json!([
        {"role": "user", "content": "Is it raining in Bern?"},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\": \"Bern\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "rain"}]},
    ]);
    let text = concat!(
        r#"{"role":"user","content":"Is it raining in Bern?"}"#,
        "\n",
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":"#,
        r#"{"name":"weather","arguments":"{\"city\": \"Bern\"}"}}]}"#,
        "\n",
        r#"{"role":"tool","tool_call_id":"c1","content":"rain"}"#,
    );
    let ask = |input: Value| {
        let answer = server.post(PATH, &json!({"input": input, "questions": questions()}));
        let answer = answer.json();
        (
            answers(&answer),
            answer["usage"]["input_tokens"].as_u64().unwrap(),
        )
    };
    let (of_conversation, num_tokens) = ask(conversation);
    let (of_text, num_tokens_of_text) = ask(json!(text));
    assert_eq!(num_tokens, num_tokens_of_text);
    assert_close(&of_conversation, &of_text);
}

/// 400 questions, each of which takes two requests to the engine.
#[test]
fn as_many_questions_as_there_may_be_have_their_answers() {
    let server = Server::shared();
    let question = words(
        "Which team?",
        &["billing 1", "billing 2", "support 1", "support 2"],
    );
    let one = server.post(PATH, &request(std::slice::from_ref(&question)));
    let one = answers(&one.json());
    let all = server.post(PATH, &request(&vec![question; 400]));
    assert_close(&answers(&all.json()), &vec![one[0].clone(); 400]);
}

#[test]
fn what_cannot_be_asked_is_refused_by_name() {
    let server = Server::shared();
    let refused = |path: &str, body: &Value| {
        let answer = server.post(path, body);
        let error = answer.json()["error"].clone();
        let param = error["param"].as_str().unwrap_or_default().to_owned();
        (
            answer.status,
            param,
            error["message"].as_str().unwrap().to_owned(),
        )
    };
    let long = "a long word ".repeat(3000);
    for (question, param, says) in [
        (words("x", &["a"]), "questions[0].choices", "2 to 255"),
        (
            words("x", &["a", "b", "a"]),
            "questions[0].choices[2].value",
            "\"a\"",
        ),
        (
            words("x", &["a", "<|im_end|>"]),
            "questions[0].choices[1].value",
            "control token",
        ),
        (
            words("x", &["a", &long]),
            "questions[0]",
            "maximum context length",
        ),
        (
            json!({"type": "rank"}),
            "questions[0].type",
            "predicate, choice, score",
        ),
        (
            json!({"type": "predicate", "instructions": "x", "nme": "a"}),
            "questions[0].nme",
            "did you mean `name`?",
        ),
    ] {
        let (status, field, message) = refused(PATH, &request(&[question]));
        assert_eq!((status, field.as_str()), (400, param), "{message}");
        assert!(message.contains(says), "{message}");
        assert!(
            message.len() < 1000 && !message.contains("truncate"),
            "{message}"
        );
    }
    let mut body = request(&questions());
    body["model"] = json!("jev-latest");
    assert_eq!(refused(PATH, &body).0, 404);
    body["model"] = Value::Null;
    body["stream"] = json!(true);
    assert_eq!(refused(PATH, &body).1, "stream");
    let (status, field, _) = refused(PATH, &json!({"input": TEXT}));
    assert_eq!((status, field.as_str()), (400, "questions"));
    let many = request(&vec![questions().remove(0); 401]);
    assert!(refused(PATH, &many).2.contains("1 to 400 entries, got 401"));
    let body = json!({"state": TEXT, "questions": {"q": {"type": "choice", "criteria": {"a": 1}}}});
    assert_eq!(refused(SYSTEM_ONE, &body).1, "questions.q.criteria.a");
    let answer = server.get(PATH);
    assert_eq!(answer.status, 405);
}

#[test]
fn a_key_is_asked_for_and_more_questions_than_have_a_place_are_refused() {
    let server = Server::start(&[
        "--api-key",
        "one",
        "--max-num-seqs",
        "4",
        "--max-num-queued-reqs",
        "4",
    ]);
    let ask = |num_questions: usize, headers: &str| {
        let body = request(&vec![questions().remove(0); num_questions]);
        let headers = format!("Content-Type: application/json\r\n{headers}");
        start(
            &server.address,
            "POST",
            PATH,
            &headers,
            body.to_string().as_bytes(),
        )
        .finish()
    };
    let key = "Authorization: Bearer one\r\n";
    assert_eq!(ask(1, "").status, 401);
    assert_eq!(ask(1, "Authorization: Bearer two\r\n").status, 401);
    assert_eq!(ask(8, key).status, 200);
    let answer = ask(9, key);
    let error = answer.json()["error"].clone();
    assert_eq!(
        (answer.status, &error["param"]),
        (400, &json!("questions")),
        "{error}"
    );
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("max_num_queued_reqs is 4")
    );
}
