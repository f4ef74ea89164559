//! Grammars whose answers take long: nobody waits for them but their own requests, and no answer
//! changes.

use std::collections::BTreeMap;

use protocol::{EngineCoreRequest, JumpForward, RequestErrorCode};

use crate::engine::{Answer, Engine, Setup};
use crate::{greedy, json, mixed_requests, regex, seeded};

/// The most steps of work that grammars may do within one step of the engine: a pool for all requests,
/// what one of them may take at a time beyond it, and the least that each of the others may.
const MOST_GRAMMAR_STEPS: u64 = 100_000 + 40_000 + 4 * 16 * 1_000;

fn one_of(num_branches: usize) -> String {
    let branches: Vec<String> = (0..num_branches)
        .map(|n| {
            format!(
                r#"{{"type": "object", "required": ["b"], "properties": {{
                    "k{n}": {{"pattern": "^[a-{}]{{1,{}}}x{n}$"}}, "b": {{"pattern": "^(a|b{n})*c$"}}}}}}"#,
                char::from(b'b' + (n % 20) as u8),
                3 + n % 17,
            )
        })
        .collect();
    format!(r#"{{"oneOf": [{}]}}"#, branches.join(", "))
}

fn distinct(num_values: usize, min_items: usize) -> String {
    let values: Vec<String> = (0..num_values).map(|n| format!("\"value{n}\"")).collect();
    format!(
        r#"{{"type": "array", "uniqueItems": true, "minItems": {min_items}, "items": {{"enum": [{}]}}}}"#,
        values.join(", ")
    )
}

fn open_ended(mut request: EngineCoreRequest) -> EngineCoreRequest {
    if let Some(structured_outputs) = &mut request.sampling_params.structured_outputs {
        structured_outputs.complete_within_max_tokens = false;
    }
    request
}

/// Requests whose masks or lengths take long. Some need not be complete: then their length isn't looked
/// for before they begin.
fn dear_requests(engine: &Engine) -> Vec<EngineCoreRequest> {
    let looks: String = ('a'..='e')
        .map(|letter| format!("(?=.*[{letter}-z]{{2,9}}.*{letter})"))
        .collect();
    let ask = |id: &str, constraint, params| engine.request(id, "Hello", constraint, params);
    vec![
        open_ended(ask("dear-branches", json(&one_of(120)), seeded(21, 40))),
        ask("dear-branches-complete", json(&one_of(40)), seeded(22, 90)),
        ask("dear-items", json(&distinct(800, 0)), seeded(23, 60)),
        open_ended(ask("dear-many-items", json(&distinct(120, 6)), greedy(60))),
        open_ended(ask("dear-dots", regex("(.{0,5000}x){200}"), seeded(24, 40))),
        open_ended(ask(
            "dear-looks",
            regex(&format!("{looks}[a-z ]{{9,60}}")),
            seeded(25, 60),
        )),
    ]
}

fn alone(setup: &Setup, requests: &[EngineCoreRequest]) -> BTreeMap<String, Answer> {
    let mut all = BTreeMap::new();
    for request in requests {
        let mut engine = Engine::new(setup);
        all.extend(engine.run(std::slice::from_ref(request)));
    }
    all
}

