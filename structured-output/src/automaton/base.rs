//! What every generation begins with: expressions and masks of lexemes that most grammars ask for.
//!
//! Strings, numbers and white space are the same expressions in all schemas. So is what the
//! vocabulary's tokens do to them. What one automaton has met of them is kept with the vocabulary's
//! index; a new generation begins with a copy of the expressions and shares the masks.

use std::sync::Arc;

use super::language_facts::LanguageFacts;
use super::memo::{LexemeFacts, MaskMemo};
use super::{State, TokenAutomaton};
use crate::lexical::{EMPTY, EPSILON, ExprId, Fuel, Lexicon, Stop};

/// What an automaton has met, its frames and grammars apart.
pub(crate) struct Base {
    lexicon: Lexicon,
    lexemes: LexemeFacts,
    languages: Arc<LanguageFacts>,
}

impl Base {
    /// The expressions, for a new generation.
    pub(super) fn lexicon(&self) -> Lexicon {
        self.lexicon.clone()
    }

    /// What is known of lexemes, for a new generation or one that has forgotten all else.
    pub(super) fn masks(&self) -> MaskMemo {
        MaskMemo::with(self.lexemes.clone())
    }

    /// What is known of languages, for a new generation or one that has forgotten all else.
    pub(super) fn languages(&self) -> LanguageFacts {
        LanguageFacts::with_base(Arc::clone(&self.languages))
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lexicon.memory_bytes() + self.lexemes.memory_bytes() + self.languages.memory_bytes()
    }
}

impl TokenAutomaton {
    /// Asks for the mask at each place of a text, as far as it is allowed.
    pub(crate) fn rehearse(
        &mut self,
        mut state: State,
        text: &[u8],
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        for &byte in text {
            self.mask(state, fuel)?;
            match self.machine.step(state, byte, fuel)? {
                Some(next) => state = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Asks for what a language allows where a token begins and after what others end with; and for what is left of it at each place of a text that begins one of its own.
    pub(crate) fn rehearse_language(
        &mut self,
        language: ExprId,
        text: &[u8],
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let saturated = self.machine.lexicon.saturated(language);
        self.learn_language(saturated, true, fuel)?;
        let mut left = language;
        for &byte in text {
            left = self.machine.lexicon.derivative(left, byte, fuel)?;
            if left == EMPTY || left == EPSILON {
                break;
            }
            let saturated = self.machine.lexicon.saturated(left);
            self.learn_language(saturated, false, fuel)?;
        }
        Ok(())
    }

    /// What was met, for others to begin with.
    pub(crate) fn into_base(self) -> Base {
        Base {
            lexicon: self.machine.lexicon,
            lexemes: self.masks.into_lexeme_facts(),
            languages: Arc::new(self.grammars.memo.languages),
        }
    }
}
