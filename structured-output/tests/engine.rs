//! The engine as a whole: termination, stop tokens, caches, budgets, limits, threads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample;
use structured_output::{
    CancelFlag, CompileBudget, CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler,
    GrammarMatcher, Limits, MatcherError, TextSearch, TokenizerInfo, allocate_token_bitmask,
};

/// Byte tokens 0 to 255, some words, `<eos>` (stop), `<pad>` (control).
const WORDS: [&str; 4] = ["true", "false", "aaaa", "\"}"];
const EOS: u32 = 256 + WORDS.len() as u32;
const PAD: u32 = EOS + 1;
const VOCAB_SIZE: usize = 300;

fn info() -> Arc<TokenizerInfo> {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.extend(WORDS.iter().map(|word| word.as_bytes().to_vec()));
    vocab.extend([b"aa".to_vec(), b"aa".to_vec()]);
    Arc::new(TokenizerInfo::new(&vocab, VOCAB_SIZE, &[EOS], &[PAD]).unwrap())
}

fn compiler() -> GrammarCompiler {
    GrammarCompiler::new(info(), CompilerOptions::default())
}

fn matcher(pattern: &str) -> GrammarMatcher {
    GrammarMatcher::new(&compiler().compile_regex(pattern).unwrap())
}

fn allowed(matcher: &GrammarMatcher) -> Vec<u32> {
    matcher.next_token_mask().unwrap().token_ids()
}

#[test]
fn a_stop_token_terminates_where_the_text_may_end() {
    let mut m = matcher("true|truest");
    assert!(!m.accept_token(EOS).unwrap());
    assert!(m.accept_token(256).unwrap());
    assert!(m.is_completed() && !m.is_terminated());
    assert_eq!(allowed(&m), [u32::from(b's'), EOS]);
    assert!(m.accept_token(EOS).unwrap());
    assert!(m.is_completed() && m.is_terminated());
    assert_eq!(allowed(&m), [EOS]);
    assert_eq!(m.min_tokens_to_complete().unwrap(), 0);
    assert_eq!(m.find_jump_forward_string().unwrap(), "");
    assert_eq!(m.forced_tokens().unwrap(), []);
    assert!(m.accept_token(EOS).unwrap() && !m.accept_token(u32::from(b's')).unwrap());
    m.rollback(2).unwrap();
    assert!(!m.is_terminated());
    assert_eq!(allowed(&m), [u32::from(b's'), EOS]);
    m.reset();
    assert_eq!((m.num_accepted_tokens(), allowed(&m).len()), (0, 2));
}

#[test]
fn control_tokens_and_ids_beyond_the_vocabulary_are_never_text() {
    let mut m = matcher("(?s).*");
    let ids = allowed(&m);
    assert!(ids.contains(&EOS) && !ids.contains(&PAD));
    assert!(ids.iter().all(|&id| id <= EOS));
    for id in [PAD, PAD + 1, 299, 300, u32::MAX] {
        assert!(!m.accept_token(id).unwrap(), "{id}");
    }
}

#[test]
fn a_mask_of_everything_need_not_be_applied() {
    let vocab: Vec<Vec<u8>> = (0..128)
        .map(|byte| vec![byte])
        .chain([Vec::new()])
        .collect();
    let info = Arc::new(TokenizerInfo::new(&vocab, 129, &[128], &[]).unwrap());
    let compiler = GrammarCompiler::new(info, CompilerOptions::default());
    let constrains = |pattern: &str| {
        let matcher = GrammarMatcher::new(&compiler.compile_regex(pattern).unwrap());
        let mut row = allocate_token_bitmask(1, 129);
        matcher.fill_next_token_bitmask(&mut row).unwrap()
    };
    assert!(!constrains("(?s).*"));
    assert!(constrains(".*"));
    assert!(constrains("(?s).+"));
}

#[test]
fn a_rows_width_is_checked() {
    let m = matcher("a");
    let mut short = [7; 9];
    let error = m.fill_next_token_bitmask(&mut short).unwrap_err();
    assert_eq!(
        error,
        MatcherError::RowTooShort {
            words: 9,
            needed: 10
        }
    );
    assert_eq!(short, [7; 9]);
    let mut long = [7; 12];
    assert!(m.fill_next_token_bitmask(&mut long).unwrap());
    assert_eq!(long[10..], [0, 0]);
}

