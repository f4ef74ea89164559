//! Engines against the machine: which share of the memory's and of the cores' speed they reach.

use std::fmt;

use benchmarks::statistics::median;

use crate::work::{Probe, Work};

/// One round of one engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) work: Work,
    pub(crate) probe: Probe,
    /// Seconds of the prefill, and its tokens.
    pub(crate) prefill: (f64, usize),
    /// Seconds of a step at batch 1, after a short prompt.
    pub(crate) step: Option<f64>,
    /// The same after a long one.
    pub(crate) step_in_context: Option<f64>,
}

impl Round {
    /// Bytes of weights a second at batch 1, over what the probe read.
    fn share_of_bandwidth(&self) -> Option<f64> {
        Some(self.work.step_bytes / self.step? / self.probe.read)
    }

    /// Operations a second in the prefill, over the probe's. Attention isn't counted.
    fn share_of_peak(&self) -> Option<f64> {
        let (seconds, tokens) = self.prefill;
        let operations = self.work.token_operations * tokens as f64 + self.work.head_operations;
        Some(operations / seconds / self.probe.multiply?)
    }

    /// What the context adds to a step.
    fn cost_of_context(&self) -> Option<f64> {
        Some(self.step_in_context? / self.step? - 1.0)
    }
}

/// The rounds of all engines.
#[derive(Debug, Default)]
pub(crate) struct MachineShares {
    rounds: Vec<(String, Round)>,
}

impl MachineShares {
    pub(crate) fn add(&mut self, engine: &str, round: Round) {
        self.rounds.push((engine.to_owned(), round));
    }
}

impl fmt::Display for MachineShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| engine | read GB/s | decode, batch 1: share of it | multiply G/s | prefill: share of \
             it | long context adds |"
        )?;
        writeln!(f, "|---|{}", "---:|".repeat(5))?;
        let mut seen: Vec<&str> = Vec::new();
        for (engine, _) in &self.rounds {
            if seen.contains(&engine.as_str()) {
                continue;
            }
            seen.push(engine);
            let cell = |scale: f64, value: fn(&Round) -> Option<f64>| {
                let own = self.rounds.iter().filter(|(other, _)| other == engine);
                let values: Vec<f64> = own.filter_map(|(_, round)| value(round)).collect();
                let all: Vec<String> = values
                    .iter()
                    .map(|value| format!("{:.0}", value * scale))
                    .collect();
                median(values).map_or_else(String::new, |middle| {
                    format!("**{:.0}** ({})", middle * scale, all.join(", "))
                })
            };
            writeln!(
                f,
                "| {engine} | {} | {} % | {} | {} % | {} % |",
                cell(1e-9, |round| Some(round.probe.read)),
                cell(100.0, Round::share_of_bandwidth),
                cell(1e-9, |round| round.probe.multiply),
                cell(100.0, Round::share_of_peak),
                cell(100.0, Round::cost_of_context),
            )?;
        }
        writeln!(
            f,
            "\nMedians over the rounds; in brackets each round's, the probes being those right before \
             it. Multiply is f32 where the processor has no instruction for bfloat16.\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_same_rounds_probe() {
        let round = |read: f64, step: f64| Round {
            work: Work {
                step_bytes: 1e9,
                token_operations: 1e9,
                head_operations: 1e9,
            },
            probe: Probe {
                read,
                multiply: Some(1e12),
            },
            prefill: (0.5, 99),
            step: Some(step),
            step_in_context: Some(step * 1.25),
        };
        let mut shares = MachineShares::default();
        shares.add("e", round(20e9, 0.1));
        shares.add("e", round(40e9, 0.05));
        shares.add("e", round(40e9, 0.1));
        let text = shares.to_string();
        let expected = "| e | **40** (20, 40, 40) | **50** (50, 50, 25) % | \
                        **1000** (1000, 1000, 1000) | **20** (20, 20, 20) % | \
                        **25** (25, 25, 25) % |";
        assert!(text.contains(expected), "{text}");
    }
}
