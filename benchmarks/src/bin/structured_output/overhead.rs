//! Tokens per second of constrained JSON over those of free text.

use benchmarks::statistics::median;
use protocol::ModelSource;

use crate::engine::{Engine, Measured};
use crate::{Arguments, SCHEMAS, config, list_of};

/// What the rounds brought for one schema.
#[derive(Default)]
struct Row {
    measured: Vec<Measured>,
    /// Over free text, of the same round.
    ratios: Vec<f64>,
}

/// Prints a table with everything off that makes structured output fast, and one with it on.
pub(crate) fn measure(arguments: &Arguments, model: &ModelSource) -> anyhow::Result<()> {
    println!(
        "| batch | text | mode | tokens/s | over free text | fill not hidden, of step time | update per step | forced tokens | head rows left out |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
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
            for _ in 0..arguments.rounds {
                // Half of the free text before and half after, against a drift of the machine.
                let mut of_round = engine.decode(None, batch, steps.div_ceil(2))?;
                let of_schemas = SCHEMAS
                    .iter()
                    .map(|(_, schema)| engine.decode(Some(&list_of(schema, model)), batch, steps))
                    .collect::<anyhow::Result<Vec<_>>>()?;
                of_round.add(engine.decode(None, batch, steps.div_ceil(2))?);
                let of_free = of_round.tokens_per_second();
                free.push(of_round, of_free);
                for (row, measured) in constrained.iter_mut().zip(of_schemas) {
                    row.push(measured, of_free);
                }
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
    fn push(&mut self, measured: Measured, of_free: f64) {
        self.ratios.push(measured.tokens_per_second() / of_free);
        self.measured.push(measured);
    }

    fn print(&self, batch: usize, name: &str, mode: &str) {
        let median_of = |figure: fn(&Measured) -> f64| {
            median(self.measured.iter().map(figure).collect()).unwrap_or_default()
        };
        println!(
            "| {batch} | {name} | {mode} | {:.1} | {:.3} | {:.2} % | {:.0} us | {:.0} % | {:.0} % |",
            median_of(Measured::tokens_per_second),
            median(self.ratios.clone()).unwrap_or_default(),
            100.0 * median_of(Measured::exposed_share),
            1e6 * median_of(Measured::update_per_step),
            100.0 * median_of(Measured::forced_share),
            100.0 * median_of(Measured::skipped_share),
        );
    }
}
