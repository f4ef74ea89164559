//! Real schemas and random regular expressions: every answer is valid, whatever the temperature
//! and however few its tokens.

use std::fs;
use std::path::Path;

use integration_tests::{shared, workspace};
use serde_json::{Value, json};
use structured_output::{
    CancelFlag, CompilerOptions, GrammarCompiler, GrammarMatcher, MatcherError, TokenizerInfo,
};

use crate::structured_outputs::{answer, choice, content};

/// Constraints of one kind that one run tries: the environment's, for a longer run.
fn sample_size(default: usize) -> usize {
    let asked = std::env::var("FORMWORK_SAMPLE").ok();
    asked
        .and_then(|asked| asked.parse().ok())
        .unwrap_or(default)
}

/// Room for an answer where it isn't tight, in tokens.
const ROOM: [u32; 3] = [40, 150, 600];

/// A raw completion as a line of a batch; the temperature differs from line to line.
fn line(index: usize, prompt: &str, constraint: &Value, max_tokens: u32) -> String {
    let mut body = json!({
        "prompt": prompt,
        "temperature": if index.is_multiple_of(2) { 1.0 } else { 2.0 },
        "max_tokens": max_tokens,
        "seed": index,
    });
    body["structured_outputs"] = constraint.clone();
    let url = "/v1/completions";
    let custom_id = index.to_string();
    json!({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).to_string() + "\n"
}

/// The answers to constraints, each with a room of its own: of four, one has as many tokens as its shortest
/// text takes, which is asked for by a request that allows only one.
fn answers(prompt: &str, constraints: &[Value]) -> Vec<Value> {
    let flags = ["--max-num-seqs", "32"];
    let tight = (0..constraints.len()).step_by(4);
    let asked: String = tight
        .clone()
        .map(|index| line(index, prompt, &constraints[index], 1))
        .collect();
    let mut tight_room: Vec<u32> = answer(&asked, &flags).iter().map(least_room).collect();
    println!("tight: {tight_room:?}");
    tight_room.reverse();
    let lines: String = (0..constraints.len())
        .map(|index| {
            let room = match index % 4 {
                0 => tight_room.pop().unwrap(),
                other => ROOM[other - 1],
            };
            line(index, prompt, &constraints[index], room)
        })
        .collect();
    answer(&lines, &flags)
}

/// The tokens that suffice, as a refusal says; 1 where there was none, or one for another reason.
fn least_room(result: &Value) -> u32 {
    let message = result["response"]["body"]["error"]["message"].as_str();
    let room = message.and_then(|message| {
        let (_, after) = message.split_once("is sure to fit in ")?;
        after.split_once(' ')?.0.parse().ok()
    });
    room.unwrap_or(1)
}

/// The text of an answer; `None` of a request that was refused before it began. One that could
/// have gone on may have been ended by `max_tokens`, and is whole all the same.
fn text(result: &Value) -> Option<&str> {
    if result["response"]["status_code"] == 400 {
        let message = result["response"]["body"]["error"]["message"].as_str();
        // A limit that is met in the midst of a text is its caller's fault too, and yet none of these.
        let is_limit = message.unwrap().contains("(limit `");
        assert!(!is_limit, "{result}");
        return None;
    }
    let choice = choice(result);
    let reason = &choice["finish_reason"];
    let is_good = reason == "stop" || reason == "length";
    assert!(is_good, "{result}");
    assert_eq!(choice["structured_output_complete"], true, "{result}");
    Some(choice["text"].as_str().unwrap())
}

/// Whether the reader took a number for another: beyond the integers that 64-bit floats have, and `-0`,
/// an integer that it makes a float of.
fn has_inexact_number(value: &Value) -> bool {
    match value {
        Value::Number(number) if number.is_f64() => number
            .as_f64()
            .is_some_and(|float| float.abs() >= 2f64.powi(53) || float == 0.0),
        Value::Array(items) => items.iter().any(has_inexact_number),
        Value::Object(members) => members.values().any(has_inexact_number),
        _ => false,
    }
}

/// `FORMWORK_SAMPLE=2000 cargo test --test processes always_valid::real_schemas` tries as many.
#[test]
fn real_schemas() {
    let Some(folder) = shared("maskbench") else {
        return;
    };
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    let step = (files.len() / sample_size(150)).max(1);
    let schemas: Vec<Value> = files
        .iter()
        .step_by(step)
        .map(|path| {
            let file: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            file["schema"].clone()
        })
        .collect();
    let constraints: Vec<Value> = schemas
        .iter()
        .map(|schema| json!({"json": schema.to_string()}))
        .collect();
    let results = answers("{\"name\": ", &constraints);
    let (mut answered, mut problems) = (0, Vec::new());
    for (index, (result, schema)) in results.iter().zip(&schemas).enumerate() {
        let Some(text) = text(result) else {
            continue;
        };
        answered += 1;
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            // JSON knows no largest number; this reader does.
            Err(error) if error.to_string().starts_with("number out of range") => continue,
            Err(error) => {
                problems.push(format!("{index}: {error} in {text}"));
                continue;
            }
        };
        if has_inexact_number(&value) {
            continue;
        }
        // What this validator doesn't take as a schema it can't judge.
        let Ok(validator) = jsonschema::options()
            .should_validate_formats(true)
            .build(schema)
        else {
            continue;
        };
        if let Err(error) = validator.validate(&value) {
            problems.push(format!("{index}: {error} in {text}, {schema}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    println!("{answered} of {} schemas were answered", schemas.len());
    assert!(
        answered * 2 > schemas.len(),
        "{answered} of {}",
        schemas.len()
    );
}

/// Numbers that are the same in every run: a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn pattern(&mut self, depth: u32) -> String {
        let atoms = [
            "a",
            "bc",
            "[a-z]",
            "\\d",
            "\\w",
            "[^x]",
            ".",
            "é",
            "\\s",
            "[A-Z0-9_]",
            "\\.",
            "日",
        ];
        if depth == 0 {
            return atoms[self.below(atoms.len() as u64) as usize].to_owned();
        }
        match self.below(5) {
            0 => format!("{}{}", self.pattern(depth - 1), self.pattern(depth - 1)),
            1 => format!("({}|{})", self.pattern(depth - 1), self.pattern(depth - 1)),
            2 => format!("({})*", self.pattern(depth - 1)),
            3 => {
                let least = self.below(4);
                let most = least + self.below(5);
                format!("(?:{}){{{least},{most}}}", self.pattern(depth - 1))
            }
            _ => format!("({})?{}", self.pattern(depth - 1), self.pattern(0)),
        }
    }
}

#[test]
fn random_regular_expressions() {
    let mut numbers = Numbers(1);
    let patterns: Vec<String> = (0..sample_size(200))
        .map(|_| {
            let depth = 1 + numbers.below(4) as u32;
            numbers.pattern(depth)
        })
        .collect();
    let constraints: Vec<Value> = patterns
        .iter()
        .map(|pattern| json!({"regex": pattern}))
        .collect();
    let results = answers("It is ", &constraints);
    let mut answered = 0;
    for (result, pattern) in results.iter().zip(&patterns) {
        let Some(text) = text(result) else {
            continue;
        };
        answered += 1;
        // The reference reads these two classes otherwise than Python, whose dialect it is.
        let reference = pattern
            .replace("\\w", r"[\p{L}\p{N}_]")
            .replace("\\s", r"[\s\x1c-\x1f]");
        let whole = regex::Regex::new(&format!("^(?:{reference})$")).unwrap();
        assert!(whole.is_match(text), "{pattern:?}: {text:?}");
    }
    assert!(answered * 10 > patterns.len() * 9, "{answered}");
}

/// The grammar engine's own grammars: every answer is a sentence, byte for byte. What a sentence is,
/// its own tests compare with a textbook's parser.
#[test]
fn grammars() {
    let folder = workspace().join("structured-output/tests/grammars");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension != "cases")
        })
        .collect();
    files.sort();
    let constraint = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        match path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            true => json!({"structural_tag": text}),
            false => json!({"grammar": text}),
        }
    };
    let runs = sample_size(6);
    let constraints: Vec<Value> = (0..runs * files.len())
        .map(|index| constraint(&files[index / runs]))
        .collect();
    let results = answers("It is ", &constraints);
    let vocabulary: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    let vocabulary = [vocabulary, vec![b"</s>".to_vec()]].concat();
    let bytes = TokenizerInfo::new(&vocabulary, 257, &[256], &[256]).unwrap();
    let compiler = GrammarCompiler::new(bytes.into(), CompilerOptions::default());
    let mut answered = 0;
    for (results, path) in results.chunks(runs).zip(&files) {
        let source = fs::read_to_string(path).unwrap();
        let grammar = match path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            true => compiler.compile_structural_tag(&source),
            false => compiler.compile_grammar(&source),
        };
        let Ok(grammar) = grammar else {
            // It names tokens that the model doesn't have either.
            assert!(results.iter().all(|result| text(result).is_none()));
            continue;
        };
        for result in results {
            let Some(text) = text(result) else {
                continue;
            };
            answered += 1;
            let mut matcher = GrammarMatcher::new(&grammar);
            for (at, byte) in text.bytes().enumerate() {
                let token_id = u32::from(byte);
                let mut accepted = matcher.accept_token(token_id);
                // Thousands of texts fill the states that they share.
                if let Err(MatcherError::StatesExhausted { .. }) = accepted {
                    compiler.renew(&mut matcher, &CancelFlag::new()).unwrap();
                    accepted = matcher.accept_token(token_id);
                }
                assert!(
                    accepted.unwrap(),
                    "{}: byte {at} of {text:?}",
                    path.display()
                );
            }
            assert!(matcher.is_completed(), "{}: {text:?}", path.display());
        }
    }
    println!("{answered} of {} requests were answered", results.len());
    assert!(answered * 4 > results.len() * 3, "{answered}");
}

