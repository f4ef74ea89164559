//! What is known and what is apart waits for nobody.

use std::sync::atomic::Ordering;

use crate::{
    CancelFlag, CompilerOptions, GrammarCompiler, GrammarMatcher, GrammarSpecification,
    MatcherError, TokenizerInfo,
};

/// Waits for ever where a known answer takes the lock.
#[test]
fn known_answers_are_read_while_another_thread_computes() {
    let vocab = [b"a".to_vec(), b"b".to_vec(), b"<eos>".to_vec()];
    let info = TokenizerInfo::new(&vocab, 3, &[2], &[2]).unwrap();
    let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
    let grammar = compiler.compile_regex("a{1,3}b|b").unwrap();
    let walk = || {
        let mut matcher = GrammarMatcher::new(&grammar);
        let mut seen = Vec::new();
        for token_id in [0, 0, 2, 1, 2] {
            seen.push((
                matcher.next_token_mask().unwrap().token_ids(),
                matcher.has_forced_byte().unwrap(),
                matcher.min_bytes_to_complete().unwrap(),
                matcher.min_tokens_to_complete().unwrap(),
                matcher.is_completed(),
                matcher.accept_token(token_id).unwrap(),
            ));
        }
        seen
    };
    let before = walk();
    let computing = grammar.engine().lock();
    let meanwhile = std::thread::scope(|scope| scope.spawn(walk).join().unwrap());
    drop(computing);
    assert_eq!(meanwhile, before);
    // So is whether a grammar is known.
    let is_cached = || {
        let specification = GrammarSpecification::Regex("a{1,3}b|b".to_owned());
        compiler.is_cached(specification, CompilerOptions::default().budget)
    };
    let computing = grammar.engine().lock();
    assert!(std::thread::scope(|scope| scope
        .spawn(is_cached)
        .join()
        .unwrap()));
    drop(computing);
    // Forgotten, they are computed again.
    grammar.engine().clear_caches();
    assert_eq!(walk(), before);
}

/// Waits for ever where a call with an allowance takes the lock.
#[test]
fn nobody_who_may_not_waits_for_work_in_memory_apart() {
    let vocab = [b"a".to_vec(), b"b".to_vec(), b"<eos>".to_vec()];
    let info = TokenizerInfo::new(&vocab, 3, &[2], &[2]).unwrap();
    let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
    let grammar = compiler.compile_regex("a{1,3}b|b").unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    compiler
        .move_apart(&mut matcher, &CancelFlag::new())
        .unwrap();
    assert!(matcher.accept_token(0).unwrap());
    let grammar = matcher.grammar().clone();
    let working = grammar.engine().lock();
    matcher.set_allowance(Some(1_000));
    assert_eq!(
        matcher.next_token_mask().unwrap_err(),
        MatcherError::AllowanceSpent
    );
    assert!(!matcher.is_completed(), "noted with the token");
    assert_eq!(matcher.allowance(), Some(1_000));
    // The other memory is free meanwhile.
    let mut other = GrammarMatcher::new(&compiler.compile_regex("ab*").unwrap());
    assert!(other.accept_token(0).unwrap());
    // Who may wait does, and has no more steps for it.
    let mut patient = matcher.fork();
    patient.set_patient_allowance(0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| patient.next_token_mask().unwrap_err());
        while grammar.engine().num_waiting.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        drop(working);
        assert_eq!(waiting.join().unwrap(), MatcherError::AllowanceSpent);
    });
    patient.set_patient_allowance(1_000);
    assert!(patient.next_token_mask().is_ok());
    assert!(matcher.next_token_mask().is_ok());
}

#[test]
fn nobody_stays_where_something_panicked() {
    let vocab = [b"a".to_vec(), b"b".to_vec(), b"<eos>".to_vec()];
    let info = TokenizerInfo::new(&vocab, 3, &[2], &[2]).unwrap();
    let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
    let compile = || compiler.compile_regex("a{1,3}b|b").unwrap();
    let grammar = compile();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert!(matcher.accept_token(0).unwrap());
    let mask = matcher.next_token_mask().unwrap();
    let panics = || {
        grammar.engine().slice(|automaton| {
            assert_eq!(automaton.num_states(), usize::MAX, "a panic for a test");
        });
    };
    assert!(std::thread::scope(|scope| scope
        .spawn(panics)
        .join()
        .is_err()));
    // Half a change may be there, so what was known is not trusted either.
    let error = matcher.next_token_mask().unwrap_err();
    assert!(matches!(error, MatcherError::StatesExhausted { .. }));
    compiler.renew(&mut matcher, &CancelFlag::new()).unwrap();
    let renewed = matcher.next_token_mask().unwrap();
    assert_eq!(renewed.token_ids(), mask.token_ids());
    let mut another = GrammarMatcher::new(&compile());
    assert!(another.accept_token(1).unwrap());
}
