//! Hostile constraints of every kind, alone and all at once.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use protocol::{StructuredOutputsConstraint, StructuredOutputsParams};
use serde_json::{Value, json};

use crate::fault::{Fault, Report, Setting};
use crate::http::Answer;
use crate::load::Load;
use crate::server::{Launch, Server};
use crate::{hostile_constraints, slow_constraints};

pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "constraints",
        must_hold: "one hostile constraint after another: each is served or refused with 400; requests beside it are answered as \
                    before, and no core is replaced",
        run: one_after_another,
    },
    Fault {
        name: "constraints-at-once",
        must_hold: "all of them together: the same; also 503 where too many wait",
        run: all_at_once,
    },
];

/// A name and the field `structured_outputs` of a request.
type Hostile = (String, Value);

/// The field of a request that asks for a constraint.
fn field(params: &StructuredOutputsParams) -> Value {
    let constraint = &params.constraint;
    let value = match constraint {
        StructuredOutputsConstraint::Json(text)
        | StructuredOutputsConstraint::Regex(text)
        | StructuredOutputsConstraint::Grammar(text)
        | StructuredOutputsConstraint::StructuralTag(text) => json!(text),
        StructuredOutputsConstraint::Choice(strings) => json!(strings),
        StructuredOutputsConstraint::JsonObject => json!(true),
    };
    json!({
        constraint.kind(): value,
        "complete_within_max_tokens": params.complete_within_max_tokens,
    })
}

/// Grammars and tags that are dear in ways of their own; another of each for each number.
fn of_other_kinds(number: usize) -> Vec<(&'static str, Value)> {
    let chain: String = (0..9000)
        .map(|n| format!("r{n} ::= \"w{number}\" r{}?\n", (n + 1) % 9000))
        .collect();
    let ambiguous = format!(
        "start: a\na: a a | \"x\" | \"x{number}\" | a \"y\" a | b\nb: a | \"x\" b \"x\" |\n"
    );
    let nested = format!(
        "root ::= {}\"{number}\"{}",
        "(".repeat(5000),
        ")*".repeat(5000)
    );
    let terminals: String = (0..600)
        .map(|n| format!("T{n}: /[a-z]*{number}x{n}[0-9]*/\n"))
        .collect();
    let names: Vec<String> = (0..600).map(|n| format!("T{n}")).collect();
    let tags: Vec<Value> = (0..400)
        .map(|n| {
            json!({
                "begin": format!("<f{n}x{number}>"), "end": "</f>",
                "schema": {"type": "object", "properties": {format!("p{n}"): {"pattern": "^(a|b)*c{1,99}$"}}},
            })
        })
        .collect();
    let triggered = json!({"type": "structural_tag", "structures": tags, "triggers": ["<f"]});
    let nesting = |depth| {
        (0..depth).fold(json!({"type": "integer", "minimum": number}), |inner, _| {
            json!({"type": "object", "required": ["a"], "properties": {"a": inner, "b": {"type": "string"}}})
        })
    };
    let all_of: Vec<Value> = (0..40)
        .map(|n| json!({"not": {"const": n * 31 + number}}))
        .collect();
    let words: Vec<String> = (0..50_000)
        .map(|n| format!("value {n} of {number}"))
        .collect();
    vec![
        (
            "EBNF: a chain of 9,000 rules",
            json!({"grammar": format!("root ::= r0\n{chain}")}),
        ),
        ("EBNF: 5,000 nested repetitions", json!({"grammar": nested})),
        (
            "Lark: everything is ambiguous",
            json!({"grammar": ambiguous}),
        ),
        (
            "Lark: 600 terminals that overlap",
            json!({"grammar": format!("start: ({})+\n{terminals}", names.join(" | "))}),
        ),
        (
            "structural tag: 400 tags",
            json!({"structural_tag": triggered.to_string()}),
        ),
        ("JSON Schema: 60 deep", json!({"json": nesting(60)})),
        (
            "JSON Schema: 40 exclusions",
            json!({"json": {"type": "integer", "allOf": all_of}}),
        ),
        ("choice: 50,000 strings", json!({"choice": words})),
        (
            "regex: counts of counts",
            json!({"regex": format!("((a{{1,90}}b){{1,90}}c){{1,90}}{number}")}),
        ),
        (
            "regex: nested stars",
            json!({"regex": format!("((((a*)*b)*c)*d)*{number}")}),
        ),
    ]
}

