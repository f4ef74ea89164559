//! What a request's tokens were chosen from, until an output carries it.

use protocol::TokenTrace;

/// The trace of a request that asks for one.
#[derive(Debug, Default)]
pub(crate) struct RequestTrace {
    /// When the token before was appended, or the core took the request, in seconds of its clock.
    last_token_time: f64,
    /// Of the tokens that no output has carried yet.
    unsent: Vec<TokenTrace>,
}

impl RequestTrace {
    /// From here on time counts.
    pub(crate) fn start(&mut self, now: f64) {
        self.last_token_time = now;
    }

    /// Takes what a sampled token was chosen from, which is appended now.
    pub(crate) fn push_sampled(&mut self, sampled: TokenTrace, now: f64) {
        let step_seconds = (now - self.last_token_time) as f32;
        self.last_token_time = now;
        self.unsent.push(TokenTrace {
            step_seconds,
            ..sampled
        });
    }

    /// Notes that a token is appended now without being sampled.
    pub(crate) fn push_forced(&mut self, now: f64) {
        let forced = TokenTrace {
            masked_probability: 1.0,
            num_allowed: 1,
            is_constrained: true,
            is_forced: true,
            ..TokenTrace::default()
        };
        self.push_sampled(forced, now);
    }

    /// What no output has carried yet.
    pub(crate) fn take(&mut self) -> Vec<TokenTrace> {
        std::mem::take(&mut self.unsent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_the_time_since_the_one_before() {
        let mut trace = RequestTrace::default();
        trace.start(1.0);
        trace.push_sampled(TokenTrace::default(), 1.5);
        trace.push_forced(1.5);
        trace.push_sampled(TokenTrace::default(), 1.75);
        let taken = trace.take();
        let seconds: Vec<f32> = taken.iter().map(|token| token.step_seconds).collect();
        assert_eq!(seconds, [0.5, 0.0, 0.25]);
        let forced: Vec<bool> = taken.iter().map(|token| token.is_forced).collect();
        assert_eq!(forced, [false, true, false]);
        assert!(trace.take().is_empty());
    }
}
