//! Drafts of a model: the same texts as without, and the drafts that the model would make alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use engine_core::engine::load_engine_core;
use protocol::{EngineCoreRequest, JumpForward, ModelSource, SamplingParams, SpecDecodingStats};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json as json_value};
use tempfile::TempDir;

use crate::engine::{Answer, Engine, Setup};
use crate::quantized_checkpoint::{Form, Order, convert};
use crate::random_checkpoint::RandomCheckpoint;
use crate::{CAR, choice, greedy, json, mixed_requests, regex, seeded};

/// Requests of the comparison of many, where `FORMWORK_DRAFT_REQUESTS` says nothing else.
const NUM_REQUESTS: u64 = 40;

/// A folder with the built-in model's files, of which `change` makes others.
fn changed_model(change: impl Fn(&str, &[u8]) -> Vec<u8>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in builtin_model::FILES {
        fs::write(folder.path().join(name), change(name, bytes)).unwrap();
    }
    folder
}

fn with_config(bytes: &[u8], field: &str, value: Value) -> Vec<u8> {
    let mut config: Value = serde_json::from_slice(bytes).unwrap();
    config[field] = value;
    serde_json::to_vec(&config).unwrap()
}

/// The built-in model without its last layer: it is often right.
fn shortened_model() -> TempDir {
    changed_model(|name, bytes| match name {
        "config.json" => with_config(bytes, "num_hidden_layers", json_value!(5)),
        "model.safetensors" => {
            let tensors = SafeTensors::deserialize(bytes).unwrap();
            let kept: Vec<(String, TensorView<'_>)> = (tensors.tensors().into_iter())
                .filter(|(name, _)| !name.starts_with("model.layers.5."))
                .collect();
            safetensors::serialize(kept, None).unwrap()
        }
        _ => bytes.to_vec(),
    })
}

/// Random weights with the built-in model's vocabulary: it is hardly ever right.
fn random_model() -> TempDir {
    let folder = changed_model(|_, bytes| bytes.to_vec());
    let checkpoint = RandomCheckpoint {
        vocab_size: 4096,
        max_position_embeddings: 2048,
        ..RandomCheckpoint::tiny("LlamaForCausalLM", 5)
    };
    checkpoint.write(folder.path()).unwrap();
    folder
}

/// The built-in model with a classifier in place of its LM head: it generates nothing.
fn classifying_model() -> TempDir {
    let score = vec![0; 2 * 192];
    changed_model(|name, bytes| match name {
        "config.json" => {
            let architectures = json_value!(["Qwen3ForSequenceClassification"]);
            with_config(bytes, "architectures", architectures)
        }
        "model.safetensors" => {
            let tensors = SafeTensors::deserialize(bytes).unwrap();
            let score = TensorView::new(Dtype::BF16, vec![1, 192], &score).unwrap();
            let mut tensors = tensors.tensors();
            tensors.push(("score.weight".to_owned(), score));
            safetensors::serialize(tensors, None).unwrap()
        }
        _ => bytes.to_vec(),
    })
}

/// The built-in model as a quantizer writes it.
fn quantized_model(form: Form) -> TempDir {
    let [from, quantized] = [(); 2].map(|()| changed_model(|_, bytes| bytes.to_vec()));
    let plain = tempfile::tempdir().unwrap();
    convert(from.path(), form, quantized.path(), plain.path());
    quantized
}

fn at(folder: &TempDir) -> ModelSource {
    ModelSource::Path(folder.path().to_owned())
}

fn drafting(model: ModelSource, num_speculative_tokens: u32) -> Setup {
    Setup {
        draft_model: Some(model),
        num_speculative_tokens,
        ..Setup::default()
    }
}

fn assert_same_tokens(answers: &BTreeMap<String, Answer>, expected: &BTreeMap<String, Answer>) {
    assert_eq!(answers.len(), expected.len());
    for (id, expected) in expected {
        let answer = &answers[id];
        assert_eq!(answer.token_ids, expected.token_ids, "{id}");
        assert_eq!(answer.finish_reason, expected.finish_reason, "{id}");
        assert_eq!(answer.complete, expected.complete, "{id}");
        assert_eq!(answer.error, None, "{id}");
        assert_eq!(answer.logprobs, expected.logprobs, "{id}");
    }
}

/// A model that drafts for itself is right every time, so each step but the first brings a whole draft and one
/// token more: a step less would be one that drafted too little.
#[test]
fn a_model_is_right_about_itself() {
    let mut engine = Engine::new(&drafting(ModelSource::BuiltIn, 4));
    for (id, params) in [("greedy", greedy(61)), ("seeded", seeded(3, 61))] {
        let params = SamplingParams {
            ignore_eos: true,
            ..params
        };
        // The second time the prompt comes from the prefix cache, whose blocks the draft model has filled too.
        for _ in 0..2 {
            let request =
                engine.request(id, "Tell me of the sea, at length.", None, params.clone());
            let answer = &engine.run(&[request])[id];
            assert_eq!(answer.token_ids.len(), 61);
            assert_eq!(answer.num_steps, 1 + 60 / 5, "{id}");
        }
    }
    let spec = &engine.totals.spec;
    assert_eq!(spec.num_drafts, 4 * 12);
    assert_eq!(spec.num_draft_tokens, 4 * 48);
    assert_eq!(spec.num_accepted_tokens, 4 * 48);
    assert!(engine.totals.cache_hits > 0);
}

/// Whatever a draft model says: prompts in pieces, preemption, prefixes that a request of one token left.
#[test]
fn a_model_is_right_about_itself_under_constraints_and_preemption() {
    for setup in [
        drafting(ModelSource::BuiltIn, 4),
        Setup {
            num_blocks: Some(28),
            ..drafting(ModelSource::BuiltIn, 6)
        },
        Setup {
            max_num_batched_tokens: 24,
            max_num_seqs: 5,
            ..drafting(ModelSource::BuiltIn, 3)
        },
    ] {
        let mut engine = Engine::new(&setup);
        let mut first = mixed_requests(&engine);
        for request in &mut first {
            request.sampling_params.max_tokens = Some(1);
            request.sampling_params.structured_outputs = None;
        }
        engine.run(&first);
        // How many run at once depends on how soon their grammars are compiled.
        for _ in 0..10 {
            engine.run(&mixed_requests(&engine));
            if setup.num_blocks.is_none() || engine.totals.num_preempted > 0 {
                break;
            }
        }
        let spec = &engine.totals.spec;
        let wrong = spec.num_draft_tokens - spec.num_accepted_tokens;
        // Where a token is taken back, or a repetition closed, the draft went on with what doesn't come.
        assert!(wrong * 50 <= spec.num_draft_tokens, "{spec:?}");
        assert!(spec.num_accepted_tokens > 100, "{spec:?}");
        assert_eq!(engine.totals.num_preempted > 0, setup.num_blocks.is_some());
    }
}

/// The statistics of drafts of `draft`, a plain engine, for an answer that the target model gave: at each place the
/// draft model goes on alone with the text so far.
fn reference_stats(
    draft: &mut Engine,
    request: &EngineCoreRequest,
    answer: &[u32],
    num_speculative_tokens: usize,
) -> SpecDecodingStats {
    let mut stats = SpecDecodingStats::default();
    let max_tokens = request.sampling_params.max_tokens.unwrap() as usize;
    let mut num_done = 1;
    while num_done < answer.len() {
        let most = num_speculative_tokens.min(max_tokens - num_done - 1);
        let goes_on = EngineCoreRequest {
            output_token_ids: answer[..num_done].to_vec(),
            ..request.clone()
        };
        let alone = &draft.run(&[goes_on])[&request.request_id].token_ids;
        let proposed = &alone[..most.min(alone.len())];
        let pairs = proposed.iter().zip(&answer[num_done..]);
        let num_accepted = pairs
            .take_while(|(proposed, token)| proposed == token)
            .count();
        if !proposed.is_empty() {
            stats.num_drafts += 1;
            stats.num_draft_tokens += proposed.len() as u64;
            stats.num_accepted_tokens += num_accepted as u64;
        }
        num_done += num_accepted + 1;
    }
    stats
}

/// Against a slow reference: the draft model as an engine of its own, which reads the whole text before each draft.
#[test]
fn drafts_are_what_the_draft_model_says_alone() {
    let folder = shortened_model();
    let mut target = Engine::new(&Setup::plain());
    let mut alone = Engine::new(&Setup {
        model: at(&folder),
        ..Setup::plain()
    });
    let penalised = SamplingParams {
        repetition_penalty: 1.3,
        presence_penalty: 0.5,
        min_tokens: 30,
        logit_bias: [(300, 2.0)].into(),
        ..seeded(9, 50)
    };
    let mut sum = SpecDecodingStats::default();
    for num_speculative_tokens in [1, 5] {
        let setup = Setup {
            jump_forward: JumpForward::Off,
            sparse_head: false,
            ..drafting(at(&folder), num_speculative_tokens)
        };
        let requests = [
            target.request("greedy", "What is the capital of France?", None, greedy(48)),
            target.request(
                "seeded",
                "What is the capital of France?",
                None,
                seeded(4, 48),
            ),
            target.request("penalised", "Go on.", None, penalised.clone()),
            target.request("car", "A car, as JSON.", json(CAR), greedy(90)),
            target.request(
                "mail",
                "A mail.",
                regex(r"\w{3,12}@\w{3,8}\.com"),
                seeded(7, 40),
            ),
        ];
        for request in requests {
            let id = request.request_id.clone();
            let answer = target.run(std::slice::from_ref(&request));
            let expected = reference_stats(
                &mut alone,
                &request,
                &answer[&id].token_ids,
                num_speculative_tokens as usize,
            );
            let mut engine = Engine::new(&setup);
            assert_same_tokens(&engine.run(&[request]), &answer);
            let found = SpecDecodingStats {
                num_accepted_tokens_per_pos: Vec::new(),
                ..engine.totals.spec.clone()
            };
            assert_eq!(found, expected, "{id}, {num_speculative_tokens}");
            sum.num_draft_tokens += found.num_draft_tokens;
            sum.num_accepted_tokens += found.num_accepted_tokens;
        }
    }
    // Right and wrong drafts were compared.
    assert!(sum.num_accepted_tokens > 30, "{sum:?}");
    assert!(
        sum.num_draft_tokens - sum.num_accepted_tokens > 30,
        "{sum:?}"
    );
}

/// Requests of every kind, a different one for each number.
fn many_requests(engine: &Engine, num_requests: u64) -> Vec<EngineCoreRequest> {
    const PROMPTS: [&str; 6] = [
        "Say something",
        "Describe a car as JSON.",
        "What is 12 plus 30?",
        "Where is Lisbon, and what is the weather like?",
        "A mail, please.",
        "Name a colour.",
    ];
    let tool = r#"{"type":"object","properties":{"name":{"const":"get_weather"},"arguments":{"type":"object",
        "properties":{"city":{"type":"string","maxLength":16},"days":{"type":"integer"}},
        "required":["city","days"],"additionalProperties":false}},"required":["name","arguments"],
        "additionalProperties":false}"#;
    (0..num_requests)
        .map(|number| {
            let constraint = match number % 5 {
                0 | 1 if number % 2 == 0 => None,
                0 => regex(r"[A-Z][a-z]{2,9}( [a-z]{2,9}){1,6}\."),
                1 => json(CAR),
                2 => choice(&["red", "green", "blue", "a rather unusual colour"]),
                3 => json(tool),
                _ => None,
            };
            let mut params = match number % 3 {
                0 => greedy(70),
                _ => seeded(number, 70),
            };
            match number % 11 {
                1 => params.logprobs = Some(3),
                2 => params.prompt_logprobs = Some(1),
                4 => params.repetition_penalty = 1.2,
                5 => params.frequency_penalty = 0.8,
                6 => params.min_tokens = 20,
                7 => params.stop_token_ids = [300, 301, 302].into(),
                8 => params.logit_bias = [(310, 5.0), (320, -100.0)].into(),
                9 => params.include_trace = true,
                10 => params.top_p = 0.7,
                _ => {}
            }
            let prompt = PROMPTS[number as usize % PROMPTS.len()];
            engine.request(&number.to_string(), prompt, constraint, params)
        })
        .collect()
}

