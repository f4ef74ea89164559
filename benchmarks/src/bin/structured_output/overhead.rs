//! Tokens per second of constrained JSON over those of free text.
//!
//! A machine drifts, and others use it. So free and constrained text take turns in one engine, and each
//! stretch of constrained text is compared with the two of free text around it. What is reported is the
//! median of these ratios, and their quartiles: where 0.98 lies within them, nothing is shown.

use std::time::Duration;

use benchmarks::statistics::{Summary, median, quartiles};
use protocol::ModelSource;

use crate::engine::{Engine, Measured};
use crate::{Arguments, SCHEMAS, config, list_of};

/// What the rounds brought for one schema, or for free text.
#[derive(Default)]
struct Row {
    measured: Vec<Measured>,
    /// Tokens per second over those of the free text around.
    ratios: Vec<f64>,
    /// The same of the median step: what single slow steps don't touch.
    step_ratios: Vec<f64>,
}

/// Prints a table with everything off that makes structured output fast, and one with it on.
pub(crate) fn measure(arguments: &Arguments, model: &ModelSource) -> anyhow::Result<()> {
    println!(
        "| batch | text | mode | tokens/s | over free text (quartiles) | of median steps | fill per step | not hidden, of step time | update per step | forced tokens | head rows left out |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for fast in [false, true] {
        let mut engine = Engine::load(&config(model, arguments.threads, fast))?;
        let mode = match fast {
            true => "sparse head, forced text",
            false => "plain",
        };
        for &batch in &arguments.batches {
            let steps = steps_at(batch, arguments.steps);
            let mut free = Row::default();
            let mut constrained: Vec<Row> = SCHEMAS.iter().map(|_| Row::default()).collect();
            // Nobody has met the grammars' states before.
            for (_, schema) in SCHEMAS {
                engine.decode(Some(&list_of(schema, model)), batch, steps)?;
            }
            for _ in 0..arguments.rounds {
                let mut before = engine.decode(None, batch, steps)?;
                for (row, (_, schema)) in constrained.iter_mut().zip(SCHEMAS) {
                    let between = engine.decode(Some(&list_of(schema, model)), batch, steps)?;
                    let after = engine.decode(None, batch, steps)?;
                    row.push(between, &before, &after);
                    free.measured.push(before);
                    before = after;
                }
                free.measured.push(before);
            }
            free.print(batch, "free", mode);
            for ((name, _), row) in SCHEMAS.iter().zip(&constrained) {
                row.print(batch, name, mode);
            }
        }
    }
    Ok(())
}

/// Larger batches take longer.
fn steps_at(batch: usize, steps: usize) -> usize {
    match batch {
        0..4 => steps,
        4..16 => steps.div_ceil(2),
        _ => steps.div_ceil(5),
    }
}

impl Row {
    /// Adds a stretch of constrained text between two of free text.
    fn push(&mut self, constrained: Measured, before: &Measured, after: &Measured) {
        let around = (before.tokens_per_second() + after.tokens_per_second()) / 2.0;
        self.ratios.push(constrained.tokens_per_second() / around);
        let step = |measured: &Measured| median_step(measured).as_secs_f64();
        let tokens_per_step = constrained.tokens_per_step() / before.tokens_per_step();
        let around = (step(before) + step(after)) / 2.0;
        self.step_ratios
            .push(tokens_per_step * around / step(&constrained));
        self.measured.push(constrained);
    }

    fn print(&self, batch: usize, name: &str, mode: &str) {
        let median_of = |figure: fn(&Measured) -> f64| {
            median(self.measured.iter().map(figure).collect()).unwrap_or_default()
        };
        let over_free = match self.ratios.is_empty() {
            true => "1 | 1".to_owned(),
            false => {
                let [lower, middle, upper] = quartiles(self.ratios.clone());
                let of_steps = median(self.step_ratios.clone()).unwrap_or_default();
                format!("{middle:.3} ({lower:.3} to {upper:.3}) | {of_steps:.3}")
            }
        };
        println!(
            "| {batch} | {name} | {mode} | {:.1} | {over_free} | {:.0} us | {:.2} % | {:.0} us | {:.0} % | {:.0} % |",
            median_of(Measured::tokens_per_second),
            1e6 * median_of(Measured::fill_per_step),
            100.0 * median_of(Measured::exposed_share),
            1e6 * median_of(Measured::update_per_step),
            100.0 * median_of(Measured::forced_share),
            100.0 * median_of(Measured::skipped_share),
        );
    }
}

fn median_step(measured: &Measured) -> Duration {
    Summary::of(measured.step_times.clone()).p50
}
