//! Running requests, constrained and free, alone and beside grammars made to take long: some that compile,
//! with fifty ordinary ones behind them, and some that run.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use benchmarks::statistics::Summary;
use engine_core::engine::StepTimes;
use protocol::{
    EngineCoreEventType, EngineCoreOutput, ModelSource, StructuredOutputsConstraint,
    StructuredOutputsParams,
};

use crate::engine::Engine;
use crate::{ARTICLE, Arguments, CHARACTER, INVOICE, config, hostile, list_of};

/// Requests that decode all the time: of three, one without a constraint.
const NEIGHBOURS: usize = 9;
/// Grammars of a wave, beside those that are hostile. The next follows as soon as all are answered.
const OTHERS: usize = 50;
/// A newcomer with a small constraint comes after so many steps.
const STEPS_PER_NEWCOMER: usize = 5;
/// Steps in which a wave beside running requests is to have all its answers, at most.
const MAX_WAVE_STEPS: usize = 1_000;
/// Tokens of each request, at most.
const MAX_TOKENS: u32 = 3800;

/// What the neighbours decode beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Waves of grammars that compile.
    Compiling,
    /// The same, and hostile ones that run.
    Running,
}

/// The situations and their names, in the order of the first round.
const SITUATIONS: [(Beside, &str); 3] = [
    (Beside::Nothing, "alone"),
    (Beside::Compiling, "compiling"),
    (Beside::Running, "running"),
];

/// The requests whose tokens are timed.
struct Neighbours {
    source: ModelSource,
    /// When each got its last token.
    last: HashMap<String, Instant>,
}

/// What came of one situation.
#[derive(Default)]
struct Measured {
    /// Between two outputs of a neighbour.
    gaps: Vec<Duration>,
    /// Until an ordinary grammar of a wave was admitted.
    others: Vec<Duration>,
    /// Until a hostile one had its answer.
    hostile: Vec<Duration>,
    /// Until a newcomer was.
    newcomers: Vec<Duration>,
    /// How long each wave took.
    waves: Vec<Duration>,
    num_deferred: u64,
    /// Where the steps' time went.
    step_times: StepTimes,
}

/// All that comes beside the neighbours.
#[derive(Default)]
struct Visitors {
    /// Requests without a constraint that hold the places of hostile ones, so that the batch is always
    /// as large and nobody else is ever scheduled.
    seats: Vec<String>,
    /// Of the wave, those without an answer.
    hostile: HashSet<String>,
    others: HashMap<String, Instant>,
    newcomers: HashMap<String, Instant>,
    /// Hostile requests that were let in and run.
    running: HashSet<String>,
    /// When the wave began.
    started: Option<Instant>,
    num_submitted: usize,
    num_newcomers: usize,
    /// What hostile ones were told.
    refusals: HashSet<String>,
}

/// Prints the time between two tokens of a request alone and beside the others, and how long
/// compilations take.
pub(crate) fn measure(arguments: &Arguments, folder: &Path) -> anyhow::Result<()> {
    let source = ModelSource::Path(folder.to_owned());
    let mut config = config(&source, arguments.threads, true);
    config.scheduler_config.max_num_seqs = (NEIGHBOURS + hostile::NUM_RUNNING) as u32;
    let mut engine = Engine::load(&config)?;
    let mut visitors = Visitors::default();
    let idle = visitors.answers_while_idle(&mut engine)?;
    let mut beside_decoding = Measured::default();
    let mut measured: [Measured; 3] = Default::default();
    for round in 0..arguments.rounds {
        let mut neighbours = Neighbours {
            source: source.clone(),
            last: HashMap::new(),
        };
        neighbours.fill(&mut engine);
        engine.wait_for_grammars();
        visitors.take_seats(&mut engine);
        for _ in 0..12 {
            let (outputs, _) = engine.step()?;
            neighbours.take(&mut engine, &outputs);
        }
        for turn in 0..SITUATIONS.len() {
            let situation = (round + turn) % SITUATIONS.len();
            let (beside, _) = SITUATIONS[situation];
            let measured = &mut measured[situation];
            for step in 0..2 * arguments.steps {
                visitors.come(&mut engine, beside, step);
                let before = engine.step_times();
                let (outputs, stats) = engine.step()?;
                measured.step_times += engine.step_times() - before;
                measured.num_deferred += stats.num_deferred_answers;
                let gaps = neighbours.take(&mut engine, &outputs);
                measured.gaps.extend(gaps);
                visitors.take(&mut engine, &outputs, measured);
            }
            visitors.leave(&mut engine);
        }
        visitors.submit_wave(&mut engine, Beside::Compiling);
        for _ in 0..MAX_WAVE_STEPS {
            if visitors.is_wave_over() {
                break;
            }
            let (outputs, _) = engine.step()?;
            neighbours.take(&mut engine, &outputs);
            visitors.take(&mut engine, &outputs, &mut beside_decoding);
        }
        visitors.leave(&mut engine);
        engine.end(visitors.seats.drain(..).collect());
        engine.abort(neighbours.last.into_keys().collect())?;
    }
    print(&measured);
    print_delay(&idle, &beside_decoding, arguments.rounds);
    println!(
        "No step's grammars took more than {} steps of work. Refused:",
        engine.most_grammar_steps()
    );
    for refusal in visitors.refusals {
        println!("- {refusal}");
    }
    Ok(())
}

