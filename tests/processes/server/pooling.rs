//! `/v1/embeddings`, `/v1/score` and `/v1/rerank`, against what sentence-transformers and transformers compute.

use std::fs;
use std::path::PathBuf;

use integration_tests::workspace;
use serde_json::{Value, json};

use super::client::Answer;
use super::clients::run_at;
use super::support::{Server, eventually};
use crate::batch::{Batch, stderr};

const EMBEDDINGS: &str = "/v1/embeddings";
/// How far a number may be from the reference, which sums in another order.
const TOLERANCE: f64 = 2e-5;

/// One of the checkpoints of `tests/data/pooling`.
fn model(name: &str) -> PathBuf {
    workspace().join("tests/data/pooling").join(name)
}

fn expected(name: &str) -> Value {
    let text = fs::read_to_string(model(name).join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn serve(name: &str, flags: &[&str]) -> Server {
    let folder = model(name);
    let mut all = vec!["--model", folder.to_str().unwrap()];
    // A decoder's cache holds bfloat16 otherwise.
    if name.starts_with("qwen3") {
        all.extend(["--dtype", "float32"]);
    }
    all.extend(flags);
    Server::start(&all)
}

fn good(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

/// The message and the field of a refusal.
fn refused(answer: &Answer, status: u16) -> (String, String) {
    assert_eq!(answer.status, status, "{}", answer.body);
    let error: Value = serde_json::from_str(&answer.body).unwrap();
    let text = |name: &str| error["error"][name].as_str().unwrap_or_default().to_owned();
    (text("message"), text("param"))
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().unwrap_or_else(|| panic!("{value}"));
    list.iter().map(|number| number.as_f64().unwrap()).collect()
}

fn embeddings(server: &Server, input: &Value) -> Vec<Vec<f64>> {
    let answer = good(&server.post(EMBEDDINGS, &json!({"input": input})));
    let data = answer["data"].as_array().unwrap();
    let places: Vec<u64> = data.iter().map(|e| e["index"].as_u64().unwrap()).collect();
    assert!(places.into_iter().eq(0..data.len() as u64));
    data.iter().map(|e| numbers(&e["embedding"])).collect()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let error = (found - expected).abs();
        assert!(
            error <= TOLERANCE * (1.0 + expected.abs()),
            "{what}: {found} instead of {expected}"
        );
    }
}

#[test]
fn embeddings_are_those_of_sentence_transformers() {
    for name in [
        "qwen3_embedding",
        "bert_mean",
        "bert_cls",
        "nomic",
        "xlm_roberta",
    ] {
        let expected = expected(name);
        let server = serve(name, &[]);
        let texts = expected["texts"].as_array().unwrap();
        let together = embeddings(&server, &expected["texts"]);
        for (i, text) in texts.iter().enumerate() {
            let reference = numbers(&expected["embeddings"][i]);
            assert_close(&together[i], &reference, &format!("{name}: {text}"));
            // Alone, and as token ids: the same bits.
            assert_eq!(embeddings(&server, text), [together[i].clone()], "{name}");
            let ids = &expected["token_ids"][i];
            assert_eq!(embeddings(&server, ids), [together[i].clone()], "{name}");
        }
        assert_eq!(embeddings(&server, &expected["token_ids"]), together);
        let body = json!({"input": texts[0], "encoding_format": "base64"});
        let answer = good(&server.post(EMBEDDINGS, &body));
        assert_eq!(
            answer["usage"]["prompt_tokens"],
            expected["token_ids"][0].as_array().unwrap().len()
        );
        let bytes = base64_bytes(answer["data"][0]["embedding"].as_str().unwrap());
        let floats = bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        // The shortest decimals of 32-bit floats, read as 64 bits.
        let numbers: Vec<f64> = floats.map(|f| f.to_string().parse().unwrap()).collect();
        assert_eq!(numbers, together[0]);
    }
}

/// The backend of the reference has what encoders need, too.
#[test]
fn the_reference_backend_has_encoders() {
    for name in ["bert_mean", "nomic"] {
        let expected = expected(name);
        let server = serve(name, &["--backend", "candle"]);
        let found = embeddings(&server, &expected["texts"]);
        for (i, found) in found.iter().enumerate() {
            assert_close(found, &numbers(&expected["embeddings"][i]), name);
        }
    }
}

fn base64_bytes(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let digits = four.iter().filter(|c| **c != b'=');
        let count = digits.clone().count();
        let bits = digits.fold(0_u32, |bits, c| bits << 6 | u32::from(value(*c)));
        let bits = bits << (6 * (4 - count));
        bytes.extend(&bits.to_be_bytes()[1..count]);
    }
    bytes
}

#[test]
fn scores_are_those_of_the_reference() {
    const YES_OR_NO: &str = r#"{"architectures": ["Qwen3ForSequenceClassification"],
        "classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": true}"#;
    for (name, flags) in [
        ("bert_reranker", &[] as &[&str]),
        ("xlm_roberta_reranker", &[]),
        ("qwen3_classifier", &[]),
        ("qwen3_reranker", &["--hf-overrides", YES_OR_NO]),
    ] {
        let expected = expected(name);
        let (query, documents) = (&expected["query"], &expected["documents"]);
        let server = serve(name, flags);
        let body = json!({"text_1": query, "text_2": documents});
        let answer = good(&server.post("/v1/score", &body));
        let data = answer["data"].as_array().unwrap();
        let scores: Vec<f64> = data.iter().map(|s| s["score"].as_f64().unwrap()).collect();
        let reference = numbers(&expected["scores"]);
        assert_close(&scores, &reference, name);
        // Without the activation: what the probabilities are made of.
        let body = json!({"text_1": query, "text_2": documents, "use_activation": false});
        let answer_without = good(&server.post("/v1/score", &body));
        let logits = answer_without["data"].as_array().unwrap().iter();
        let logits: Vec<f64> = logits.map(|s| s["score"].as_f64().unwrap()).collect();
        let scores: Vec<f64> = logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
        assert_close(&scores, &reference, &format!("{name}, without activation"));
        // As many of both, one alone, and by another path: the same bits.
        let queries = vec![query.clone(); reference.len()];
        let body = json!({"text_1": queries, "text_2": documents});
        assert_eq!(good(&server.post("/score", &body))["data"], answer["data"]);
        let body = json!({"text_1": query, "text_2": documents[1]});
        let alone = good(&server.post("/v1/score", &body));
        assert_eq!(alone["data"][0]["score"], data[1]["score"]);

        let mut places: Vec<usize> = (0..reference.len()).collect();
        places.sort_by(|a, b| reference[*b].total_cmp(&reference[*a]));
        for path in ["/v1/rerank", "/v2/rerank", "/rerank"] {
            let body = json!({"query": query, "documents": documents, "top_n": 3});
            let ranking = good(&server.post(path, &body));
            let results = ranking["results"].as_array().unwrap();
            assert_eq!(results.len(), 3);
            for (result, place) in results.iter().zip(&places) {
                assert_eq!(result["index"], *place);
                assert_eq!(result["document"]["text"], documents[place]);
                assert_eq!(result["relevance_score"], data[*place]["score"]);
            }
        }
        let (message, _) = refused(&server.post(EMBEDDINGS, &json!({"input": "a"})), 400);
        assert!(message.contains("/v1/score and /v1/rerank"), "{message}");
    }
}