#[test]
fn many_requests_get_the_same_texts_whatever_drafts() {
    let num_requests = std::env::var("FORMWORK_DRAFT_REQUESTS")
        .map_or(NUM_REQUESTS, |number| number.parse().unwrap());
    let (shortened, random) = (shortened_model(), random_model());
    let mut plain = Engine::new(&Setup::default());
    let requests = many_requests(&plain, num_requests);
    let expected = plain.run(&requests);
    let mut share_accepted = Vec::new();
    for model in [ModelSource::BuiltIn, at(&shortened), at(&random)] {
        let mut engine = Engine::new(&drafting(model, 4));
        let answers = engine.run(&requests);
        assert_same_tokens(&answers, &expected);
        let SpecDecodingStats {
            num_draft_tokens,
            num_accepted_tokens,
            ..
        } = engine.totals.spec;
        share_accepted.push(num_accepted_tokens as f64 / num_draft_tokens as f64);
    }
    eprintln!("{num_requests} requests, shares of accepted tokens: {share_accepted:?}");
    let [own, shortened, random] = share_accepted[..] else {
        unreachable!()
    };
    assert!(own > 0.98, "{own}");
    assert!(random < 0.5 && random < shortened && shortened < own);
}

/// Forced text is appended with drafts of a model as without.
#[test]
fn forced_text_stays_with_drafts_of_a_model() {
    let setup = |num_speculative_tokens| Setup {
        jump_forward: JumpForward::Text,
        ..drafting(ModelSource::BuiltIn, num_speculative_tokens)
    };
    let mut plain = Engine::new(&Setup {
        draft_model: None,
        ..setup(0)
    });
    let requests = mixed_requests(&plain);
    let expected = plain.run(&requests);
    let mut engine = Engine::new(&setup(4));
    assert_same_tokens(&engine.run(&requests), &expected);
    assert!(engine.totals.spec.num_accepted_tokens > 0);
}

