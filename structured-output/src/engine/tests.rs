//! What is known and what is apart waits for nobody.

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
    grammar.engine().try_clear_caches();
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
        while *grammar.engine().waiting.count() == 0 {
            std::thread::yield_now();
        }
        drop(working);
        assert_eq!(waiting.join().unwrap(), MatcherError::AllowanceSpent);
    });
    patient.set_patient_allowance(1_000);
    assert!(patient.next_token_mask().is_ok());
    assert!(matcher.next_token_mask().is_ok());
}

/// A compilation that lets a matcher go first takes no processor meanwhile.
#[cfg(target_os = "linux")]
#[test]
fn a_compilation_sleeps_while_a_matcher_waits() {
    let vocab = [b"a".to_vec(), b"b".to_vec(), b"<eos>".to_vec()];
    let info = TokenizerInfo::new(&vocab, 3, &[2], &[2]).unwrap();
    let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
    let grammar = compiler.compile_regex("a{1,3}b|b").unwrap();
    let engine = grammar.engine();
    engine.try_clear_caches();
    let working = engine.lock();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| GrammarMatcher::new(&grammar).next_token_mask().unwrap());
        while *engine.waiting.count() == 0 {
            std::thread::yield_now();
        }
        let compiling = scope.spawn(move || {
            tell.send(std::fs::read_link("/proc/thread-self").unwrap())
                .unwrap();
            engine.let_others_pass();
        });
        let stat = std::path::Path::new("/proc")
            .join(told.recv().unwrap())
            .join("stat");
        let mut num_asleep = 0;
        for _ in 0..5_000 {
            // The state follows the name, which stands in parentheses.
            let stat = std::fs::read_to_string(&stat).unwrap();
            let is_asleep = stat.rsplit(')').next().unwrap().starts_with(" S");
            num_asleep = if is_asleep { num_asleep + 1 } else { 0 };
            if num_asleep == 20 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(num_asleep, 20, "it spins");
        assert!(!compiling.is_finished(), "a matcher waits still");
        drop(working);
        compiling.join().unwrap();
    });
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

/// Tables that are full are not given back by the one call that finds them so; and what is held stays
/// within its share.
#[test]
fn forgotten_masks_are_dropped_by_and_by() {
    let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[256], &[256]).unwrap();
    let info = std::sync::Arc::new(info);
    let compiler = |cache_bytes| {
        let options = CompilerOptions {
            cache_bytes,
            ..CompilerOptions::default()
        };
        GrammarCompiler::new(std::sync::Arc::clone(&info), options)
    };
    let (small, large) = (compiler(4 << 20), compiler(64 << 20));
    // Each place has a mask of its own.
    let words: Vec<String> = (0..300).map(|n| format!("{}{n:03}", n * 7919)).collect();
    let (mut num_times, mut was_empty) = (0, true);
    for round in 0..40 {
        let choices: Vec<String> = words.iter().map(|word| format!("{word}{round}")).collect();
        let [few, all] = [&small, &large].map(|compiler| {
            let grammar = compiler.compile_choice(&choices).unwrap();
            GrammarMatcher::new(&grammar)
        });
        for choice in &choices {
            let (mut few, mut all) = (few.fork(), all.fork());
            for &byte in choice.as_bytes() {
                let mask = few.next_token_mask().unwrap().token_ids();
                assert_eq!(mask, all.next_token_mask().unwrap().token_ids());
                assert!(few.accept_token(u32::from(byte)).unwrap());
                assert!(all.accept_token(u32::from(byte)).unwrap());
                let engine = few.grammar().engine();
                let automaton = engine.lock();
                let held = automaton.cache_bytes() + automaton.forgotten_bytes();
                assert!(held <= engine.shares.masks, "{held} bytes");
                let is_empty = automaton.forgotten_bytes() == 0;
                num_times += usize::from(was_empty && !is_empty);
                was_empty = is_empty;
            }
        }
    }
    assert!(num_times >= 2, "{num_times}");
}