/// A long query leaves room for its document, and the tokens around both.
#[test]
fn pairs_that_are_too_long_are_cut_on_both_sides() {
    let server = serve("bert_reranker", &[]);
    let score = |query: &str, document: &str, options: Value| {
        let mut body = json!({"text_1": query, "text_2": document});
        let options = options.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(options);
        let answer = good(&server.post("/v1/score", &body));
        let tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap();
        (answer["data"][0]["score"].clone(), tokens)
    };
    let (cats, dogs) = ("cat ".repeat(80), "dog ".repeat(80));
    let cut = json!({"truncate_prompt_tokens": 11});
    for (query, document, as_query, as_document) in [
        (&cats[..], &dogs[..], &cats[..16], &dogs[..16]),
        (&cats, &dogs[..8], &cats[..24], &dogs[..8]),
        (&cats[..8], &dogs, &cats[..8], &dogs[..24]),
    ] {
        let expected = score(as_query, as_document, json!({}));
        assert_eq!(expected.1, 11);
        assert_eq!(score(query, document, cut.clone()), expected);
    }
    let bare = json!({"add_special_tokens": false});
    assert_eq!(score(&cats[..16], &dogs[..16], bare).1, 8);
}

#[test]
fn models_of_embeddings_score_by_their_cosine() {
    let expected = expected("bert_cls");
    let server = serve("bert_cls", &[]);
    let vector = |i: usize| numbers(&expected["embeddings"][i]);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let cosine = |a: &[f64], b: &[f64]| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    let texts = &expected["texts"];
    let body = json!({"queries": texts[0], "documents": [texts[1], texts[2], texts[0]]});
    let answer = good(&server.post("/v1/score", &body));
    let data = answer["data"].as_array().unwrap();
    let scores: Vec<f64> = data.iter().map(|s| s["score"].as_f64().unwrap()).collect();
    let reference = [1, 2, 0].map(|i| cosine(&vector(0), &vector(i)));
    assert_close(&scores, &reference, "cosine");
}