/// A target model in each kind of weights, with the plain one as its draft model, and a draft model in 4 bits.
#[test]
fn quantized_models_draft_and_are_drafted_for() {
    let gptq = Form::Gptq {
        bits: 4,
        group: Some(64),
        order: Order::PerInput,
    };
    for form in [
        gptq,
        Form::Awq { group: 64 },
        Form::Fp8Block,
        Form::Nf4 { nested: true },
    ] {
        let folder = quantized_model(form);
        let mut plain = Engine::new(&Setup {
            model: at(&folder),
            ..Setup::default()
        });
        let requests = mixed_requests(&plain);
        let expected = plain.run(&requests);
        let mut engine = Engine::new(&Setup {
            model: at(&folder),
            ..drafting(ModelSource::BuiltIn, 4)
        });
        assert_same_tokens(&engine.run(&requests), &expected);
        let spec = &engine.totals.spec;
        let share = spec.num_accepted_tokens as f64 / spec.num_draft_tokens as f64;
        assert!(share > 0.5, "{form:?}: {share}");
    }
    let mut plain = Engine::new(&Setup::default());
    let requests = mixed_requests(&plain);
    let expected = plain.run(&requests);
    let folder = quantized_model(gptq);
    let mut engine = Engine::new(&drafting(at(&folder), 4));
    assert_same_tokens(&engine.run(&requests), &expected);
    assert!(engine.totals.spec.num_accepted_tokens > 0);
}

