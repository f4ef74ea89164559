//! The matcher against a slow reference, for random patterns and vocabularies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod python;
mod reference;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use reference::{CHARS, Re, Reference, expressions};
use structured_output::{
    CompileError, CompilerOptions, GrammarCompiler, GrammarMatcher, MaskView, MatcherError,
    TokenizerInfo, allocate_token_bitmask,
};

/// A vocabulary: token 0 is the stop token, 1 a control token that looks like text, 2 is empty.
#[derive(Debug, Clone)]
struct Vocabulary {
    tokens: Vec<Vec<u8>>,
    padding: usize,
}

impl Vocabulary {
    fn info(&self) -> Arc<TokenizerInfo> {
        let mut vocab = vec![b"a".to_vec(), b"ab".to_vec(), Vec::new()];
        vocab.extend(self.tokens.iter().cloned());
        let size = vocab.len() + self.padding;
        Arc::new(TokenizerInfo::new(&vocab, size, &[0], &[1]).unwrap())
    }

    fn text_tokens(&self) -> Vec<(u32, Vec<u8>)> {
        (3..).zip(self.tokens.iter().cloned()).collect()
    }
}

/// Tokens cut out of random text, so that some end within a character; with `all_bytes` every byte
/// is a token too.
fn vocabularies(all_bytes: bool) -> impl Strategy<Value = Vocabulary> {
    let text = prop::collection::vec(prop::sample::select(&CHARS[..]), 1..4)
        .prop_map(|chars| chars.into_iter().collect::<String>().into_bytes());
    let cut = (text, 0_usize..4, 1_usize..5).prop_map(|(text, start, len)| {
        let start = start.min(text.len() - 1);
        text[start..(start + len).min(text.len())].to_vec()
    });
    (prop::collection::vec(cut, 1..12), 0_usize..40).prop_map(move |(mut tokens, padding)| {
        if all_bytes {
            tokens.extend((0..=255).map(|byte| vec![byte]));
        }
        Vocabulary { tokens, padding }
    })
}

fn row_of(matcher: &GrammarMatcher, vocab_size: usize) -> (Vec<u32>, bool) {
    let mut row = allocate_token_bitmask(1, vocab_size);
    let constrains = matcher.fill_next_token_bitmask(&mut row).unwrap();
    (row, constrains)
}

fn ids(row: &[u32]) -> BTreeSet<u32> {
    (0..row.len() as u32 * 32)
        .filter(|id| row[*id as usize / 32] >> (id % 32) & 1 == 1)
        .collect()
}

/// Walks by the mask and compares at every place. `choices` says which allowed token to take.
fn check(re: &Re, vocabulary: &Vocabulary, choices: &[usize]) -> Result<(), TestCaseError> {
    let info = vocabulary.info();
    let mut reference = Reference::new(re, vocabulary.text_tokens());
    let compiler = GrammarCompiler::new(Arc::clone(&info), CompilerOptions::default());
    let start = reference.nfa.start();
    let grammar = match compiler.compile_regex(&re.pattern()) {
        Ok(grammar) => grammar,
        Err(CompileError::NotWritable) => {
            prop_assert_eq!(reference.distance(&start), None);
            return Ok(());
        }
        Err(error) => return Err(TestCaseError::fail(format!("{}: {error}", re.pattern()))),
    };
    prop_assert!(reference.distance(&start).is_some());
    let mut matcher = GrammarMatcher::new(&grammar);
    let mut states = start.clone();
    let mut accepted = Vec::new();
    for &choice in choices {
        let (row, constrains) = row_of(&matcher, info.vocab_size());
        let allowed = ids(&row);
        let may_end = reference.nfa.accepts(&states);
        let mut expected = reference.allowed(&states);
        if may_end {
            expected.insert(0);
        }
        prop_assert_eq!(
            &allowed,
            &expected,
            "{} after {:?}",
            re.pattern(),
            &accepted
        );
        prop_assert_eq!(constrains, allowed.len() < info.vocab_size());
        prop_assert_eq!(matcher.is_completed(), may_end);
        check_views(&matcher, &row)?;
        check_forced(&matcher, &reference, &states)?;
        check_bound(&matcher, &mut reference, &states, info.vocab_size())?;

        // Every token: accepted where it is allowed, and a fork is none the wiser.
        for id in 0..info.vocab_size() as u32 {
            let mut fork = matcher.fork();
            prop_assert_eq!(fork.accept_token(id).unwrap(), allowed.contains(&id));
            prop_assert_eq!(
                matcher.validate_tokens(&[id]).unwrap() == 1,
                allowed.contains(&id)
            );
        }
        prop_assert_eq!(
            row_of(&matcher, info.vocab_size()),
            (row.clone(), constrains)
        );

        let text: Vec<u32> = allowed.iter().copied().filter(|&id| id != 0).collect();
        let Some(&token) = text.get(choice % text.len().max(1)) else {
            break;
        };
        prop_assert!(matcher.accept_token(token).unwrap());
        accepted.push(token);
        states = reference.nfa.step(&states, info.token_bytes(token));
    }
    prop_assert_eq!(
        GrammarMatcher::new(&grammar)
            .validate_tokens(&accepted)
            .unwrap(),
        accepted.len()
    );

    // Rolled back to the start, everything is as it was.
    let fork = matcher.fork();
    matcher.rollback(accepted.len()).unwrap();
    prop_assert_eq!(
        row_of(&matcher, info.vocab_size()),
        row_of(&GrammarMatcher::new(&grammar), info.vocab_size())
    );
    prop_assert_eq!(
        matcher.rollback(1),
        Err(MatcherError::RollbackTooFar {
            asked: 1,
            accepted: 0
        })
    );
    prop_assert!(matcher.accept_tokens(&accepted).unwrap());
    prop_assert_eq!(
        row_of(&matcher, info.vocab_size()),
        row_of(&fork, info.vocab_size())
    );
    Ok(())
}

