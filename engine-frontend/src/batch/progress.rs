//! How far a batch is: a bar at a terminal, a line now and then elsewhere.

use std::fmt;
use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use logging::Pace;

use super::custom_ids::CustomIds;
use super::resume::{Failures, ResumePoint};
use super::runner::LineResult;
use crate::terminal_text::for_terminal;

/// Time between two lines where there is no terminal.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What the engine says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineProgress {
    /// Tokens since the start.
    pub num_generation_tokens: u64,
    /// Grammars that are compiled now, or wait for it.
    pub num_queued_grammars: u32,
}

/// Counts lines and shows them on standard error.
pub struct Progress {
    bar: Option<ProgressBar>,
    engine: Box<dyn Fn() -> EngineProgress + Send>,
    /// Lines of the input, once they are counted.
    total: Arc<OnceLock<u64>>,
    is_hidden: bool,
    started: Instant,
    pace: Pace,
    written: u64,
    resumed: u64,
    failures: Failures,
    custom_ids: CustomIds,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("written", &self.written)
            .field("failed", &self.failed())
            .finish_non_exhaustive()
    }
}

impl Progress {
    /// Starts where a former run ended, in an input of `total_bytes` (unknown for a pipe).
    pub fn new(
        total_bytes: Option<u64>,
        former: &ResumePoint,
        engine: impl Fn() -> EngineProgress + Send + 'static,
    ) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let (bar, template) = match total_bytes {
                Some(total) => (
                    ProgressBar::new(total),
                    "{bar:30} {percent:>3}% {msg} [{elapsed} < {eta}]",
                ),
                None => (ProgressBar::new_spinner(), "{spinner} {msg} [{elapsed}]"),
            };
            bar.set_draw_target(ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_position(former.input_offset);
            bar.reset_eta();
            bar
        });
        let now = Instant::now();
        Self {
            bar,
            engine: Box::new(engine),
            total: Arc::default(),
            is_hidden: false,
            started: now,
            pace: Pace::new(LOG_INTERVAL, now),
            written: former.done,
            resumed: former.done,
            failures: former.failures.clone(),
            custom_ids: former.custom_ids.clone(),
        }
    }

    /// The same, of an input of so many lines, which may be counted later.
    #[must_use]
    pub fn with_total(mut self, total: Arc<OnceLock<u64>>) -> Self {
        self.total = total;
        self
    }

    /// The same, which says nothing before the end.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.is_hidden = true;
        self
    }

    /// Lines in the output, those of former runs included.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Lines in the output that hold an error, those of former runs included.
    pub fn failed(&self) -> u64 {
        self.failures.count
    }

    /// A line was written; the input is answered up to `end_offset`.
    pub fn line_written(&mut self, end_offset: u64, result: LineResult) {
        self.written += 1;
        if let Some(error) = result.error {
            self.failures.add(&error);
        }
        if let Some(custom_id) = result.custom_id {
            self.custom_ids.add(&custom_id);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(end_offset);
        }
    }

    /// Time passed.
    pub fn tick(&mut self) {
        let now = Instant::now();
        match &self.bar {
            _ if self.is_hidden => {}
            Some(bar) => bar.set_message(self.state(now, false)),
            None if self.pace.take_turn(now) => tracing::info!("{}", self.state(now, true)),
            None => {}
        }
    }

    /// How far the batch is, and the time that it still takes where `with_eta`: a bar shows its own.
    fn state(&self, now: Instant, with_eta: bool) -> String {
        let engine = (self.engine)();
        let tokens = engine.num_generation_tokens;
        let elapsed = now.saturating_duration_since(self.started);
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let rate = tokens as f64 / elapsed.as_secs_f64().max(0.001);
        let (written, failed) = (self.written, self.failures.count);
        let grammars = match engine.num_queued_grammars {
            0 => String::new(),
            queued => format!(", compiling {}", count(queued.into(), "grammar")),
        };
        let Some(total) = self.total.get().map(|total| (*total).max(written)) else {
            return format!(
                "{}, {failed} failed, {rate:.1} tokens/s{grammars}",
                count(written, "line")
            );
        };
        let state = format!(
            "{written} of {}, {failed} failed, {rate:.1} tokens/s{grammars}",
            count(total, "line")
        );
        match (with_eta, u32::try_from(written - self.resumed)) {
            (true, Ok(done @ 1..)) => {
                #[allow(clippy::cast_precision_loss, reason = "for people")]
                let left = (total - written) as f64 * (elapsed / done).as_secs_f64();
                let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
                format!("{state}, about {} left", HumanDuration(left))
            }
            _ => state,
        }
    }

    /// The user wants an end; `running` requests are finished first.
    pub fn stopping(&self, running: usize) {
        self.print(&format!(
            "stopping: finishing {} in flight (once more to stop at once)",
            count(running as u64, "request")
        ));
    }

    /// The end: removes the bar and says what was done.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.print(&self.summary());
        let problems = [self.failures(), self.custom_ids.duplicates()];
        for problem in problems.iter().flatten() {
            self.print(problem);
        }
    }

    /// What a person should know who doesn't read every answer.
    fn failures(&self) -> Option<String> {
        let lines = count(self.written, "line");
        let Failures {
            count: failed,
            first,
        } = &self.failures;
        let first = for_terminal(first.as_ref()?);
        let which = if *failed == 1 { "" } else { "; the first" };
        Some(format!("{failed} of {lines} failed{which}: {first}"))
    }

    fn print(&self, message: &str) {
        match &self.bar {
            Some(bar) if !bar.is_finished() => bar.println(message),
            _ => eprintln!("{message}"),
        }
    }

    fn summary(&self) -> String {
        let tokens = (self.engine)().num_generation_tokens;
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let rate = tokens as f64 / seconds;
        let resumed = match self.resumed {
            0 => String::new(),
            resumed => format!(" ({resumed} from before)"),
        };
        format!(
            "{}{resumed}, {}, {}, {rate:.1} tokens/s",
            count(self.written, "line"),
            count(self.failures.count, "error"),
            count(tokens, "token")
        )
    }
}

