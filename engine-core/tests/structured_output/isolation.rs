//! Grammars whose answers take long: nobody waits for them but their own requests, and no answer
//! changes.

use std::collections::BTreeMap;

use protocol::{
    EngineCoreRequest, FinishReason, JumpForward, RequestErrorCode, StructuredOutputsConstraint,
    StructuredOutputsParams, Whitespace,
};

use crate::engine::{Answer, Engine, Setup};
use crate::{mixed_requests, regex, seeded};

/// The most steps of work that grammars may do within one step of the engine: a pool for all requests,
/// what one of them may take at a time beyond it, and the least that each of the others may.
const MOST_GRAMMAR_STEPS: u64 = 100_000 + 40_000 + 4 * 16 * 1_000;

/// Objects with two properties whose patterns differ in every branch: an object must match both in one
/// branch, and in no other.
fn one_of(num_branches: usize) -> String {
    let branches: Vec<String> = (0..num_branches)
        .map(|n| {
            let last = char::from(b'b' + n as u8);
            format!(
                r#"{{"type": "object", "required": ["a", "b"], "properties": {{
                    "a": {{"type": "string", "pattern": "^[a-{last}]{{1,{}}}x{n}$"}},
                    "b": {{"type": "string", "pattern": "^(a|b{n})*c[a-{last}]*$"}}}}}}"#,
                3 + n,
            )
        })
        .collect();
    format!(r#"{{"oneOf": [{}]}}"#, branches.join(", "))
}

/// Words that a text must contain in any order, as members of `allOf`. Where they begin alike, every set
/// of them that was seen is a state.
fn all_of(num_words: usize) -> String {
    let words: Vec<String> = (0..num_words)
        .map(|n| format!(r#"{{"pattern": "1{n}x"}}"#))
        .collect();
    format!(
        r#"{{"type": "object", "required": ["text"], "additionalProperties": false, "properties": {{
            "text": {{"type": "string", "maxLength": 60, "allOf": [{}]}}}}}}"#,
        words.join(", ")
    )
}

/// The same as a regular expression.
fn looks(num_words: usize) -> String {
    let words: String = (0..num_words).map(|n| format!("(?=.*1{n}x)")).collect();
    format!("{words}[a-z0-9 ]{{9,60}}")
}

/// Without white space, of which a text may begin with more than it may have tokens.
fn compact_json(schema: &str) -> StructuredOutputsParams {
    StructuredOutputsParams {
        whitespace: Whitespace::Compact,
        ..StructuredOutputsParams::new(StructuredOutputsConstraint::Json(schema.to_owned()))
    }
}

fn open_ended(mut request: EngineCoreRequest) -> EngineCoreRequest {
    if let Some(structured_outputs) = &mut request.sampling_params.structured_outputs {
        structured_outputs.make_mut().complete_within_max_tokens = false;
    }
    request
}

/// Requests that have answers each of which takes more than a step may wait. Some need not be complete:
/// then their length isn't looked for before they begin.
fn dear_requests(engine: &Engine) -> Vec<EngineCoreRequest> {
    let ask = |id: &str, constraint, params| engine.request(id, "Hello", constraint, params);
    let ask_json = |id: &str, schema: &str, params| {
        let mut request = ask(id, None, params);
        request.sampling_params.structured_outputs = Some(compact_json(schema).into());
        request
    };
    vec![
        open_ended(ask("dear-looks", regex(&looks(7)), seeded(25, 60))),
        ask("dear-looks-complete", regex(&looks(6)), seeded(25, 60)),
        open_ended(ask_json("dear-words", &all_of(5), seeded(21, 60))),
        ask_json("dear-words-complete", &all_of(4), seeded(21, 60)),
        open_ended(ask_json("dear-branches", &one_of(14), seeded(21, 60))),
        ask_json("dear-branches-complete", &one_of(16), seeded(21, 90)),
    ]
}

/// What each brings with an engine of its own, where each has to wait for its grammar.
fn alone(setup: &Setup, requests: &[EngineCoreRequest]) -> BTreeMap<String, Answer> {
    let mut all = BTreeMap::new();
    for request in requests {
        let mut engine = Engine::new(setup);
        all.extend(engine.run(std::slice::from_ref(request)));
        let num_deferred_answers = engine.totals.structured.num_deferred_answers;
        let id = &request.request_id;
        assert!(num_deferred_answers > 0, "{id} is no longer dear");
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
        let num_deferred = structured.num_deferred_answers;
        assert!(num_deferred >= dear.len() as u64, "{what}: {num_deferred}");
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
    let setup = Setup::plain();
    let mut engine = Engine::new(&setup);
    let dear = dear_requests(&engine).swap_remove(0);
    let expected = alone(&setup, std::slice::from_ref(&dear));
    let ordinary = engine.request(
        "ordinary",
        "Go on.",
        regex("[a-z ]{300,400}"),
        seeded(1, 120),
    );
    engine.add(open_ended(ordinary));
    while engine.core.wait_for_grammar() {}
    let dear_id = dear.request_id.clone();
    engine.add(dear);
    let (mut num_steps, mut num_tokens, mut is_over) = (0, 0, false);
    let mut dear_token_ids = Vec::new();
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
                _ => dear_token_ids.extend(output.new_token_ids),
            }
        }
    }
    assert_eq!((num_steps, num_tokens), (120, 120));
    // It may be over before.
    for (id, rest) in engine.drain() {
        assert_eq!((&id, &rest.error), (&dear_id, &None));
        dear_token_ids.extend(rest.token_ids);
    }
    assert_eq!(dear_token_ids, expected[&dear_id].token_ids);
    assert!(engine.totals.structured.num_deferred_answers > 0);
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

/// Whether a text that is whole with the last token could go on is asked of the next mask. Where that takes
/// more than a limit, the text is whole all the same.
#[test]
fn a_whole_text_is_an_answer_whatever_the_next_mask_takes() {
    let letter = |at: usize| char::from(b'a' + (at % 26) as u8);
    let rules: Vec<String> = (0..200)
        .map(|at| {
            let (not, then) = (letter(at), letter(at + 1));
            let next = (at * 7 + 1) % 200;
            format!("r{at}: /[^{not}]*/ \"{then}\" r{next} | \".\"")
        })
        .collect();
    let names: Vec<String> = (0..200).map(|at| format!("r{at}")).collect();
    let grammar = format!(
        "start: \"1+\" x?\nx: {}\n{}",
        names.join(" | "),
        rules.join("\n")
    );
    let constraint = Some(StructuredOutputsConstraint::Grammar(grammar));
    let mut engine = Engine::new(&Setup::default());
    let room = engine.tokenizer.encode("1+", false).unwrap().len() as u32;
    let request = engine.request("whole", "Hello", constraint, seeded(1, room));
    let answers = engine.run(&[request]);
    let answer = &answers["whole"];
    assert_eq!(answer.error, None);
    assert_eq!(engine.text(answer), "1+");
    assert_eq!(answer.finish_reason, Some(FinishReason::Length));
    assert_eq!(answer.complete, Some(true));
}
