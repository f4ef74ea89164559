//! A line of statistics in the log every few seconds.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::SchedulerStats;

use super::caching::CachingMetrics;
use super::{IterationStats, StatLogger};

/// Shortest time that a rate is computed over: a first step may end within a clock's tick.
const MIN_SECONDS: f64 = 1e-3;

/// Logs throughput, queue and cache use, each time it is told to, while there is something to say.
#[derive(Debug)]
pub struct LoggingStatLogger(Mutex<Interval>);

/// The time since the last line.
///
/// Rates are averages over the time since the last line that counted a step, as in vLLM. A step may take longer
/// than the time between two lines: its tokens count at its end, over all of that time.
#[derive(Debug)]
struct Interval {
    /// When the last line was written that counted a step; the last tick while the engine was idle.
    begin: Instant,
    /// End of the last step, or the arrival of the first request since the engine was idle. `None` while
    /// it is idle.
    since: Option<Instant>,
    /// True if a step has ended that no line has counted yet.
    has_stepped: bool,
    num_prompt_tokens: u64,
    num_generation_tokens: u64,
    /// Of each engine core, by its number.
    engines: Vec<Gauges>,
    prefix_cache: CachingMetrics,
}

/// What has a present value, as an engine core reported it last.
#[derive(Debug, Clone, Copy, Default)]
struct Gauges {
    num_running_reqs: u32,
    num_waiting_reqs: u32,
    /// Grammars that are compiled, or wait for it.
    num_queued_grammars: u32,
    kv_cache_usage: f64,
}

impl Interval {
    fn new(now: Instant, num_engines: usize) -> Self {
        Self {
            begin: now,
            since: None,
            has_stepped: false,
            num_prompt_tokens: 0,
            num_generation_tokens: 0,
            engines: vec![Gauges::default(); num_engines.max(1)],
            prefix_cache: CachingMetrics::default(),
        }
    }

    fn request_arrived(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    fn step_ended(
        &mut self,
        now: Instant,
        engine_index: u32,
        scheduler: Option<&SchedulerStats>,
        iteration: &IterationStats,
    ) {
        self.num_generation_tokens += iteration.num_generation_tokens;
        let has_scheduled = scheduler.is_some_and(|stats| stats.num_scheduled_tokens > 0);
        // Of a core with several frontends, one gets the scheduler's report.
        if has_scheduled || iteration.num_generation_tokens > 0 {
            self.since = Some(now);
            self.has_stepped = true;
        }
        let Some(scheduler) = scheduler else { return };
        self.num_prompt_tokens += u64::from(scheduler.num_prompt_tokens);
        self.prefix_cache.observe(scheduler.prefix_cache_stats);
        let Some(engine) = self.engines.get_mut(engine_index as usize) else {
            return;
        };
        engine.num_running_reqs = scheduler.num_running_reqs;
        engine.num_waiting_reqs = scheduler.num_waiting_reqs;
        if let Some(stats) = &scheduler.structured_output_stats {
            engine.num_queued_grammars = stats.num_queued_grammars;
        }
        engine.kv_cache_usage = scheduler.kv_cache_usage;
    }

    /// The line, and the next interval's begin. `None` where nothing happened: the engine is idle.
    fn take_line(&mut self, now: Instant, num_unfinished: usize) -> Option<String> {
        let has_stepped = std::mem::take(&mut self.has_stepped);
        let Some(since) = self.since else {
            self.begin = now;
            return None;
        };
        let is_idle = num_unfinished == 0;
        let engines = match self.engines.len() {
            1 => "Engine 000".to_owned(),
            count => format!("{count} Engines Aggregated"),
        };
        let num_queued_grammars: u32 = self.engines.iter().map(|e| e.num_queued_grammars).sum();
        let grammars = match num_queued_grammars {
            0 => String::new(),
            queued => format!(", Compiling: {queued} grammars"),
        };
        if is_idle {
            self.since = None;
            // An abort isn't followed by a step that would report it.
            for engine in &mut self.engines {
                (engine.num_running_reqs, engine.num_waiting_reqs) = (0, 0);
                engine.kv_cache_usage = 0.0;
            }
        }
        if !has_stepped && !is_idle {
            let seconds = now.saturating_duration_since(since).as_secs_f64();
            // The first tick of a server comes as it begins.
            return (seconds >= 1.0).then(|| {
                format!(
                    "{engines}: no step has ended for {seconds:.1} s (a long prefill takes long \
                     steps), Unfinished: {num_unfinished} reqs{grammars}"
                )
            });
        }
        let elapsed: Duration = now.saturating_duration_since(self.begin);
        self.begin = now;
        if !has_stepped {
            return None;
        }
        let seconds = elapsed.as_secs_f64().max(MIN_SECONDS);
        #[allow(clippy::cast_precision_loss, reason = "at most 1024")]
        let usage = {
            let sum: f64 = self.engines.iter().map(|e| e.kv_cache_usage).sum();
            sum / self.engines.len() as f64
        };
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 in one interval")]
        let rate = |tokens: &mut u64| std::mem::take(tokens) as f64 / seconds;
        Some(format!(
            "{engines}: Avg prompt throughput: {:.1} tokens/s, Avg generation throughput: {:.1} \
             tokens/s, Running: {} reqs, Waiting: {} reqs, KV cache usage: {:.1}%, Prefix cache \
             hit rate: {:.1}%{grammars}",
            rate(&mut self.num_prompt_tokens),
            rate(&mut self.num_generation_tokens),
            self.engines.iter().map(|e| e.num_running_reqs).sum::<u32>(),
            self.engines.iter().map(|e| e.num_waiting_reqs).sum::<u32>(),
            100.0 * usage,
            self.prefix_cache.hit_percent(),
        ))
    }
}

impl LoggingStatLogger {
    /// A logger of so many engine cores that are idle.
    pub fn new(num_engines: usize) -> Self {
        Self(Mutex::new(Interval::new(Instant::now(), num_engines)))
    }

