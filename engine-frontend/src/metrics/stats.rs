//! Statistics of requests and steps, in vLLM's words.

use std::sync::Arc;
use std::time::Instant;

use protocol::{EngineCoreEventType, EngineCoreOutput, EngineCoreRequest, FinishReason};

use super::traced_request::TracedRequest;

/// The times of one request in flight. Engine times are seconds of the core's clock.
#[derive(Debug, Clone)]
pub struct RequestStateStats {
    arrival: Instant,
    time_to_first_token: Option<f64>,
    queued_ts: Option<f64>,
    scheduled_ts: Option<f64>,
    first_token_ts: Option<f64>,
    last_token_ts: f64,
    num_prompt_tokens: u32,
    num_generation_tokens: u32,
    num_cached_tokens: u32,
    num_preemptions: u32,
    is_corrupted: bool,
    max_tokens: Option<u32>,
    n: u32,
    traced: Arc<TracedRequest>,
}

impl RequestStateStats {
    /// A request that came at `arrival`. `n` is what its caller asked for, of which this is one.
    pub fn new(request: &EngineCoreRequest, n: u32, arrival: Instant) -> Self {
        Self {
            arrival,
            time_to_first_token: None,
            queued_ts: None,
            scheduled_ts: None,
            first_token_ts: None,
            last_token_ts: 0.0,
            num_prompt_tokens: length(request.prompt_token_ids.len()),
            num_generation_tokens: length(request.output_token_ids.len()),
            num_cached_tokens: 0,
            num_preemptions: 0,
            is_corrupted: false,
            max_tokens: request.sampling_params.max_tokens,
            n,
            traced: Arc::new(TracedRequest::new(request)),
        }
    }

    /// Notes an output whose logits held NaNs: the request counts once.
    pub fn note_nans(&mut self, output: &EngineCoreOutput, iteration: &mut IterationStats) {
        if output.num_nans_in_logits > 0 && !std::mem::replace(&mut self.is_corrupted, true) {
            iteration.num_corrupted_reqs += 1;
        }
    }

    /// Takes what a step at `timestamp` brought for the request.
    pub fn update(
        &mut self,
        output: &EngineCoreOutput,
        timestamp: f64,
        iteration: &mut IterationStats,
    ) {
        for event in &output.events {
            match event.event_type {
                EngineCoreEventType::Queued => {
                    self.queued_ts.get_or_insert(event.timestamp);
                }
                // A preempted request is scheduled again: its first time counts.
                EngineCoreEventType::Scheduled => {
                    self.scheduled_ts.get_or_insert(event.timestamp);
                }
                EngineCoreEventType::Preempted => {
                    self.num_preemptions += 1;
                    iteration.num_preempted_reqs += 1;
                }
                EngineCoreEventType::Admitted => {}
            }
        }
        if let Some(prefill) = &output.prefill_stats {
            self.num_cached_tokens = prefill.num_cached_tokens;
        }
        let new_tokens = length(output.new_token_ids.len());
        if !output.scores.is_empty() {
            self.prompt_computed(timestamp, iteration);
            self.last_token_ts = timestamp;
        }
        if new_tokens == 0 {
            return;
        }
        iteration.num_generation_tokens += u64::from(new_tokens);
        self.num_generation_tokens += new_tokens;
        if self.first_token_ts.is_none() {
            self.prompt_computed(timestamp, iteration);
            let waited = self.arrival.elapsed().as_secs_f64();
            self.time_to_first_token = Some(waited);
            iteration.time_to_first_tokens.push(waited);
        } else {
            let latency = later_by(timestamp, self.last_token_ts);
            iteration.inter_token_latencies.push(latency);
        }
        self.last_token_ts = timestamp;
    }

    /// Counts the prompt, whose last step was at `timestamp`.
    fn prompt_computed(&mut self, timestamp: f64, iteration: &mut IterationStats) {
        self.first_token_ts = Some(timestamp);
        iteration.num_prompt_tokens += u64::from(self.num_prompt_tokens);
        iteration.num_cached_tokens += u64::from(self.num_cached_tokens);
    }

