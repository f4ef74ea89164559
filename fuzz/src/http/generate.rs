//! Connections: requests to all routes with all fields, and heads that are wrong.

use crate::Random;
use crate::grammars::{many, schema, text};

/// The fields of requests, each with values that it may have. `SCHEMA` stands for a JSON schema, `NUMBERS`
/// for a list of token ids of any length, `TEXT` for a text of any length.
const FIELDS: &[(&str, &[&str])] = &[
    ("model", &["\"formwork-builtin\"", "\"other\""]),
    (
        "prompt",
        &[
            "\"TEXT\"",
            "[NUMBERS]",
            "\"Hello\"",
            "[1, 2, 3]",
            "[\"a\", \"b\"]",
            "[[1], [2, 3]]",
            "[]",
        ],
    ),
    ("prompt_embeds", &["\"AAAA\"", "[\"AAAA\"]"]),
    (
        "messages",
        &[
            "[{\"role\": \"user\", \"content\": \"TEXT\"}]",
            "[{\"role\": \"user\", \"content\": \"Hi\"}]",
            "[{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}, {\"role\": \"user\", \"content\": \"b\"}]",
            "[{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"2\"}]",
            "[[{\"role\": \"user\", \"content\": \"TEXT\"}], [{\"role\": \"user\", \"content\": \"Hi\"}]]",
            "[]",
        ],
    ),
    (
        "input",
        &[
            "\"Hi\"",
            "[{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": \"a\"}]}]",
            "[{\"type\": \"function_call\", \"call_id\": \"1\", \"name\": \"f\", \"arguments\": \"{}\"}, {\"type\": \"function_call_output\", \"call_id\": \"1\", \"output\": \"2\"}]",
        ],
    ),
    (
        "questions",
        &[
            "[{\"type\": \"predicate\", \"instructions\": \"TEXT\"}]",
            "[{\"type\": \"choice\", \"instructions\": \"a\", \"choices\": [{\"value\": \"TEXT\"}, {\"value\": true}]}]",
            "[{\"type\": \"score\", \"instructions\": \"\", \"levels\": [{\"label\": \"a\"}, {\"label\": \"a b\"}]}]",
            "{\"q\": {\"type\": \"noul\"}}",
            "{\"q\": {\"type\": \"choice\", \"criteria\": {\"TEXT\": null, \"b\": \"c\"}}}",
        ],
    ),
    ("state", &["\"TEXT\"", "{\"a\": [1]}"]),
    ("instructions", &["\"Be short\""]),
    ("tokens", &["[NUMBERS]", "[1, 2, 3]", "[4095]", "[4096]"]),
    ("token_ids", &["[NUMBERS]", "[1, 2, 3]", "[4095]", "[4096]"]),
    (
        "sampling_params",
        &[
            "{}",
            "{\"max_tokens\": 4, \"logprobs\": 2}",
            "{\"n\": 2, \"stop_token_ids\": [NUMBERS]}",
            "{\"structured_outputs\": {\"json\": SCHEMA}}",
        ],
    ),
    ("output_mode", &["\"tokens\"", "\"text\""]),
    ("reasoning_ended", &["true", "false"]),
    ("max_tokens", &["0", "1", "2", "16", "2048"]),
    ("max_completion_tokens", &["2", "16"]),
    ("max_output_tokens", &["2", "16"]),
    ("min_tokens", &["0", "1", "17"]),
    ("n_predict", &["2", "-1"]),
    ("n", &["16384", "1", "2", "3", "64"]),
    ("best_of", &["1", "2"]),
    ("temperature", &["0", "0.5", "2"]),
    ("top_p", &["1", "0.1", "0"]),
    ("top_k", &["-1", "0", "5"]),
    ("min_p", &["0", "0.5"]),
    ("presence_penalty", &["-2", "1"]),
    ("frequency_penalty", &["2"]),
    ("repetition_penalty", &["1.5"]),
    ("seed", &["0", "-1", "18446744073709551615"]),
    (
        "stop",
        &["\"TEXT\"", "\"a\"", "[\"a\", \"bb\"]", "[\"\"]", "[]"],
    ),
    ("stop_token_ids", &["[NUMBERS]", "[1, 2]", "[4095]"]),
    ("include_stop_str_in_output", &["true"]),
    ("ignore_eos", &["true"]),
    ("skip_special_tokens", &["false"]),
    ("spaces_between_special_tokens", &["false"]),
    (
        "logit_bias",
        &["{\"1\": 5}", "{\"4095\": -100}", "{\"x\": 1}"],
    ),
    ("allowed_token_ids", &["[NUMBERS]", "[1, 2, 3]", "[]"]),
    ("bad_words", &["[\"TEXT\"]", "[\"a\"]", "[\"a b\", \"\"]"]),
    ("logprobs", &["0", "5", "true", "20"]),
    ("top_logprobs", &["0", "5"]),
    ("prompt_logprobs", &["0", "5", "-1"]),
    ("logprob_token_ids", &["[NUMBERS]", "[1, 2]"]),
    (
        "repetition_detection",
        &["{\"max_pattern_size\": 4, \"min_pattern_size\": 1, \"min_count\": 2}"],
    ),
    ("thinking_token_budget", &["0", "5", "-1"]),
    ("truncate_prompt_tokens", &["1", "-1", "0"]),
    ("truncation_side", &["\"left\"", "\"right\""]),
    ("stream", &["true", "false"]),
    (
        "stream_options",
        &[
            "{\"include_usage\": true}",
            "{\"continuous_usage_stats\": true}",
        ],
    ),
    ("stream_interval", &["1", "2"]),
    ("priority", &["0", "-5"]),
    ("request_id", &["\"mine\""]),
    ("cache_salt", &["\"salt\""]),
    ("return_token_ids", &["true"]),
    ("return_token_strs", &["true"]),
    ("return_tokens_as_token_ids", &["true"]),
    ("include_trace", &["true"]),
    ("add_special_tokens", &["true", "false"]),
    ("echo", &["true"]),
    ("suffix", &["\"\"", "\"x\""]),
    (
        "response_format",
        &[
            "{\"type\": \"json_object\"}",
            "{\"type\": \"json_schema\", \"json_schema\": {\"name\": \"a\", \"schema\": SCHEMA}}",
            "{\"type\": \"structural_tag\", \"format\": {\"type\": \"any_text\"}}",
        ],
    ),
    (
        "structured_outputs",
        &[
            "{\"json\": SCHEMA}",
            "{\"regex\": \"[ab]+\"}",
            "{\"choice\": [\"a\", \"b\"]}",
            "{\"grammar\": \"root ::= \\\"a\\\" root | \\\"b\\\"\"}",
            "{\"json_object\": true, \"whitespace_pattern\": \" ?\"}",
            "{\"structural_tag\": {\"type\": \"structural_tag\", \"format\": {\"type\": \"any_text\"}}}",
        ],
    ),
    ("guided_json", &["SCHEMA"]),
    ("guided_regex", &["\"a+\"", "\"(\""]),
    ("guided_choice", &["[\"TEXT\", \"a\"]", "[\"a\"]"]),
    ("guided_grammar", &["\"root ::= \\\"a\\\"\""]),
    ("guided_whitespace_pattern", &["\" \""]),
    ("grammar", &["\"root ::= \\\"a\\\"\""]),
    ("json_schema", &["SCHEMA"]),
    (
        "tools",
        &[
            "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": SCHEMA}}]",
            "[{\"type\": \"function\", \"name\": \"f\", \"parameters\": SCHEMA}]",
            "[]",
        ],
    ),
    (
        "tool_choice",
        &[
            "\"auto\"",
            "\"required\"",
            "\"none\"",
            "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}",
        ],
    ),
    ("parallel_tool_calls", &["false"]),
    ("include_reasoning", &["false"]),
    ("reasoning_effort", &["\"low\"", "\"none\""]),
    ("reasoning", &["{\"effort\": \"low\"}"]),
    ("add_generation_prompt", &["false"]),
    ("continue_final_message", &["true"]),
    (
        "documents",
        &["[{\"a\": [NUMBERS]}]", "[{\"text\": \"a\"}]"],
    ),
    (
        "chat_template_kwargs",
        &["{\"enable_thinking\": true}", "{\"messages\": 1}"],
    ),
    (
        "chat_template",
        &[
            "\"{{ messages[0].content }}\"",
            "\"{% for m in messages %}{{ m }}{% endfor %}\"",
        ],
    ),
    ("text", &["{\"format\": {\"type\": \"json_object\"}}"]),
    ("include", &["[\"message.output_text.logprobs\"]"]),
    ("metadata", &["{\"a\": \"b\"}"]),
    ("store", &["false", "true"]),
    ("background", &["false"]),
    ("user", &["\"me\""]),
    ("previous_response_id", &["\"resp_1\""]),
];

