//! Running requests beside compilations: one that uses its whole budget, and fifty of ordinary schemas.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use benchmarks::statistics::Summary;
use protocol::{EngineCoreEventType, EngineCoreOutput, ModelSource, StructuredOutputsConstraint};

use crate::engine::Engine;
use crate::{ARTICLE, Arguments, config};

/// Requests that decode all the time, as many as may.
const RUNNING: usize = 8;
/// Grammars of a wave, beside one that is hostile. The next follows as soon as all are answered.
const OTHERS: usize = 50;

/// Compilations under way, and what became of others.
#[derive(Default)]
struct Compilations {
    submitted: HashSet<String>,
    /// When the wave began.
    started: Option<Instant>,
    num_submitted: usize,
    /// How long each wave took.
    waves: Vec<Duration>,
    /// What the last hostile one was told.
    refusal: String,
}

/// Prints step times alone and beside compilations, and how long these take.
pub(crate) fn measure(arguments: &Arguments, folder: &Path) -> anyhow::Result<()> {
    let source = ModelSource::Path(folder.to_owned());
    let steps = 2 * arguments.steps;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let mut compilations = Compilations::default();
    let mut config = config(&source, arguments.threads, true);
    // Those whose grammar is compiled wait for a place: they don't make the batch larger.
    config.scheduler_config.max_num_seqs = RUNNING as u32;
    let mut engine = Engine::load(&config)?;
    let idle = compilations.wave_while_idle(&mut engine)?;
    for _ in 0..arguments.rounds {
        let running: Vec<String> = (0..RUNNING).map(|_| engine.add(None, 3800)).collect();
        for _ in 0..4 {
            engine.step()?;
        }
        for _ in 0..steps {
            let started = Instant::now();
            engine.step()?;
            alone.push(started.elapsed());
        }
        for _ in 0..steps {
            compilations.submit_wave(&mut engine);
            let started = Instant::now();
            let (outputs, _) = engine.step()?;
            beside.push(started.elapsed());
            compilations.take(&mut engine, &outputs);
        }
        compilations.end(&mut engine);
        engine.abort(running)?;
    }
    print(alone, beside);
    let waves = Summary::of(compilations.waves.clone());
    println!(
        "\n{} waves of compilations ended meanwhile, each within {:.1?} (median) and {:.1?} \
         (longest); one with nothing running took {idle:.1?}. The hostile one: {}",
        waves.count, waves.p50, waves.max, compilations.refusal
    );
    Ok(())
}

fn print(alone: Vec<Duration>, beside: Vec<Duration>) {
    let (alone, beside) = (Summary::of(alone), Summary::of(beside));
    println!(
        "\n{RUNNING} running requests, step times beside {OTHERS} compilations and a hostile one, \
         {} steps each:\n",
        alone.count
    );
    println!("| | alone | beside | ratio |\n|---|---|---|---|");
    for (name, alone, beside) in [
        ("median", alone.p50, beside.p50),
        ("p99", alone.p99, beside.p99),
    ] {
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        println!("| {name} | {alone:.1?} | {beside:.1?} | {ratio:.2} |");
    }
}

impl Compilations {
    /// Submits a wave, where none is under way.
    fn submit_wave(&mut self, engine: &mut Engine) {
        if !self.submitted.is_empty() {
            return;
        }
        self.started = Some(Instant::now());
        let number = self.num_submitted;
        self.num_submitted += 1;
        // Each its own, so that each is compiled.
        let pattern = format!(
            "(?:(?:[a-z]{{1,900}}-){{1,900}}x){{1,900}}(?=(?:a|b[^c]){{1,700}}$)[^q]{{1,900}}{number}"
        );
        let constraint = StructuredOutputsConstraint::Regex(pattern);
        self.submitted.insert(engine.add(Some(constraint), 3800));
        for _ in 0..OTHERS {
            let number = self.num_submitted;
            self.num_submitted += 1;
            let schema = ARTICLE.replace("title", &format!("title_{number}"));
            let constraint = StructuredOutputsConstraint::Json(schema);
            self.submitted.insert(engine.add(Some(constraint), 3800));
        }
    }

    /// Takes the answers, and ends the requests that were let in.
    fn take(&mut self, engine: &mut Engine, outputs: &[EngineCoreOutput]) {
        let mut ended = Vec::new();
        for output in outputs {
            let is_admitted = output
                .events
                .iter()
                .any(|event| event.event_type == EngineCoreEventType::Admitted);
            if let Some(error) = &output.error {
                self.refusal.clone_from(&error.message);
            } else if !is_admitted {
                continue;
            }
            self.submitted.remove(&output.request_id);
            ended.push(output.request_id.clone());
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
        engine.end(self.submitted.drain().collect());
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
        Ok(took)
    }
}
