//! How far a batch is: a bar at a terminal, a line now and then elsewhere.

use std::fmt;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two lines where there is no terminal.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts lines and shows them on standard error.
pub struct Progress {
    bar: Option<ProgressBar>,
    num_generation_tokens: Box<dyn Fn() -> u64 + Send>,
    started: Instant,
    last_log: Instant,
    written: u64,
    resumed: u64,
    failed: u64,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("written", &self.written)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Progress {
    /// Starts at `resumed` lines of a former run, which are `offset` bytes of the input's
    /// `total_bytes` (unknown for a pipe). `num_generation_tokens` counts tokens since the start.
    pub fn new(
        total_bytes: Option<u64>,
        resumed: u64,
        offset: u64,
        num_generation_tokens: impl Fn() -> u64 + Send + 'static,
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
            bar.set_position(offset);
            bar.reset_eta();
            bar
        });
        let now = Instant::now();
        Self {
            bar,
            num_generation_tokens: Box::new(num_generation_tokens),
            started: now,
            last_log: now,
            written: resumed,
            resumed,
            failed: 0,
        }
    }

    /// Lines in the output, those of former runs included.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Lines of this run that hold an error.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// A line was written; the input is answered up to `end_offset`.
    pub fn line_written(&mut self, end_offset: u64, success: bool) {
        self.written += 1;
        self.failed += u64::from(!success);
        if let Some(bar) = &self.bar {
            bar.set_position(end_offset);
        }
    }

    /// Time passed.
    pub fn tick(&mut self) {
        match &self.bar {
            Some(bar) => bar.set_message(self.summary()),
            None if self.last_log.elapsed() >= LOG_INTERVAL => {
                self.last_log = Instant::now();
                tracing::info!("{}", self.summary());
            }
            None => {}
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
        if let Some(failures) = self.failures() {
            self.print(&failures);
        }
    }

    /// What a person should know who doesn't read every answer.
    fn failures(&self) -> Option<String> {
        let lines = count(self.written - self.resumed, "line");
        (self.failed > 0).then(|| format!("{} of {lines} failed", self.failed))
    }

    fn print(&self, message: &str) {
        match &self.bar {
            Some(bar) if !bar.is_finished() => bar.println(message),
            _ => eprintln!("{message}"),
        }
    }

    fn summary(&self) -> String {
        let tokens = (self.num_generation_tokens)();
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
            count(self.failed, "error"),
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

    #[test]
    fn what_failed_in_this_run_is_told_at_the_end() {
        let mut progress = Progress::new(None, 3, 0, || 1);
        assert!(
            progress
                .summary()
                .starts_with("3 lines (3 from before), 0 errors, 1 token, ")
        );
        progress.line_written(1, true);
        assert_eq!(progress.failures(), None);
        progress.line_written(2, false);
        assert_eq!(progress.failures().as_deref(), Some("1 of 2 lines failed"));
        let mut progress = Progress::new(None, 0, 0, || 0);
        progress.line_written(1, false);
        assert_eq!(progress.failures().as_deref(), Some("1 of 1 line failed"));
        assert!(
            progress
                .summary()
                .starts_with("1 line, 1 error, 0 tokens, ")
        );
    }
}
