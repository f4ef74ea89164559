//! `/formwork/v1/check`: what a constraint says.

use serde_json::{Value, json};

use super::client::start;
use super::support::Server;

const CHECK: &str = "/formwork/v1/check";

fn check(body: &Value) -> Value {
    let answer = Server::shared().post(CHECK, body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"], "additionalProperties": false, "requierd": []})
}

#[test]
fn a_schema_is_told_with_its_size_samples_and_warnings() {
    let report = check(&json!({"structured_outputs": {"json": schema()}}));
    assert_eq!(
        (&report["enforced"], &report["kind"]),
        (&json!(true), &json!("json"))
    );
    assert_eq!(report["error"], Value::Null);
    assert_eq!(report["text"], Value::Null);
    assert_eq!(
        report["keywords"],
        json!(["additionalProperties", "properties", "required", "type"])
    );
    let warnings = report["warnings"].as_array().unwrap();
    assert!(
        warnings[0].as_str().unwrap().contains("at `#/requierd`"),
        "{warnings:?}"
    );
    for figure in ["num_states", "bytes"] {
        assert!(report[figure].as_u64() > Some(0), "{report}");
    }
    assert!(report["compile_ms"].as_f64() > Some(0.0));
    for text in ["shortest", "sample"] {
        let value: Value = serde_json::from_str(report[text].as_str().unwrap()).unwrap();
        assert!(value["name"].is_string(), "{report}");
        // It is one of its texts.
        let fits = check(
            &json!({"response_format": {"type": "json_schema", "json_schema": {
            "name": "a", "schema": schema(),
        }}, "text": report[text]}),
        );
        assert_eq!(fits["text"]["is_complete"], json!(true), "{fits}");
    }
}

#[test]
fn a_text_is_told_up_to_where_it_stops_fitting() {
    let fit = |text: &str| check(&json!({"guided_json": schema(), "text": text}))["text"].clone();
    let stops = fit(r#"{"name": "né", "aje""#);
    assert_eq!(
        stops,
        json!({
            "is_complete": false, "is_prefix": false, "accepted_bytes": 18, "accepted_chars": 17,
            "expected": ["\"ge\\\":\""],
        })
    );
    let begins = fit(r#"{"name""#);
    assert_eq!(
        (&begins["is_prefix"], &begins["is_complete"]),
        (&json!(true), &json!(false))
    );
    let ends = fit(r#"{"name": ""}"#);
    assert_eq!(ends["is_complete"], json!(true));
    assert_eq!(ends["expected"], json!(["the end"]));
    let choice = check(&json!({"guided_choice": ["yes", "no"], "text": "m"}));
    assert_eq!(choice["kind"], "choice");
    assert_eq!(choice["text"]["expected"], json!(["\"n\"", "\"y\""]));
}

#[test]
fn what_is_refused_says_where() {
    let error = |body: Value| {
        let report = check(&body);
        assert_eq!(report["enforced"], json!(false), "{report}");
        assert_eq!(report["shortest"], Value::Null);
        report["error"].clone()
    };
    let schema = error(json!({"guided_json": {"properties": {"a": {"type": "strnig"}}}}));
    assert_eq!(schema["pointer"], "/properties/a/type");
    assert!(
        schema["message"]
            .as_str()
            .unwrap()
            .starts_with("guided_json: schema, at")
    );
    let pattern = error(json!({"structured_outputs": {"regex": "a\n("}}));
    assert_eq!(
        (&pattern["pointer"], &pattern["line"]),
        (&Value::Null, &json!(2))
    );
    assert!(pattern["column"].as_u64() >= Some(1));
    let dear = "(?=.*a.{14}b)(?=.*b.{15}a)(?!.*a.{16}[ab])[ab]{90}";
    let large = error(json!({"guided_regex": dear}));
    assert!(
        large["message"]
            .as_str()
            .unwrap()
            .contains("too large to be checked here"),
        "{large}"
    );
}

#[test]
fn tools_are_constraints_too() {
    let tools = json!([{"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
    }}}]);
    let report = check(&json!({"tools": tools, "tool_choice": "required"}));
    assert_eq!(
        (&report["kind"], &report["enforced"]),
        (&json!("tools"), &json!(true))
    );
    assert!(
        report["shortest"].as_str().unwrap().contains("add"),
        "{report}"
    );
    let mut broken = tools;
    broken[0]["function"]["parameters"]["properties"]["a"] = json!({"minimum": "x"});
    let report = check(&json!({"tools": broken, "tool_choice": "required"}));
    let message = report["error"]["message"].as_str().unwrap();
    assert_eq!(report["error"]["pointer"], "/properties/a/minimum");
    assert!(
        message.starts_with("tools[0].function.parameters"),
        "{message}"
    );
}

#[test]
fn wrong_requests_are_refused_by_name_and_keys_are_asked_for() {
    for (body, field) in [
        (json!({}), "structured_outputs"),
        (json!({"text": "a"}), "structured_outputs"),
        (json!({"guided_regex": "a", "text": 1}), "text"),
        (json!({"guided_regex": "a", "prompt": "a"}), "prompt"),
        (
            json!({"guided_regex": "a", "guided_choice": ["a"]}),
            "guided_choice",
        ),
        (
            json!({"guided_regex": "a", "text": "a".repeat((1 << 20) + 1)}),
            "text",
        ),
    ] {
        let answer = Server::shared().post(CHECK, &body);
        assert_eq!(answer.status, 400, "{field}");
        let error = answer.error();
        let param = error["param"].as_str().unwrap_or_default();
        assert!(param.contains(field) || field == "guided_choice", "{error}");
    }
    let unknown = json!({"guided_regex": "a", "model": "other"});
    assert_eq!(Server::shared().post(CHECK, &unknown).status, 404);
    let server = Server::start(&["--api-key", "k"]);
    let body = json!({"guided_regex": "a"});
    assert_eq!(server.post(CHECK, &body).status, 401);
    let headers = "Authorization: Bearer k\r\nContent-Type: application/json\r\n";
    let bytes = body.to_string();
    let answer = start(&server.address, "POST", CHECK, headers, bytes.as_bytes()).finish();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["shortest"], "a");
}