fn check_views(matcher: &GrammarMatcher, row: &[u32]) -> Result<(), TestCaseError> {
    let mask = matcher.next_token_mask().unwrap();
    match mask.view() {
        MaskView::Dense(words) => prop_assert_eq!(words, row),
        MaskView::Sparse(list) => {
            prop_assert!(list.len() <= 64);
            prop_assert_eq!(list.to_vec(), ids(row).into_iter().collect::<Vec<_>>());
        }
    }
    prop_assert!(mask.num_allowed() > 0);
    prop_assert!(mask.is_same(&matcher.next_token_mask().unwrap()));
    Ok(())
}

/// Jump-forward text is what all sentences go on with; forced tokens are what the masks leave.
fn check_forced(
    matcher: &GrammarMatcher,
    reference: &Reference,
    states: &reference::States,
) -> Result<(), TestCaseError> {
    let mut at = states.clone();
    let mut expected = Vec::new();
    while !reference.nfa.accepts(&at) {
        let next = reference.nfa.next_bytes(&at);
        let (1, Some(&byte)) = (next.len(), next.first()) else {
            break;
        };
        expected.push(byte);
        at = reference.nfa.step(&at, &[byte]);
    }
    let whole = std::str::from_utf8(&expected).map_or_else(|e| e.valid_up_to(), str::len);
    let found = matcher.find_jump_forward_string().unwrap();
    prop_assert_eq!(found.as_bytes(), &expected[..whole]);

    let mut fork = matcher.fork();
    for token in matcher.forced_tokens().unwrap() {
        prop_assert_eq!(fork.next_token_mask().unwrap().token_ids(), vec![token]);
        prop_assert!(fork.accept_token(token).unwrap());
    }
    if !fork.is_terminated() {
        prop_assert!(fork.next_token_mask().unwrap().num_allowed() > 1);
    }
    Ok(())
}