#[test]
fn where_many_run_there_are_as_few_drafts_as_configured() {
    let mut engine = Engine::new(&Setup {
        num_speculative_tokens_per_batch_size: vec![(1, 1, 4), (2, 9, 0)],
        ..drafting(ModelSource::BuiltIn, 4)
    });
    let request = |engine: &Engine, id, max_tokens| {
        let params = SamplingParams {
            ignore_eos: true,
            ..greedy(max_tokens)
        };
        engine.request(id, "Go on.", None, params)
    };
    let (long, short) = (request(&engine, "long", 31), request(&engine, "short", 11));
    let answers = engine.run(&[long, short]);
    assert_eq!(answers["short"].num_steps, 11);
    // 20 tokens in drafts of 4 and the token after each.
    assert_eq!(answers["long"].num_steps, 11 + 4);
    assert_eq!(engine.totals.spec.num_drafts, 4);
}

/// Why an engine with this draft model can't start.
fn refusal(setup: &Setup) -> String {
    match load_engine_core(&setup.config(), None, &mut |_| {}) {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn models_that_cannot_draft_are_named() {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let missing = ModelSource::Path("/none/draft".into());
    let message = refusal(&drafting(missing, 4));
    assert!(
        message.starts_with("speculative_config.model, /none/draft: "),
        "{message}"
    );

    let short = changed_model(|name, bytes| match name {
        "config.json" => with_config(bytes, "max_position_embeddings", json_value!(512)),
        _ => bytes.to_vec(),
    });
    assert_eq!(
        refusal(&drafting(at(&short), 4)),
        format!(
            "speculative_config.model is {}, which was made for sequences of 512 tokens, and max_model_len is 1024: it \
             must be at most 512 with this draft model",
            name(short.path())
        )
    );

    let swapped = changed_model(|name, bytes| match name {
        "tokenizer.json" => {
            let mut tokenizer: Value = serde_json::from_slice(bytes).unwrap();
            let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
            for id in vocab.values_mut() {
                *id = match id.as_u64() {
                    Some(64) => json_value!(65),
                    Some(65) => json_value!(64),
                    _ => continue,
                };
            }
            serde_json::to_vec(&tokenizer).unwrap()
        }
        _ => bytes.to_vec(),
    });
    let message = refusal(&drafting(at(&swapped), 4));
    let expected = format!(
        "speculative_config.model is {}, whose vocabulary differs from that of {}: its token 64 is ",
        name(swapped.path()),
        builtin_model::NAME
    );
    assert!(message.starts_with(&expected), "{message}");
    assert!(message.contains(" instead of "), "{message}");

    let classifier = classifying_model();
    let no_text = |purpose: &str| {
        format!(
            "speculative_config is given, but {} generates no text, so nothing can be drafted {purpose}: leave it out, \
             or name a model that generates",
            name(classifier.path())
        )
    };
    assert_eq!(refusal(&drafting(at(&classifier), 4)), no_text("by it"));
    for setup in [
        drafting(ModelSource::BuiltIn, 4),
        Setup {
            draft_model: None,
            ..drafting(ModelSource::BuiltIn, 4)
        },
    ] {
        let setup = Setup {
            model: at(&classifier),
            ..setup
        };
        assert_eq!(refusal(&setup), no_text("for it"));
    }

    let none = refusal(&drafting(ModelSource::BuiltIn, 32));
    assert_eq!(
        none,
        "speculative_config.num_speculative_tokens is 32: it must be from 1 to 31"
    );
}
