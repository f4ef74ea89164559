//! What a compiler keeps, counted where it is allocated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use structured_output::{
    CancelFlag, CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions, MatcherError,
    PropertyOrder, TokenizerInfo,
};

/// The system's allocator, with a count of what is held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

/// The most that was held since it was set last.
static MOST: AtomicUsize = AtomicUsize::new(0);

/// One test at a time, since all is counted together.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: everything is handed to the system's allocator as it is; only a number is kept beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Beyond `cache_bytes`, as `docs/internals/structured-output.md` has it: what is counted is estimated.
const TOLERANCE: f64 = 1.05;

const STOP: u32 = 20_000;

/// Bytes, and words of two to seven letters, some across the borders of JSON's lexemes.
fn info() -> Arc<TokenizerInfo> {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let ends = ["", "\"", "\":", "\",", " ", "}", "1", "\": \""];
    let mut n = 0_usize;
    while vocab.len() < STOP as usize {
        let mut word: Vec<u8> = Vec::new();
        let mut rest = n / ends.len();
        for _ in 0..2 + n % 5 {
            word.push(b'a' + (rest % 26) as u8);
            rest = rest / 26 + n % 7;
        }
        word.extend_from_slice(ends[n % ends.len()].as_bytes());
        vocab.push(word);
        n += 1;
    }
    vocab.push(Vec::new());
    Arc::new(TokenizerInfo::new(&vocab, vocab.len(), &[STOP], &[]).unwrap())
}

/// A schema like no other.
fn schema(n: usize) -> String {
    let names: Vec<String> = (0..20)
        .map(|i| {
            format!(
                r#""name{}": {{"type": "string", "maxLength": {}}}"#,
                n * 7 + i,
                n + i
            )
        })
        .collect();
    format!(
        r#"{{"type": "object", "properties": {{{}}}, "required": ["name{}"],
            "patternProperties": {{"^x{n}": {{"enum": [{n}, "word{n}", null]}}}},
            "additionalProperties": {{"type": "array", "items": {{"pattern": "^[a-f]{{{}}}{n}$"}}}}}}"#,
        names.join(","),
        n * 7 + 3,
        n % 9
    )
}

#[test]
fn caches_keep_to_their_budget() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for cache_bytes in [8 << 20, 32 << 20] {
        let options = CompilerOptions {
            cache_bytes,
            ..CompilerOptions::default()
        };
        let compiler = GrammarCompiler::new(info(), options);
        let before = HELD.load(Ordering::Relaxed);
        let mut most = 0;
        for n in 0..300 {
            let options = JsonSchemaOptions {
                property_order: [PropertyOrder::Any, PropertyOrder::Schema][n % 2],
                ..JsonSchemaOptions::default()
            };
            let grammar = compiler.compile_json_schema(&schema(n), &options).unwrap();
            let mut matcher = GrammarMatcher::new(&grammar);
            for step in 0..24 {
                let mask = match matcher.next_token_mask() {
                    Ok(mask) => mask,
                    // Its states are too many for a budget so small.
                    Err(MatcherError::StatesExhausted { .. }) => break,
                    Err(error) => panic!("{error}"),
                };
                let ids = mask.token_ids();
                if matcher.is_terminated() {
                    break;
                }
                let token = ids[(n * 31 + step * 17) % ids.len()];
                assert!(matcher.accept_token(token).unwrap());
            }
            drop((matcher, grammar));
            most = most.max(HELD.load(Ordering::Relaxed).saturating_sub(before));
        }
        println!("{cache_bytes} bytes of budget: at most {most} held");
        assert!(
            most as f64 <= cache_bytes as f64 * TOLERANCE,
            "{most} bytes"
        );
        // It was used, so the budget was what kept it.
        assert!(most > cache_bytes / 4, "{most} bytes");
    }
}

/// The same where all matchers stay in use: those of old generations fail before all together take more.
#[test]
fn generations_in_use_keep_to_the_budget_together() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cache_bytes = 16 << 20;
    let options = CompilerOptions {
        cache_bytes,
        ..CompilerOptions::default()
    };
    let compiler = GrammarCompiler::new(info(), options);
    compiler.prepare();
    let before = HELD.load(Ordering::Relaxed);
    let mut most = 0;
    let mut matchers: Vec<GrammarMatcher> = Vec::new();
    let mut num_ended = 0;
    for n in 0..400 {
        let options = JsonSchemaOptions {
            property_order: PropertyOrder::Any,
            ..JsonSchemaOptions::default()
        };
        let grammar = compiler.compile_json_schema(&schema(n), &options).unwrap();
        matchers.push(GrammarMatcher::new(&grammar));
        drop(grammar);
        let num_before = matchers.len();
        matchers.retain_mut(|matcher| {
            let Ok(mask) = matcher.next_token_mask() else {
                return false;
            };
            let ids = mask.token_ids();
            let token = ids[(n * 31) % ids.len()];
            !matcher.is_terminated() && matcher.accept_token(token).is_ok()
        });
        num_ended += num_before - matchers.len();
        most = most.max(HELD.load(Ordering::Relaxed).saturating_sub(before));
    }
    println!("{cache_bytes} bytes of budget: at most {most} held, {num_ended} ended");
    assert!(
        most as f64 <= cache_bytes as f64 * TOLERANCE,
        "{most} bytes"
    );
}