/// The bound on tokens is never too low, and is kept by who follows it.
fn check_bound(
    matcher: &GrammarMatcher,
    reference: &mut Reference,
    states: &reference::States,
    vocab_size: usize,
) -> Result<(), TestCaseError> {
    let bound = matcher.min_tokens_to_complete().unwrap();
    let fewest = reference.distance(states).unwrap() as u32 + 1;
    prop_assert!(bound >= fewest, "{bound} tokens, but {fewest} are needed");
    if fewest == 1 {
        prop_assert_eq!(bound, 1);
    }
    if bound > 1 {
        prop_assert_eq!(
            matcher.next_token_mask_within(bound - 1),
            Err(MatcherError::CannotCompleteWithin {
                num_tokens: bound - 1,
                needed: bound
            })
        );
    }
    // With enough tokens left, the limit changes nothing.
    prop_assert_eq!(
        matcher.next_token_mask_within(100_000).unwrap(),
        matcher.next_token_mask().unwrap()
    );
    let mut fork = matcher.fork();
    for left in (1..=bound).rev() {
        let mut row = allocate_token_bitmask(1, vocab_size);
        fork.fill_next_token_bitmask_within(&mut row, left).unwrap();
        let allowed = ids(&row);
        let all = ids(&row_of(&fork, vocab_size).0);
        prop_assert!(allowed.is_subset(&all));
        for &id in &allowed {
            let mut next = fork.fork();
            prop_assert!(next.accept_token(id).unwrap());
            prop_assert!(next.min_tokens_to_complete().unwrap() < left);
        }
        let completing = fork.next_token_mask_completing(left).unwrap().token_ids();
        prop_assert!(!completing.is_empty());
        prop_assert!(completing.iter().all(|id| allowed.contains(id)));
        let &last = allowed.last().unwrap();
        fork.accept_token(last).unwrap();
        if fork.is_terminated() {
            return Ok(());
        }
    }
    Err(TestCaseError::fail("the bound was not kept"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Vocabularies that can write some texts only: completion is by tokens.
    #[test]
    fn small_vocabularies(
        re in expressions(),
        vocabulary in vocabularies(false),
        choices in prop::collection::vec(any::<usize>(), 1..8),
    ) {
        check(&re, &vocabulary, &choices)?;
    }

    /// Vocabularies with all bytes: completion is by bytes.
    #[test]
    fn vocabularies_with_all_bytes(
        re in expressions(),
        vocabulary in vocabularies(true),
        choices in prop::collection::vec(any::<usize>(), 1..5),
    ) {
        check(&re, &vocabulary, &choices)?;
    }
}

proptest! {
    /// The state depends on the bytes alone, not on the tokens that wrote them.
    #[test]
    fn any_tokenization_of_a_text_is_the_same(
        re in expressions(),
        vocabulary in vocabularies(true),
        choices in prop::collection::vec(any::<usize>(), 1..8),
    ) {
        let info = vocabulary.info();
        let compiler = GrammarCompiler::new(Arc::clone(&info), CompilerOptions::default());
        let grammar = compiler.compile_regex(&re.pattern()).unwrap();
        let mut whole = GrammarMatcher::new(&grammar);
        let mut by_bytes = GrammarMatcher::new(&grammar);
        let first_byte_token = 3 + vocabulary.tokens.len() as u32 - 256;
        for choice in choices {
            let allowed = whole.next_token_mask().unwrap().token_ids();
            let text: Vec<u32> = allowed.into_iter().filter(|&id| id != 0).collect();
            let Some(&token) = text.get(choice % text.len().max(1)) else { break };
            prop_assert!(whole.accept_token(token).unwrap());
            for &byte in info.token_bytes(token) {
                prop_assert!(by_bytes.accept_token(first_byte_token + u32::from(byte)).unwrap());
            }
            prop_assert!(whole.next_token_mask().unwrap().is_same(&by_bytes.next_token_mask().unwrap()));
        }
    }

    /// A choice is the regular expression of its strings.
    #[test]
    fn a_choice_allows_its_strings(
        choices in prop::collection::vec("[ab]{0,4}", 1..6),
        vocabulary in vocabularies(true),
    ) {
        let info = vocabulary.info();
        let compiler = GrammarCompiler::new(Arc::clone(&info), CompilerOptions::default());
        let by_choice = GrammarMatcher::new(&compiler.compile_choice(&choices).unwrap());
        let pattern: Vec<String> = choices.iter().map(|choice| format!("(?:{choice})")).collect();
        let by_regex = GrammarMatcher::new(&compiler.compile_regex(&pattern.join("|")).unwrap());
        for token in 0..info.vocab_size() as u32 {
            let (mut a, mut b) = (by_choice.fork(), by_regex.fork());
            prop_assert_eq!(a.accept_token(token).unwrap(), b.accept_token(token).unwrap());
            prop_assert_eq!(a.next_token_mask().unwrap(), b.next_token_mask().unwrap());
        }
    }
}