#[test]
fn own_stop_tokens_are_stops_and_nothing_else() {
    let compiler = compiler();
    let grammar = compiler.compile_regex("a{2,}").unwrap();
    // `aaaa` is one of the request's stop tokens, so it is no text.
    let own = [258, 258, EOS, 100_000];
    let mut m = GrammarMatcher::with_stop_tokens(&grammar, &own);
    assert_eq!(allowed(&m), [97]);
    assert_eq!(m.validate_tokens(&[258]).unwrap(), 0);
    assert!(m.accept_tokens(&[97, 97]).unwrap());
    assert_eq!(allowed(&m), [97, 258, EOS]);
    assert_eq!(m.next_token_mask_within(1).unwrap().token_ids(), [258, EOS]);
    let mut terminated = m.fork();
    assert!(terminated.accept_token(258).unwrap() && terminated.is_terminated());
    assert_eq!(allowed(&terminated), [258, EOS]);
    // Another request of the same grammar is not affected.
    assert!(GrammarMatcher::new(&grammar).accept_token(258).unwrap());
    assert!(m.accept_token(97).unwrap());
}

/// A stop token of the request is text where nothing else goes on, and nowhere else: an answer never comes
/// to a dead end.
#[test]
fn an_own_stop_token_is_text_where_nothing_else_is() {
    let compiler = compiler();
    let (a, b, x, y) = (97, 98, 120, 121);
    let grammar = compiler.compile_regex("b|axay?").unwrap();
    let mut m = GrammarMatcher::with_stop_tokens(&grammar, &[x, y, 259]);
    assert_eq!(allowed(&m), [a, b]);
    assert!(m.accept_token(a).unwrap());
    // Were this the end, no text could come of it.
    assert_eq!(allowed(&m), [x]);
    assert_eq!(m.forced_tokens().unwrap(), [x, a]);
    assert_eq!(m.next_token_mask_within(3).unwrap().token_ids(), [x]);
    assert!(!m.accept_token(y).unwrap());
    assert_eq!(m.validate_tokens(&[x, a, y, y]).unwrap(), 4);
    assert!(m.accept_tokens(&[x, a]).unwrap());
    assert!(m.is_completed() && !m.is_terminated());
    // Here they end the text again, though one of them could be text.
    assert_eq!(allowed(&m), [x, y, 259, EOS]);
    assert!(m.accept_token(y).unwrap() && m.is_terminated());
    m.rollback(3).unwrap();
    assert_eq!(allowed(&m), [x]);

    // Others go on, but none in time.
    let grammar = compiler.compile_regex("b*x").unwrap();
    let mut m = GrammarMatcher::with_stop_tokens(&grammar, &[x]);
    assert_eq!(allowed(&m), [b]);
    assert_eq!(m.next_token_mask_within(3).unwrap().token_ids(), [b]);
    assert_eq!(m.next_token_mask_within(2).unwrap().token_ids(), [x]);
    assert_eq!(m.next_token_mask_completing(2).unwrap().token_ids(), [x]);
    assert_eq!(m.validate_tokens(&[x]).unwrap(), 0);
    assert!(!m.accept_token(x).unwrap() && !m.accept_stop_token_as_text(b).unwrap());
    assert!(m.accept_stop_token_as_text(x).unwrap() && m.is_completed() && !m.is_terminated());
    assert!(!m.accept_stop_token_as_text(x).unwrap(), "it ends the text");
}

