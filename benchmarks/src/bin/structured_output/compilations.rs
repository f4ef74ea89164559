//! Running requests, constrained and free, beside grammars made to take long: some that compile, some that
//! run, and fifty ordinary ones.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use benchmarks::statistics::Summary;
use protocol::{EngineCoreEventType, EngineCoreOutput, ModelSource, StructuredOutputsConstraint};

use crate::engine::Engine;
use crate::{ARTICLE, Arguments, CHARACTER, INVOICE, config, hostile, list_of};

/// Requests that decode all the time: of three, one without a constraint.
const NEIGHBOURS: usize = 9;
/// Grammars of a wave, beside those that are hostile. The next follows as soon as all are answered.
const OTHERS: usize = 50;
/// Tokens of each request, at most.
const MAX_TOKENS: u32 = 3800;

/// The requests whose tokens are timed.
struct Neighbours {
    source: ModelSource,
    /// When each got its last token.
    last: HashMap<String, Instant>,
}

/// Grammars under way, and what became of others.
#[derive(Default)]
struct Compilations {
    submitted: HashSet<String>,
    /// Of these, hostile ones.
    hostile: HashSet<String>,
    /// Hostile requests that were let in and run.
    running: HashSet<String>,
    /// When the wave began.
    started: Option<Instant>,
    num_submitted: usize,
    /// How long each wave took.
    waves: Vec<Duration>,
    /// What the last hostile ones were told.
    refusals: HashSet<String>,
    num_deferred: u64,
}

/// Prints the time between two tokens of a request alone and beside the others, and how long
/// compilations take.
pub(crate) fn measure(arguments: &Arguments, folder: &Path) -> anyhow::Result<()> {
    let source = ModelSource::Path(folder.to_owned());
    let steps = 2 * arguments.steps;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let mut compilations = Compilations::default();
    let mut config = config(&source, arguments.threads, true);
    // Ordinary ones whose grammar is compiled wait for a place: they don't make the batch larger.
    config.scheduler_config.max_num_seqs = (NEIGHBOURS + hostile::NUM_RUNNING) as u32;
    let mut engine = Engine::load(&config)?;
    let idle = compilations.wave_while_idle(&mut engine)?;
    for _ in 0..arguments.rounds {
        let mut neighbours = Neighbours {
            source: source.clone(),
            last: HashMap::new(),
        };
        // As many as are hostile later, so that the batch is as large.
        let places: Vec<String> = (0..hostile::NUM_RUNNING)
            .map(|_| engine.add(None, MAX_TOKENS))
            .collect();
        neighbours.fill(&mut engine);
        engine.wait_for_grammars();
        for _ in 0..12 {
            let (outputs, _) = engine.step()?;
            neighbours.take(&mut engine, &outputs);
        }
        for _ in 0..steps {
            let (outputs, _) = engine.step()?;
            alone.extend(neighbours.take(&mut engine, &outputs));
        }
        engine.end(places);
        for _ in 0..steps {
            compilations.submit_wave(&mut engine);
            let (outputs, stats) = engine.step()?;
            compilations.num_deferred += stats.num_deferred_answers;
            beside.extend(neighbours.take(&mut engine, &outputs));
            compilations.take(&mut engine, &outputs);
        }
        compilations.end(&mut engine);
        engine.abort(neighbours.last.into_keys().collect())?;
    }
    print(alone, beside);
    let waves = Summary::of(compilations.waves.clone());
    println!(
        "\n{} waves of compilations ended meanwhile, each within {:.1?} (median) and {:.1?} \
         (longest); one with nothing running took {idle:.1?}. {} answers were found aside; no step's \
         grammars took more than {} steps of work. Refused:",
        waves.count,
        waves.p50,
        waves.max,
        compilations.num_deferred,
        engine.most_grammar_steps()
    );
    for refusal in compilations.refusals {
        println!("- {refusal}");
    }
    Ok(())
}