/// All memory together: what grammars share, what those have that were moved apart, and what one has alone. Everybody
/// writes what is remembered, and asks for masks.
#[test]
fn memory_apart_is_part_of_the_budget() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cache_bytes = 8 << 20;
    let options = CompilerOptions {
        cache_bytes,
        max_shared_steps: Some(20_000),
        ..CompilerOptions::default()
    };
    let compiler = GrammarCompiler::new(info(), options);
    compiler.prepare();
    let cancel = CancelFlag::new();
    let before = HELD.load(Ordering::Relaxed);
    let mut most = 0;
    let (mut num_renewed, mut num_ended) = (0, 0);
    let hog = |n: usize| {
        let schema = format!(
            r#"{{"additionalProperties": {{"type": "integer", "maximum": {}}}}}"#,
            10 + n
        );
        let options = JsonSchemaOptions::default();
        let grammar = compiler.compile_json_schema(&schema, &options).unwrap();
        GrammarMatcher::new(&grammar)
    };
    // Whether a text goes on with some bytes. Else its memory has ended it.
    let mut write = |matcher: &mut GrammarMatcher, text: &str| {
        for byte in text.bytes().map(u32::from) {
            loop {
                let asked = matcher.next_token_mask().map(drop);
                let accepted = asked.and_then(|()| matcher.accept_token(byte));
                most = most.max(HELD.load(Ordering::Relaxed).saturating_sub(before));
                match accepted {
                    Ok(accepted) => break assert!(accepted),
                    Err(MatcherError::StatesExhausted { .. }) => num_renewed += 1,
                    Err(error) => panic!("{error}"),
                }
                if compiler.renew(matcher, &cancel).is_err() {
                    return false;
                }
            }
        }
        true
    };
    let mut hogs: Vec<GrammarMatcher> = (0..5).map(hog).collect();
    let mut num_apart = 0;
    for n in 0..1_500 {
        for (place, matcher) in hogs.iter_mut().enumerate() {
            let is_moved = place % 2 == 0 && !matcher.is_apart();
            num_apart += usize::from(is_moved && compiler.move_apart(matcher, &cancel).is_ok());
            let begins = matcher.num_accepted_tokens() == 0;
            let member = format!("{}\"key {n}\":1", if begins { '{' } else { ',' });
            if !write(matcher, &member) {
                *matcher = hog(place);
                num_ended += 1;
            }
        }
    }
    println!(
        "{cache_bytes}: at most {most} held, {num_renewed} renewed, {num_apart} apart, {num_ended} ended"
    );
    assert!(
        num_renewed > 10 && num_apart > 2,
        "{num_renewed}, {num_apart}"
    );
    assert!(
        most as f64 <= cache_bytes as f64 * TOLERANCE,
        "{most} bytes"
    );
}

/// The budget is looked at as values are read, not once they all are: a list of them is one piece of work.
#[test]
fn long_lists_of_lists_and_objects_take_little_more_than_the_budget() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let compiler = GrammarCompiler::new(info(), CompilerOptions::default());
    compiler.prepare();
    let lists = (0..60_000).map(|n| format!("[{n}]"));
    let objects = (0..30_000).map(|n| format!(r#"{{"k": {n}, "v": "{n}"}}"#));
    let deep = (0..24_000).map(|n| format!("[[[[[{n}]]]]]"));
    let schemas = [lists.collect::<Vec<_>>(), objects.collect(), deep.collect()];
    for values in schemas {
        let schema = format!(r#"{{"enum": [{}]}}"#, values.join(","));
        let before = HELD.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let refused = compiler.compile_json_schema(&schema, &JsonSchemaOptions::default());
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("`max_bytes`"), "{message}");
        // Of which 24 MiB are the budget.
        let most = MOST.load(Ordering::Relaxed) - before;
        assert!(most < 48 << 20, "{most} bytes for {}", values[0]);
    }
}

/// What a first look at a constraint's masks makes is of the same budget.
#[test]
fn constraints_that_are_searched_take_little_more_than_the_budget() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let far = r#"{"type": "string", "minLength": 60000, "pattern": ".*a.{5000}"}"#;
    let alternative = |n: usize| {
        format!(
            r#"{{"type": "object", "required": ["a{n}"], "properties": {{"a{n}": {{"type": "integer"}},
                "b": {{"type": "string", "minLength": {n}}}}}}}"#
        )
    };
    let alternatives: Vec<String> = (0..5_000).map(alternative).collect();
    let alternatives = format!(r#"{{"anyOf": [{}]}}"#, alternatives.join(","));
    for schema in [far, &alternatives] {
        let compiler = GrammarCompiler::new(info(), CompilerOptions::default());
        compiler.prepare();
        let before = HELD.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let refused = compiler.compile_json_schema(schema, &JsonSchemaOptions::default());
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("at `#`"), "{message}");
        let most = MOST.load(Ordering::Relaxed) - before;
        assert!(most < 48 << 20, "{most} bytes for {:.60}", schema);
    }
}