proptest! {
    /// Whatever stop tokens a request has, beside or in place of the vocabulary's: what the mask allows is what
    /// is accepted and what is validated.
    #[test]
    fn own_stop_tokens_are_accepted_where_the_mask_has_them(
        pattern in sample::select(vec!["b*x", "(ab|aaaa)*true", "b|axay?", "a{2,}", "[ab]*x?a", "(true|false)x*"]),
        own in vec(sample::select(vec![97_u32, 98, 120, 256, 258, EOS, PAD]), 0..4),
        are_only in any::<bool>(),
        choices in vec(any::<sample::Index>(), 8),
    ) {
        let grammar = compiler().compile_regex(pattern).unwrap();
        let mut m = match are_only {
            true => GrammarMatcher::with_only_stop_tokens(&grammar, &own),
            false => GrammarMatcher::with_stop_tokens(&grammar, &own),
        };
        for choice in choices {
            let mask = m.next_token_mask().unwrap();
            for id in 0..VOCAB_SIZE as u32 {
                let is_accepted = m.fork().accept_token(id).unwrap();
                let num_valid = m.validate_tokens(&[id]).unwrap();
                prop_assert_eq!((is_accepted, num_valid), (mask.is_allowed(id), usize::from(is_accepted)));
            }
            // Masks within a number of tokens may have others of them as text.
            let needed = m.min_tokens_to_complete().unwrap();
            if needed > 0 {
                for id in m.next_token_mask_within(needed).unwrap().token_ids() {
                    let mut after = m.fork();
                    let is_text = own.contains(&id) && after.accept_stop_token_as_text(id).unwrap();
                    prop_assert!(is_text || after.accept_token(id).unwrap());
                    prop_assert!(after.min_tokens_to_complete().unwrap() < needed);
                }
            }
            let ids = mask.token_ids();
            prop_assert!(m.accept_token(*choice.get(&ids)).unwrap());
        }
    }
}

/// Where the shortest way goes on with an own stop token, some others are tried and not all: each may lead
/// to a large part of the grammar.
#[test]
fn beside_own_stop_tokens_few_others_are_tried() {
    let compiler = compiler();
    let dot = u32::from(b'.');
    let grammar = compiler.compile_regex(r"[^.]*\.").unwrap();
    let mut m = GrammarMatcher::with_stop_tokens(&grammar, &[dot]);
    let all = m.next_token_mask_within(9).unwrap();
    assert!(all.num_allowed() > 128, "{}", all.num_allowed());
    let some = m.next_token_mask_completing(9).unwrap().token_ids();
    assert!((1..=64).contains(&some.len()), "{some:?}");
    assert!(some.iter().all(|&id| all.is_allowed(id) && id != dot));
    // None of them leaves room for the end.
    assert_eq!(m.next_token_mask_completing(2).unwrap().token_ids(), [dot]);
    assert!(m.accept_token(some[0]).unwrap());
}

#[test]
fn forced_text_and_tokens() {
    let compiler = compiler();
    let m = GrammarMatcher::new(&compiler.compile_regex("ñandú (true|trust)").unwrap());
    assert_eq!(m.find_jump_forward_string().unwrap(), "ñandú tru");
    // Forced to the space; then `true` is one token, and four.
    let bytes: Vec<u32> = "ñandú ".bytes().map(u32::from).collect();
    assert_eq!(m.forced_tokens().unwrap(), bytes);
    // Half a character is no string.
    let m = GrammarMatcher::new(&compiler.compile_regex("a[éè]").unwrap());
    assert_eq!(m.find_jump_forward_string().unwrap(), "a");
    // A run ends with the stop token.
    let m = GrammarMatcher::new(&compiler.compile_regex("xy").unwrap());
    assert_eq!(m.forced_tokens().unwrap(), [120, 121, EOS]);
    // A run without end is cut.
    let m = GrammarMatcher::new(&compiler.compile_regex("x{1000000}").unwrap());
    assert_eq!(m.find_jump_forward_string().unwrap().len(), 16 << 10);
    assert_eq!(m.forced_tokens().unwrap().len(), 4096);
}

#[test]
fn the_bound_counts_tokens_not_bytes() {
    let m = matcher("false|trueish");
    assert_eq!(m.min_tokens_to_complete().unwrap(), 2);
    assert_eq!(m.next_token_mask_within(2).unwrap().token_ids(), [257]);
    let error = m.next_token_mask_within(1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the output can't be completed within 1 tokens: it needs 2"
    );
}

