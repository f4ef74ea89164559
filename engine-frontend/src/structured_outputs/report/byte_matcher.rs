//! A matcher over single bytes.

use std::sync::Arc;

use structured_output::{CompiledGrammar, GrammarMatcher, MaskRef, TokenizerInfo};

/// A matcher of a grammar whose tokens are the 256 bytes in order, and stop and control tokens behind them.
pub(super) struct ByteMatcher {
    pub(super) matcher: GrammarMatcher,
    info: Arc<TokenizerInfo>,
    /// Control tokens that are text for people, and end no text.
    control_tokens: Arc<[u32]>,
    /// The bytes with which these begin.
    control_starts: [bool; 256],
}

impl ByteMatcher {
    /// A matcher at the start, whose calls may together take so many steps.
    pub(super) fn new(grammar: &CompiledGrammar, max_steps: Option<u64>) -> Self {
        let mut matcher = GrammarMatcher::new(grammar);
        matcher.set_allowance(max_steps);
        let info = Arc::clone(grammar.tokenizer_info());
        let mut control_starts = [false; 256];
        let is_text = |token_id: &u32| info.token_bytes(*token_id).len() > 1;
        let control_tokens = info.special_token_ids().iter().copied();
        let control_tokens: Arc<[u32]> = control_tokens
            .filter(|token_id| is_text(token_id) && !info.is_stop_token(*token_id))
            .collect();
        for &token_id in control_tokens.iter() {
            if let Some(&byte) = info.token_bytes(token_id).first() {
                control_starts[usize::from(byte)] = true;
            }
        }
        Self {
            matcher,
            info,
            control_tokens,
            control_starts,
        }
    }

    /// The text of a token.
    pub(super) fn token_bytes(&self, token_id: u32) -> &[u8] {
        self.info.token_bytes(token_id)
    }

    /// True if a mask lets the text end.
    pub(super) fn may_end(&self, mask: &MaskRef) -> bool {
        let mut stop_tokens = self.info.stop_token_ids().iter();
        stop_tokens.any(|&token_id| mask.is_allowed(token_id))
    }

    /// The control tokens, but for those that end a text.
    pub(super) fn control_tokens(&self) -> Arc<[u32]> {
        Arc::clone(&self.control_tokens)
    }

    /// True if a control token's text begins with this byte.
    pub(super) fn may_begin_control(&self, byte: u8) -> bool {
        self.control_starts[usize::from(byte)]
    }
}
