//! `--device`: the CUDA kernels behind a server, on their simulator, and a machine without a GPU.

use std::path::Path;

use serde_json::{Value, json};

use super::support::{Server, chat, formwork, streamed_text};

const CHAT: &str = "/v1/chat/completions";

fn constrained(seed: Option<u64>) -> Value {
    let mut body = chat("Who are you?", 48);
    body["structured_outputs"] = json!({"json": {
        "type": "object",
        "properties": {
            "character_name": {"type": "string", "maxLength": 8},
            "hit_points": {"type": "integer", "minimum": 1, "maximum": 99},
        },
        "required": ["character_name", "hit_points"],
        "additionalProperties": false,
    }});
    if let Some(seed) = seed {
        body["temperature"] = json!(1.0);
        body["seed"] = json!(seed);
    }
    body
}

fn text(answer: &Value) -> String {
    let content = &answer["choices"][0]["message"]["content"];
    content.as_str().unwrap().to_owned()
}

#[test]
fn constraints_hold_and_answers_are_the_same_alone_and_in_company() {
    let server = Server::start(&[
        "--device=cuda-simulator",
        "--max-model-len=256",
        "--max-num-batched-tokens=256",
        "--max-num-seqs=4",
    ]);
    // Greedy decoding finds its token on the device, under the mask; sampling gets masked logits.
    let bodies = [
        constrained(None),
        constrained(Some(1)),
        constrained(Some(2)),
    ];
    let alone = bodies.each_ref().map(|body| {
        let answer = server.post(CHAT, body);
        assert_eq!(answer.status, 200, "{answer:?}");
        text(&answer.json())
    });
    for text in &alone {
        let value: Value = serde_json::from_str(text).unwrap();
        let name = value["character_name"].as_str().unwrap();
        assert!(name.chars().count() <= 8, "{text}");
        // 15.00 is an integer too.
        let points = value["hit_points"].as_f64().unwrap();
        assert!(
            (1.0..=99.0).contains(&points) && points.fract() == 0.0,
            "{text}"
        );
    }
    let together = bodies.each_ref().map(|body| server.begin(CHAT, body));
    let together = together.map(|pending| text(&pending.finish().json()));
    assert_eq!(together, alone);

    // A stream of the same is the same; logprobs take the row's logits to the host.
    let mut streamed = constrained(None);
    streamed["stream"] = json!(true);
    streamed["logprobs"] = json!(true);
    assert_eq!(streamed_text(&server.post(CHAT, &streamed)), alone[0]);

    let mut free = chat("Hello", 8);
    free["structured_outputs"] = json!({"regex": "[a-c]{3}|[0-9]{4}"});
    let answer = text(&server.post(CHAT, &free).json());
    let is = |range: std::ops::RangeInclusive<char>, len| {
        answer.chars().count() == len && answer.chars().all(|sign| range.contains(&sign))
    };
    assert!(is('a'..='c', 3) || is('0'..='9', 4), "{answer}");
    assert!(server.is_healthy());
}

#[test]
fn without_a_gpu_the_server_says_so() {
    if Path::new("/dev/nvidiactl").exists() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let mut command = formwork();
    let output = command
        .args(["serve", "--port=0", "--device=cuda"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("there is no CUDA driver"), "{said}");
}