/// The fewest tokens to an end, by trying all of them.
fn fewest_tokens(matcher: &GrammarMatcher) -> u32 {
    let mut waves = vec![matcher.clone()];
    for taken in 0.. {
        if waves.iter().any(GrammarMatcher::is_completed) {
            return taken + 1;
        }
        let mut next = Vec::new();
        for at in &waves {
            for token_id in allowed(at) {
                let mut after = at.clone();
                assert!(after.accept_token(token_id).unwrap());
                next.push(after);
            }
        }
        waves = next;
    }
    unreachable!()
}

#[test]
fn the_text_of_fewest_tokens_may_be_a_longer_one() {
    let fewest = |pattern: &str| {
        let matcher = matcher(pattern);
        let fewest = matcher
            .fewest_tokens_to_complete(TextSearch::All, u32::MAX, 10_000)
            .unwrap();
        assert_eq!(fewest, Some(fewest_tokens(&matcher)), "{pattern}");
        assert!(fewest.unwrap() <= matcher.min_tokens_to_complete().unwrap());
        fewest.unwrap()
    };
    assert_eq!(fewest("no|false"), 2);
    assert_eq!(fewest("(no|true)x(aaa|aaaa)"), 4);
    assert_eq!(fewest("a{3}b|a{8}|abc"), 3);
    assert_eq!(fewest(""), 1);
    assert_eq!(fewest("(ab|aaaab){3}"), 7);
    // Not beyond the limit, and as much as may be done for it.
    let three = matcher("a{3}b|a{8}|abc");
    assert_eq!(
        three
            .fewest_tokens_to_complete(TextSearch::All, 2, 10_000)
            .unwrap(),
        None
    );
    assert_eq!(
        three
            .fewest_tokens_to_complete(TextSearch::All, 3, 10_000)
            .unwrap(),
        Some(3)
    );
    let wide = matcher("(no|[a-z]{4}){9}");
    assert_eq!(
        wide.fewest_tokens_to_complete(TextSearch::All, u32::MAX, 10)
            .unwrap(),
        None
    );
}

#[test]
fn a_text_of_few_tokens_of_a_grammar_with_rules_is_found_one_way_alone() {
    let source = "start: \"(\" start \")\" | word\nword: /[a-z]{20}/ | /[a-z]{20}/ \"-\" word\n";
    let grammar = compiler().compile_lark(source).unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    let all = matcher.fewest_tokens_to_complete(TextSearch::All, 100, 1_000_000);
    assert_eq!(all.unwrap(), None);
    assert_eq!(matcher.min_tokens_to_complete().unwrap(), 6);
    assert!(matcher.accept_token(u32::from(b'(')).unwrap());
    let few = matcher.fewest_tokens_to_complete(TextSearch::Greedy, 100, 100_000);
    assert_eq!(few.unwrap(), Some(6));
    for left in (1..=6).rev() {
        let mask = matcher.next_token_mask_of_fewest(TextSearch::Greedy, left, 100_000);
        let tokens = mask.unwrap().unwrap().token_ids();
        let token = tokens[left as usize % tokens.len()];
        assert!(matcher.accept_token(token).unwrap(), "{left}");
    }
    assert!(matcher.is_terminated());
}