    /// What there is to say of a request that is over.
    pub fn finish(&self, finish_reason: FinishReason) -> FinishedRequestStats {
        let first_token = self.first_token_ts.unwrap_or(self.last_token_ts);
        let scheduled = self.scheduled_ts.unwrap_or(first_token);
        let queued = self.queued_ts.unwrap_or(scheduled);
        let decode_time = later_by(self.last_token_ts, first_token);
        let later_tokens = self.num_generation_tokens.saturating_sub(1);
        FinishedRequestStats {
            finish_reason,
            time_to_first_token: self.time_to_first_token,
            e2e_latency: self.arrival.elapsed().as_secs_f64(),
            queued_time: later_by(scheduled, queued),
            prefill_time: later_by(first_token, scheduled),
            inference_time: later_by(self.last_token_ts, scheduled),
            decode_time,
            mean_time_per_output_token: match later_tokens {
                0 => 0.0,
                tokens => decode_time / f64::from(tokens),
            },
            num_prompt_tokens: self.num_prompt_tokens,
            num_generation_tokens: self.num_generation_tokens,
            num_cached_tokens: self.num_cached_tokens,
            num_preemptions: self.num_preemptions,
            max_num_generation_tokens: (self.n <= 1).then_some(self.num_generation_tokens),
            max_tokens: self.max_tokens,
            n: self.n,
            traced: Arc::clone(&self.traced),
        }
    }
}

/// How much later, in seconds; nothing where the core in between was another, with another clock.
fn later_by(later: f64, earlier: f64) -> f64 {
    (later - earlier).max(0.0)
}

fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// How constrained answers ended, as their callers got them: the core sees no stop strings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StructuredEnds {
    /// With a whole text.
    pub num_completed: u64,
    /// At a limit or by a stop string, with a text that isn't whole.
    pub num_truncated: u64,
}

impl StructuredEnds {
    /// Counts an answer that is over; `is_complete` is whether its text is whole, under a constraint.
    pub fn count(&mut self, is_complete: Option<bool>, finish_reason: FinishReason) {
        match (is_complete, finish_reason) {
            (_, FinishReason::Abort | FinishReason::Error) | (None, _) => {}
            (Some(true), _) => self.num_completed += 1,
            (Some(false), _) => self.num_truncated += 1,
        }
    }
}

/// One step, as far as this frontend saw it. Times are in seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IterationStats {
    /// Tokens generated.
    pub num_generation_tokens: u64,
    /// Tokens of the prompts whose first token, or scores, came.
    pub num_prompt_tokens: u64,
    /// Of these, tokens from the prefix cache.
    pub num_cached_tokens: u64,
    /// Requests that lost their blocks to others.
    pub num_preempted_reqs: u64,
    /// Requests in whose logits a NaN was met for the first time.
    pub num_corrupted_reqs: u64,
    /// From arrival to the first token, for each request whose first token came.
    pub time_to_first_tokens: Vec<f64>,
    /// Since the token before, for each other request that got a token.
    pub inter_token_latencies: Vec<f64>,
    /// Requests that are over.
    pub finished_requests: Vec<FinishedRequestStats>,
}

