//! Requests for every route with every field, in ordinary, extreme and hostile values: the same at
//! each run.

use serde_json::{Value, json};

use super::costly::costly;
use super::random::Random;
use super::values::{Shape, value};

use Shape::{
    Bias, Choice, Constraint, Conversations, Flag, Format, Grammar, IdLists, Ids, Logprobs,
    Messages, NamedQuestions, Nest, Number, Object, Questions, Regex, Schema, Strings, Template,
    Text, ToolChoice, Tools,
};

/// One request, as it goes over the wire.
pub(super) struct Case {
    /// The route and what was put into it.
    pub(super) label: String,
    pub(super) bytes: Vec<u8>,
}

/// Fields of completions, chat and responses.
const COMMON: &[(&str, Shape)] = &[
    ("model", Text),
    ("n", Number),
    ("best_of", Number),
    ("temperature", Number),
    ("top_p", Number),
    ("top_k", Number),
    ("min_p", Number),
    ("presence_penalty", Number),
    ("frequency_penalty", Number),
    ("repetition_penalty", Number),
    ("seed", Number),
    ("stop", Strings),
    ("stop", Text),
    ("stop_token_ids", Ids),
    ("include_stop_str_in_output", Flag),
    ("ignore_eos", Flag),
    ("max_tokens", Number),
    ("min_tokens", Number),
    ("skip_special_tokens", Flag),
    ("spaces_between_special_tokens", Flag),
    ("logit_bias", Bias),
    ("allowed_token_ids", Ids),
    ("bad_words", Strings),
    ("prompt_logprobs", Logprobs),
    ("logprob_token_ids", Ids),
    ("repetition_detection", Object),
    ("thinking_token_budget", Number),
    ("truncate_prompt_tokens", Number),
    ("truncation_side", Text),
    ("stream", Flag),
    ("stream_options", Object),
    ("stream_interval", Number),
    ("priority", Number),
    ("request_id", Text),
    ("cache_salt", Text),
    ("return_token_ids", Flag),
    ("return_tokens_as_token_ids", Flag),
    ("include_trace", Flag),
    ("structured_outputs", Constraint),
    ("response_format", Format),
    ("guided_json", Schema),
    ("guided_regex", Regex),
    ("guided_choice", Choice),
    ("guided_grammar", Grammar),
    ("grammar", Grammar),
    ("json_schema", Schema),
    ("user", Text),
    ("metadata", Object),
    ("add_special_tokens", Flag),
    ("vllm_xargs", Object),
    ("unknown_field", Nest),
];
const OF_COMPLETIONS: &[(&str, Shape)] = &[
    ("prompt", Text),
    ("prompt", Text),
    ("prompt", Ids),
    ("prompt", Strings),
    ("prompt", IdLists),
    ("echo", Flag),
    ("logprobs", Logprobs),
    ("suffix", Text),
];
const OF_CHAT: &[(&str, Shape)] = &[
    ("messages", Messages),
    ("messages", Messages),
    ("messages", Nest),
    ("tools", Tools),
    ("tools", Tools),
    ("tool_choice", ToolChoice),
    ("parallel_tool_calls", Flag),
    ("logprobs", Flag),
    ("top_logprobs", Logprobs),
    ("max_completion_tokens", Number),
    ("add_generation_prompt", Flag),
    ("continue_final_message", Flag),
    ("documents", Nest),
    ("chat_template_kwargs", Object),
    ("chat_template_kwargs", Nest),
    ("chat_template", Template),
    ("chat_template", Template),
    ("reasoning_effort", Text),
    ("include_reasoning", Flag),
];
const OF_RESPONSES: &[(&str, Shape)] = &[
    ("input", Text),
    ("input", Messages),
    ("instructions", Text),
    ("text", Object),
    ("tools", Tools),
    ("tool_choice", ToolChoice),
    ("max_output_tokens", Number),
    ("reasoning", Object),
    ("top_logprobs", Logprobs),
    ("include", Strings),
    ("metadata", Object),
    ("chat_template", Template),
];
const OF_MESSAGES: &[(&str, Shape)] = &[
    ("messages", Messages),
    ("system", Text),
    ("stop_sequences", Strings),
    ("tools", Tools),
    ("thinking", Object),
    ("output_config", Object),
    ("output_format", Object),
    ("chat_template", Template),
    ("chat_template_kwargs", Nest),
    ("structured_outputs", Constraint),
    ("metadata", Object),
];
const OF_TOKENIZE: &[(&str, Shape)] = &[
    ("prompt", Text),
    ("prompt", Text),
    ("model", Text),
    ("add_special_tokens", Flag),
    ("return_token_strs", Flag),
    ("unknown_field", Nest),
];
const OF_TOKENIZED_CHAT: &[(&str, Shape)] = &[
    ("messages", Messages),
    ("chat_template", Template),
    ("tools", Tools),
    ("return_token_strs", Flag),
    ("chat_template_kwargs", Nest),
    ("documents", Nest),
];
const OF_CHECK: &[(&str, Shape)] = &[
    ("structured_outputs", Constraint),
    ("response_format", Format),
    ("guided_json", Schema),
    ("guided_regex", Regex),
    ("guided_choice", Choice),
    ("guided_grammar", Grammar),
    ("tools", Tools),
    ("text", Text),
];
const OF_BATCH: &[(&str, Shape)] = &[
    ("messages", Conversations),
    ("messages", Conversations),
    ("messages", Nest),
    ("chat_template", Template),
    ("chat_template_kwargs", Object),
    ("chat_template_kwargs", Nest),
    ("documents", Nest),
    ("logprobs", Flag),
];
const OF_GENERATE: &[(&str, Shape)] = &[
    ("token_ids", Ids),
    ("token_ids", Ids),
    ("token_ids", IdLists),
    ("sampling_params", Object),
    ("sampling_params", Nest),
    ("cache_salt", Text),
    ("return_token_ids", Flag),
    ("stream", Flag),
];
const OF_DECISIONS: &[(&str, Shape)] = &[
    ("input", Text),
    ("input", Messages),
    ("instructions", Text),
    ("questions", Questions),
    ("questions", Questions),
    ("questions", Nest),
];
const OF_SYSTEM_ONE: &[(&str, Shape)] = &[
    ("state", Text),
    ("state", Nest),
    ("questions", NamedQuestions),
    ("questions", NamedQuestions),
    ("questions", Object),
];
const OF_EMBEDDINGS: &[(&str, Shape)] = &[
    ("input", Text),
    ("input", Strings),
    ("input", Ids),
    ("input", IdLists),
    ("dimensions", Number),
    ("encoding_format", Text),
    ("truncate_prompt_tokens", Number),
    ("user", Text),
];
const OF_SCORES: &[(&str, Shape)] = &[
    ("text_1", Text),
    ("text_1", Strings),
    ("text_2", Text),
    ("text_2", Strings),
    ("truncate_prompt_tokens", Number),
];
const OF_RANKINGS: &[(&str, Shape)] = &[
    ("query", Text),
    ("documents", Strings),
    ("documents", Strings),
    ("documents", Nest),
    ("top_n", Number),
    ("return_documents", Flag),
];
const OF_DETOKENIZE: &[(&str, Shape)] = &[("tokens", Ids), ("tokens", Ids), ("model", Text)];

