//! How far the model is loaded: a bar at a terminal, a line every few seconds elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use logging::Pace;
use protocol::LoadProgress;

/// Time between two lines where there is no terminal.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Shows how far a core is. A bar goes when this is dropped.
#[derive(Debug)]
pub(crate) struct LoadProgressDisplay {
    /// "loading the model", or more.
    what: &'static str,
    is_terminal: bool,
    bar: Option<ProgressBar>,
    pace: Pace,
}

impl LoadProgressDisplay {
    /// A display of a load that begins now. `quantizes` says that weights are converted as they are read,
    /// which takes most of the time.
    pub(crate) fn new(quantizes: bool) -> Self {
        let mut display = Self::without_terminal(quantizes, Instant::now());
        display.is_terminal = io::stderr().is_terminal();
        display
    }

    fn without_terminal(quantizes: bool, now: Instant) -> Self {
        Self {
            what: match quantizes {
                true => "loading and quantizing the model",
                false => "loading the model",
            },
            is_terminal: false,
            bar: None,
            pace: Pace::new(LOG_INTERVAL, now),
        }
    }

    /// The core is this far.
    pub(crate) fn update(&mut self, loaded: &LoadProgress) {
        if !self.is_terminal {
            if let Some(line) = self.line(loaded, Instant::now()) {
                tracing::info!("{line}");
            }
            return;
        }
        let what = self.what;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(loaded.total_bytes);
            let template =
                format!("{what} {{bar:30}} {{bytes}}/{{total_bytes}} [{{elapsed}} < {{eta}}]");
            if let Ok(style) = ProgressStyle::with_template(&template) {
                bar.set_style(style);
            }
            bar
        });
        bar.set_position(loaded.done_bytes);
        if loaded.done_bytes >= loaded.total_bytes {
            bar.finish_and_clear();
        }
    }

    /// The line that is due at `now`.
    fn line(&mut self, loaded: &LoadProgress, now: Instant) -> Option<String> {
        let (done, total) = (loaded.done_bytes, loaded.total_bytes);
        let percent = match total {
            0 => 100,
            total => u128::from(done) * 100 / u128::from(total),
        };
        self.pace.take_turn(now).then(|| {
            let (done, total) = (done >> 20, total >> 20);
            format!("{}: {done} of {total} MiB ({percent}%)", self.what)
        })
    }
}

impl Drop for LoadProgressDisplay {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_a_line_every_five_seconds() {
        let start = Instant::now();
        let loaded = |done_mib: u64| LoadProgress {
            done_bytes: done_mib << 20,
            total_bytes: 1000 << 20,
        };
        for (quantizes, what) in [
            (false, "loading the model"),
            (true, "loading and quantizing the model"),
        ] {
            let mut display = LoadProgressDisplay::without_terminal(quantizes, start);
            let mut line = |seconds, done| {
                let now = start + Duration::from_secs(seconds);
                display.line(&loaded(done), now)
            };
            assert_eq!(line(4, 100), None);
            assert_eq!(line(5, 125), Some(format!("{what}: 125 of 1000 MiB (12%)")));
            assert_eq!(line(9, 400), None);
            assert_eq!(
                line(11, 1000),
                Some(format!("{what}: 1000 of 1000 MiB (100%)"))
            );
        }
        let nothing = LoadProgress {
            done_bytes: 0,
            total_bytes: 0,
        };
        let mut display = LoadProgressDisplay::without_terminal(false, start);
        let later = start + LOG_INTERVAL;
        let line = display.line(&nothing, later);
        assert_eq!(
            line.as_deref(),
            Some("loading the model: 0 of 0 MiB (100%)")
        );
    }
}
