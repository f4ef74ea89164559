//! Through Dynamo's HTTP frontend, which reads the model's card, renders the conversation and makes text of tokens.

use dynamo_llm::entrypoint::EngineConfig;
use dynamo_llm::entrypoint::input::{Input, run_input};
use dynamo_llm::local_model::LocalModelBuilder;
use serde_json::{Value, json};

use crate::support::{Worker, assert_valid, batch, eventually, free_port, http, schema};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_through_dynamos_frontend_is_formwork_batchs() {
    let worker = Worker::start(&[]);
    let port = free_port();
    let mut model = LocalModelBuilder::default();
    model
        .http_host(Some("127.0.0.1".to_owned()))
        .http_port(port);
    let config = EngineConfig::Dynamic {
        model: Box::new(model.build().await.unwrap()),
        chat_engine_factory: None,
        prefill_load_estimator: None,
    };
    let runtime = worker.runtime().await;
    let frontend = tokio::spawn(async move { run_input(runtime, Input::Http, config).await });
    eventually("the frontend knows the model", async || {
        let models = http(port, "GET", "/v1/models", None).await.1;
        models.contains("formwork-builtin")
    })
    .await;
    let body = json!({
        "model": "formwork-builtin", "temperature": 0.9, "seed": 11, "max_tokens": 200,
        "messages": [{"role": "user", "content": "Fill the record of Bo, 61, who likes blue."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "record", "schema": schema()}},
    });
    let expected = batch(CHAT, body.clone()).await;
    let (status, answer) = http(port, "POST", CHAT, Some(&body)).await;
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap();
    assert_valid(text);
    assert_eq!(
        text,
        expected["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
    );
    assert_eq!(choice["finish_reason"], "stop");
    for count in ["prompt_tokens", "completion_tokens"] {
        assert_eq!(answer["usage"][count], expected["usage"][count], "{answer}");
    }

    // The client's fault is told as such, with the field and why.
    let mut wrong = body;
    wrong["response_format"] = Value::Null;
    wrong["guided_regex"] = json!("(");
    let (status, answer) = http(port, "POST", CHAT, Some(&wrong)).await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.contains("regex"), "{answer}");
    frontend.abort();
}
