//! `/openapi.json`: what every route takes and gives.
//!
//! Written beside the types rather than derived from them, since requests are read field by field.
//! `tests.rs` holds both together: a documented field is known, a known field documented, and an
//! answer has the documented shape.

mod answers;
mod anthropic;
mod decisions;
mod descriptions;
mod pooling;
mod requests;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::OnceLock;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use serde_json::{Map, Value, json};

/// Where a server has keys: no key, one without the route's scope, one beyond its limits.
const NO_KEY: [&str; 3] = ["401", "403", "429"];

/// `GET /openapi.json`.
pub(super) async fn openapi() -> Response {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| document().to_string().into());
    let mut response = Response::new(Body::from(document.clone()));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A reference to a component.
fn component(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The whole document.
pub(super) fn document() -> Value {
    let mut schemas = requests::schemas();
    schemas.extend(anthropic::schemas(&requests::chat()));
    schemas.extend(decisions::schemas());
    schemas.extend(pooling::schemas());
    schemas.extend(tokens::schemas());
    schemas.extend(answers::schemas());
    descriptions::describe(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Formwork",
            "version": protocol::BUILD_VERSION,
            "description": "The OpenAI API with vLLM's fields, Anthropic's Messages API, decisions, embeddings and reranking. A field that can't be honoured is \
                            refused with 400 and its name.",
        },
        "paths": {
            "/v1/chat/completions": post(
                "create_chat_completion", "Answer a conversation",
                "ChatCompletionRequest", "ChatCompletionResponse", true,
            ),
            "/v1/chat/completions/batch": post(
                "create_batch_chat_completion", "Answer several conversations",
                "BatchChatCompletionRequest", "ChatCompletionResponse", false,
            ),
            "/v1/completions": post(
                "create_completion", "Continue a text",
                "CompletionRequest", "CompletionResponse", true,
            ),
            "/v1/responses": post(
                "create_response", "Answer a conversation, in the words of the Responses API",
                "ResponsesRequest", "Response", true,
            ),
            "/v1/messages": in_its_words(post(
                "create_message", "Answer a conversation, in the words of Anthropic's Messages API",
                "AnthropicMessagesRequest", "AnthropicMessagesResponse", true,
            )),
            "/v1/messages/count_tokens": in_its_words(post(
                "count_message_tokens", "Count the tokens of a conversation",
                "AnthropicCountTokensRequest", "AnthropicCountTokensResponse", false,
            )),
            "/v1/decisions": post(
                "create_decision", "Probabilities of fixed answers to questions about a text",
                "DecisionRequest", "DecisionResponse", false,
            ),
            "/v1/systemone": post(
                "create_system_one_decision", "The same in the words of TypeSafe's System One API",
                "SystemOneRequest", "SystemOneResponse", false,
            ),
            "/v1/embeddings": post(
                "create_embedding", "Embeddings of texts",
                "EmbeddingRequest", "EmbeddingResponse", false,
            ),
            "/v1/score": post(
                "create_score", "Scores of pairs of texts", "ScoreRequest", "ScoreResponse", false,
            ),
            "/score": post("score", "As /v1/score", "ScoreRequest", "ScoreResponse", false),
            "/v1/rerank": post(
                "create_rerank", "Documents sorted by how well they answer a query",
                "RerankRequest", "RerankResponse", false,
            ),
            "/v2/rerank": post(
                "rerank_v2", "As /v1/rerank", "RerankRequest", "RerankResponse", false,
            ),
            "/rerank": post("rerank", "As /v1/rerank", "RerankRequest", "RerankResponse", false),
            "/inference/v1/generate": post(
                "generate", "Token ids in, token ids out", "GenerateRequest", "GenerateResponse", true,
            ),
            "/formwork/v1/check": post(
                "check_constraint", "What a constraint says, and how far a text fits it",
                "CheckRequest", "CheckResponse", false,
            ),
            "/tokenize": post(
                "tokenize", "Text or messages to tokens",
                "TokenizeRequest", "TokenizeResponse", false,
            ),
            "/detokenize": post(
                "detokenize", "Tokens to text",
                "DetokenizeRequest", "DetokenizeResponse", false,
            ),
            "/v1/models": {"get": get("list_models", "The models served", &NO_KEY, "ModelList")},
            "/v1/models/{model}": {"get": with_model(
                get(
                    "retrieve_model", "One model",
                    &["400", "401", "403", "404", "429"], "Model",
                ),
            )},
            "/health": {"get": probe("health", "200 while the engine works or has nothing to do")},
            "/ping": {
                "get": probe("ping", "As /health"),
                "post": probe("ping_post", "As /health"),
            },
            "/load": {"get": get("load", "Requests in flight", &NO_KEY, "Load")},
            "/version": {"get": get("version", "The server's version", &[], "Version")},
            "/metrics": {"get": metrics()},
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": schemas,
        },
    })
}