const PATHS: &[&str] = &[
    "/health",
    "/ping",
    "/load",
    "/version",
    "/metrics",
    "/openapi.json",
    "/v1/models",
    "/v1/models/x",
    "/none",
    "/v1/completions",
    "/tokenize",
];

/// One request of so many is one of [`costly`].
const COSTLY: u64 = 10;

/// The request with this number.
pub(super) fn case(number: u64, key: &str) -> Case {
    let mut random = Random::new(number);
    let random = &mut random;
    if number % COSTLY == COSTLY - 1 {
        let (label, path, body) = costly(number / COSTLY, random);
        let (label, body) = (format!("{path} {label}"), body.to_string());
        return request_of_somebody(label, "POST", path, "", key, body.as_bytes(), random);
    }
    match random.below(27) {
        0..=6 => posted("/v1/completions", &[COMMON, OF_COMPLETIONS], key, random),
        7..=13 => posted("/v1/chat/completions", &[COMMON, OF_CHAT], key, random),
        14..=15 => posted("/v1/responses", &[COMMON, OF_RESPONSES], key, random),
        16 => posted("/formwork/v1/check", &[OF_CHECK], key, random),
        17..=18 => posted("/tokenize", &[OF_TOKENIZE], key, random),
        19 => posted("/tokenize", &[OF_TOKENIZED_CHAT], key, random),
        20 => posted("/detokenize", &[OF_DETOKENIZE], key, random),
        21 => raw_body(key, random),
        22 => match number % 6 {
            4 => {
                let path = "/v1/chat/completions/batch";
                posted(path, &[COMMON, OF_BATCH], key, random)
            }
            5 => posted("/inference/v1/generate", &[OF_GENERATE], key, random),
            0 => posted("/v1/messages/count_tokens", &[OF_MESSAGES], key, random),
            _ => posted("/v1/messages", &[COMMON, OF_MESSAGES], key, random),
        },
        23 => posted("/v1/decisions", &[OF_DECISIONS], key, random),
        24 => posted("/v1/systemone", &[OF_SYSTEM_ONE], key, random),
        25 => pooled(number, key, random),
        _ => odd_head(key, random),
    }
}

