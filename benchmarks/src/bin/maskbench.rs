//! MaskBench: coverage and speed of the grammar engine on schemas with instances, beside a peer.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use benchmarks::maskbench::measure::measure;
use benchmarks::maskbench::{
    Case, Formwork, FormworkOptions, IndexCosts, Llguidance, MaskEngine, Record, Run, report,
};
use benchmarks::{machine, vocabulary};
use clap::{Parser, ValueEnum};
use serde_json::{Map, Value};
use structured_output::JsonSchemaOptions;
use tokenizer::Tokenizer;

/// Runs schemas with instances token by token, and times every mask and every accepted token.
///
/// Writes a JSON line per schema and engine, and prints a table.
#[derive(Debug, Parser)]
struct Arguments {
    /// The tokenizer.json of the model
    #[arg(long, value_name = "FILE")]
    tokenizer: PathBuf,
    /// Where the JSON lines go; with several engines, NAME.ENGINE.jsonl each
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Engines to run, each over all schemas
    #[arg(long, value_delimiter = ',', default_value = "formwork")]
    engine: Vec<EngineName>,
    /// Runs over the corpus, each from empty caches; the smallest time of each call is kept
    #[arg(long, default_value_t = 1, value_name = "RUNS")]
    repeat: usize,
    /// Drop what an engine keeps between schemas before each of them
    #[arg(long)]
    cold: bool,
    /// White space in the text, for Formwork: usual, flexible, spaced or compact. Corpora have documents of any form
    #[arg(long, default_value = "flexible")]
    whitespace: String,
    /// Order of an object's properties, for Formwork: schema or any
    #[arg(long, value_name = "ORDER")]
    property_order: Option<String>,
    /// File names to run, one per line, relative to PATH
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Files of the corpus, or folders of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineName {
    Formwork,
    Llguidance,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.repeat > 0, "--repeat is 0: at least one run");
    let tokenizer = vocabulary::load_tokenizer(&arguments.tokenizer)?;
    let cases = read_cases(&arguments, &tokenizer)?;
    // An engine's panic is reported in its record.
    std::panic::set_hook(Box::new(|_| ()));

    println!("{}\n", machine::description());
    print_index_costs(&tokenizer)?;
    let mut runs = Vec::new();
    for &name in &arguments.engine {
        let mut engine = make_engine(name, &arguments, &tokenizer, false)?;
        let records = run(&mut *engine, &cases, &arguments);
        write_records(&records, &out_file(&arguments, engine.name()))?;
        let mut zero_copy = Vec::new();
        if name == EngineName::Formwork {
            let mut engine = make_engine(name, &arguments, &tokenizer, true)?;
            zero_copy = run(&mut *engine, &cases, &arguments);
        }
        runs.push(Run {
            engine: engine.name().to_owned(),
            records,
            zero_copy,
        });
    }
    println!("{}", report(&runs));
    println!(
        "Times in microseconds; load average {} at the end.",
        machine::load_average()
    );
    Ok(())
}

fn print_index_costs(tokenizer: &Tokenizer) -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("maskbench-{}", std::process::id()));
    let costs = IndexCosts::measure(&vocabulary::tokenizer_info(tokenizer)?, &folder);
    fs::remove_dir_all(&folder)?;
    println!(
        "Index of the vocabulary: {:.1} MB, built in {:.0} ms, read from a file in {:.1} ms, prepared in \
         {:.1} ms.\n",
        costs.bytes as f64 / 1e6,
        costs.build.as_secs_f64() * 1e3,
        costs.read.as_secs_f64() * 1e3,
        costs.prepare.as_secs_f64() * 1e3,
    );
    Ok(())
}

/// The files that are named, in the order of their names.
fn read_cases(arguments: &Arguments, tokenizer: &Tokenizer) -> anyhow::Result<Vec<Case>> {
    let mut files = Vec::new();
    let list = arguments.list.as_deref().map(read_text).transpose()?;
    for path in &arguments.paths {
        match &list {
            Some(list) => files.extend(list.split_whitespace().map(|name| path.join(name))),
            None if path.is_dir() => {
                for entry in fs::read_dir(path)? {
                    files.push(entry?.path());
                }
            }
            None => files.push(path.clone()),
        }
    }
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort_unstable();
    files
        .iter()
        .map(|file| Case::read(file, tokenizer))
        .collect()
}

fn read_text(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

fn make_engine(
    name: EngineName,
    arguments: &Arguments,
    tokenizer: &Tokenizer,
    zero_copy: bool,
) -> anyhow::Result<Box<dyn MaskEngine>> {
    match name {
        EngineName::Formwork => {
            let mut options = Map::new();
            options.insert("whitespace".to_owned(), Value::from(&*arguments.whitespace));
            if let Some(order) = &arguments.property_order {
                options.insert("property_order".to_owned(), Value::from(&**order));
            }
            let options = FormworkOptions {
                schema: JsonSchemaOptions::from_json(&Value::from(options).to_string())?,
                zero_copy,
            };
            let info = vocabulary::tokenizer_info(tokenizer)?;
            Ok(Box::new(Formwork::new(info, options)))
        }
        EngineName::Llguidance => Ok(Box::new(Llguidance::new(&arguments.tokenizer)?)),
    }
}

/// The runs of an engine over all cases, of each call the smallest time.
fn run(engine: &mut dyn MaskEngine, cases: &[Case], arguments: &Arguments) -> Vec<Record> {
    let mut kept: Vec<Record> = Vec::new();
    for _ in 0..arguments.repeat {
        engine.drop_caches();
        let records = cases.iter().map(|case| {
            if arguments.cold {
                engine.drop_caches();
            }
            measure(engine, case)
        });
        let records: Vec<Record> = records.collect();
        if kept.is_empty() {
            kept = records;
            continue;
        }
        for (kept, record) in kept.iter_mut().zip(&records) {
            if let (Ok((kept, _)), Ok((timings, _))) = (&mut kept.outcome, &record.outcome) {
                kept.keep_smallest(timings);
            }
        }
    }
    kept
}

fn out_file(arguments: &Arguments, engine: &str) -> PathBuf {
    let out = &arguments.out;
    if arguments.engine.len() == 1 {
        return out.clone();
    }
    let mut name = out.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{engine}"));
    if let Some(extension) = out.extension() {
        name.push(".");
        name.push(extension);
    }
    out.with_file_name(name)
}

fn write_records(records: &[Record], file: &Path) -> anyhow::Result<()> {
    let out = File::create(file).with_context(|| format!("creating {}", file.display()))?;
    let mut out = BufWriter::new(out);
    for record in records {
        record.write_line(&mut out)?;
    }
    Ok(out.flush()?)
}