/// A request that is over. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedRequestStats {
    /// Why.
    pub finish_reason: FinishReason,
    /// From arrival to the first token, if there was one.
    pub time_to_first_token: Option<f64>,
    /// From arrival to the end.
    pub e2e_latency: f64,
    /// From the queue to the first step.
    pub queued_time: f64,
    /// From the first step to the first token.
    pub prefill_time: f64,
    /// From the first step to the last token.
    pub inference_time: f64,
    /// From the first token to the last.
    pub decode_time: f64,
    /// The same per token.
    pub mean_time_per_output_token: f64,
    /// Tokens of the prompt.
    pub num_prompt_tokens: u32,
    /// Tokens generated.
    pub num_generation_tokens: u32,
    /// Tokens of the prompt that came from the prefix cache.
    pub num_cached_tokens: u32,
    /// How often it lost its blocks to others.
    pub num_preemptions: u32,
    /// Tokens of the longest of `n` answers, with the last of them to end.
    pub max_num_generation_tokens: Option<u32>,
    /// The request's `max_tokens`.
    pub max_tokens: Option<u32>,
    /// The request's `n`.
    pub n: u32,
    /// What a trace says besides.
    pub traced: Arc<TracedRequest>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::{EngineCoreEvent, PrefillStats};

    use super::*;

    fn tokens(count: usize, events: &[(EngineCoreEventType, f64)]) -> EngineCoreOutput {
        EngineCoreOutput {
            new_token_ids: vec![1; count],
            events: events
                .iter()
                .map(|&(event_type, timestamp)| EngineCoreEvent {
                    event_type,
                    timestamp,
                })
                .collect(),
            ..EngineCoreOutput::default()
        }
    }

    #[test]
    fn times_are_differences_of_the_cores_clock() {
        let request = EngineCoreRequest {
            prompt_token_ids: vec![1; 7].into(),
            ..EngineCoreRequest::default()
        };
        let mut stats = RequestStateStats::new(&request, 2, Instant::now());
        let mut iteration = IterationStats::default();
        let queued = (EngineCoreEventType::Queued, 10.0);
        let scheduled = (EngineCoreEventType::Scheduled, 10.5);
        let mut first = tokens(1, &[queued, scheduled]);
        first.prefill_stats = Some(PrefillStats {
            num_prompt_tokens: 7,
            num_cached_tokens: 4,
        });
        stats.update(&first, 11.0, &mut iteration);
        stats.update(&tokens(0, &[]), 11.5, &mut iteration);
        let preempted = (EngineCoreEventType::Preempted, 11.7);
        stats.update(&tokens(1, &[preempted]), 12.0, &mut iteration);
        // A core that was started again has another clock.
        stats.update(&tokens(1, &[]), 3.0, &mut iteration);
        stats.update(&tokens(1, &[]), 14.0, &mut iteration);
        assert_eq!(iteration.num_prompt_tokens, 7);
        assert_eq!(iteration.num_cached_tokens, 4);
        assert_eq!(iteration.num_generation_tokens, 4);
        assert_eq!(iteration.time_to_first_tokens.len(), 1);
        assert_eq!(iteration.inter_token_latencies, [1.0, 0.0, 11.0]);
        let finished = stats.finish(FinishReason::Stop);
        assert_eq!(finished.queued_time, 0.5);
        assert_eq!(finished.prefill_time, 0.5);
        assert_eq!(finished.decode_time, 3.0);
        assert_eq!(finished.inference_time, 3.5);
        assert_eq!(finished.mean_time_per_output_token, 1.0);
        assert_eq!((finished.num_generation_tokens, finished.n), (4, 2));
        assert_eq!(finished.num_preemptions, 1);
        assert_eq!(iteration.num_preempted_reqs, 1);
        // Its sibling may have a longer answer.
        assert_eq!(finished.max_num_generation_tokens, None);
    }

    #[test]
    fn a_caller_waits_from_the_arrival_on() {
        let arrival = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let mut stats = RequestStateStats::new(&EngineCoreRequest::default(), 1, arrival);
        let mut iteration = IterationStats::default();
        stats.update(&tokens(1, &[]), 1.0, &mut iteration);
        assert!(iteration.time_to_first_tokens[0] >= 10.0);
        assert!(stats.finish(FinishReason::Stop).e2e_latency >= 10.0);
    }

    #[test]
    fn a_request_without_a_token_took_no_engine_time() {
        let stats = RequestStateStats::new(&EngineCoreRequest::default(), 1, Instant::now());
        let finished = stats.finish(FinishReason::Abort);
        assert_eq!(finished.inference_time, 0.0);
        assert_eq!(finished.mean_time_per_output_token, 0.0);
    }
}