/// The request with this number to a model that makes vectors.
pub(super) fn pooling_case(number: u64, key: &str) -> Case {
    pooled(number, key, &mut Random::new(number))
}

fn pooled(number: u64, key: &str, random: &mut Random) -> Case {
    match number % 3 {
        0 => posted("/v1/embeddings", &[OF_EMBEDDINGS], key, random),
        1 => posted("/v1/score", &[OF_SCORES], key, random),
        _ => posted("/v1/rerank", &[OF_RANKINGS], key, random),
    }
}

/// Tokens of an answer: mostly few, so that many requests can be tried.
const MAX_TOKENS: [u32; 8] = [2, 2, 2, 2, 2, 2, 50, 400];

/// The least that a route asks for.
fn base(path: &str, fields: &[&[(&str, Shape)]], random: &mut Random) -> Value {
    let max_tokens = *random.one_of(&MAX_TOKENS);
    match path {
        "/v1/completions" => json!({"prompt": "Hi", "max_tokens": max_tokens}),
        "/v1/chat/completions" | "/v1/messages" | "/v1/messages/count_tokens" => {
            json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": max_tokens})
        }
        "/v1/responses" => json!({"input": "Hi", "max_output_tokens": max_tokens}),
        "/formwork/v1/check" => json!({"text": "a"}),
        "/v1/decisions" => {
            let question = json!({"type": "predicate", "name": "a", "instructions": "Is it?"});
            json!({"input": "Hi", "questions": [question]})
        }
        "/v1/systemone" => {
            json!({"state": "Hi", "questions": {"a": {"type": "noul", "instructions": "Is it?"}}})
        }
        "/v1/chat/completions/batch" => {
            let conversation = json!([{"role": "user", "content": "Hi"}]);
            json!({"messages": [conversation, conversation], "max_tokens": max_tokens})
        }
        "/inference/v1/generate" => {
            json!({"token_ids": [1], "sampling_params": {"max_tokens": max_tokens}})
        }
        "/v1/embeddings" => json!({"input": "Hi"}),
        "/v1/score" => json!({"text_1": "Hi", "text_2": "Ho"}),
        "/v1/rerank" => json!({"query": "Hi", "documents": ["Ho", "Ha"]}),
        "/detokenize" => json!({"tokens": [1]}),
        _ if fields == [OF_TOKENIZED_CHAT] => {
            json!({"messages": [{"role": "user", "content": "Hi"}]})
        }
        _ => json!({"prompt": "Hi"}),
    }
}

