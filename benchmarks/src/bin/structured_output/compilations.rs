//! Running requests beside compilations: one that uses its whole budget, and fifty of ordinary schemas.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use benchmarks::statistics::Summary;
use protocol::{EngineCoreEventType, ModelSource, StructuredOutputsConstraint};

use crate::engine::Engine;
use crate::{ARTICLE, Arguments, config};

/// Requests that decode all the time, as many as may.
const RUNNING: usize = 8;
/// Grammars that wait or are compiled, all the time, beside one that is hostile.
const OTHERS: usize = 50;

/// Compilations under way, and what became of others.
#[derive(Default)]
struct Compilations {
    submitted: HashMap<String, Instant>,
    hostile: Option<(String, Instant)>,
    num_submitted: usize,
    /// From submission until the request was admitted.
    delays: Vec<Duration>,
    hostile_delays: Vec<Duration>,
}

/// Prints step times alone and beside compilations, and how long these take.
pub(crate) fn measure(arguments: &Arguments, folder: &Path) -> anyhow::Result<()> {
    let source = ModelSource::Path(folder.to_owned());
    let steps = arguments.steps;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let mut compilations = Compilations::default();
    let mut idle = Compilations::default();
    let mut config = config(&source, arguments.threads, true);
    // Those whose grammar is compiled wait for a place: they don't make the batch larger.
    config.scheduler_config.max_num_seqs = RUNNING as u32;
    let mut engine = Engine::load(&config)?;
    idle.submit_and_finish(&mut engine)?;
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
            compilations.top_up(&mut engine);
            let started = Instant::now();
            let (outputs, _) = engine.step()?;
            beside.push(started.elapsed());
            compilations.take(&mut engine, &outputs);
        }
        compilations.end(&mut engine);
        engine.abort(running)?;
    }
    print(alone, beside, &compilations);
    println!(
        "with nothing running: {:.1?} (median), {:.1?} (longest), the hostile one {:.1?}",
        Summary::of(idle.delays.clone()).p50,
        Summary::of(idle.delays).max,
        Summary::of(idle.hostile_delays).max,
    );
    Ok(())
}

fn print(alone: Vec<Duration>, beside: Vec<Duration>, compilations: &Compilations) {
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
    let (delays, hostile) = (&compilations.delays, &compilations.hostile_delays);
    let delays = Summary::of(delays.clone());
    println!(
        "\n{} grammars were compiled meanwhile, after {:.1?} (median) and {:.1?} (longest); {} \
         hostile ones ended, after {:.1?} (longest)",
        delays.count,
        delays.p50,
        delays.max,
        hostile.len(),
        Summary::of(hostile.clone()).max,
    );
}

impl Compilations {
    /// Submits as many as ended.
    fn top_up(&mut self, engine: &mut Engine) {
        if self.hostile.is_none() {
            let number = self.num_submitted;
            self.num_submitted += 1;
            // Each its own, so that each is compiled.
            let pattern = format!(
                "(?:(?:[a-z]{{1,900}}-){{1,900}}x){{1,900}}(?=(?:a|b[^c]){{1,700}}$)[^q]{{1,900}}{number}"
            );
            let constraint = StructuredOutputsConstraint::Regex(pattern);
            self.hostile = Some((engine.add(Some(constraint), 3800), Instant::now()));
        }
        while self.submitted.len() < OTHERS {
            let number = self.num_submitted;
            self.num_submitted += 1;
            let schema = ARTICLE.replace("title", &format!("title_{number}"));
            let constraint = StructuredOutputsConstraint::Json(schema);
            let request_id = engine.add(Some(constraint), 3800);
            self.submitted.insert(request_id, Instant::now());
        }
    }

    /// Takes the answers, and ends the requests that were let in.
    fn take(&mut self, engine: &mut Engine, outputs: &[protocol::EngineCoreOutput]) {
        let mut ended = Vec::new();
        for output in outputs {
            let is_admitted = output
                .events
                .iter()
                .any(|event| event.event_type == EngineCoreEventType::Admitted);
            if !is_admitted && output.error.is_none() {
                continue;
            }
            if let Some(submitted) = self.submitted.remove(&output.request_id) {
                self.delays.push(submitted.elapsed());
            } else if let Some((_, submitted)) =
                self.hostile.take_if(|(id, _)| *id == output.request_id)
            {
                self.hostile_delays.push(submitted.elapsed());
            }
            ended.push(output.request_id.clone());
        }
        engine.end(ended);
    }

    fn end(&mut self, engine: &mut Engine) {
        let hostile = self.hostile.take().map(|(id, _)| id);
        let others = self.submitted.drain().map(|(id, _)| id);
        engine.end(others.chain(hostile).collect());
    }

    /// One of each wave while nothing runs.
    fn submit_and_finish(&mut self, engine: &mut Engine) -> anyhow::Result<()> {
        self.top_up(engine);
        while !self.submitted.is_empty() || self.hostile.is_some() {
            engine.wait_for_a_grammar();
            let (outputs, _) = engine.step()?;
            self.take(engine, &outputs);
        }
        Ok(())
    }
}