#[test]
fn dear_grammars_hold_up_nobody_and_change_no_answer() {
    let setup = Setup::default();
    let probe = Engine::new(&setup);
    let dear = dear_requests(&probe);
    let ordinary = mixed_requests(&probe);
    drop(probe);
    let mut expected = alone(&setup, &dear);
    for (id, answer) in &expected {
        assert_eq!(answer.error, None, "{id}");
    }
    expected.extend(Engine::new(&setup).run(&ordinary));

    let few_blocks = Setup {
        num_blocks: Some(64),
        num_speculative_tokens: 3,
        ..Setup::default()
    };
    let few_places = Setup {
        max_num_seqs: 3,
        max_num_batched_tokens: 64,
        ..Setup::plain()
    };
    for (what, setup) in [
        ("default", setup),
        ("few blocks and drafts", few_blocks),
        ("few places", few_places),
    ] {
        let mut engine = Engine::new(&setup);
        let all = [&dear[..], &ordinary[..]].concat();
        let found = engine.run(&all);
        for (id, expected) in &expected {
            let answer = &found[id];
            assert_eq!(answer.error, None, "{what}: {id}");
            assert_eq!(answer.token_ids, expected.token_ids, "{what}: {id}");
            assert_eq!(answer.finish_reason, expected.finish_reason, "{what}: {id}");
            assert_eq!(answer.complete, expected.complete, "{what}: {id}");
        }
        let structured = &engine.totals.structured;
        assert!(structured.num_deferred_answers > 0, "{what}");
        assert_eq!(structured.num_rejections, 0, "{what}");
        let most = engine.core.most_grammar_steps();
        assert!(most <= MOST_GRAMMAR_STEPS, "{what}: {most} steps");
    }
}

/// With forced text, which tokens write a text depends on what is forced: also where that took long to
/// find.
#[test]
fn forced_text_is_the_same_beside_dear_grammars() {
    let setup = Setup {
        jump_forward: JumpForward::Text,
        ..Setup::default()
    };
    let probe = Engine::new(&setup);
    let (dear, ordinary) = (dear_requests(&probe), mixed_requests(&probe));
    drop(probe);
    let mut expected = alone(&setup, &dear);
    expected.extend(Engine::new(&setup).run(&ordinary));
    let found = Engine::new(&setup).run(&[&dear[..], &ordinary[..]].concat());
    for (id, expected) in &expected {
        assert_eq!(found[id].error, None, "{id}");
        assert_eq!(found[id].token_ids, expected.token_ids, "{id}");
    }
}

/// While a grammar is at work aside, its request waits and the others get a token in every step.
#[test]
fn a_step_gives_every_other_request_its_token() {
    let mut engine = Engine::new(&Setup::plain());
    let dear = dear_requests(&engine).swap_remove(0);
    let ordinary = engine.request(
        "ordinary",
        "Go on.",
        regex("[a-z ]{300,400}"),
        seeded(1, 120),
    );
    engine.add(open_ended(ordinary));
    while engine.core.wait_for_grammar() {}
    engine.add(dear);
    let (mut num_steps, mut num_tokens, mut is_over) = (0, 0, false);
    let mut num_dear_tokens = 0;
    while !is_over {
        assert!(engine.core.has_work());
        num_steps += 1;
        for output in engine.step() {
            assert_eq!(output.error, None);
            match &*output.request_id {
                "ordinary" => {
                    num_tokens += output.new_token_ids.len();
                    is_over = output.finish_reason.is_some();
                }
                _ => num_dear_tokens += output.new_token_ids.len(),
            }
        }
    }
    assert_eq!((num_steps, num_tokens), (120, 120));
    let answers = engine.drain();
    let rest = answers
        .get("dear-branches")
        .map(|dear| dear.token_ids.len());
    assert_eq!(num_dear_tokens + rest.unwrap_or_default(), 40);
}

/// What a constraint of a few words may cost is seen in the midst of a text only: that is the caller's
/// fault there too.
#[test]
fn a_limit_in_the_midst_of_a_text_is_the_callers() {
    let looks: String = ('c'..='l')
        .zip(1..)
        .map(|(letter, count)| format!("(?=.*[a-{letter}]{{{count}}})"))
        .collect();
    let mut engine = Engine::new(&Setup::default());
    let constraint = regex(&format!("{looks}.{{1,60}}"));
    let request = engine.request("looks", "Hello", constraint, seeded(1, 60));
    let answers = engine.run(&[open_ended(request)]);
    let error = answers["looks"].error.as_ref().unwrap();
    assert_eq!(error.code, RequestErrorCode::GrammarRefused);
    assert!(
        error.message.contains("`max_mask_steps`"),
        "{}",
        error.message
    );
    assert!(!answers["looks"].token_ids.is_empty());
}
