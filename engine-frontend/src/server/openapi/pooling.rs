//! Embeddings, scores and reranking: what requests say, and what their answers look like.

use serde_json::{Map, Value, json};

use super::answers::answer;
use super::component;
use super::descriptions::Description;
use super::requests::{count, fields, request};

/// The components of the routes.
pub(super) fn schemas() -> Map<String, Value> {
    let text = json!({"type": "string"});
    let ids = json!({"type": "array", "items": count()});
    let texts =
        json!({"anyOf": [text, {"type": "array", "minItems": 1, "maxItems": 2048, "items": text}]});
    let document = json!({"anyOf": [
        text,
        {"type": "object", "required": ["text"], "properties": {"text": text}, "additionalProperties": false},
    ]});
    let documents = json!({"type": "array", "minItems": 1, "maxItems": 2048, "items": document});
    let mut embedding = prompts();
    embedding.extend(fields(json!({
        "input": {"anyOf": [
            text, ids,
            {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"anyOf": [text, ids]}},
        ]},
        "encoding_format": {"enum": ["float", "base64"]},
        "dimensions": {"type": "integer", "minimum": 1},
        "user": text,
    })));
    let mut score = prompts();
    score.extend(fields(json!({"text_1": texts, "text_2": texts})));
    let mut rerank = prompts();
    rerank.extend(fields(json!({
        "query": text, "documents": documents, "top_n": count(),
        "return_documents": {"type": "boolean"},
    })));
    Map::from_iter([
        request("EmbeddingRequest", &["input"], embedding),
        request("ScoreRequest", &["text_1", "text_2"], score),
        request("RerankRequest", &["query", "documents"], rerank),
        answer(
            "EmbeddingResponse",
            &["object", "data", "model", "usage"],
            &[json!({
                "id": text, "object": {"const": "list"}, "created": count(), "model": text,
                "data": {"type": "array", "items": component("EmbeddingData")},
                "usage": component("Usage"),
            })],
        ),
        answer(
            "EmbeddingData",
            &["object", "embedding", "index"],
            &[json!({
                "index": count(), "object": {"const": "embedding"},
                "embedding": {"anyOf": [{"type": "array", "items": {"type": "number"}}, text]},
            })],
        ),
        answer(
            "ScoreResponse",
            &["object", "data", "model", "usage"],
            &[json!({
                "id": text, "object": {"const": "list"}, "created": count(), "model": text,
                "data": {"type": "array", "items": component("ScoreData")},
                "usage": component("Usage"),
            })],
        ),
        answer(
            "ScoreData",
            &["object", "score", "index"],
            &[json!({
                "index": count(), "object": {"const": "score"}, "score": {"type": "number"},
            })],
        ),
        answer(
            "RerankResponse",
            &["id", "model", "results", "usage"],
            &[json!({
                "id": text, "model": text, "usage": component("Usage"),
                "results": {"type": "array", "items": component("RerankResult")},
            })],
        ),
        answer(
            "RerankResult",
            &["index", "relevance_score"],
            &[json!({
                "index": count(), "relevance_score": {"type": "number"},
                "document": {"type": "object", "properties": {"text": text}},
            })],
        ),
    ])
}

/// What all three requests have.
fn prompts() -> Map<String, Value> {
    fields(json!({
        "model": {"type": "string"},
        "use_activation": {"type": "boolean"},
        "truncate_prompt_tokens": {"type": "integer", "minimum": -1},
        "add_special_tokens": {"type": "boolean"},
        "request_id": {"type": "string"},
        "priority": {"type": "integer"},
        "cache_salt": {"type": "string"},
    }))
}

/// A sentence for each field that no other API has, or has otherwise.
pub(super) const DESCRIPTIONS: &[Description] = &[
    (
        "EmbeddingRequest.input",
        "A text, the ids of its tokens, or a list of at most 2048 of either.",
    ),
    (
        "encoding_format",
        "float: lists of numbers. base64: their 32-bit floats, the least byte first.",
    ),
    (
        "dimensions",
        "Numbers that are kept of each embedding, the first ones. For models that were trained for it.",
    ),
    (
        "use_activation",
        "Whether embeddings have length 1, and scores are probabilities. Default: as the model says.",
    ),
    (
        "EmbeddingRequest.truncate_prompt_tokens",
        "Cuts a longer text at its end to so many tokens; -1: to the model's context.",
    ),
    (
        "ScoreRequest.truncate_prompt_tokens",
        "Cuts a longer pair at its end to so many tokens; -1: to the model's context.",
    ),
    (
        "RerankRequest.truncate_prompt_tokens",
        "Cuts query and document together at the end to so many tokens; -1: to the model's context.",
    ),
    (
        "text_1",
        "A text that is scored against each of text_2, or as many texts as text_2 has.",
    ),
    ("text_2", "The texts that are scored against text_1."),
    ("query", "What the documents are to answer."),
    (
        "RerankRequest.documents",
        "At most 2048 documents: texts, or objects with a text.",
    ),
    ("top_n", "Most results, the best ones. Default: all."),
    (
        "return_documents",
        "Whether results have their documents. Default true.",
    ),
    (
        "EmbeddingResponse.data",
        "One for each input, in their order.",
    ),
    (
        "embedding",
        "The numbers, in the format that was asked for.",
    ),
    ("ScoreResponse.data", "One for each pair, in their order."),
    (
        "ScoreData.score",
        "How well the texts of the pair belong together.",
    ),
    ("results", "The documents, best first."),
    ("RerankResult.index", "Which of the request's documents."),
    (
        "relevance_score",
        "How well the document answers the query.",
    ),
    ("RerankResult.document", "The document, where asked for."),
];
