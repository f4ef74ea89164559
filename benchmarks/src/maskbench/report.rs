//! The table of runs, in Markdown.

use std::collections::HashSet;
use std::fmt::Write;

use super::{Record, Timings};

/// An engine's run over a corpus.
#[derive(Debug, Clone)]
pub struct Run {
    /// The engine's name.
    pub engine: String,
    /// A record per schema.
    pub records: Vec<Record>,
    /// The same with masks that are not copied; empty where the engine has no such call.
    pub zero_copy: Vec<Record>,
}

/// The verdicts in the order of the table, after the schemas that were refused.
const VERDICTS: [&str; 4] = ["pass", "validation_error", "invalidation_error", "exn"];

/// Percentiles in the table.
const PERCENTILES: [(&str, f64); 9] = [
    ("p25", 25.0),
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
    ("max", 100.0),
];

/// Verdicts over all schemas, and times in microseconds over those that every engine compiled.
/// With more than one engine, each further one's figure is also given in units of the first one's.
pub fn report(runs: &[Run]) -> String {
    let mut text = String::new();
    write_verdicts(runs, &mut text);
    text.push('\n');
    write_times(runs, &mut text);
    text
}

fn write_row(text: &mut String, name: &str, cells: impl Iterator<Item = String>) {
    let cells: String = cells.map(|cell| format!(" {cell} |")).collect();
    // Writing to a string can't fail.
    let _ = writeln!(text, "| {name} |{cells}");
}

fn write_head(text: &mut String, name: &str, columns: &[String]) {
    write_row(text, name, columns.iter().cloned());
    let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len()));
}

fn write_verdicts(runs: &[Run], text: &mut String) {
    let names: Vec<String> = runs.iter().map(|run| run.engine.clone()).collect();
    write_head(text, "all schemas", &names);
    let mut row = |name: &str, count: &dyn Fn(&Run) -> usize| {
        write_row(text, name, runs.iter().map(|run| count(run).to_string()));
    };
    row("schemas", &|run| run.records.len());
    row("compile error", &|run| {
        run.records.iter().filter(|r| !r.is_compiled()).count()
    });
    for kind in VERDICTS {
        row(kind, &|run| {
            let verdicts = run.records.iter().filter_map(|r| r.outcome.as_ref().ok());
            verdicts
                .filter(|(_, verdict)| verdict.kind() == kind)
                .count()
        });
    }
}

fn write_times(runs: &[Run], text: &mut String) {
    let common = compiled_by_all(runs);
    let columns: Vec<Column> = runs.iter().map(|run| Column::new(run, &common)).collect();
    let mut names: Vec<String> = runs.iter().map(|run| run.engine.clone()).collect();
    if let Some((first, others)) = runs.split_first() {
        let ratio = |other: &Run| format!("{} / {}", other.engine, first.engine);
        names.extend(others.iter().map(ratio));
    }
    write_head(
        text,
        &format!("{} schemas that all compile", common.len()),
        &names,
    );
    let Some((first, others)) = columns.split_first() else {
        return;
    };
    for (at, (name, value)) in first.figures.iter().enumerate() {
        let values: Vec<Option<Figure>> = std::iter::once(*value)
            .chain(others.iter().map(|other| other.figures[at].1))
            .collect();
        let ratios = values.iter().skip(1).map(|other| match (value, other) {
            (Some(Figure::Time(own)), Some(Figure::Time(other))) if *own > 0.0 => {
                format!("{:.1}", other / own)
            }
            _ => String::new(),
        });
        let cells = values.iter().map(|value| match value {
            Some(Figure::Count(count)) => count.to_string(),
            Some(Figure::Time(time)) => format!("{time:.2}"),
            None => String::new(),
        });
        write_row(text, name, cells.chain(ratios));
    }
}

/// The schemas that every run compiled.
fn compiled_by_all(runs: &[Run]) -> HashSet<&str> {
    let compiled = |run: &'_ Run| -> HashSet<String> {
        let compiled = run.records.iter().filter(|record| record.is_compiled());
        compiled.map(|record| record.id.clone()).collect()
    };
    let sets: Vec<HashSet<String>> = runs.iter().map(compiled).collect();
    let ids = runs.first().into_iter().flat_map(|run| &run.records);
    ids.map(|record| record.id.as_str())
        .filter(|id| sets.iter().all(|set| set.contains(*id)))
        .collect()
}

#[derive(Debug, Clone, Copy)]
enum Figure {
    Count(usize),
    /// Microseconds.
    Time(f64),
}

/// An engine's column: the same figures, in the same order, for every engine.
struct Column {
    figures: Vec<(String, Option<Figure>)>,
}

