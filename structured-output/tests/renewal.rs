//! Matchers whose memory is full, and go on in other memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod byte_vocabulary;

use byte_vocabulary::EOS;
use structured_output::{
    CancelFlag, CompileError, CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions,
    MatcherError, RenewError, RequestMemory,
};

fn compiler(cache_bytes: usize) -> GrammarCompiler {
    byte_vocabulary::compiler(CompilerOptions {
        cache_bytes,
        ..CompilerOptions::default()
    })
}

fn renew(compiler: &GrammarCompiler, matcher: &mut GrammarMatcher) -> Result<(), RenewError> {
    compiler.renew(matcher, &CancelFlag::new())
}

/// An object with more and more keys, each of which is remembered: it fills the memory of its generation.
/// Goes on from where it stands; returns how much is accepted then.
fn fill(hog: &mut GrammarMatcher) -> usize {
    let keys = (0..).flat_map(|n| format!("\"key{n}\":1,").into_bytes());
    let text = std::iter::once(b'{').chain(keys);
    for byte in text.skip(hog.num_accepted_tokens()) {
        match hog.accept_token(u32::from(byte)) {
            Ok(accepted) => assert!(accepted),
            Err(MatcherError::StatesExhausted { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    hog.num_accepted_tokens()
}

fn hog(compiler: &GrammarCompiler) -> GrammarMatcher {
    GrammarMatcher::new(&compiler.compile_builtin_json().unwrap())
}

/// Asks a matcher, which goes on elsewhere where its memory is full; counts how often.
fn ask<T>(
    compiler: &GrammarCompiler,
    matcher: &mut GrammarMatcher,
    num_renewed: &mut usize,
    mut question: impl FnMut(&mut GrammarMatcher) -> Result<T, MatcherError>,
) -> T {
    loop {
        match question(matcher) {
            Err(MatcherError::StatesExhausted { .. }) => {
                let accepted = matcher.num_accepted_tokens();
                renew(compiler, matcher).unwrap();
                assert_eq!(matcher.num_accepted_tokens(), accepted);
                *num_renewed += 1;
            }
            other => return other.unwrap(),
        }
    }
}

#[test]
fn neighbours_of_a_text_without_end_go_on_and_only_that_text_fails() {
    let compiler = compiler(4 << 20);
    let pattern = |n: usize| {
        format!("(?:[a-f]{{2,3{n}}}|[d-k]{{5,4{n}}}x{n})(?:-[0-9]{{3,9{n}}}){{2,50}}[^q]{{{n}}}")
    };
    let start = |compiler: &GrammarCompiler, n: usize| {
        let mut matcher = GrammarMatcher::new(&compiler.compile_regex(&pattern(n)).unwrap());
        assert!(matcher.accept_tokens(&[100, 102, 101]).unwrap());
        matcher
    };
    let mut victims: Vec<_> = (0..20).map(|n| start(&compiler, n)).collect();
    let mut hog = hog(&compiler);
    let hog_accepted = fill(&mut hog);
    let mut num_renewed = 0;
    for (n, victim) in victims.iter_mut().enumerate() {
        // Each alone, in memory that nobody fills.
        let mut reference = start(&self::compiler(16 << 20), n);
        let rest = format!("eed-1234567-009{}", "z".repeat(n));
        for token_id in rest.bytes().map(u32::from).chain([EOS]) {
            let mask = ask(&compiler, victim, &mut num_renewed, |victim| {
                victim.next_token_mask()
            });
            let expected = reference.next_token_mask().unwrap().token_ids();
            assert_eq!(mask.token_ids(), expected, "{n}");
            assert!(ask(&compiler, victim, &mut num_renewed, |victim| {
                victim.accept_token(token_id)
            }));
            assert!(reference.accept_token(token_id).unwrap());
        }
        assert!(victim.is_terminated());
        // What was accepted elsewhere can be taken back.
        victim.rollback(victim.num_accepted_tokens()).unwrap();
        assert!(victim.accept_token(u32::from(b'f')).unwrap());
    }
    assert!(num_renewed > 0, "nobody was in the way");

    // The one that needs too much fails once it has had as much alone; that may be at once.
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
    assert!(num_renewed <= 10, "{num_renewed}");
    // Its neighbours go on, if need be elsewhere again.
    for victim in &mut victims {
        assert!(ask(&compiler, victim, &mut num_renewed, |victim| {
            victim.accept_token(u32::from(b'a'))
        }));
    }
}

#[test]
fn one_has_memory_of_its_own() {
    let compiler = compiler(1 << 20);
    let grammar = compiler.compile_regex("a*").unwrap();
    let matcher = || GrammarMatcher::new(&grammar);
    let mut first = matcher();
    // To shared memory; and, having come no further, to its own.
    renew(&compiler, &mut first).unwrap();
    renew(&compiler, &mut first).unwrap();
    let error = renew(&compiler, &mut first).unwrap_err();
    assert!(matches!(
        error,
        RenewError::Matcher(MatcherError::StatesExhausted { .. })
    ));
    assert!(!compiler.has_own_memory());
    let mut second = matcher();
    renew(&compiler, &mut second).unwrap();
    let error = renew(&compiler, &mut second).unwrap_err();
    assert_eq!(error, RenewError::NoMemory { max: 1 });
    assert!(second.accept_token(u32::from(b'a')).unwrap(), "as it was");
    second.rollback(1).unwrap();
    drop(first);
    assert!(compiler.has_own_memory());
    renew(&compiler, &mut second).unwrap();
    // A fork stays in it.
    let fork = second.fork();
    drop(second);
    let mut third = matcher();
    renew(&compiler, &mut third).unwrap();
    assert!(renew(&compiler, &mut third).is_err());
    drop(fork);
    renew(&compiler, &mut third).unwrap();
}

/// A text that fills memory of its own by what is asked about it goes on in a new one, as long as it comes further.
#[test]
fn a_text_that_fills_memory_of_its_own_goes_on_in_a_new_one() {
    let compiler = compiler(16 << 20);
    let schema = r#"{"type":"array","items":{"type":"string","maxLength":30},"uniqueItems":true}"#;
    let options = JsonSchemaOptions::default();
    let grammar = compiler.compile_json_schema(schema, &options).unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    let items: Vec<String> = (0..30).map(|n| format!("\"item number {n}\"")).collect();
    let text = format!("[{}]", items.join(","));
    // To shared memory; and, having come no further, to its own.
    renew(&compiler, &mut matcher).unwrap();
    renew(&compiler, &mut matcher).unwrap();
    for (index, token_id) in text.bytes().map(u32::from).chain([EOS]).enumerate() {
        let mask = matcher.next_token_mask().unwrap();
        assert!(mask.is_allowed(token_id));
        assert!(matcher.accept_token(token_id).unwrap());
        if index % 100 == 99 {
            renew(&compiler, &mut matcher).unwrap();
            assert_eq!(matcher.num_accepted_tokens(), index + 1);
            // As soon again it would have come no further.
            assert!(renew(&compiler, &mut matcher).is_err());
        }
    }
    assert!(matcher.is_terminated());
}

/// Who is moved again and again by what others do needs no memory of its own.
#[test]
fn whoever_comes_much_further_each_time_never_waits_for_memory() {
    let compiler = compiler(1 << 20);
    let grammar = compiler.compile_regex("a*").unwrap();
    let mut with_own = GrammarMatcher::new(&grammar);
    renew(&compiler, &mut with_own).unwrap();
    renew(&compiler, &mut with_own).unwrap();
    let renewals = |tokens_between: usize| {
        let mut matcher = GrammarMatcher::new(&grammar);
        (0..20)
            .take_while(|_| {
                matcher
                    .accept_tokens(&vec![u32::from(b'a'); tokens_between])
                    .unwrap();
                compiler.clear_cache();
                renew(&compiler, &mut matcher).is_ok()
            })
            .count()
    };
    assert_eq!(renewals(100), 20);
    assert_eq!(renewals(1), 8);
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

/// What the answers to one request add to the memory that all share is bounded, however many there are.
#[test]
fn a_request_that_fills_more_than_its_share_goes_on_apart_and_alone() {
    let compiler = compiler(4 << 20);
    let start = || hog(&compiler);
    let memory = RequestMemory::default();
    let mut answers = [start(), start(), start()];
    answers
        .iter_mut()
        .for_each(|answer| answer.set_request_memory(&memory, 0));
    let [first, second, third] = &mut answers;
    let alone = fill(&mut hog(&self::compiler(4 << 20)));
    let of_share = fill(first);
    assert!(of_share * 2 < alone, "{of_share} of {alone}");
    // What is known costs nothing. Of its siblings' share nothing is left.
    assert!(second.accept_token(u32::from(b'{')).unwrap());
    let mut unknown = b"\"another\":".iter().map(|&byte| u32::from(byte));
    assert!(unknown.any(|token_id| second.accept_token(token_id).is_err()));
    // Nobody else is held up.
    assert!(fill(&mut start()) > of_share);
    for answer in [&mut *first, &mut *second] {
        assert!(!answer.is_apart());
        renew(&compiler, answer).unwrap();
        assert!(answer.is_apart());
    }
    // One of them fills what is apart, and comes no further in what nobody else may fill.
    while compiler.has_own_memory() {
        fill(first);
        renew(&compiler, first).unwrap();
    }
    assert_eq!(
        renew(&compiler, third),
        Err(RenewError::NoMemory { max: 1 })
    );
    drop(answers);
    assert!(compiler.has_own_memory());
}

/// Each call adds something before it is told that there is no room, and a request may make any number of them.
#[test]
fn a_request_that_has_filled_its_share_adds_no_more_however_often_it_asks() {
    let cache_bytes = 4 << 20;
    let compiler = compiler(cache_bytes);
    let memory = RequestMemory::default();
    let mut first = hog(&compiler);
    first.set_request_memory(&memory, 0);
    fill(&mut first);
    let before = compiler.cache_bytes();
    for number in 0..2_000 {
        let mut answer = hog(&compiler);
        answer.set_request_memory(&memory, 0);
        let text = format!("{{\"other{number}\":");
        let mut bytes = text.bytes().map(u32::from);
        let refused = bytes.find_map(|byte| answer.accept_token(byte).err());
        assert!(matches!(
            refused,
            Some(MatcherError::StatesExhausted { .. })
        ));
    }
    let added = compiler.cache_bytes() - before;
    assert!(added < cache_bytes / 64, "{added} bytes");
}

/// Others know the states that it asks at, and a mask at each would be remembered.
#[test]
fn a_request_far_beyond_its_share_adds_nothing_where_others_have_been() {
    let cache_bytes = 4 << 20;
    let compiler = compiler(cache_bytes);
    let text = b"{\"a\":[1,true,\"b\"],\"c\":{\"d\":-1.5e3}}";
    let mut other = hog(&compiler);
    for byte in text {
        assert!(other.accept_token(u32::from(*byte)).unwrap());
    }
    let before = compiler.cache_bytes();
    for len in 0..text.len() {
        let mut answer = hog(&compiler);
        answer.set_request_memory(&RequestMemory::default(), cache_bytes);
        let mut bytes = text[..len].iter().map(|byte| u32::from(*byte));
        if bytes.all(|byte| answer.accept_token(byte).is_ok()) {
            drop(answer.next_token_mask());
        }
    }
    assert_eq!(compiler.cache_bytes(), before);
}