const POST_ROUTES: [(&str, &[&str]); 14] = [
    ("/v1/completions", &["prompt"]),
    ("/v1/chat/completions", &["messages"]),
    ("/v1/chat/completions/batch", &["messages"]),
    ("/inference/v1/generate", &["token_ids", "sampling_params"]),
    ("/v1/responses", &["input"]),
    ("/v1/messages", &["messages", "max_tokens"]),
    ("/v1/messages/count_tokens", &["messages"]),
    ("/v1/decisions", &["input", "questions"]),
    ("/v1/systemone", &["state", "questions"]),
    ("/tokenize", &["prompt"]),
    ("/tokenize", &["messages"]),
    ("/detokenize", &["tokens"]),
    ("/ping", &[]),
    ("/llm/v1/completions", &["prompt"]),
];

const PATHS: [&str; 18] = [
    "/health",
    "/metrics",
    "/v1/models",
    "/v1/models/formwork-builtin",
    "/v1/models/a%2Fb",
    "/v1/models/%ff",
    "/version",
    "/load",
    "/openapi.json",
    "/ping",
    "/",
    "/v1/../metrics",
    "//health",
    "/health?a=b&c",
    "*",
    "http://other/health",
    "/llm/health",
    "/%00",
];

const METHODS: [&str; 12] = [
    "GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "BREW", "get",
    "PRI",
];

