//! What is asked. Request number n is a function of the seed and n alone.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use structured_output::{CompiledGrammar, GrammarCompiler};

use super::args::{Backend, BenchServeArgs};
use super::random::Random;
use crate::constraint::{Constraint, byte_compiler};

/// Random prompts are made of these: words that a tokenizer is likely to have whole.
const WORDS: [&str; 32] = [
    "the", "of", "and", "to", "in", "is", "for", "that", "on", "with", "as", "it", "at", "by",
    "from", "or", "an", "be", "this", "are", "house", "water", "light", "stone", "hand", "day",
    "year", "time", "way", "world", "life", "part",
];

/// A request, ready to be sent.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) body: String,
    /// What its answer is held to.
    pub(super) constraint: Option<Constraint>,
    /// Strings that end the answer and aren't in it.
    pub(super) stop: Vec<String>,
    /// After how many pieces the client leaves, where it does.
    pub(super) leaves_after: Option<u32>,
}

/// All requests of a load.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) path: &'static str,
    backend: Backend,
    seed: u64,
    /// What every request has.
    base: Map<String, Value>,
    /// Prompts of a file; random ones where empty.
    dataset: Vec<Map<String, Value>>,
    /// Constraints to choose from.
    examples: Vec<Constraint>,
    constrained_share: f64,
    disconnect_share: f64,
    input_len: (u32, u32),
    output_len: (u32, u32),
    ignore_eos: bool,
    /// Compiles constraints for [`Self::verify`]; its cache has each once.
    compiler: GrammarCompiler,
}

impl Workload {
    /// Reads the dataset, if there is one.
    ///
    /// # Errors
    /// It can't be read, or a line of it is no request.
    pub(super) fn new(args: &BenchServeArgs, model: String) -> anyhow::Result<Self> {
        let mut base = Map::new();
        base.insert("model".to_owned(), model.into());
        base.insert("stream".to_owned(), true.into());
        base.insert("stream_options".to_owned(), json!({"include_usage": true}));
        if let Some(temperature) = args.temperature {
            base.insert("temperature".to_owned(), temperature.into());
        }
        let dataset = match &args.dataset_path {
            Some(path) => read_dataset(path, args.backend)?,
            None => Vec::new(),
        };
        let kinds = args.constraint_kinds.iter();
        Ok(Self {
            path: match args.backend {
                Backend::Openai => "/v1/completions",
                Backend::OpenaiChat => "/v1/chat/completions",
            },
            backend: args.backend,
            seed: args.seed,
            base,
            dataset,
            examples: kinds.flat_map(|kind| kind.examples()).collect(),
            constrained_share: args.constrained_share,
            disconnect_share: args.disconnect_share,
            input_len: around(args.random_input_len, args.random_range_ratio),
            output_len: around(args.random_output_len, args.random_range_ratio),
            ignore_eos: args.ignore_eos,
            compiler: byte_compiler()?,
        })
    }

    /// Request number `number`.
    pub(super) fn request(&self, number: u64) -> Request {
        let mut random = Random::new(self.seed, number);
        let mut body = self.base.clone();
        let length = random.between(self.output_len.0, self.output_len.1);
        body.insert("max_tokens".to_owned(), length.into());
        // Any 32 bits do for a seed, and no server refuses them.
        let seed = random.between(0, i32::MAX as u32);
        body.insert("seed".to_owned(), seed.into());
        let count = self.dataset.len() as u64;
        let line = number.checked_rem(count).unwrap_or(0);
        match usize::try_from(line)
            .ok()
            .and_then(|line| self.dataset.get(line))
        {
            Some(line) => body.extend(line.clone()),
            None => {
                let words = random.between(self.input_len.0.max(1), self.input_len.1.max(1));
                let words: Vec<&str> = (0..words)
                    .filter_map(|_| random.pick(&WORDS).copied())
                    .collect();
                put_prompt(&mut body, self.backend, words.join(" "));
            }
        }
        let mut constraint = Constraint::of_request(&body);
        // Both are drawn, so that a share changes no other request.
        let (is_constrained, example) = (
            random.chance(self.constrained_share),
            random.pick(&self.examples),
        );
        if let (None, true, Some(example)) = (&constraint, is_constrained, example) {
            example.put_into(&mut body);
            constraint = Some(example.clone());
        }
        if constraint.is_none() && self.ignore_eos {
            body.insert("ignore_eos".to_owned(), true.into());
        }
        let leaves = random.chance(self.disconnect_share);
        let leaves_after = leaves.then(|| random.between(1, (length / 2).max(1)));
        let stop = match body.get("stop") {
            Some(Value::String(stop)) => vec![stop.clone()],
            Some(Value::Array(stops)) => {
                let stops = stops.iter().filter_map(Value::as_str);
                stops.map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        Request {
            body: Value::Object(body).to_string(),
            stop,
            constraint,
            leaves_after,
        }
    }

    /// Whether an answer meets its constraint, by itself or with one of the strings at its end that
    /// end an answer.
    ///
    /// # Errors
    /// Why it doesn't.
    pub(super) fn verify(
        &self,
        constraint: &Constraint,
        answer: &str,
        stop: &[String],
    ) -> anyhow::Result<()> {
        let grammar: CompiledGrammar = constraint
            .compile(&self.compiler)
            .context("the constraint can't be checked here")?;
        let meets = |text: &str| constraint.verify(&grammar, text);
        match meets(answer) {
            Err(_)
                if stop
                    .iter()
                    .any(|stop| meets(&format!("{answer}{stop}")).is_ok()) =>
            {
                Ok(())
            }
            verdict => verdict.with_context(|| format!("{answer:?}")),
        }
    }
}

/// The lengths around one.
fn around(length: u32, ratio: f64) -> (u32, u32) {
    let length = f64::from(length);
    // Saturating, and never negative.
    let low = (length * (1.0 - ratio)).floor() as u32;
    let high = (length * (1.0 + ratio)).ceil() as u32;
    (low.max(1), high.max(1))
}

fn put_prompt(body: &mut Map<String, Value>, backend: Backend, prompt: impl Into<Value>) {
    match backend {
        Backend::Openai => body.insert("prompt".to_owned(), prompt.into()),
        Backend::OpenaiChat => {
            let messages = json!([{"role": "user", "content": prompt.into()}]);
            body.insert("messages".to_owned(), messages)
        }
    };
}

/// The requests of a file, in the shape of the route that is asked.
fn read_dataset(path: &Path, backend: Backend) -> anyhow::Result<Vec<Map<String, Value>>> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("can't read --dataset-path {}", path.display()))?;
    let mut requests = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let request = read_line(line, backend);
        requests.push(request.with_context(|| format!("{}, line {}", path.display(), number + 1))?);
    }
    if requests.is_empty() {
        bail!("{} holds no request", path.display());
    }
    Ok(requests)
}