/// Prompts of up to a decoder's context that begin alike.
fn long_texts(count: usize) -> Value {
    let start = "the cat is on the mat at the station. ".repeat(3);
    (0..count)
        .map(|i| json!(format!("{start}{i} {}", "no rat ".repeat(i % 5))))
        .collect()
}

/// However a decoder's prompts are cut, cached, preempted or shared out: the same bits.
#[test]
fn a_decoders_embeddings_do_not_depend_on_the_steps() {
    let input = long_texts(24);
    let reference = {
        let server = serve("qwen3_embedding", &["--no-enable-prefix-caching"]);
        embeddings(&server, &input)
    };
    let in_pieces = ["--max-num-batched-tokens", "16", "--max-num-seqs", "16"];
    let short_of_blocks = [
        "--num-blocks-override",
        "20",
        "--max-num-batched-tokens",
        "64",
    ];
    let two = ["--data-parallel-size", "2", "--threads", "2"];
    for flags in [&in_pieces as &[&str], &short_of_blocks, &two] {
        let mut flags = flags.to_vec();
        flags.push("--enable-prompt-tokens-details");
        let server = serve("qwen3_embedding", &flags);
        assert_eq!(embeddings(&server, &input), reference, "{flags:?}");
        // Once more, from the prefix cache.
        let answer = good(&server.post(EMBEDDINGS, &json!({"input": input[0]})));
        let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
        assert!(cached.as_u64().unwrap() >= 64, "{answer}");
        assert_eq!(numbers(&answer["data"][0]["embedding"]), reference[0]);
    }
    // A mean needs the hidden states of all tokens: nothing comes from the cache then.
    let mean = ["--pooler-config", r#"{"pooling_type": "MEAN"}"#];
    let whole = serve("qwen3_embedding", &mean);
    let mut flags = mean.to_vec();
    flags.extend(in_pieces);
    flags.push("--enable-prompt-tokens-details");
    let cut = serve("qwen3_embedding", &flags);
    let reference = embeddings(&whole, &input);
    for _ in 0..2 {
        let answer = good(&cut.post(EMBEDDINGS, &json!({"input": input})));
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        let data = answer["data"].as_array().unwrap();
        let found: Vec<_> = data.iter().map(|e| numbers(&e["embedding"])).collect();
        assert_eq!(found, reference);
    }
}

#[test]
fn who_leaves_leaves_nothing_behind() {
    let server = serve("bert_mean", &[]);
    let texts = &expected("bert_mean")["texts"];
    let many: Vec<Value> = (0..1000).map(|i| texts[i % 4].clone()).collect();
    for _ in 0..3 {
        drop(server.begin(EMBEDDINGS, &json!({"input": many})));
    }
    eventually("nothing runs or waits", || {
        server.metric("vllm:num_requests_running") == 0.0
            && server.metric("vllm:num_requests_waiting") == 0.0
    });
    assert_eq!(embeddings(&server, texts).len(), 4);
}

#[test]
fn dimensions_are_for_models_that_were_trained_for_it() {
    let server = serve("qwen3_embedding", &[]);
    let text = expected("qwen3_embedding")["texts"][0].clone();
    let whole = &embeddings(&server, &text)[0];
    let answer = good(&server.post(EMBEDDINGS, &json!({"input": text, "dimensions": 8})));
    let cut = numbers(&answer["data"][0]["embedding"]);
    let length = whole[..8].iter().map(|v| v * v).sum::<f64>().sqrt();
    let reference: Vec<f64> = whole[..8].iter().map(|v| v / length).collect();
    assert_close(&cut, &reference, "cut and scaled");
    let too_many = server.post(EMBEDDINGS, &json!({"input": text, "dimensions": 33}));
    let (message, field) = refused(&too_many, 400);
    assert_eq!(field, "dimensions");
    assert!(message.contains("32"), "{message}");

    let server = serve("bert_mean", &[]);
    let (message, field) = refused(
        &server.post(EMBEDDINGS, &json!({"input": text, "dimensions": 8})),
        400,
    );
    assert_eq!(field, "dimensions");
    assert!(message.contains("matryoshka"), "{message}");
}

#[test]
fn every_refusal_names_the_text() {
    let server = serve("bert_mean", &[]);
    let long = "cat ".repeat(80);
    for (path, body, field, part) in [
        (
            EMBEDDINGS,
            json!({"input": ["a", long]}),
            "input[1]",
            "64 tokens",
        ),
        (
            EMBEDDINGS,
            json!({"input": [[1], [1, 5000]]}),
            "input[1][1]",
            "5000",
        ),
        (
            EMBEDDINGS,
            json!({"input": long, "truncate_prompt_tokens": 65}),
            "truncate_prompt_tokens",
            "64",
        ),
        (
            "/v1/score",
            json!({"text_1": "a", "text_2": ["b", long]}),
            "text_2[1]",
            "64 tokens",
        ),
        (
            "/v1/rerank",
            json!({"query": "a", "documents": [long]}),
            "documents[0]",
            "64 tokens",
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "a"}]}),
            "model",
            "/v1/embeddings",
        ),
        (
            "/v1/completions",
            json!({"prompt": "a"}),
            "model",
            "generates no text",
        ),
    ] {
        let (message, found) = refused(&server.post(path, &body), 400);
        assert_eq!(found, field, "{path}: {message}");
        assert!(message.contains(part), "{path}: {message}");
    }
    // What is cut keeps the token that ends it.
    let body = json!({"input": long, "truncate_prompt_tokens": 10});
    let cut = good(&server.post(EMBEDDINGS, &body));
    assert_eq!(cut["usage"]["prompt_tokens"], 10);
    let short = "cat ".repeat(8);
    let embedding = numbers(&cut["data"][0]["embedding"]);
    assert_eq!(embeddings(&server, &json!(short)), [embedding]);
    // The longest that fits.
    assert_eq!(embeddings(&server, &json!("cat ".repeat(62))).len(), 1);

    let other = json!({"input": "a", "model": "other"});
    let (message, _) = refused(&server.post(EMBEDDINGS, &other), 404);
    assert!(message.contains("other"), "{message}");
    let generates = Server::shared();
    let (message, field) = refused(&generates.post(EMBEDDINGS, &json!({"input": "a"})), 400);
    assert_eq!(field, "model");
    assert!(message.contains("--convert embed"), "{message}");
}

