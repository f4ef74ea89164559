//! Random nodes and values: what the machine accepts is what holds, and every place that it reaches
//! leads on to such a value.

use proptest::prelude::*;

use super::super::value::Value;
use super::spec::{Spec, spec, value};
use super::{Engine, parse};
use crate::lexical::Stop;
use crate::options::PropertyOrder;

pub(super) fn engine(spec: &Spec, order: PropertyOrder) -> Result<Option<Engine>, Stop> {
    Engine::new(order, |lexicon, programs| {
        let root = programs.nodes().reserve();
        let node = spec.node(lexicon, programs, root);
        programs.nodes().define(root, node);
        node
    })
}

/// All orders of the members in a value, as texts; at most so many.
fn orders(value: &Value, most: usize) -> Vec<String> {
    let join = |parts: Vec<Vec<String>>, open: char, close: char| {
        let mut texts = vec![String::new()];
        for part in parts {
            let mut longer = Vec::new();
            for text in &texts {
                for part in &part {
                    let comma = if text.is_empty() { "" } else { "," };
                    longer.push(format!("{text}{comma}{part}"));
                    if longer.len() >= most {
                        break;
                    }
                }
            }
            texts = longer;
        }
        texts
            .into_iter()
            .map(|text| format!("{open}{text}{close}"))
            .collect::<Vec<_>>()
    };
    match value {
        Value::Array(items) => join(
            items.iter().map(|item| orders(item, most)).collect(),
            '[',
            ']',
        ),
        Value::Object(members) => {
            let mut all = Vec::new();
            let mut permutations = vec![Vec::new()];
            for at in 0..members.len() {
                let mut longer = Vec::new();
                for permutation in &permutations {
                    for place in 0..=permutation.len() {
                        let mut next: Vec<usize> = permutation.clone();
                        next.insert(place, at);
                        longer.push(next);
                    }
                }
                permutations = longer;
            }
            for permutation in permutations {
                let parts = permutation
                    .iter()
                    .map(|&at| {
                        let (key, value) = &members[at];
                        let values = orders(value, most);
                        values
                            .iter()
                            .map(|value| format!("\"{key}\":{value}"))
                            .collect()
                    })
                    .collect();
                all.extend(join(parts, '{', '}'));
            }
            all
        }
        Value::String(text) => vec![format!("\"{text}\"")],
        Value::Number(text) => vec![text.clone()],
        Value::Null => vec!["null".into()],
        Value::Bool(value) => vec![value.to_string()],
    }
}

/// Why a check ends early.
enum End {
    Refused,
    Failed(TestCaseError),
}

impl From<Stop> for End {
    fn from(_: Stop) -> Self {
        Self::Refused
    }
}

impl From<TestCaseError> for End {
    fn from(error: TestCaseError) -> Self {
        Self::Failed(error)
    }
}

fn check(spec: &Spec, texts: &[String]) -> Result<(), End> {
    let Some(mut any) = engine(spec, PropertyOrder::Any)? else {
        return Ok(());
    };
    let Some(mut ordered) = engine(spec, PropertyOrder::Schema)? else {
        return Ok(());
    };
    for text in texts {
        let value = parse(text);
        let holds = any.holds(&value);
        let accepted = any.accepts(text)?;
        ensure(accepted == holds, || {
            format!("any order, accepted {accepted}: {text}")
        })?;
        let orders = orders(&value, 300);
        if orders.len() < 300 {
            let mut found = false;
            for text in &orders {
                found |= ordered.accepts(text)?;
            }
            ensure(found == holds, || {
                format!("order of the schema, accepted {found}: {text}")
            })?;
        }
        for engine in [&mut any, &mut ordered] {
            for end in 0..=text.len() {
                let Some(state) = engine.after(&text[..end])? else {
                    break;
                };
                if state.lexeme == crate::lexical::EMPTY && end == 0 {
                    break;
                }
                let rest = engine.completion(state)?;
                ensure(rest.is_some(), || format!("no end: {}", &text[..end]))?;
                let whole = format!("{}{}", &text[..end], rest.unwrap_or_default());
                let holds = engine.holds(&parse(&whole));
                ensure(holds, || format!("completed wrongly: {whole}"))?;
            }
        }
    }
    Ok(())
}

fn ensure(good: bool, message: impl FnOnce() -> String) -> Result<(), TestCaseError> {
    match good {
        true => Ok(()),
        false => Err(TestCaseError::fail(message())),
    }
}

/// Cases per test; more by the variable that proptest has for it.
pub(super) fn cases() -> u32 {
    let more = std::env::var("PROPTEST_CASES").ok();
    more.and_then(|cases| cases.parse().ok()).unwrap_or(500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn machine_and_evaluator_agree(
        spec in spec(),
        texts in prop::collection::vec(value(), 1..12),
    ) {
        match check(&spec, &texts) {
            Ok(()) => {}
            Err(End::Refused) => prop_assert!(false, "refused"),
            Err(End::Failed(error)) => return Err(error),
        }
    }
}
