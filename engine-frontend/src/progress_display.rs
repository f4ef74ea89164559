//! How far a download or a load is: a bar at a terminal, a line every few seconds elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use logging::Pace;
use protocol::LoadProgress;

/// Time between two lines where there is no terminal.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Shows how many bytes are done. A bar goes when this is dropped.
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    /// "loading the model", or more.
    what: String,
    is_terminal: bool,
    bar: Option<ProgressBar>,
    pace: Pace,
}

impl ProgressDisplay {
    /// A display of `what`, which begins now.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        let mut display = Self::without_terminal(what, Instant::now());
        display.is_terminal = io::stderr().is_terminal();
        display
    }

    /// A display of a load that begins now. `quantizes` says that weights are converted as they are read,
    /// which takes most of the time.
    pub(crate) fn of_a_load(quantizes: bool) -> Self {
        Self::new(load_text(quantizes))
    }

    fn without_terminal(what: impl Into<String>, now: Instant) -> Self {
        Self {
            what: what.into(),
            is_terminal: false,
            bar: None,
            pace: Pace::new(LOG_INTERVAL, now),
        }
    }

    /// So many bytes are done. `total_bytes` may grow from call to call.
    pub(crate) fn update(&mut self, done_bytes: u64, total_bytes: u64) {
        if !self.is_terminal {
            if let Some(line) = self.line(done_bytes, total_bytes, Instant::now()) {
                tracing::info!("{line}");
            }
            return;
        }
        let what = &self.what;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(total_bytes).with_message(what.clone());
            let template = "{msg} {bar:30} {bytes}/{total_bytes} [{elapsed} < {eta}]";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        bar.set_length(total_bytes);
        bar.set_position(done_bytes);
    }

    /// The core is this far. The bar goes when all is loaded.
    pub(crate) fn update_load(&mut self, loaded: &LoadProgress) {
        self.update(loaded.done_bytes, loaded.total_bytes);
        if loaded.done_bytes >= loaded.total_bytes {
            self.finish();
        }
    }

    /// Takes the bar away.
    fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// The line that is due at `now`.
    fn line(&mut self, done: u64, total: u64, now: Instant) -> Option<String> {
        let percent = match total {
            0 => 100,
            total => u128::from(done) * 100 / u128::from(total),
        };
        self.pace.take_turn(now).then(|| {
            let (done, total) = (HumanBytes(done), HumanBytes(total));
            format!("{}: {done} of {total} ({percent}%)", self.what)
        })
    }
}

fn load_text(quantizes: bool) -> &'static str {
    match quantizes {
        true => "loading and quantizing the model",
        false => "loading the model",
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_a_line_every_five_seconds() {
        let start = Instant::now();
        for what in [load_text(false), load_text(true), "downloading org/name"] {
            let mut display = ProgressDisplay::without_terminal(what, start);
            let mut line = |seconds, done: u64| {
                let now = start + Duration::from_secs(seconds);
                display.line(done << 20, 1000 << 20, now)
            };
            assert_eq!(line(4, 100), None);
            assert_eq!(
                line(5, 125),
                Some(format!("{what}: 125.00 MiB of 1000.00 MiB (12%)"))
            );
            assert_eq!(line(9, 400), None);
            assert_eq!(
                line(11, 1000),
                Some(format!("{what}: 1000.00 MiB of 1000.00 MiB (100%)"))
            );
        }
        let mut display = ProgressDisplay::without_terminal(load_text(false), start);
        let line = display.line(0, 0, start + LOG_INTERVAL);
        assert_eq!(
            line.as_deref(),
            Some("loading the model: 0 B of 0 B (100%)")
        );
        let small = display.line(2500, 40_000, start + 2 * LOG_INTERVAL);
        assert_eq!(
            small.as_deref(),
            Some("loading the model: 2.44 KiB of 39.06 KiB (6%)")
        );
    }
}
