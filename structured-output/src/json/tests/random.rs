//! Random nodes and values: what the machine accepts is what holds, and every place that it reaches
//! leads on to such a value.

use proptest::prelude::*;

use super::super::value::Value;
use super::spec::{Spec, spec, value};
use super::{Engine, parse};
use crate::options::PropertyOrder;

fn engine(spec: &Spec, order: PropertyOrder) -> Option<Engine> {
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
        texts.into_iter().map(|text| format!("{open}{text}{close}")).collect::<Vec<_>>()
    };
    match value {
        Value::Array(items) => join(items.iter().map(|item| orders(item, most)).collect(), '[', ']'),
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
                        values.iter().map(|value| format!("\"{key}\":{value}")).collect()
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

fn check(spec: &Spec, texts: &[String]) -> Result<(), TestCaseError> {
    let Some(mut any) = engine(spec, PropertyOrder::Any) else {
        return Ok(());
    };
    let Some(mut ordered) = engine(spec, PropertyOrder::Schema) else {
        return Ok(());
    };
    for text in texts {
        let value = parse(text);
        let holds = any.holds(&value);
        prop_assert_eq!(any.accepts(text), holds, "any order: {}", text);
        let orders = orders(&value, 300);
        if orders.len() < 300 {
            let found = orders.iter().any(|text| ordered.accepts(text));
            prop_assert_eq!(found, holds, "order of the schema: {}", text);
        }
        for engine in [&mut any, &mut ordered] {
            for end in 0..=text.len() {
                let Some(state) = engine.after(&text[..end]) else {
                    break;
                };
                if state.lexeme == crate::lexical::EMPTY && end == 0 {
                    break;
                }
                let rest = engine.completion(state);
                prop_assert!(rest.is_some(), "no end: {}", &text[..end]);
                let whole = format!("{}{}", &text[..end], rest.unwrap_or_default());
                let value = parse(&whole);
                prop_assert!(engine.holds(&value), "completed wrongly: {}", whole);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn machine_and_evaluator_agree(
        spec in spec(),
        texts in prop::collection::vec(value(), 1..12),
    ) {
        check(&spec, &texts)?;
    }
}
