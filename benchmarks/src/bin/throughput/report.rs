//! What was measured, as tables in Markdown.

use std::fmt;
use std::time::Duration;

use benchmarks::statistics::median;

use crate::engine::DecodeTimes;

/// The figures of all rounds.
#[derive(Default)]
pub(crate) struct Report {
    /// In order of first appearance, the first being the one that others are compared with.
    engines: Vec<String>,
    cases: Vec<String>,
    rates: Vec<Rate>,
    times: Vec<(String, String, DecodeTimes)>,
    /// An engine and its peer.
    pairs: Vec<(usize, usize)>,
}

struct Rate {
    engine: usize,
    case: usize,
    tokens_per_second: f64,
}

impl Report {
    /// One round's tokens per second of an engine in a case.
    pub(crate) fn add_rate(&mut self, engine: &str, case: String, tokens_per_second: f64) {
        let rate = Rate {
            engine: index_of(&mut self.engines, engine),
            case: index_of(&mut self.cases, &case),
            tokens_per_second,
        };
        self.rates.push(rate);
    }

    /// One round's times of an engine in a case.
    pub(crate) fn add_times(&mut self, engine: &str, case: &str, times: DecodeTimes) {
        self.times.push((engine.to_owned(), case.to_owned(), times));
    }

    /// Both run the same weights in the same format: their rates are compared.
    pub(crate) fn add_pair(&mut self, engine: &str, peer: &str) {
        let pair = [engine, peer].map(|name| index_of(&mut self.engines, name));
        if !self.pairs.contains(&pair.into()) {
            self.pairs.push(pair.into());
        }
    }

    fn fmt_pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self
            .pairs
            .iter()
            .map(|(engine, peer)| format!("{} / {}", self.engines[*engine], self.engines[*peer]));
        let names = names.collect::<Vec<_>>().join(" | ");
        writeln!(f, "| ratio | {names} |")?;
        writeln!(f, "|---|{}", "---:|".repeat(self.pairs.len()))?;
        for (case, name) in self.cases.iter().enumerate() {
            write!(f, "| {name} |")?;
            for (engine, peer) in &self.pairs {
                let rounds = [*engine, *peer].map(|engine| self.rounds(engine, case));
                let ratios: Vec<f64> = std::iter::zip(&rounds[0], &rounds[1])
                    .map(|(ours, theirs)| ours / theirs)
                    .collect();
                let all: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
                match median(ratios) {
                    Some(ratio) => write!(f, " **{ratio:.2}** ({}) |", all.join(", "))?,
                    None => write!(f, " |")?,
                }
            }
            writeln!(f)?;
        }
        writeln!(f, "\nMedians over the rounds; in brackets each round's.\n")
    }

    /// An engine's tokens per second in a case, one figure per round.
    fn rounds(&self, engine: usize, case: usize) -> Vec<f64> {
        self.rates
            .iter()
            .filter(|rate| (rate.engine, rate.case) == (engine, case))
            .map(|rate| rate.tokens_per_second)
            .collect()
    }

    fn fmt_rates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| tokens/s | {} |", self.engines.join(" | "))?;
        writeln!(f, "|---|{}", "---:|".repeat(self.engines.len()))?;
        for (case, name) in self.cases.iter().enumerate() {
            write!(f, "| {name} |")?;
            let first = self.rounds(0, case);
            for engine in 0..self.engines.len() {
                let rounds = self.rounds(engine, case);
                let ratios = first
                    .iter()
                    .zip(&rounds)
                    .map(|(first, other)| first / other);
                match (median(rounds.clone()), median(ratios.collect())) {
                    (Some(rate), Some(ratio)) if engine > 0 => {
                        write!(f, " {} ({ratio:.2}x) |", tokens(rate))?;
                    }
                    (Some(rate), _) => write!(f, " {} |", tokens(rate))?,
                    _ => write!(f, " |")?,
                }
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "\nMedians over the rounds; in brackets the median over the rounds of the first \
             column's rate over this one's: above 1 the first column is faster.\n"
        )
    }

    fn fmt_times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| engine, case | step ms | layers | LM head | sampling | batch | scheduler | outside \
             the model | of it without sampling |"
        )?;
        writeln!(f, "|---|{}", "---:|".repeat(8))?;
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for (engine, case, _) in &self.times {
            if seen.contains(&(engine, case)) {
                continue;
            }
            seen.push((engine, case));
            let rounds: Vec<DecodeTimes> = self
                .times
                .iter()
                .filter(|other| (&other.0, &other.1) == (engine, case))
                .map(|(_, _, times)| *times)
                .collect();
            writeln!(f, "| {engine}, {case} {}", Shares(&rounds))?;
        }
        writeln!(
            f,
            "\nParts of a step in percent, medians over the rounds. Outside the model is all but \
             layers and LM head."
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_rates(f)?;
        if !self.pairs.is_empty() {
            self.fmt_pairs(f)?;
        }
        self.fmt_times(f)
    }
}