/// One to four fields beside the least, which share a size.
fn posted(path: &str, fields: &[&[(&str, Shape)]], key: &str, random: &mut Random) -> Case {
    let mut body = base(path, fields, random);
    let count = 1 + random.below(4);
    let size = random.size() / count;
    let mut label = path.to_owned();
    for _ in 0..count {
        // A route's own fields as often as the common ones.
        let list = *random.one_of(fields);
        let (name, shape) = *random.one_of(list);
        body[name] = value(shape, random, size);
        label.push_str(&format!(" {name}:{shape:?}"));
    }
    label.push_str(&format!(" {size}"));
    request_of_somebody(
        label,
        "POST",
        path,
        "",
        key,
        body.to_string().as_bytes(),
        random,
    )
}

/// What is no request, or hardly JSON.
fn raw_body(key: &str, random: &mut Random) -> Case {
    let size = random.size();
    let many = |piece: &str| piece.repeat(size / piece.len() + 1);
    let kind = random.below(10);
    let body = match kind {
        0 => many("["),
        1 => many("{\"a\":"),
        2 => format!("[{}0]", many("0,")),
        3 => format!("{{\"prompt\": {}}}", many("7")),
        4 => format!("{{\"prompt\": \"{}\"}}", many("\\u0041")),
        5 => many(" "),
        6 => format!("{{{}\"prompt\": 1}}", many("\"a\": 1, ")),
        7 => {
            let pairs: Vec<String> = (0..size / 16).map(|i| format!("\"k{i}\": []")).collect();
            format!("{{{}}}", pairs.join(","))
        }
        8 => format!("{{\"prompt\": [{}[]]}}", many("[],")),
        _ => format!("{{\"prompt\": \"{}", many("a")),
    };
    let path = *random.one_of(&[
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/tokenize",
    ]);
    let label = format!("{path} raw {kind} {size}");
    request_of_somebody(label, "POST", path, "", key, body.as_bytes(), random)
}

/// Methods, paths and headers of any length.
fn odd_head(key: &str, random: &mut Random) -> Case {
    let size = random.size();
    let path = *random.one_of(PATHS);
    let long = "x".repeat(size);
    let (method, path, headers) = match random.below(8) {
        0 => ("A".repeat(size.min(20_000)), path.to_owned(), String::new()),
        1 => (
            "GET".to_owned(),
            format!("/v1/models/{long}"),
            String::new(),
        ),
        2 => ("GET".to_owned(), format!("{path}?{long}"), String::new()),
        3 => (
            "GET".to_owned(),
            path.to_owned(),
            format!("X-Long: {long}\r\n"),
        ),
        4 => (
            "GET".to_owned(),
            path.to_owned(),
            "X: y\r\n".repeat(size / 6),
        ),
        5 => (
            "POST".to_owned(),
            path.to_owned(),
            format!("X-Request-Id: {long}\r\n"),
        ),
        6 => {
            let method = random.one_of(&["PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]);
            ((*method).to_owned(), path.to_owned(), String::new())
        }
        _ => ("GET".to_owned(), path.to_owned(), String::new()),
    };
    let label = format!(
        "{} {} head {size}",
        &method[..method.len().min(9)],
        &path[..path.len().min(20)]
    );
    request_of_somebody(label, &method, &path, &headers, key, b"", random)
}

/// A request, one of twelve with a wrong key.
fn request_of_somebody(
    label: String,
    method: &str,
    path: &str,
    headers: &str,
    key: &str,
    body: &[u8],
    random: &mut Random,
) -> Case {
    let key = match random.once_in(12) {
        true => "none",
        false => key,
    };
    request(label, method, path, headers, key, body)
}

/// A request as it goes over the wire.
pub(super) fn request(
    label: String,
    method: &str,
    path: &str,
    headers: &str,
    key: &str,
    body: &[u8],
) -> Case {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    Case { label, bytes }
}