/// A `POST` of one JSON body for another. With `may_stream` events instead, where asked for.
fn post(id: &str, summary: &str, request: &str, answer: &str, may_stream: bool) -> Value {
    let mut content = json!({"application/json": {"schema": component(answer)}});
    if let (true, Some(content)) = (may_stream, content.as_object_mut()) {
        // Some tools read the schema as that of the stream's text, others as that of an event.
        let events = json!({"schema": {}});
        content.insert("text/event-stream".to_owned(), events);
    }
    let mut responses = errors(&[
        "400", "401", "403", "404", "408", "413", "415", "429", "431", "500", "503", "504",
    ]);
    let good = json!({"description": "The answer", "content": content});
    responses.insert("200".to_owned(), good);
    json!({"post": {
        "operationId": id, "summary": summary,
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": component(request)}},
        },
        "responses": responses,
        "security": [{"bearer": []}, {"api_key": []}, {}],
    }})
}

/// A route of the Messages API, whose errors have another shape.
fn in_its_words(mut route: Value) -> Value {
    let responses = route
        .pointer_mut("/post/responses")
        .and_then(Value::as_object_mut);
    for (_, response) in responses
        .into_iter()
        .flatten()
        .filter(|(code, _)| *code != "200")
    {
        if let Some(schema) = response.pointer_mut("/content/application~1json/schema") {
            *schema = component("AnthropicErrorResponse");
        }
    }
    route
}

/// Figures for Prometheus, as text.
fn metrics() -> Value {
    let mut responses = errors(&NO_KEY);
    let content = json!({"text/plain": {"schema": {"type": "string"}}});
    let good = json!({"description": "The figures", "content": content});
    responses.insert("200".to_owned(), good);
    json!({
        "operationId": "metrics", "summary": "Figures for Prometheus", "responses": responses,
        "security": [{"bearer": []}, {"api_key": []}, {}],
    })
}

fn get(id: &str, summary: &str, error_codes: &[&str], answer: &str) -> Value {
    let mut responses = errors(error_codes);
    let content = json!({"application/json": {"schema": component(answer)}});
    let good = json!({"description": "The answer", "content": content});
    responses.insert("200".to_owned(), good);
    json!({
        "operationId": id, "summary": summary, "responses": responses,
        "security": [{"bearer": []}, {"api_key": []}, {}],
    })
}

fn with_model(mut operation: Value) -> Value {
    if let Some(operation) = operation.as_object_mut() {
        let model = json!({
            "name": "model", "in": "path", "required": true, "schema": {"type": "string"},
        });
        operation.insert("parameters".to_owned(), json!([model]));
    }
    operation
}

fn probe(id: &str, summary: &str) -> Value {
    json!({
        "operationId": id, "summary": summary,
        "responses": {
            "200": {"description": "It works"}, "503": {"description": "It doesn't"},
        },
    })
}

fn errors(codes: &[&str]) -> Map<String, Value> {
    let error = json!({
        "description": "An error",
        "content": {"application/json": {"schema": component("ErrorResponse")}},
    });
    let errors = codes.iter().map(|code| ((*code).to_owned(), error.clone()));
    errors.collect()
}