fn print(measured: &[Measured; 3]) {
    println!(
        "\n{NEIGHBOURS} running requests, two thirds of them under schemas, in a full batch of {}: time between \
         two outputs of a request, beside waves of {OTHERS} compilations and {} that spend their budgets, \
         and with {} hostile grammars more that run:\n",
        NEIGHBOURS + hostile::NUM_RUNNING,
        hostile::NUM_COMPILING,
        hostile::NUM_RUNNING,
    );
    println!("| | alone | compiling | ratio | running | ratio |\n|---|---|---|---|---|---|");
    let gaps = measured.each_ref().map(|of| Summary::of(of.gaps.clone()));
    let row = |name: &str, time: fn(&Summary) -> Duration| {
        let [alone, compiling, running] = gaps.each_ref().map(time);
        let ratio = |time: Duration| time.as_secs_f64() / alone.as_secs_f64();
        println!(
            "| {name} | {alone:.1?} | {compiling:.1?} | {:.2} | {running:.1?} | {:.2} |",
            ratio(compiling),
            ratio(running)
        );
    };
    row("median", |summary| summary.p50);
    row("p99", |summary| summary.p99);
    row("longest", |summary| summary.max);
    println!("\nMean parts of a step, the masks being made while the forward pass runs:\n");
    println!("| | scheduler | masks | forward pass | LM head and sampling | update |");
    println!("|---|---|---|---|---|---|");
    for (of, (_, name)) in measured.iter().zip(SITUATIONS) {
        let times = &of.step_times;
        let parts = [
            times.schedule,
            times.grammar_bitmask,
            times.execute_model,
            times.sample_tokens,
            times.update_from_output,
        ]
        .map(|part| format!("{:.2?}", part.div_f64(times.num_steps.max(1) as f64)));
        println!("| {name} | {} |", parts.join(" | "));
    }
    println!("\nUntil admission, and whole waves (median, longest, how many):\n");
    println!("| | others of the wave | small newcomers | waves | answers found aside |");
    println!("|---|---|---|---|---|");
    for (of, (_, name)) in measured.iter().zip(SITUATIONS) {
        let cells = [&of.others, &of.newcomers, &of.waves].map(|times| {
            if times.is_empty() {
                return "none".to_owned();
            }
            let summary = Summary::of(times.clone());
            format!(
                "{:.1?}, {:.1?}, {}",
                summary.p50, summary.max, summary.count
            )
        });
        println!("| {name} | {} | {} |", cells.join(" | "), of.num_deferred);
    }
}