impl Column {
    fn new(run: &Run, common: &HashSet<&str>) -> Self {
        let of = |records: &'_ [Record], times: fn(&Timings) -> Vec<u64>| -> Sample {
            let common = records.iter().filter(|r| common.contains(r.id.as_str()));
            Sample::new(common.filter_map(Record::timings).flat_map(times).collect())
        };
        let masks = of(&run.records, |timings| timings.mask_ns.clone());
        let shared = of(&run.zero_copy, |timings| timings.mask_ns.clone());
        let commits = of(&run.records, |timings| timings.commit_ns.clone());
        let compiles = of(&run.records, |timings| vec![timings.compile_ns]);
        let firsts = of(&run.records, |t| t.ttfm_ns().into_iter().collect());

        let mut column = Self {
            figures: Vec::new(),
        };
        column.add_count("masks", &masks);
        column.add_average("mask average", &masks);
        column.add_percentiles("mask", &masks, &PERCENTILES);
        column.add_average("mask without a copy, average", &shared);
        column.add_percentiles("mask without a copy,", &shared, &PERCENTILES[1..2]);
        column.add_count("tokens accepted", &commits);
        column.add_average("accept_token average", &commits);
        for name in ["p50", "p99", "p99.9", "max"] {
            let percentile = PERCENTILES.iter().filter(|(known, _)| *known == name);
            let percentile: Vec<_> = percentile.copied().collect();
            column.add_percentiles("accept_token", &commits, &percentile);
        }
        for (name, sample) in [("compile", &compiles), ("compile + first mask", &firsts)] {
            column.add_average(&format!("{name} average"), sample);
            for percentile in [1, 3, 5, 6, 8] {
                column.add_percentiles(name, sample, &PERCENTILES[percentile..=percentile]);
            }
        }
        column
    }

    fn add_count(&mut self, name: &str, sample: &Sample) {
        let count = Figure::Count(sample.ascending.len());
        self.figures.push((name.to_owned(), Some(count)));
    }

    fn add_average(&mut self, name: &str, sample: &Sample) {
        let average = sample.average().map(Figure::Time);
        self.figures.push((name.to_owned(), average));
    }

    fn add_percentiles(&mut self, name: &str, sample: &Sample, percentiles: &[(&str, f64)]) {
        for (percentile, percent) in percentiles {
            let value = sample.percentile(*percent).map(Figure::Time);
            self.figures.push((format!("{name} {percentile}"), value));
        }
    }
}

/// Times in nanoseconds, ascending.
struct Sample {
    ascending: Vec<u64>,
}

impl Sample {
    fn new(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        Self { ascending: times }
    }

    /// In microseconds.
    fn average(&self) -> Option<f64> {
        let count = self.ascending.len();
        let sum: u64 = self.ascending.iter().sum();
        (count > 0).then(|| sum as f64 / count as f64 / 1e3)
    }

    /// The value at a percentile in microseconds, by the rule of `maskbench_table.py`.
    fn percentile(&self, percent: f64) -> Option<f64> {
        let last = self.ascending.len().checked_sub(1)?;
        let at = (self.ascending.len() as f64 * percent / 100.0) as usize;
        Some(self.ascending[at.min(last)] as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn compiled(id: &str, mask_ns: &[u64], verdict: Verdict) -> Record {
        let timings = Timings {
            compile_ns: 1000,
            first_mask_ns: mask_ns.first().copied(),
            mask_ns: mask_ns.to_vec(),
            commit_ns: vec![500; mask_ns.len()],
        };
        Record {
            id: id.to_owned(),
            outcome: Ok((timings, verdict)),
        }
    }

    #[test]
    fn verdicts_count_all_schemas_and_times_those_that_all_compile() {
        let refused = Record {
            id: "b".to_owned(),
            outcome: Err("no".to_owned()),
        };
        let runs = [
            Run {
                engine: "ours".to_owned(),
                records: vec![
                    compiled("a", &[1000, 2000], Verdict::Pass),
                    compiled("b", &[9000], Verdict::ValidationError(0)),
                ],
                zero_copy: vec![compiled("a", &[100, 200], Verdict::Pass)],
            },
            Run {
                engine: "theirs".to_owned(),
                records: vec![compiled("a", &[3000, 9000], Verdict::Pass), refused],
                zero_copy: Vec::new(),
            },
        ];
        let text = report(&runs);
        for row in [
            "| all schemas | ours | theirs |",
            "| compile error | 0 | 1 |",
            "| validation_error | 1 | 0 |",
            "| 1 schemas that all compile | ours | theirs | theirs / ours |",
            "| masks | 2 | 2 |  |",
            "| mask average | 1.50 | 6.00 | 4.0 |",
            "| mask p25 | 1.00 | 3.00 | 3.0 |",
            "| mask max | 2.00 | 9.00 | 4.5 |",
            "| mask without a copy, p50 | 0.20 |  |  |",
            "| compile + first mask p50 | 2.00 | 4.00 | 2.0 |",
        ] {
            assert!(text.lines().any(|line| line == row), "{row} in\n{text}");
        }
    }
}