const HEADERS: [&str; 34] = [
    "Content-Length: 0",
    "Content-Length: 5",
    "Content-Length: 5, 5",
    "Content-Length: +5",
    "Content-Length: 0x5",
    "Content-Length: 18446744073709551616",
    "Content-Length: -1",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding : chunked",
    "transfer-encoding: xchunked",
    "Transfer-Encoding: chunked, chunked",
    "Expect: 100-continue",
    "Expect: 200-ok",
    "Connection: keep-alive",
    "Connection: close",
    "Connection: upgrade",
    "Upgrade: websocket",
    "Upgrade: h2c",
    "Content-Encoding: gzip",
    "Content-Type: text/plain",
    "Content-Type: multipart/form-data; boundary=a",
    "Accept: */*",
    "Authorization: Bearer secret",
    "Authorization: Bearer",
    "Authorization: Basic YTpi",
    "Origin: https://a.example",
    "Access-Control-Request-Method: POST",
    "X-Request-Id: mine",
    "X-Request-Id: \u{e9}\u{7f}",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    " folded: value",
];

/// Some requests on one connection.
pub(crate) fn generate(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(3) {
        bytes.extend(request(random, false));
    }
    let ends = !random.once_in(8);
    bytes.extend(request(random, ends));
    if random.once_in(12) {
        bytes.truncate(random.below(bytes.len() + 1));
    }
    bytes
}

fn request(random: &mut Random, closes: bool) -> Vec<u8> {
    let is_post = random.below(5) != 0;
    let (method, path, body) = match is_post {
        true => {
            let (path, needed) = *random.pick(&POST_ROUTES);
            ("POST", path, object(random, needed))
        }
        false => (*random.pick(&METHODS), *random.pick(&PATHS), String::new()),
    };
    let version = match random.below(30) {
        0 => "HTTP/1.0",
        1 => "HTTP/2.0",
        2 => "HTTP/0.9",
        3 => "http/1.1",
        _ => "HTTP/1.1",
    };
    let method = match random.once_in(40) {
        true => "M".repeat(1 + random.below(5_000)),
        false => method.to_owned(),
    };
    let path = match random.once_in(40) {
        true => format!("{path}{}", "/a".repeat(random.below(40_000))),
        false => path.to_owned(),
    };
    let mut head = format!("{method} {path} {version}\r\n");
    if !random.once_in(20) {
        let host = random.pick(&["localhost", "127.0.0.1:8000", "evil.example", ""]);
        head.push_str(&format!("Host: {host}\r\n"));
    }
    if random.once_in(2) {
        head.push_str("Authorization: Bearer secret\r\n");
    }
    for _ in 0..random.below(3) {
        if random.once_in(3) {
            head.push_str(&text(random, &HEADERS));
            head.push_str("\r\n");
        }
    }
    if random.once_in(50) {
        let count = random.below(400);
        (0..count).for_each(|n| head.push_str(&format!("x-{n}: {n}\r\n")));
    }
    if random.once_in(50) {
        let value = "v".repeat(random.below(100_000));
        head.push_str(&format!("x-long: {value}\r\n"));
    }
    if closes {
        head.push_str("Connection: close\r\n");
    }
    if is_post && !random.once_in(10) {
        head.push_str("Content-Type: application/json\r\n");
    }
    let mut bytes = Vec::new();
    match random.below(if body.is_empty() { 2 } else { 10 }) {
        0 if body.is_empty() => bytes.extend(format!("{head}\r\n").bytes()),
        0 => bytes.extend(chunked(random, &head, &body)),
        1 => {
            // Not what comes.
            let length = (body.len() + random.below(4)).saturating_sub(random.below(4));
            bytes.extend(format!("{head}Content-Length: {length}\r\n\r\n{body}").bytes());
        }
        _ => {
            let length = body.len();
            bytes.extend(format!("{head}Content-Length: {length}\r\n\r\n{body}").bytes());
        }
    }
    bytes
}