    fn interval(&self) -> MutexGuard<'_, Interval> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatLogger for LoggingStatLogger {
    fn record(
        &self,
        engine_index: u32,
        scheduler: Option<&SchedulerStats>,
        iteration: &IterationStats,
    ) {
        let now = Instant::now();
        self.interval()
            .step_ended(now, engine_index, scheduler, iteration);
    }

    fn record_arrival(&self) {
        self.interval().request_arrived(Instant::now());
    }

    fn log(&self, num_unfinished: usize) {
        let line = self.interval().take_line(Instant::now(), num_unfinished);
        if let Some(line) = line {
            tracing::info!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::StructuredOutputStats;

    use super::*;

    /// An interval on a clock that a test sets, in seconds.
    struct Clock {
        zero: Instant,
        interval: Interval,
    }

    impl Clock {
        fn start() -> Self {
            let zero = Instant::now();
            let interval = Interval::new(zero, 1);
            Self { zero, interval }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.zero + Duration::from_secs(seconds)
        }

        fn arrival(&mut self, seconds: u64) {
            self.interval.request_arrived(self.at(seconds));
        }

        /// A step that computed tokens of prompts and generated others.
        fn step(&mut self, seconds: u64, prompt: u32, generated: u64) {
            let scheduler = SchedulerStats {
                num_scheduled_tokens: prompt + 1,
                num_prompt_tokens: prompt,
                num_running_reqs: 1,
                num_waiting_reqs: 2,
                kv_cache_usage: 0.25,
                ..SchedulerStats::default()
            };
            let iteration = IterationStats {
                num_generation_tokens: generated,
                // Those of a whole prompt, at its first token.
                num_prompt_tokens: 100_000,
                ..IterationStats::default()
            };
            let now = self.at(seconds);
            self.interval
                .step_ended(now, 0, Some(&scheduler), &iteration);
        }

        fn line(&mut self, seconds: u64, num_unfinished: usize) -> Option<String> {
            self.interval.take_line(self.at(seconds), num_unfinished)
        }
    }

    fn line(prompt: &str, generated: &str) -> Option<String> {
        Some(format!(
            "Engine 000: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: \
             {generated} tokens/s, Running: 1 reqs, Waiting: 2 reqs, KV cache usage: 25.0%, Prefix \
             cache hit rate: 0.0%"
        ))
    }

    #[test]
    fn a_long_prefill_counts_as_it_is_computed() {
        let mut clock = Clock::start();
        clock.arrival(1);
        assert_eq!(clock.line(1, 1), None, "it has only begun");
        clock.step(5, 400, 0);
        clock.step(9, 400, 0);
        assert_eq!(clock.line(10, 1), line("80.0", "0.0"));
        // A step that is longer than the time between two lines.
        let silent = "Engine 000: no step has ended for 11.0 s (a long prefill takes long steps), \
                      Unfinished: 1 reqs";
        assert_eq!(clock.line(20, 1).as_deref(), Some(silent));
        clock.step(29, 2000, 2);
        assert_eq!(clock.line(30, 1), line("100.0", "0.1"));
        clock.step(34, 0, 10);
        assert_eq!(clock.line(40, 1), line("0.0", "1.0"));
    }

    #[test]
    fn an_idle_engine_says_nothing_and_its_time_counts_for_nothing() {
        let mut clock = Clock::start();
        assert_eq!(clock.line(10, 0), None);
        assert_eq!(clock.line(3600, 0), None);
        clock.arrival(3604);
        clock.step(3604, 50, 1);
        clock.step(3605, 0, 49);
        let last = clock.line(3610, 0).unwrap();
        assert!(
            last.contains("prompt throughput: 5.0 tokens/s, Avg generation throughput: 5.0 ")
                && last.contains("Running: 0 reqs, Waiting: 0 reqs, KV cache usage: 0.0%"),
            "{last}"
        );
        assert_eq!(clock.line(3620, 0), None);
        // Another one that is aborted before a step ended.
        clock.arrival(3621);
        assert_eq!(clock.line(3630, 0), None);
        clock.arrival(3632);
        clock.step(3634, 20, 0);
        assert_eq!(clock.line(3640, 1), line("2.0", "0.0"));
    }

    #[test]
    fn a_report_between_steps_is_no_step() {
        let mut clock = Clock::start();
        clock.arrival(0);
        let report = SchedulerStats {
            structured_output_stats: Some(StructuredOutputStats {
                num_queued_grammars: 2,
                ..StructuredOutputStats::default()
            }),
            ..SchedulerStats::default()
        };
        let now = clock.at(2);
        clock
            .interval
            .step_ended(now, 0, Some(&report), &IterationStats::default());
        let line = clock.line(10, 1).unwrap();
        assert!(line.contains("no step has ended for 10.0 s"), "{line}");
        assert!(
            line.ends_with("Unfinished: 1 reqs, Compiling: 2 grammars"),
            "{line}"
        );
    }

    #[test]
    fn of_several_engine_cores_there_is_one_line() {
        let zero = Instant::now();
        let mut interval = Interval::new(zero, 2);
        let report = |num_running_reqs, kv_cache_usage| SchedulerStats {
            num_scheduled_tokens: 1,
            num_running_reqs,
            num_waiting_reqs: 1,
            kv_cache_usage,
            ..SchedulerStats::default()
        };
        let iteration = IterationStats {
            num_generation_tokens: 10,
            ..IterationStats::default()
        };
        interval.request_arrived(zero);
        for (engine_index, report) in [
            (0, report(9, 0.9)),
            (0, report(3, 0.5)),
            (1, report(4, 0.25)),
        ] {
            interval.step_ended(zero, engine_index, Some(&report), &iteration);
        }
        let line = interval
            .take_line(zero + Duration::from_secs(10), 9)
            .unwrap();
        assert_eq!(
            line,
            "2 Engines Aggregated: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 3.0 tokens/s, \
             Running: 7 reqs, Waiting: 2 reqs, KV cache usage: 37.5%, Prefix cache hit rate: 0.0%"
        );
    }
}
