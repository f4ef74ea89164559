//! Matchers whose memory is full, and go on in other memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{
    CancelFlag, CompileError, CompilerOptions, GrammarCompiler, GrammarMatcher, MatcherError,
    RenewError, TokenizerInfo,
};

const EOS: u32 = 256;

fn compiler(cache_bytes: usize) -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[EOS]).unwrap();
    let options = CompilerOptions {
        cache_bytes,
        ..CompilerOptions::default()
    };
    GrammarCompiler::new(Arc::new(info), options)
}

fn renew(compiler: &GrammarCompiler, matcher: &mut GrammarMatcher) -> Result<(), RenewError> {
    compiler.renew(matcher, &CancelFlag::new())
}

/// A very ambiguous text that fills the memory of its generation. Returns how much was accepted.
fn fill(hog: &mut GrammarMatcher) -> usize {
    for num_accepted in 0..1_000_000 {
        match hog.accept_token(u32::from(b'a')) {
            Ok(accepted) => assert!(accepted),
            Err(MatcherError::StatesExhausted { .. }) => return num_accepted,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the text fits");
}

fn hog(compiler: &GrammarCompiler) -> GrammarMatcher {
    let ambiguous = "root ::= root root | \"a\" | \"\"";
    GrammarMatcher::new(&compiler.compile_ebnf(ambiguous, "root").unwrap())
}

#[test]
fn a_neighbour_of_an_ambiguous_text_goes_on_and_only_that_text_fails() {
    let compiler = compiler(8 << 20);
    let pattern = "(?:[a-f]{2,30}|[d-k]{5,40}x)(?:-[0-9]{3,90}){2,50}";
    let alone = self::compiler(8 << 20);
    let mut reference = GrammarMatcher::new(&alone.compile_regex(pattern).unwrap());
    let mut victim = GrammarMatcher::new(&compiler.compile_regex(pattern).unwrap());
    let mut hog = hog(&compiler);
    for byte in b"dfe" {
        assert!(victim.accept_token(u32::from(*byte)).unwrap());
        assert!(reference.accept_token(u32::from(*byte)).unwrap());
    }
    let hog_accepted = fill(&mut hog);
    let full = victim.next_token_mask().unwrap_err();
    assert!(matches!(full, MatcherError::StatesExhausted { .. }));
    assert_eq!(victim.num_accepted_tokens(), 3);

    renew(&compiler, &mut victim).unwrap();
    assert_eq!(victim.num_accepted_tokens(), 3);
    let rest: Vec<u32> = "eed-1234567-009"
        .bytes()
        .map(u32::from)
        .chain([EOS])
        .collect();
    for token_id in rest {
        assert_eq!(
            victim.next_token_mask().unwrap().token_ids(),
            reference.next_token_mask().unwrap().token_ids()
        );
        assert!(victim.accept_token(token_id).unwrap());
        assert!(reference.accept_token(token_id).unwrap());
    }
    assert!(victim.is_terminated());
    victim.rollback(victim.num_accepted_tokens()).unwrap();
    reference.reset();
    assert_eq!(
        victim.next_token_mask().unwrap().token_ids(),
        reference.next_token_mask().unwrap().token_ids()
    );

    // The one that needs too much goes on until it has had as much alone.
    let mut num_renewed = 0;
    let error = loop {
        match renew(&compiler, &mut hog) {
            Ok(()) => num_renewed += 1,
            Err(error) => break error,
        }
        fill(&mut hog);
        assert!(hog.num_accepted_tokens() >= hog_accepted);
    };
    let states_exhausted = |error: &RenewError| {
        matches!(
            error,
            RenewError::Matcher(MatcherError::StatesExhausted { .. })
        )
    };
    assert!(states_exhausted(&error), "{error}");
    assert!((1..=10).contains(&num_renewed), "{num_renewed}");
    // Its neighbour goes on, if need be elsewhere again.
    if victim.accept_token(u32::from(b'k')).is_err() {
        renew(&compiler, &mut victim).unwrap();
        assert!(victim.accept_token(u32::from(b'k')).unwrap());
    }
}

#[test]
fn few_have_memory_of_their_own() {
    let compiler = compiler(1 << 20);
    let grammar = compiler.compile_regex("a*").unwrap();
    let matcher = || GrammarMatcher::new(&grammar);
    let mut with_own: Vec<GrammarMatcher> = (0..4).map(|_| matcher()).collect();
    for matcher in &mut with_own {
        // To shared memory; and, having come no further, to its own.
        renew(&compiler, matcher).unwrap();
        renew(&compiler, matcher).unwrap();
        let error = renew(&compiler, matcher).unwrap_err();
        assert!(matches!(
            error,
            RenewError::Matcher(MatcherError::StatesExhausted { .. })
        ));
    }
    let mut fifth = matcher();
    renew(&compiler, &mut fifth).unwrap();
    let error = renew(&compiler, &mut fifth).unwrap_err();
    assert_eq!(error, RenewError::NoMemory { max: 4 });
    assert!(fifth.accept_token(u32::from(b'a')).unwrap(), "as it was");
    fifth.rollback(1).unwrap();
    with_own.pop();
    renew(&compiler, &mut fifth).unwrap();
    // A fork stays in it.
    let fork = fifth.fork();
    drop(fifth);
    let mut sixth = matcher();
    renew(&compiler, &mut sixth).unwrap();
    assert!(renew(&compiler, &mut sixth).is_err());
    drop(fork);
    renew(&compiler, &mut sixth).unwrap();
}

#[test]
fn a_flag_stops_a_renewal() {
    let compiler = compiler(1 << 20);
    let mut matcher = GrammarMatcher::new(&compiler.compile_regex("a*").unwrap());
    assert!(matcher.accept_token(u32::from(b'a')).unwrap());
    let cancel = CancelFlag::new();
    cancel.cancel();
    let error = compiler.renew(&mut matcher, &cancel).unwrap_err();
    assert_eq!(error, RenewError::Compile(CompileError::Cancelled));
    assert_eq!(matcher.num_accepted_tokens(), 1);
}

/// A walk that is moved again and again sees the same masks as one that is not.
#[test]
fn a_renewed_matcher_stands_where_it_stood() {
    let grammars = [
        "root ::= \"(\" root \")\" root | [a-c]{0,3}",
        "root ::= item (\",\" item)*\nitem ::= \"<\" [a-z]{2,9} \">\" | root \"+\" root",
    ];
    for source in grammars {
        let compiler = compiler(8 << 20);
        let grammar = compiler.compile_ebnf(source, "root").unwrap();
        let mut still = GrammarMatcher::with_stop_tokens(&grammar, &[u32::from(b'z')]);
        let mut moved = still.fork();
        for step in 0..60_usize {
            let ids = still.next_token_mask().unwrap().token_ids();
            assert_eq!(
                moved.next_token_mask().unwrap().token_ids(),
                ids,
                "{source}"
            );
            if still.is_terminated() {
                break;
            }
            let token_id = ids[step * 31 % ids.len()];
            assert!(still.accept_token(token_id).unwrap());
            assert!(moved.accept_token(token_id).unwrap());
            if step % 7 == 3 {
                compiler.clear_cache();
                renew(&compiler, &mut moved).unwrap();
            }
        }
    }
}