#[test]
fn a_text_of_few_tokens_is_found_one_way_alone() {
    const STEPS: u64 = 5_000;
    for (pattern, few) in [
        ("", 1),
        ("no|false", 2),
        ("(no|[a-z]{4}){9}", 10),
        ("[a-z]{30}", 7),
        ("[a-z]{10}( [a-z]{10}){2}", 9),
    ] {
        let mut matcher = matcher(pattern);
        let canonical = matcher.min_tokens_to_complete().unwrap();
        let found = |matcher: &GrammarMatcher, search, limit, steps| {
            let found = matcher.fewest_tokens_to_complete(search, limit, steps);
            found.unwrap()
        };
        let greedy =
            |matcher: &GrammarMatcher, limit| found(matcher, TextSearch::Greedy, limit, STEPS);
        assert_eq!(greedy(&matcher, canonical), Some(few), "{pattern}");
        assert_eq!(greedy(&matcher, few - 1), None, "{pattern}");
        let fewest = found(&matcher, TextSearch::All, canonical, 1_000_000);
        assert!(fewest.unwrap() <= few && few <= canonical, "{pattern}");
        // Its masks lead to its end, whichever of their tokens is taken.
        for left in (1..=few).rev() {
            let mask = matcher.next_token_mask_of_fewest(TextSearch::Greedy, left, STEPS);
            let tokens = mask.unwrap().unwrap().token_ids();
            let token = tokens[left as usize % tokens.len()];
            assert!(matcher.accept_token(token).unwrap(), "{pattern}");
            assert_eq!(greedy(&matcher, left), Some(left - 1), "{pattern}");
        }
        assert!(matcher.is_terminated(), "{pattern}");
    }
    // Where looking at all texts takes too much.
    let wide = matcher("[a-z]{30}");
    let all = wide.fewest_tokens_to_complete(TextSearch::All, u32::MAX, STEPS);
    assert_eq!(all.unwrap(), None);
}