fn read_line(line: &str, backend: Backend) -> anyhow::Result<Map<String, Value>> {
    let mut fields: Map<String, Value> = serde_json::from_str(line).context("no JSON object")?;
    // A line for `formwork-batch`.
    if let Some(Value::Object(body)) = fields.remove("body") {
        fields = body;
    }
    for ours in ["model", "stream", "stream_options"] {
        fields.remove(ours);
    }
    if let Some(tokens) = fields.remove("output_tokens") {
        fields.insert("max_tokens".to_owned(), tokens);
    }
    match (fields.remove("prompt"), fields.remove("messages"), backend) {
        (Some(prompt), _, _) => put_prompt(&mut fields, backend, prompt),
        (None, Some(messages), Backend::OpenaiChat) => {
            fields.insert("messages".to_owned(), messages);
        }
        (None, Some(_), Backend::Openai) => {
            bail!("\"messages\" need --backend openai-chat");
        }
        (None, None, _) => bail!("neither \"prompt\" nor \"messages\""),
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: BenchServeArgs,
    }

    fn workload(args: &[&str]) -> Workload {
        let command = Command::try_parse_from([&["serve"], args].concat()).unwrap();
        Workload::new(&command.args, "m".to_owned()).unwrap()
    }

    #[test]
    fn requests_are_a_function_of_seed_and_number() {
        let args = ["--constrained-share", "0.5", "--random-range-ratio", "0.5"];
        let (a, b) = (workload(&args), workload(&args));
        let bodies = |w: &Workload| (0..50).map(|n| w.request(n).body).collect::<Vec<_>>();
        assert_eq!(bodies(&a), bodies(&b));
        assert_ne!(bodies(&a), bodies(&workload(&["--seed", "1"])));
    }

    #[test]
    fn shares_and_lengths_are_kept() {
        let load = workload(&[
            "--constrained-share",
            "0.5",
            "--disconnect-share",
            "0.1",
            "--random-output-len",
            "100",
            "--random-range-ratio",
            "0.5",
            "--random-input-len",
            "10",
        ]);
        let requests: Vec<Request> = (0..1000).map(|n| load.request(n)).collect();
        let constrained = requests.iter().filter(|r| r.constraint.is_some()).count();
        let leaving = requests.iter().filter(|r| r.leaves_after.is_some()).count();
        assert!((450..550).contains(&constrained), "{constrained}");
        assert!((70..130).contains(&leaving), "{leaving}");
        for request in requests {
            let body: Value = serde_json::from_str(&request.body).unwrap();
            let tokens = body["max_tokens"].as_u64().unwrap();
            assert!((50..=150).contains(&tokens), "{tokens}");
            let words = body["prompt"].as_str().unwrap().split(' ').count();
            assert!((5..=15).contains(&words), "{words}");
        }
    }

    #[test]
    fn a_string_that_ends_an_answer_may_belong_to_its_constraint() {
        let load = workload(&[]);
        let constraint = Constraint::Regex("a+\n".to_owned());
        let stop = ["x".to_owned(), "\n".to_owned()];
        assert!(load.verify(&constraint, "aa\n", &[]).is_ok());
        assert!(load.verify(&constraint, "aa", &stop).is_ok());
        assert!(load.verify(&constraint, "aa", &stop[..1]).is_err());
    }

    #[test]
    fn lines_of_every_form() {
        let chat = |line| read_line(line, Backend::OpenaiChat);
        let completion = |line| read_line(line, Backend::Openai);
        assert_eq!(
            Value::from(completion(r#"{"prompt": "a", "output_tokens": 3}"#).unwrap()),
            json!({"max_tokens": 3, "prompt": "a"})
        );
        let messages = json!({"messages": [{"role": "user", "content": "a"}]});
        assert_eq!(Value::from(chat(r#"{"prompt": "a"}"#).unwrap()), messages);
        let batch = json!({"custom_id": "1", "url": "/v1/chat/completions", "body": messages});
        assert_eq!(Value::from(chat(&batch.to_string()).unwrap()), messages);
        for line in ["[]", "{}", &messages.to_string()] {
            assert!(completion(line).is_err(), "{line}");
        }
    }
}