#[test]
fn a_model_that_generates_can_be_converted() {
    let server = Server::start(&["--convert", "embed"]);
    let vectors = embeddings(&server, &json!(["a text", "another one"]));
    for vector in &vectors {
        let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    assert_ne!(vectors[0], vectors[1]);
}

#[test]
fn the_openai_package_gets_embeddings() {
    let server = serve("bert_mean", &[]);
    let base_url = format!("http://{}/v1", server.address);
    let folder = model("bert_mean");
    run_at(
        &base_url,
        "embeddings_client.py",
        "openai",
        &[folder.join("expected.json").to_str().unwrap()],
    );
}

#[test]
fn a_batch_has_embeddings_scores_and_rankings() {
    let expected = expected("bert_mean");
    let texts = &expected["texts"];
    let lines = [
        ("/v1/embeddings", json!({"input": texts})),
        ("/v1/score", json!({"text_1": texts[0], "text_2": texts})),
        (
            "/v1/rerank",
            json!({"query": texts[2], "documents": texts, "top_n": 1}),
        ),
        ("/v1/embeddings", json!({"input": []})),
        ("/v1/completions", json!({"prompt": "a"})),
    ];
    let input: String = lines
        .iter()
        .enumerate()
        .map(|(i, (url, body))| {
            let line =
                json!({"custom_id": i.to_string(), "method": "POST", "url": url, "body": body});
            format!("{line}\n")
        })
        .collect();
    let batch = Batch::new(&input);
    let folder = model("bert_mean");
    let output = batch.run(&["--model", folder.to_str().unwrap(), "--dtype", "float32"]);
    let answers = batch.results();
    assert_eq!(answers.len(), lines.len(), "{}", stderr(&output));
    let body = |i: usize| &answers[i]["response"]["body"];
    for i in 0..4 {
        let found = numbers(&body(0)["data"][i]["embedding"]);
        assert_close(&found, &numbers(&expected["embeddings"][i]), "batch");
    }
    assert_close(
        &[body(1)["data"][0]["score"].as_f64().unwrap()],
        &[1.0],
        "itself",
    );
    assert_eq!(body(2)["results"][0]["index"], 2);
    assert_eq!(answers[3]["response"]["status_code"], 400);
    assert_eq!(body(3)["error"]["param"], "input");
    assert_eq!(answers[4]["response"]["status_code"], 400);
}