#[test]
fn equal_sources_are_compiled_once() {
    let compiler = compiler();
    let first = compiler.compile_regex("[a-z]+").unwrap();
    assert_eq!(compiler.compile_regex("[a-z]+").unwrap(), first);
    assert!(first.memory_bytes() > 0 && first.unsupported().is_empty());
    let budget = CompileBudget {
        max_steps: 77_777,
        ..CompileBudget::default()
    };
    let other = compiler
        .compile_regex_with("[a-z]+", budget, &CancelFlag::new())
        .unwrap();
    assert_ne!(
        other, first,
        "another budget could have had another outcome"
    );
    let error = compiler.compile_regex("(").unwrap_err();
    assert_eq!(compiler.compile_regex("(").unwrap_err(), error);
    compiler.clear_cache();
    assert_ne!(compiler.compile_regex("[a-z]+").unwrap(), first);

    let compiled: Vec<CompiledGrammar> = std::thread::scope(|scope| {
        let compile = || compiler.compile_regex("[0-9]{3,500}").unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(compile)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(compiled.iter().all(|grammar| *grammar == compiled[0]));
}

#[test]
fn memory_stays_within_its_budget() {
    let options = CompilerOptions {
        cache_bytes: 1 << 20,
        ..CompilerOptions::default()
    };
    let compiler = GrammarCompiler::new(info(), options);
    let mut long_lived =
        GrammarMatcher::new(&compiler.compile_regex("[a-f]{4}(true|false)").unwrap());
    let before = allowed(&long_lived);
    for n in 0..400 {
        let pattern = format!("(?:word{n}|[a-z]{{{n}}})[^x]{{0,{n}}}x{n}");
        let mut m = GrammarMatcher::new(&compiler.compile_regex(&pattern).unwrap());
        while !m.is_terminated() {
            // So little is full soon.
            if m.next_token_mask().is_err() {
                compiler.renew(&mut m, &CancelFlag::new()).unwrap();
            }
            let ids = allowed(&m);
            assert!(m.accept_token(ids[n % ids.len()]).unwrap());
            if m.num_accepted_tokens() > 20 {
                break;
            }
        }
        assert!(
            compiler.cache_bytes() <= 1 << 20,
            "{} bytes",
            compiler.cache_bytes()
        );
    }
    // A matcher of a generation that is long gone goes on in the current one.
    let error = long_lived.next_token_mask().unwrap_err();
    assert!(matches!(error, MatcherError::StatesExhausted { .. }));
    compiler.renew(&mut long_lived, &CancelFlag::new()).unwrap();
    assert_eq!(allowed(&long_lived), before);
    let tokens: Vec<u32> = "abcd".bytes().map(u32::from).chain([256, EOS]).collect();
    assert_eq!(long_lived.validate_tokens(&tokens).unwrap(), 6);
}

#[test]
fn one_grammar_for_ever_stays_within_its_budget_too() {
    let options = CompilerOptions {
        cache_bytes: 4 << 20,
        ..CompilerOptions::default()
    };
    let compiler = GrammarCompiler::new(info(), options);
    for n in 0..300_u32 {
        // Equal grammars come from the cache, yet their matchers make states: here, keys.
        let mut m = GrammarMatcher::new(&compiler.compile_builtin_json().unwrap());
        let mut accept = |byte: u8| assert!(m.accept_token(u32::from(byte)).unwrap());
        b"{\"".iter().copied().for_each(&mut accept);
        n.to_string().bytes().for_each(&mut accept);
        b"\":1,\"".iter().copied().for_each(&mut accept);
        assert!(m.min_bytes_to_complete().unwrap() <= 8);
        assert!(m.min_tokens_to_complete().unwrap() <= 9);
    }
}

#[test]
fn budgets_and_limits_are_named() {
    let small = |limits: Limits, budget: CompileBudget| {
        GrammarCompiler::new(
            info(),
            CompilerOptions {
                limits,
                budget,
                ..Default::default()
            },
        )
    };
    let limit_of = |outcome: Result<CompiledGrammar, CompileError>| match outcome {
        Err(CompileError::LimitExceeded { limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    let (limits, budget) = (Limits::default(), CompileBudget::default());

    let compiler = small(
        Limits {
            max_source_bytes: 4,
            max_choices: 2,
            ..limits.clone()
        },
        budget,
    );
    assert_eq!(
        limit_of(compiler.compile_regex("abcde")),
        "max_source_bytes"
    );
    let choices = ["a", "b", "c"].map(String::from);
    assert_eq!(limit_of(compiler.compile_choice(&choices)), "max_choices");
    assert_eq!(
        compiler.compile_choice(&[]).unwrap_err(),
        CompileError::EmptyChoice
    );

    let compiler = small(
        limits.clone(),
        CompileBudget {
            max_states: 10,
            ..budget
        },
    );
    assert_eq!(
        limit_of(compiler.compile_regex("abcdefghijklm")),
        "max_states"
    );
    let compiler = small(
        limits.clone(),
        CompileBudget {
            max_bytes: 100,
            ..budget
        },
    );
    assert_eq!(
        limit_of(compiler.compile_regex(&"abc".repeat(500))),
        "max_bytes"
    );
    let compiler = small(
        limits.clone(),
        CompileBudget {
            max_steps: 2000,
            ..budget
        },
    );
    // The shortest text is the least common multiple.
    let far = "(?=(a{97})*b)(?=(a{101})*b)(?=(a{103})*b)a+b";
    assert_eq!(limit_of(compiler.compile_regex(far)), "max_steps");

    let compiler = small(
        Limits {
            max_mask_steps: 50,
            ..limits
        },
        budget,
    );
    // The first mask is looked at, and where that is too dear.
    let refused = |found: Result<CompiledGrammar, CompileError>| match found.unwrap_err() {
        CompileError::LimitExceeded {
            limit: "max_mask_steps",
            max: 50,
            place: Some(place),
        } => place.to_string(),
        error => panic!("{error}"),
    };
    let place = refused(compiler.compile_regex("[a-z ]+[0-9]"));
    assert_eq!(place, "its beginning");
    let place = refused(compiler.compile_lark("start: /[a-z ]+/ /[0-9]/"));
    assert_eq!(place, "line 1, column 1 (rule `start`)");
    let ebnf = "item ::= [a-z ]+\nroot ::= item [0-9]";
    let place = refused(compiler.compile_ebnf(ebnf, "root"));
    assert_eq!(place, "line 2, column 1 (rule `root`)");
    // Later ones aren't.
    let mut m = GrammarMatcher::new(&compiler.compile_regex("a[a-z ]+[0-9]").unwrap());
    assert!(m.accept_token(u32::from(b'a')).unwrap());
    let error = m.next_token_mask().unwrap_err();
    assert_eq!(error, MatcherError::StepsExhausted { max: 50 });
    assert!(m.num_accepted_tokens() == 1 && !m.is_completed());
}

/// The mask that is looked at when a grammar is compiled is not made once more.
#[test]
fn first_masks_are_made_once() {
    let compiler = compiler();
    for grammar in [
        compiler.compile_regex("[a-z ]+[0-9]"),
        compiler.compile_lark("start: (/[a-z ]+/ | start \"+\" start)"),
        compiler.compile_choice(&["some".to_owned(), "words".to_owned()]),
    ] {
        let mut m = GrammarMatcher::new(&grammar.unwrap());
        m.set_allowance(Some(1));
        assert!(m.next_token_mask().unwrap().num_allowed() > 0);
    }
}

#[test]
fn a_flag_stops_a_compilation() {
    let compiler = compiler();
    let flag = CancelFlag::new();
    flag.cancel();
    let outcome = compiler.compile_regex_with("a", CompileBudget::default(), &flag);
    assert_eq!(outcome.unwrap_err(), CompileError::Cancelled);
    assert!(
        compiler.compile_regex("a").is_ok(),
        "a cancelled outcome is not kept"
    );
}

#[test]
fn depth_and_length_cost_no_stack() {
    let compiler = compiler();
    let deep = |n: usize| format!("{}a{}", "(?:".repeat(n), ")?".repeat(n));
    assert!(compiler.compile_regex(&deep(512)).is_ok());
    let error = compiler.compile_regex(&deep(60_000)).unwrap_err();
    assert!(error.to_string().contains("max_nesting"), "{error}");
    let error = compiler.compile_regex(&"(".repeat(100_000)).unwrap_err();
    assert!(error.to_string().contains("max_nesting"), "{error}");
    let error = compiler.compile_regex(&"a".repeat(60_000)).unwrap_err();
    assert!(error.to_string().contains("max_regex_nodes"), "{error}");

    let stack = std::thread::Builder::new().stack_size(128 << 10);
    let thread = stack.spawn(move || {
        let nested = (0..300).fold("a".to_owned(), |inner, n| match n % 3 {
            0 => format!("(?:{inner}b|c)"),
            1 => format!("(?:{inner}){{0,5}}"),
            _ => format!("(?=(?:{inner}))[abc]*"),
        });
        let outcome = compiler.compile_regex(&nested);
        assert!(
            matches!(
                outcome,
                Ok(_) | Err(CompileError::LimitExceeded { .. } | CompileError::Regex { .. })
            ),
            "{outcome:?}"
        );
        let long = "ab".repeat(20_000);
        let mut m = GrammarMatcher::new(&compiler.compile_regex(&long).unwrap());
        for byte in long.bytes() {
            assert!(m.accept_token(u32::from(byte)).unwrap());
        }
        assert_eq!(m.num_accepted_tokens(), 40_000);
        m.rollback(39_999).unwrap();
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn counted_repetitions_are_not_unrolled() {
    let compiler = compiler();
    let grammar = compiler
        .compile_regex(r"(?:\S+\s+){0,1000000}\S{1,2000000000}")
        .unwrap();
    assert!(
        grammar.memory_bytes() < 1 << 20,
        "{}",
        grammar.memory_bytes()
    );
    let mut m = GrammarMatcher::new(&grammar);
    let text: Vec<u32> = "word and ".repeat(200).bytes().map(u32::from).collect();
    for &token in &text[..9] {
        assert!(m.accept_token(token).unwrap());
    }
    let mask = m.next_token_mask().unwrap();
    for (at, &token) in text[9..].iter().enumerate() {
        assert!(m.accept_token(token).unwrap());
        if (at + 1) % 9 == 0 {
            assert!(
                m.next_token_mask().unwrap().is_same(&mask),
                "the counter is far from its bound"
            );
        }
    }
}

#[test]
fn threads_share_one_engine() {
    let compiler = compiler();
    let grammar = compiler.compile_regex("(?:[a-z]{1,8} ){3}true").unwrap();
    let run = |seed: usize| {
        let mut m = GrammarMatcher::new(&grammar);
        let mut taken = Vec::new();
        while !m.is_terminated() {
            let ids = allowed(&m);
            let token = ids[(seed * 7 + taken.len() * 13) % ids.len()];
            assert!(m.accept_token(token).unwrap());
            taken.push(token);
        }
        taken
    };
    let alone: Vec<_> = (0..8).map(run).collect();
    let together: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || run(seed))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(alone, together);
}