fn chunked(random: &mut Random, head: &str, body: &str) -> Vec<u8> {
    let mut bytes = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    let mut rest = body.as_bytes();
    while !rest.is_empty() {
        let (chunk, others) = rest.split_at((1 + random.below(2_000)).min(rest.len()));
        let extension = match random.below(12) {
            0 => ";a=b",
            1 => " ",
            2 => ";x=\"\\\"\"",
            _ => "",
        };
        bytes.extend(format!("{:x}{extension}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
        rest = others;
    }
    let last = random.pick(&[
        "0\r\n\r\n",
        "0\r\n\r\n",
        "0\r\na: b\r\n\r\n",
        "00\r\n\r\n",
        "0\n\n",
    ]);
    bytes.extend(last.bytes());
    bytes
}

/// A body with these fields and some others.
fn object(random: &mut Random, needed: &[&str]) -> String {
    let mut members: Vec<String> = Vec::new();
    for name in needed {
        let values = FIELDS.iter().find(|(field, _)| field == name);
        let values = values.map_or(&["null"][..], |(_, values)| values);
        members.push(format!("\"{name}\": {}", value(random, values)));
    }
    for _ in 0..random.below(6) {
        let (name, values) = random.pick(FIELDS);
        members.push(format!("\"{name}\": {}", value(random, values)));
    }
    if random.once_in(20) {
        members.push(format!("{}: 1", hostile(random)));
    }
    let open = if random.once_in(60) { "[" } else { "{" };
    format!("{open}{}}}", members.join(", "))
}

fn value(random: &mut Random, plausible: &[&str]) -> String {
    match random.once_in(5) {
        true => hostile(random),
        false => {
            let value = text(random, plausible);
            let most = if random.once_in(8) { 60_000 } else { 40 };
            let count = 1 + random.below(most);
            if value.contains("SCHEMA") {
                value.replace("SCHEMA", &schema(random, 1))
            } else if value.contains("NUMBERS") {
                value.replace("NUMBERS", &vec!["1"; count].join(","))
            } else {
                let word = *random.pick(&["1 ", "a", "ab ", "\\n", "\u{e9}"]);
                value.replace("TEXT", &word.repeat(count))
            }
        }
    }
}

/// A value that no field expects.
fn hostile(random: &mut Random) -> String {
    // Mostly short, so that many are tried.
    let size = match random.below(10) {
        0 => random.below(100_000),
        1 | 2 => random.below(5_000),
        _ => random.below(50),
    };
    match random.below(16) {
        0 => "null".to_owned(),
        1 => text(random, &["true", "false"]),
        2 => text(
            random,
            &[
                "-1",
                "0",
                "1",
                "16384",
                "65536",
                "2147483648",
                "4294967295",
                "4294967296",
            ],
        ),
        3 => text(
            random,
            &[
                "1e308",
                "1e400",
                "-0.0",
                "0.1e-300",
                "9223372036854775808",
                "18446744073709551616",
            ],
        ),
        4 => text(
            random,
            &[
                "\"\"",
                "\"\\u0000\"",
                "\"\\ud800\"",
                "\"\\udc00\\ud800\"",
                "\"\\u202e\"",
                "\"é日😀\"",
            ],
        ),
        5 => format!("\"{}\"", "a".repeat(size)),
        6 => format!("\"{}\"", "1 ".repeat(size)),
        7 => format!("\"{}\"", "\\n\\\"".repeat(size)),
        8 => format!("[{}]", vec!["1"; size.max(1)].join(",")),
        9 => format!("[{}]", vec!["\"a\""; size.max(1)].join(",")),
        10 => {
            let members: Vec<String> = (0..size.min(20_000))
                .map(|n| format!("\"{n}\":1"))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        11 => format!("{}{}", "[".repeat(size), "]".repeat(size)),
        12 => format!("{}1{}", "{\"a\":".repeat(size), "}".repeat(size)),
        13 => text(
            random,
            &[
                "{\"a\": 1, \"a\": 2}",
                "{",
                "nul",
                "'a'",
                "[1,]",
                "NaN",
                "1 2",
            ],
        ),
        14 => "1".repeat(size.max(1)),
        _ => many(random, 3, ", ", |random| schema(random, 1)),
    }
}