/// A choice is one of its strings, also where one begins like another.
#[test]
fn choices() {
    let choices = ["a", "ab", "abc", "ä", "日本", " a", "\n", "a\"b"];
    let prompts = [
        "a",
        "He said ",
        "The second letter:",
        "\n\n",
        "日",
        "x = \"",
        "SELECT",
        "7 8 9",
    ];
    let lines: String = (0..24)
        .map(|index| {
            let constraint = json!({"choice": choices});
            line(index, prompts[index / 3], &constraint, ROOM[index % 3])
        })
        .collect();
    let mut seen = Vec::new();
    for result in &answer(&lines, &[]) {
        let text = text(result).expect("it fits");
        assert!(choices.contains(&text), "{text:?}");
        seen.push(text.to_owned());
    }
    seen.sort();
    seen.dedup();
    assert!(seen.len() > 2, "{seen:?}");
}

/// Constrained, free, thinking: together as alone, whatever the engine's settings.
#[test]
fn mixed_batches_answer_as_alone() {
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    }, "required": ["name", "age", "tags"], "additionalProperties": false});
    let chat = |index: usize, options: &Value| {
        let mut options = options.clone();
        options["seed"] = index.into();
        options["temperature"] = json!(if index.is_multiple_of(2) { 0.0 } else { 1.2 });
        options["max_tokens"] = json!(60);
        let question = "Write this game character as JSON with name, age and tags.";
        crate::structured_outputs::chat(&index.to_string(), question, &options)
    };
    let kinds = [
        json!({"guided_json": schema}),
        json!({}),
        json!({"guided_regex": "[a-z ]{5,30}\\."}),
        json!({"guided_json": schema, "chat_template_kwargs": {"enable_thinking": true}}),
        json!({"guided_choice": ["yes", "no", "yes and no"]}),
        json!({"response_format": {"type": "json_object"}}),
    ];
    let lines: Vec<String> = (0..18).map(|i| chat(i, &kinds[i % kinds.len()])).collect();
    let contents = |results: &[Value]| -> Vec<String> {
        results
            .iter()
            .map(|result| choice(result)["message"].to_string() + content(result))
            .collect()
    };
    let together = contents(&answer(&lines.concat(), &[]));
    let off = r#"{"enable_sparse_head": false, "jump_forward": "off"}"#;
    let single = r#"{"jump_forward": "single_token"}"#;
    let draft_model = r#"{"method": "draft_model", "num_speculative_tokens": 4}"#;
    let ngram = r#"{"method": "ngram", "num_speculative_tokens": 4}"#;
    for arguments in [
        &["--max-num-seqs", "1"][..],
        &["--structured-outputs-config", off],
        &[
            "--structured-outputs-config",
            single,
            "--max-num-batched-tokens",
            "7",
            "--max-num-seqs",
            "5",
        ],
        &["--speculative-config", ngram],
        &["--speculative-config", draft_model],
        &[
            "--speculative-config",
            ngram,
            "--num-blocks-override",
            "14",
            "--max-model-len",
            "192",
            "--no-enable-prefix-caching",
        ],
    ] {
        assert_eq!(
            contents(&answer(&lines.concat(), arguments)),
            together,
            "{arguments:?}"
        );
    }
}