fn print(alone: Vec<Duration>, beside: Vec<Duration>) {
    let (alone, beside) = (Summary::of(alone), Summary::of(beside));
    println!(
        "\n{NEIGHBOURS} running requests, two thirds of them under schemas: time between two outputs of a \
         request, beside {OTHERS} compilations and {} hostile grammars, {} and {} of them:\n",
        hostile::NUM_RUNNING + hostile::NUM_COMPILING,
        alone.count,
        beside.count
    );
    println!("| | alone | beside | ratio |\n|---|---|---|---|");
    for (name, alone, beside) in [
        ("median", alone.p50, beside.p50),
        ("p99", alone.p99, beside.p99),
        ("longest", alone.max, beside.max),
    ] {
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        println!("| {name} | {alone:.1?} | {beside:.1?} | {ratio:.2} |");
    }
}

impl Neighbours {
    /// Adds requests until there are enough.
    fn fill(&mut self, engine: &mut Engine) {
        while self.last.len() < NEIGHBOURS {
            let schema = [CHARACTER, INVOICE, ARTICLE];
            let constraint = match self.last.len() % 3 {
                0 => None,
                _ => Some(list_of(schema[self.last.len() / 2 % 3], &self.source)),
            };
            let id = engine.add(constraint, MAX_TOKENS);
            self.last.insert(id, Instant::now());
        }
    }

    /// The times between the outputs of a step and those before them. Another request comes in the place
    /// of one that ends.
    fn take(&mut self, engine: &mut Engine, outputs: &[EngineCoreOutput]) -> Vec<Duration> {
        let now = Instant::now();
        let mut times = Vec::new();
        for output in outputs {
            let Some(last) = self.last.get_mut(&output.request_id) else {
                continue;
            };
            if !output.new_token_ids.is_empty() {
                times.push(now - std::mem::replace(last, now));
            }
            if output.finish_reason.is_some() {
                self.last.remove(&output.request_id);
            }
        }
        self.fill(engine);
        times
    }
}

impl Compilations {
    /// Submits a wave, where none is under way.
    fn submit_wave(&mut self, engine: &mut Engine) {
        if !self.submitted.is_empty() {
            return;
        }
        self.started = Some(Instant::now());
        engine.end(self.running.drain().collect());
        // Each its own, so that each is compiled.
        for params in hostile::constraints(self.num_submitted) {
            let id = engine.add_with(Some(params), MAX_TOKENS);
            self.hostile.insert(id.clone());
            self.submitted.insert(id);
        }
        for _ in 0..OTHERS {
            let number = self.num_submitted;
            self.num_submitted += 1;
            let schema = ARTICLE.replace("title", &format!("title_{number}"));
            let constraint = StructuredOutputsConstraint::Json(schema);
            self.submitted
                .insert(engine.add(Some(constraint), MAX_TOKENS));
        }
    }

    /// Takes the answers, and ends the ordinary requests that were let in.
    fn take(&mut self, engine: &mut Engine, outputs: &[EngineCoreOutput]) {
        let mut ended = Vec::new();
        for output in outputs {
            let is_admitted = output
                .events
                .iter()
                .any(|event| event.event_type == EngineCoreEventType::Admitted);
            if let Some(error) = &output.error {
                self.refusals.insert(error.message.clone());
                self.running.remove(&output.request_id);
            } else if !is_admitted {
                continue;
            }
            if !self.submitted.remove(&output.request_id) {
                continue;
            }
            match self.hostile.remove(&output.request_id) && output.error.is_none() {
                true => {
                    self.running.insert(output.request_id.clone());
                }
                false => ended.push(output.request_id.clone()),
            }
        }
        engine.end(ended);
        if self.submitted.is_empty()
            && let Some(started) = self.started.take()
        {
            self.waves.push(started.elapsed());
        }
    }

    /// Ends what is under way.
    fn end(&mut self, engine: &mut Engine) {
        self.started = None;
        self.hostile.clear();
        engine.end(self.submitted.drain().chain(self.running.drain()).collect());
    }

    /// How long a wave takes while nothing runs.
    fn wave_while_idle(&mut self, engine: &mut Engine) -> anyhow::Result<Duration> {
        self.submit_wave(engine);
        let started = Instant::now();
        engine.wait_for_grammars();
        let took = started.elapsed();
        while !self.submitted.is_empty() {
            let (outputs, _) = engine.step()?;
            self.take(engine, &outputs);
        }
        self.waves.clear();
        self.end(engine);
        Ok(took)
    }
}
