//! What sets of tokens in grammars mean in a vocabulary.

use crate::TokenizerInfo;
use crate::earley::TokenRuns;
use crate::grammar_syntax::TokenSet;
use crate::index::TokenizerIndex;
use crate::lexical::{Fuel, Stop};

/// A vocabulary, and sets of its tokens that were asked for.
pub(super) struct Vocabulary<'a> {
    index: &'a TokenizerIndex,
    /// Tokens that are text.
    text: Option<TokenRuns>,
    /// Tokens that write something and don't end the text, and all that write something.
    written: Option<[TokenRuns; 2]>,
}

impl<'a> Vocabulary<'a> {
    pub(super) fn new(index: &'a TokenizerIndex) -> Self {
        Self {
            index,
            text: None,
            written: None,
        }
    }

    fn info(&self) -> &'a TokenizerInfo {
        self.index.info()
    }

    /// The tokens of a set, or what is wrong with it. All others, where it is negated, are those that
    /// are text.
    pub(super) fn tokens_of(
        &mut self,
        set: &TokenSet,
        fuel: &mut Fuel,
    ) -> Result<Result<TokenRuns, String>, Stop> {
        fuel.burn(1 + set.ranges.len() as u64)?;
        for &(first, last) in &set.ranges {
            if let Err(message) = self.check(set, first, last) {
                return Ok(Err(message));
            }
        }
        if let Some(any) = self.info().any_token().filter(|_| !set.ends_text) {
            // Named tokens are that one; it is not among those that are text.
            return Ok(Ok(match (set.negated, &set.ranges[..]) {
                (true, _) => self.text(fuel)?.clone(),
                (false, []) => TokenRuns::default(),
                (false, _) => TokenRuns::new(vec![(any, any)]),
            }));
        }
        let named = TokenRuns::new(set.ranges.clone());
        let tokens = match set.negated {
            true => self.text(fuel)?.less(&named),
            false => {
                // A single token has been looked at: it is one of these, but for stop tokens.
                let is_single = |run: &(u32, u32)| run.0 == run.1;
                match set.ranges.iter().all(is_single) {
                    true => named,
                    false => {
                        let all = &self.written(fuel)?[usize::from(set.ends_text)];
                        // What is in both.
                        all.less(&all.less(&named))
                    }
                }
            }
        };
        let of_vocabulary = self.text.iter().chain(self.written.iter().flatten());
        let num_runs = of_vocabulary.map(|all| all.runs().len()).max();
        fuel.burn((tokens.runs().len() + num_runs.unwrap_or(0)) as u64)?;
        Ok(Ok(tokens))
    }

    /// Refuses ids, the last one included, that a set can't have.
    pub(super) fn check(&self, set: &TokenSet, first: u32, last: u32) -> Result<(), String> {
        let info = self.info();
        if last as usize >= info.num_ids() {
            return Err(format!(
                "token {last} is beyond the vocabulary: ids go from 0 to {}",
                info.num_ids() - 1
            ));
        }
        let is_replaced = info.any_token().is_some() && !set.ends_text;
        if first != last || set.negated || is_replaced {
            return Ok(());
        }
        if !set.ends_text && info.is_stop_token(first) {
            return Err(format!(
                "token {first} ends the text, so it can't be part of it: name it by its text, as \
                 in `<|name|>`, where it may be the last"
            ));
        }
        if info.token_bytes(first).is_empty() {
            return Err(format!(
                "token {first} writes nothing, so it is never allowed"
            ));
        }
        Ok(())
    }

    fn text(&mut self, fuel: &mut Fuel) -> Result<&TokenRuns, Stop> {
        if self.text.is_none() {
            let num_ids = self.info().vocab_size() as u32;
            fuel.burn(u64::from(num_ids / 32))?;
            let ids = (0..num_ids).filter(|&id| self.index.is_text_token(id));
            self.text = Some(TokenRuns::of_ids(ids));
        }
        Ok(self.text.get_or_insert_default())
    }

    fn written(&mut self, fuel: &mut Fuel) -> Result<&[TokenRuns; 2], Stop> {
        if self.written.is_none() {
            let info = self.info();
            let num_ids = info.vocab_size() as u32;
            fuel.burn(u64::from(num_ids / 32))?;
            let written = (0..num_ids).filter(|&id| !info.token_bytes(id).is_empty());
            let all = TokenRuns::of_ids(written);
            let stops = info.stop_token_ids().iter().map(|&id| (id, id));
            let without_stops = all.less(&TokenRuns::new(stops.collect()));
            self.written = Some([without_stops, all]);
        }
        Ok(self.written.get_or_insert_default())
    }
}