/// All of them; what can't be enforced at all once, the others in as many versions.
fn hostile(versions: usize) -> Vec<Hostile> {
    let refused = hostile_constraints::hostile()
        .into_iter()
        .map(|(name, constraint)| {
            (
                name.to_owned(),
                field(&StructuredOutputsParams::new(constraint)),
            )
        });
    let mut all: Vec<Hostile> = refused.collect();
    for version in 0..versions {
        for (index, params) in slow_constraints::constraints(version).iter().enumerate() {
            all.push((
                format!("slow {} {index}", params.constraint.kind()),
                field(params),
            ));
        }
        all.extend(
            of_other_kinds(version)
                .into_iter()
                .map(|(name, field)| (name.to_owned(), field)),
        );
    }
    all
}

/// Counts answers by status; others than 200 and these are broken promises, and so is none.
#[derive(Default)]
struct Statuses(BTreeMap<u16, usize>);

impl Statuses {
    fn add(
        &mut self,
        report: &mut Report,
        name: &str,
        answer: anyhow::Result<Answer>,
        fitting: &[u16],
    ) {
        match answer {
            Ok(answer) => {
                *self.0.entry(answer.status).or_default() += 1;
                let is_fitting = answer.status == 200 || fitting.contains(&answer.status);
                report.must(
                    is_fitting,
                    format!("{name}: {} {}", answer.status, answer.message()),
                );
            }
            Err(error) => report.must(false, format!("{name}: {error:#}")),
        }
    }

    fn report(&self, report: &mut Report) {
        let counts: Vec<String> = self
            .0
            .iter()
            .map(|(status, count)| format!("{count} with {status}"))
            .collect();
        report.saw(format!("answered {}", counts.join(", ")));
    }
}

fn one_after_another(setting: &Setting) -> anyhow::Result<Report> {
    let server = Server::start(setting, &Launch::default())?;
    let load = Load::learn(&server)?;
    let mut report = Report::default();
    let mut statuses = Statuses::default();
    let mut slowest = (Duration::ZERO, String::new());
    let versions = if setting.is_long { 10 } else { 1 };
    let ((), tally) = load.beside(&server, 2, || {
        for (name, constraint) in hostile(versions) {
            let asked = Instant::now();
            let answer = server.ask_constrained(&constraint);
            if asked.elapsed() > slowest.0 {
                slowest = (asked.elapsed(), name.clone());
            }
            statuses.add(&mut report, &name, answer, &[400]);
        }
    });
    statuses.report(&mut report);
    report.saw(format!(
        "the slowest, {}, after {:.1} s",
        slowest.1,
        slowest.0.as_secs_f64()
    ));
    report.load(&tally);
    finish(&server, report)
}

fn all_at_once(setting: &Setting) -> anyhow::Result<Report> {
    let server = Server::start(setting, &Launch::default())?;
    let load = Load::learn(&server)?;
    let mut report = Report::default();
    let mut statuses = Statuses::default();
    let hostile = hostile(if setting.is_long { 20 } else { 3 });
    let (took, tally) = load.beside(&server, 2, || {
        let asked = Instant::now();
        let answers: Vec<_> = thread::scope(|scope| {
            let ask = |(_, constraint): &Hostile| server.ask_constrained(constraint);
            let pending: Vec<_> = hostile
                .iter()
                .map(|one| scope.spawn(move || ask(one)))
                .collect();
            pending.into_iter().map(|client| client.join()).collect()
        });
        for ((name, _), answer) in hostile.iter().zip(answers) {
            let answer = answer.unwrap_or_else(|_| Err(anyhow::anyhow!("the client failed")));
            statuses.add(&mut report, name, answer, &[400, 503]);
        }
        asked.elapsed()
    });
    statuses.report(&mut report);
    report.saw(format!(
        "{} at once, the last after {:.1} s",
        hostile.len(),
        took.as_secs_f64()
    ));
    report.load(&tally);
    finish(&server, report)
}

fn finish(server: &Server, mut report: Report) -> anyhow::Result<Report> {
    let restarts = server.restarts()?;
    report.saw(format!("{restarts} cores replaced"));
    report.must(restarts == 0.0, "a core was replaced");
    server.wait_until_idle()?;
    Ok(report)
}