/// The cells of one row: the step's time, and its parts.
struct Shares<'a>(&'a [DecodeTimes]);

impl fmt::Display for Shares<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over_rounds = |value: fn(&DecodeTimes) -> f64| {
            median(self.0.iter().map(value).collect()).unwrap_or_default()
        };
        write!(f, "| {:.1} |", over_rounds(step_ms))?;
        let parts: [fn(&DecodeTimes) -> f64; 7] = [
            |times| share(times, times.forward),
            |times| share(times, times.lm_head),
            |times| share(times, times.sampling),
            |times| share(times, times.batch),
            |times| share(times, times.scheduler),
            |times| share(times, outside_the_model(times)),
            |times| {
                share(
                    times,
                    outside_the_model(times).saturating_sub(times.sampling),
                )
            },
        ];
        for part in parts {
            write!(f, " {:.2} |", over_rounds(part))?;
        }
        Ok(())
    }
}

fn step_ms(times: &DecodeTimes) -> f64 {
    times.step.as_secs_f64() * 1e3 / f64::from(times.num_steps)
}

/// All of a step but the layers and the LM head.
fn outside_the_model(times: &DecodeTimes) -> Duration {
    times.step.saturating_sub(times.forward + times.lm_head)
}

/// Percent of the step.
fn share(times: &DecodeTimes, part: Duration) -> f64 {
    100.0 * part.as_secs_f64() / times.step.as_secs_f64()
}

/// Three digits are what such a figure is good for.
fn tokens(per_second: f64) -> String {
    match per_second {
        ..10.0 => format!("{per_second:.2}"),
        ..100.0 => format!("{per_second:.1}"),
        _ => format!("{per_second:.0}"),
    }
}

/// The place of `name`, which is added where it is new.
fn index_of(names: &mut Vec<String>, name: &str) -> usize {
    names
        .iter()
        .position(|other| other == name)
        .unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_made_within_a_round() {
        let mut report = Report::default();
        for (ours, theirs) in [(100.0, 50.0), (30.0, 10.0), (80.0, 80.0)] {
            report.add_rate("ours", "decode".to_owned(), ours);
            report.add_rate("theirs", "decode".to_owned(), theirs);
        }
        // Medians 80 and 50, but the ratios are 2, 3 and 1.
        let text = report.to_string();
        assert!(text.contains("| decode | 80.0 | 50.0 (2.00x) |"), "{text}");
    }

    #[test]
    fn pairs_are_compared_round_by_round() {
        let mut report = Report::default();
        for (ours, theirs) in [(100.0, 50.0), (30.0, 10.0), (80.0, 80.0)] {
            report.add_rate("other", "decode".to_owned(), 1.0);
            report.add_rate("ours", "decode".to_owned(), ours);
            report.add_rate("theirs", "decode".to_owned(), theirs);
            report.add_pair("ours", "theirs");
        }
        let text = report.to_string();
        assert!(text.contains("| ratio | ours / theirs |"), "{text}");
        assert!(
            text.contains("| decode | **2.00** (2.00, 3.00, 1.00) |"),
            "{text}"
        );
    }

    #[test]
    fn a_case_that_an_engine_did_not_run_is_empty() {
        let mut report = Report::default();
        report.add_rate("ours", "decode".to_owned(), 1234.5);
        report.add_rate("theirs", "prefill".to_owned(), 5.0);
        let text = report.to_string();
        assert!(text.contains("| decode | 1234 | |"), "{text}");
        assert!(text.contains("| prefill | | 5.00 |"), "{text}");
    }

    #[test]
    fn outside_the_model_is_what_the_model_did_not_take() {
        let times = DecodeTimes {
            num_steps: 2,
            step: Duration::from_millis(200),
            forward: Duration::from_millis(120),
            lm_head: Duration::from_millis(70),
            sampling: Duration::from_millis(6),
            batch: Duration::from_millis(2),
            scheduler: Duration::from_millis(1),
        };
        let row = Shares(&[times]).to_string();
        assert_eq!(
            row,
            "| 100.0 | 60.00 | 35.00 | 3.00 | 1.00 | 0.50 | 5.00 | 2.00 |"
        );
    }
}