/// The delay that compilations pay for it that nobody else is delayed.
fn print_delay(idle: &Measured, beside_decoding: &Measured, rounds: usize) {
    let times = |times: &[Duration], num_asked: usize| {
        if times.is_empty() {
            return "none".to_owned();
        }
        let summary = Summary::of(times.to_vec());
        let num_answers = summary.count;
        format!(
            "{:.1?} ({:.1?}, {num_answers} of {num_asked})",
            summary.p50, summary.max
        )
    };
    println!(
        "\nFrom submission to the answer, median (longest, how many had one): a grammar that spends its budget \
         {} with nothing running, {} beside decoding; one of the {OTHERS} others {}, {}.",
        times(&idle.hostile, hostile::NUM_COMPILING),
        times(&beside_decoding.hostile, rounds * hostile::NUM_COMPILING),
        times(&idle.others, OTHERS),
        times(&beside_decoding.others, rounds * OTHERS),
    );
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

impl Visitors {
    /// Takes the places of hostile requests that don't run.
    fn take_seats(&mut self, engine: &mut Engine) {
        while self.seats.len() + self.running.len() < hostile::NUM_RUNNING {
            self.seats.push(engine.add(None, MAX_TOKENS));
        }
    }

    /// Submits what comes before a step.
    fn come(&mut self, engine: &mut Engine, beside: Beside, step: usize) {
        if beside == Beside::Nothing {
            return;
        }
        if self.is_wave_over() {
            self.submit_wave(engine, beside);
        }
        if step.is_multiple_of(STEPS_PER_NEWCOMER) {
            let number = self.num_newcomers;
            self.num_newcomers += 1;
            let choices = ["yes", "no"].map(|choice| format!("{choice}{number}"));
            let constraint = StructuredOutputsConstraint::Choice(choices.to_vec());
            let id = engine.add(Some(constraint), MAX_TOKENS);
            self.newcomers.insert(id, Instant::now());
        }
    }

    fn submit_wave(&mut self, engine: &mut Engine, beside: Beside) {
        let now = Instant::now();
        self.started = Some(now);
        engine.end(self.running.drain().collect());
        self.take_seats(engine);
        // Each its own, so that each is compiled.
        let mut constraints = hostile::constraints(self.num_submitted);
        if beside == Beside::Compiling {
            constraints.drain(..hostile::NUM_RUNNING);
        }
        for params in constraints {
            self.hostile
                .insert(engine.add_with(Some(params), MAX_TOKENS));
        }
        for _ in 0..OTHERS {
            let number = self.num_submitted;
            self.num_submitted += 1;
            let schema = ARTICLE.replace("title", &format!("title_{number}"));
            let params = StructuredOutputsParams::new(StructuredOutputsConstraint::Json(schema));
            self.others
                .insert(engine.add_with(Some(params), MAX_TOKENS), now);
        }
    }

    /// Takes the answers, and ends the ordinary requests that were let in.
    fn take(&mut self, engine: &mut Engine, outputs: &[EngineCoreOutput], measured: &mut Measured) {
        let (mut ended, mut is_answer) = (Vec::new(), false);
        for output in outputs {
            let id = &output.request_id;
            let is_admitted = output
                .events
                .iter()
                .any(|event| event.event_type == EngineCoreEventType::Admitted);
            if let Some(error) = &output.error {
                self.refusals.insert(error.message.clone());
                is_answer |= self.answer_hostile(id, measured);
                self.running.remove(id);
            } else if output.finish_reason.is_some() {
                self.running.remove(id);
            } else if is_admitted {
                is_answer = true;
                if let Some(since) = self.others.remove(id) {
                    measured.others.push(since.elapsed());
                    ended.push(id.clone());
                } else if let Some(since) = self.newcomers.remove(id) {
                    measured.newcomers.push(since.elapsed());
                    ended.push(id.clone());
                } else if self.answer_hostile(id, measured) {
                    self.running.insert(id.clone());
                    ended.extend(self.seats.pop());
                }
            }
        }
        engine.end(ended);
        self.take_seats(engine);
        if is_answer
            && self.is_wave_over()
            && let Some(started) = self.started.take()
        {
            measured.waves.push(started.elapsed());
        }
    }

    /// Ends all but those that hold seats.
    fn leave(&mut self, engine: &mut Engine) {
        self.started = None;
        let mut ended: Vec<String> = self.hostile.drain().chain(self.running.drain()).collect();
        ended.extend(self.others.drain().map(|(id, _)| id));
        ended.extend(self.newcomers.drain().map(|(id, _)| id));
        engine.end(ended);
        self.take_seats(engine);
    }

    /// Whether all of a wave have their answers.
    fn is_wave_over(&self) -> bool {
        self.hostile.is_empty() && self.others.is_empty()
    }

    /// Notes the answer of a hostile request of the wave, where it is one.
    fn answer_hostile(&mut self, id: &str, measured: &mut Measured) -> bool {
        let is_hostile = self.hostile.remove(id);
        if is_hostile && let Some(started) = self.started {
            measured.hostile.push(started.elapsed());
        }
        is_hostile
    }

    /// When the answers of a wave come while nothing runs.
    fn answers_while_idle(&mut self, engine: &mut Engine) -> anyhow::Result<Measured> {
        self.submit_wave(engine, Beside::Compiling);
        engine.end(self.seats.drain(..).collect());
        let mut measured = Measured::default();
        let mut answered = Vec::new();
        while !self.is_wave_over() {
            let id = engine.next_grammar()?;
            if !self.answer_hostile(&id, &mut measured)
                && let Some(since) = self.others.remove(&id)
            {
                measured.others.push(since.elapsed());
            }
            answered.push(id);
        }
        engine.end(answered);
        engine.abort(Vec::new())?;
        Ok(measured)
    }
}
