//! Speculative decoding: tokens that are guessed, and verified many in one pass.

mod draft_model_proposer;
mod ngram_proposer;

use protocol::{SpeculativeConfig, SpeculativeMethod};

pub use draft_model_proposer::DraftPass;
pub(crate) use draft_model_proposer::{DraftModelProposer, Drafted, KnownRequest};
pub use ngram_proposer::NgramProposer;

/// What gives requests their drafts, and how long these may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposer {
    method: Method,
    num_speculative_tokens: usize,
    /// First number of running requests of a range, and the most tokens of a draft there; ascending.
    per_batch_size: Vec<(usize, usize)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Method {
    Ngram(NgramProposer),
    DraftModel(DraftModelProposer),
}

/// Why drafts can't be proposed as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("speculative_config.{field} is {value}: {expected}")]
pub struct SpeculativeConfigError {
    field: &'static str,
    value: String,
    expected: String,
}

/// A [`SpeculativeConfigError`].
fn invalid(
    field: &'static str,
    value: impl ToString,
    expected: impl Into<String>,
) -> SpeculativeConfigError {
    SpeculativeConfigError {
        field,
        value: value.to_string(),
        expected: expected.into(),
    }
}

impl Proposer {
    /// A proposer as configured.
    ///
    /// # Errors
    /// A number out of its range.
    pub fn new(config: &SpeculativeConfig) -> Result<Self, SpeculativeConfigError> {
        let most = SpeculativeConfig::MAX_NUM_SPECULATIVE_TOKENS;
        let num_speculative_tokens = config.num_speculative_tokens;
        if !(1..=most).contains(&num_speculative_tokens) {
            return Err(invalid(
                "num_speculative_tokens",
                num_speculative_tokens,
                format!("it must be from 1 to {most}"),
            ));
        }
        check_ranges(config)?;
        let num_speculative_tokens = num_speculative_tokens as usize;
        let ranges = config.num_speculative_tokens_per_batch_size.iter();
        Ok(Self {
            method: match config.method {
                SpeculativeMethod::Ngram => Method::Ngram(NgramProposer::new(config)?),
                SpeculativeMethod::DraftModel => {
                    Method::DraftModel(DraftModelProposer::new(config))
                }
            },
            num_speculative_tokens,
            per_batch_size: ranges
                .map(|&(first, _, num)| (first as usize, num_speculative_tokens.min(num as usize)))
                .collect(),
        })
    }

    /// At most `max_tokens` tokens that may come after `token_ids`. The draft model's are not known yet: zeros
    /// hold their places in the schedule.
    pub(crate) fn propose(&self, token_ids: &[u32], max_tokens: usize) -> Vec<u32> {
        match &self.method {
            Method::Ngram(ngram) => ngram.propose(token_ids, max_tokens).to_vec(),
            Method::DraftModel(_) => vec![0; max_tokens.min(self.num_speculative_tokens)],
        }
    }

    /// Most tokens of a draft where so many requests run.
    pub(crate) fn max_draft_tokens(&self, num_running: usize) -> usize {
        let ranges = self.per_batch_size.iter();
        ranges
            .take_while(|(first, _)| *first <= num_running)
            .last()
            .map_or(self.num_speculative_tokens, |(_, most)| *most)
    }

    /// The draft model's, where it is one that proposes.
    pub(crate) fn draft_model(&self) -> Option<&DraftModelProposer> {
        match &self.method {
            Method::Ngram(_) => None,
            Method::DraftModel(proposer) => Some(proposer),
        }
    }
}

/// Checks that ranges ascend from 1 on and don't overlap.
fn check_ranges(config: &SpeculativeConfig) -> Result<(), SpeculativeConfigError> {
    let mut last_of_all = 0;
    for &(first, last, num) in &config.num_speculative_tokens_per_batch_size {
        let is_next = match last_of_all {
            0 => first == 1,
            _ => first > last_of_all,
        };
        if !is_next || last < first {
            let expected = format!(
                "its ranges of running requests must ascend without overlaps, the first from 1 on; this one must begin {} {} \
                 and end where it begins or later",
                if last_of_all == 0 { "at" } else { "from" },
                u64::from(last_of_all) + 1,
            );
            let value = format!("[{first}, {last}, {num}]");
            return Err(invalid(
                "num_speculative_tokens_per_batch_size",
                value,
                expected,
            ));
        }
        last_of_all = last;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_ranges(ranges: &[(u32, u32, u32)]) -> Result<Proposer, String> {
        let config = SpeculativeConfig {
            num_speculative_tokens: 5,
            num_speculative_tokens_per_batch_size: ranges.to_vec(),
            ..SpeculativeConfig::default()
        };
        Proposer::new(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_that_no_range_has_get_what_the_range_before_has() {
        let of = |ranges: &[(u32, u32, u32)]| {
            let proposer = with_ranges(ranges).unwrap();
            [1, 2, 3, 4, 5, 9].map(|num_running| proposer.max_draft_tokens(num_running))
        };
        assert_eq!(of(&[]), [5; 6]);
        assert_eq!(of(&[(1, 2, 4), (4, 4, 1), (5, 7, 0)]), [4, 4, 4, 1, 0, 0]);
        // None is longer than `num_speculative_tokens`.
        assert_eq!(of(&[(1, 3, 9), (4, 4, 2)]), [5, 5, 5, 2, 2, 2]);
    }

    #[test]
    fn ranges_that_overlap_or_leave_the_first_out_are_named() {
        let refused = |ranges: &[(u32, u32, u32)]| with_ranges(ranges).unwrap_err();
        let field = "speculative_config.num_speculative_tokens_per_batch_size";
        let rule = "its ranges of running requests must ascend without overlaps, the first from 1 on; this one \
                    must begin";
        let end = "and end where it begins or later";
        assert_eq!(
            refused(&[(2, 3, 1)]),
            format!("{field} is [2, 3, 1]: {rule} at 1 {end}")
        );
        assert_eq!(
            refused(&[(1, 3, 1), (3, 4, 1)]),
            format!("{field} is [3, 4, 1]: {rule} from 4 {end}")
        );
        assert_eq!(
            refused(&[(1, 3, 1), (5, 4, 1)]),
            format!("{field} is [5, 4, 1]: {rule} from 4 {end}")
        );
        assert!(refused(&[(0, 3, 1)]).contains("[0, 3, 1]"));
    }
}
