//! Finding a sequence of tokens in a stream of them.

/// Finds a sequence in a stream of tokens, one at a time (Knuth, Morris, Pratt 1977).
#[derive(Debug, Clone)]
pub(crate) struct SequenceMatcher {
    sequence: Vec<u32>,
    /// `fallback[n]`: length of the longest proper prefix that ends the first `n + 1` tokens.
    fallback: Vec<usize>,
    /// Length of the longest prefix of the sequence that ends the stream; never all of it.
    matched: usize,
}

impl SequenceMatcher {
    /// `None` for an empty sequence.
    pub(crate) fn new(sequence: &[u32]) -> Option<Self> {
        let mut matcher = Self {
            sequence: sequence.to_vec(),
            fallback: vec![0],
            matched: 0,
        };
        for &token_id in sequence.get(1..)? {
            matcher.advance(token_id);
            matcher.fallback.push(matcher.matched);
        }
        matcher.reset();
        Some(matcher)
    }

    /// Takes a token; whether the stream now ends in the whole sequence, after which the search
    /// starts anew.
    pub(crate) fn advance(&mut self, token_id: u32) -> bool {
        while self.matched > 0 && self.sequence[self.matched] != token_id {
            self.matched = self.fallback[self.matched - 1];
        }
        if self.sequence[self.matched] == token_id {
            self.matched += 1;
        }
        let found = self.matched == self.sequence.len();
        if found {
            self.reset();
        }
        found
    }

    /// Forgets the stream.
    fn reset(&mut self) {
        self.matched = 0;
    }

    /// The token that would continue the match.
    pub(crate) fn next(&self) -> Option<u32> {
        self.sequence.get(self.matched).copied()
    }
}