/// "1 line", "2 lines".
pub(super) fn count(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(custom_id: &str, error: Option<&str>) -> LineResult {
        LineResult {
            bytes: Vec::new(),
            custom_id: Some(custom_id.to_owned()),
            error: error.map(str::to_owned),
        }
    }

    fn engine(num_generation_tokens: u64, num_queued_grammars: u32) -> EngineProgress {
        EngineProgress {
            num_generation_tokens,
            num_queued_grammars,
        }
    }

    #[test]
    fn a_line_says_how_far_it_is_and_how_long_it_takes() {
        let total = Arc::<OnceLock<u64>>::default();
        let former = ResumePoint {
            done: 10,
            ..ResumePoint::default()
        };
        let mut progress =
            Progress::new(None, &former, || engine(300, 0)).with_total(total.clone());
        for offset in 0..5 {
            let error = (offset == 3).then_some("no");
            progress.line_written(offset, line("a", error));
        }
        let now = progress.started + Duration::from_secs(20);
        assert_eq!(
            progress.state(now, true),
            "15 lines, 1 failed, 15.0 tokens/s"
        );
        total.set(100).unwrap();
        // Ten of the lines are from before: five took 20 s.
        assert_eq!(
            progress.state(now, true),
            "15 of 100 lines, 1 failed, 15.0 tokens/s, about 6 minutes left"
        );
        assert_eq!(
            progress.state(now, false),
            "15 of 100 lines, 1 failed, 15.0 tokens/s"
        );
    }

    #[test]
    fn before_the_first_line_nobody_knows_how_long_it_takes() {
        let total = Arc::new(OnceLock::from(7));
        let progress = Progress::new(None, &ResumePoint::default(), || engine(0, 1));
        let progress = progress.with_total(total);
        let now = progress.started + Duration::from_secs(10);
        assert_eq!(
            progress.state(now, true),
            "0 of 7 lines, 0 failed, 0.0 tokens/s, compiling 1 grammar"
        );
    }

    #[test]
    fn what_failed_is_told_at_the_end() {
        let former = ResumePoint {
            done: 3,
            ..ResumePoint::default()
        };
        let mut progress = Progress::new(None, &former, || engine(1, 0));
        assert!(
            progress
                .summary()
                .starts_with("3 lines (3 from before), 0 errors, 1 token, ")
        );
        progress.line_written(1, line("a", None));
        assert_eq!(progress.failures(), None);
        progress.line_written(2, line("b", Some("line 5: no")));
        assert_eq!(
            progress.failures().as_deref(),
            Some("1 of 5 lines failed: line 5: no")
        );
        progress.line_written(3, line("c", Some("line 6: no")));
        assert_eq!(
            progress.failures().as_deref(),
            Some("2 of 6 lines failed; the first: line 5: no")
        );
        assert!(
            progress
                .summary()
                .starts_with("6 lines (3 from before), 2 errors, 1 token, ")
        );
    }

    #[test]
    fn what_failed_in_former_runs_is_told_as_well() {
        let mut failures = Failures::default();
        failures.add("line 2: no");
        let former = ResumePoint {
            done: 3,
            failures,
            ..ResumePoint::default()
        };
        let progress = Progress::new(None, &former, || engine(0, 0));
        assert_eq!(progress.failed(), 1);
        assert_eq!(
            progress.failures().as_deref(),
            Some("1 of 3 lines failed: line 2: no")
        );
    }
}
