//! What the tokens of an answer were chosen from, kept until it is handed over.

use protocol::{EngineCoreRequest, TokenTrace};

/// Collects the trace of one request.
#[derive(Debug)]
pub(crate) struct TraceCollector {
    /// Behind the first `num_given_out` tokens; `None` where nobody asks.
    tokens: Option<Vec<TokenTrace>>,
    /// Tokens whose entries were taken, and tokens that came with the request.
    num_given_out: usize,
}

impl TraceCollector {
    pub(crate) fn new(request: &EngineCoreRequest) -> Self {
        Self {
            tokens: request.sampling_params.include_trace.then(Vec::new),
            num_given_out: request.output_token_ids.len(),
        }
    }

    /// Takes the entries of newly generated tokens.
    pub(crate) fn update(&mut self, new: &[TokenTrace]) {
        if let Some(tokens) = &mut self.tokens {
            tokens.extend_from_slice(new);
        }
    }

    /// Forgets the entries of tokens that turned out to lie behind a stop string.
    pub(crate) fn truncate(&mut self, num_tokens: usize) {
        if let Some(tokens) = &mut self.tokens {
            tokens.truncate(num_tokens.saturating_sub(self.num_given_out));
        }
    }

    /// The entries of the tokens from `start` on. Those that came with the request have none.
    pub(crate) fn from(&self, start: usize) -> Option<Vec<TokenTrace>> {
        let tokens = self.tokens.as_ref()?;
        let start = start.saturating_sub(self.num_given_out);
        Some(tokens.get(start..).unwrap_or_default().to_vec())
    }

    /// The same, and forgets them and all before them.
    pub(crate) fn take_from(&mut self, start: usize) -> Option<Vec<TokenTrace>> {
        let tokens = self.tokens.as_mut()?;
        let start = start.saturating_sub(self.num_given_out);
        let mut taken = std::mem::take(tokens);
        self.num_given_out += taken.len();
        taken.drain(..start.min(taken.len()));
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use protocol::SamplingParams;

    use super::*;

    fn token(num_allowed: u32) -> TokenTrace {
        TokenTrace {
            num_allowed,
            ..TokenTrace::default()
        }
    }

    #[test]
    fn each_token_is_given_out_once() {
        let request = EngineCoreRequest {
            output_token_ids: vec![7],
            sampling_params: SamplingParams {
                include_trace: true,
                ..SamplingParams::default()
            },
            ..EngineCoreRequest::default()
        };
        let mut collector = TraceCollector::new(&request);
        collector.update(&[token(1), token(2), token(3)]);
        // The answer has one token from before and two of these.
        collector.truncate(3);
        assert_eq!(collector.from(0), Some(vec![token(1), token(2)]));
        assert_eq!(collector.from(2), Some(vec![token(2)]));
        assert_eq!(collector.take_from(1), Some(vec![token(1), token(2)]));
        collector.update(&[token(4)]);
        assert_eq!(collector.take_from(3), Some(vec![token(4)]));
        assert_eq!(collector.take_from(4), Some(Vec::new()));
        let mut nobody = TraceCollector::new(&EngineCoreRequest::default());
        nobody.update(&[token(1)]);
        assert_eq!(nobody.take_from(0), None);
    }
}
