//! What has to hold at every place of every grammar.

use structured_output::{CompiledGrammar, GrammarMatcher, MaskRef, MatcherError};

use super::vocabulary::Vocabulary;

/// The most tokens that a walk takes.
const MAX_TOKENS: usize = 24;
/// Places at which every token of the vocabulary is tried; later ones try some.
const THOROUGH: usize = 3;
/// The longest completion that is followed.
const MAX_COMPLETION: u32 = 200;

/// Walks through a grammar by some choices and checks each place. `check` is given each text that
/// tokens wrote, without control tokens among them, and whether the grammar takes it for whole.
/// `bytewise`, if given, goes the same way by single bytes.
/// Limits end the walk. The result says roughly what was met.
pub(crate) fn walk(
    grammar: &CompiledGrammar,
    vocabulary: &Vocabulary,
    choices: &[u8],
    mut bytewise: Option<GrammarMatcher>,
    mut check: impl FnMut(&[u8], bool),
) -> String {
    let mut matcher = GrammarMatcher::new(grammar);
    let mut is_text = true;
    let mut text = Vec::new();
    let mut seen = String::new();
    for (at, &choice) in choices.iter().take(MAX_TOKENS).enumerate() {
        let step = if at < THOROUGH { 1 } else { 7 };
        let mut check = |text: &[u8], is_whole: bool| {
            if is_text {
                check(text, is_whole);
            }
        };
        let place = Place {
            vocabulary,
            matcher: &matcher,
            text: &text,
        };
        let mask = match place.check(choice, step, &mut check) {
            Ok(mask) => mask,
            Err(error) => return format!("{seen} {}", crate::sketch(&error.to_string())),
        };
        let size = mask.num_allowed().checked_ilog2().unwrap_or(99);
        seen.push_str(&format!(" {size}"));
        let ids = mask.token_ids();
        let id = ids[usize::from(choice) % ids.len()];
        if id == vocabulary.stop {
            break;
        }
        match matcher.accept_token(id) {
            Ok(accepted) => assert!(accepted, "token {id} after {text:?}"),
            Err(_) => return seen + " limit",
        }
        let token = &vocabulary.tokens[id as usize];
        text.extend_from_slice(token);
        // The same text by single bytes leads to the same place.
        if !vocabulary.is_text(id) {
            bytewise = None;
            is_text = false;
        }
        let (Some(other), Some(byte_tokens)) = (&mut bytewise, &vocabulary.byte_tokens) else {
            continue;
        };
        for &byte in token {
            match other.accept_token(byte_tokens[usize::from(byte)]) {
                Ok(accepted) => assert!(accepted, "byte {byte} within {text:?}"),
                Err(_) => return seen + " limit",
            }
        }
        assert_eq!(
            matcher.is_completed(),
            other.is_completed(),
            "after {text:?}"
        );
        if let (Ok(one), Ok(other)) = (matcher.next_token_mask(), other.next_token_mask()) {
            assert!(one == other, "after {text:?} by other tokens");
        }
    }
    seen
}

/// One place.
struct Place<'a> {
    vocabulary: &'a Vocabulary,
    matcher: &'a GrammarMatcher,
    text: &'a [u8],
}

impl Place<'_> {
    /// Checks a place with every `step`th token.
    fn check(
        &self,
        choice: u8,
        step: usize,
        check: &mut impl FnMut(&[u8], bool),
    ) -> Result<MaskRef, MatcherError> {
        let Self {
            vocabulary,
            matcher,
            text,
        } = *self;
        let mask = matcher.next_token_mask()?;
        assert!(mask.num_allowed() > 0, "nothing may come after {text:?}");
        assert_eq!(mask.token_ids().len(), mask.num_allowed());
        assert!(matcher.fork().next_token_mask()? == mask);
        check(text, matcher.is_completed());
        let forced = matcher.find_jump_forward_string()?;
        assert!(forced.is_empty() || matcher.has_forced_byte()?);
        assert!(
            forced.is_empty() || !matcher.is_completed(),
            "{forced:?} after {text:?}"
        );
        for id in vocabulary
            .ids()
            .skip(usize::from(choice) % step)
            .step_by(step)
        {
            let is_allowed = mask.is_allowed(id);
            let mut fork = matcher.fork();
            assert_eq!(
                fork.accept_token(id)?,
                is_allowed,
                "token {id} after {text:?}"
            );
            assert_eq!(matcher.validate_tokens(&[id])?, usize::from(is_allowed));
            if id == vocabulary.stop && is_allowed {
                assert!(fork.is_terminated());
            }
            if !is_allowed {
                continue;
            }
            assert!((id as usize) < vocabulary.tokens.len(), "{id} is no token");
            let token = &vocabulary.tokens[id as usize];
            if vocabulary.is_text(id) {
                let shared = forced.len().min(token.len());
                assert_eq!(
                    &token[..shared],
                    &forced.as_bytes()[..shared],
                    "after {text:?}"
                );
            }
            fork.rollback(1).unwrap();
            assert!(fork.next_token_mask()? == mask, "rolled back to {text:?}");
        }
        self.follow(&forced)?;
        for token in [
            None,
            mask.token_ids()
                .get(usize::from(choice) % mask.num_allowed()),
        ] {
            let mut fork = matcher.fork();
            if let Some(&id) = token {
                fork.accept_token(id)?;
                if id == vocabulary.stop {
                    continue;
                }
            }
            let own = token.map_or(&[][..], |&id| &vocabulary.tokens[id as usize]);
            let is_text = token.is_none_or(|&id| vocabulary.is_text(id));
            if let Some(whole) = self.completed(fork, [text, own].concat())?
                && is_text
            {
                check(&whole, true);
            }
        }
        Ok(mask)
    }

    /// Forced text can be written, and forced tokens are allowed.
    fn follow(&self, forced: &str) -> Result<(), MatcherError> {
        let mut fork = self.matcher.fork();
        if let Some(byte_tokens) = &self.vocabulary.byte_tokens {
            for byte in forced.bytes().take(64) {
                assert!(
                    fork.accept_token(byte_tokens[usize::from(byte)])?,
                    "{forced:?}"
                );
            }
        }
        let forced = self.matcher.forced_tokens()?;
        let mut fork = self.matcher.fork();
        for &id in &forced {
            assert_eq!(fork.next_token_mask()?.token_ids(), [id]);
            assert!(fork.accept_token(id)?);
        }
        fork.rollback(forced.len()).unwrap();
        assert!(fork.next_token_mask()? == self.matcher.next_token_mask()?);
        Ok(())
    }

    /// Follows the bound to the end: the text, if only tokens of text were needed.
    fn completed(
        &self,
        mut matcher: GrammarMatcher,
        mut text: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, MatcherError> {
        let mut left = matcher.min_tokens_to_complete()?;
        let mut is_text = true;
        if left > MAX_COMPLETION {
            return Ok(None);
        }
        while !matcher.is_terminated() {
            assert!(left > 0, "the bound is too low after {text:?}");
            let mask = matcher.next_token_mask_within(left)?;
            let id = *mask.token_ids().first().expect("a mask is not empty");
            assert!(
                matcher.next_token_mask()?.is_allowed(id),
                "{id} after {text:?}"
            );
            assert!(matcher.accept_token(id)?);
            if id != self.vocabulary.stop {
                is_text &= self.vocabulary.is_text(id);
                text.extend_from_slice(&self.vocabulary.tokens[id as usize]);
            }
            left -= 1;
        }
        Ok(is_text.then_some(text))
    }
}
