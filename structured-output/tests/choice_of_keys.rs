//! Objects whose keys and values are chosen under many conditions at once: random ones beside all objects
//! tried one by one, and ones of hundreds of clauses, which are served.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod byte_vocabulary;

use serde_json::{Map, Value, json};
use structured_output::{
    CompileError, CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions,
    PropertyOrder,
};

const ORDERS: [PropertyOrder; 2] = [PropertyOrder::Schema, PropertyOrder::Any];

/// Numbers that look random, always the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

fn key(number: usize) -> String {
    format!("k{number}")
}

/// A condition on an object, and whether one of some booleans by name meets it.
#[derive(Debug)]
enum Condition {
    Has(usize),
    /// If it is there, it is that.
    Is(usize, bool),
    /// It is there, and is that.
    HasAndIs(usize, bool),
    Absent(usize),
    Least(usize),
    Most(usize),
    Not(Box<Condition>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

impl Condition {
    fn schema(&self) -> Value {
        let list = |list: &[Self]| list.iter().map(Self::schema).collect::<Vec<_>>();
        let value = |name: usize, value: Value| Value::Object(Map::from_iter([(key(name), value)]));
        match self {
            Self::Has(name) => json!({"required": [key(*name)]}),
            Self::Is(name, is) => json!({"properties": value(*name, json!({"const": is}))}),
            Self::HasAndIs(name, is) => {
                json!({"properties": value(*name, json!({"const": is})), "required": [key(*name)]})
            }
            Self::Absent(name) => json!({"properties": value(*name, json!(false))}),
            Self::Least(count) => json!({"minProperties": count}),
            Self::Most(count) => json!({"maxProperties": count}),
            Self::Not(inner) => json!({"not": inner.schema()}),
            Self::All(inner) => json!({"allOf": list(inner)}),
            Self::Any(inner) => json!({"anyOf": list(inner)}),
        }
    }

    fn is_met(&self, object: &[Option<bool>]) -> bool {
        let size = object.iter().flatten().count();
        match self {
            Self::Has(name) => object[*name].is_some(),
            Self::Is(name, is) => object[*name].is_none_or(|value| value == *is),
            Self::HasAndIs(name, is) => object[*name] == Some(*is),
            Self::Absent(name) => object[*name].is_none(),
            Self::Least(count) => size >= *count,
            Self::Most(count) => size <= *count,
            Self::Not(inner) => !inner.is_met(object),
            Self::All(inner) => inner.iter().all(|one| one.is_met(object)),
            Self::Any(inner) => inner.iter().any(|one| one.is_met(object)),
        }
    }

    fn random(dice: &mut Dice, num_keys: usize, depth: usize) -> Self {
        let name = dice.below(num_keys);
        let is = dice.below(2) == 0;
        match dice.below(if depth == 0 { 12 } else { 15 }) {
            0..3 => Self::Has(name),
            3 => Self::Is(name, is),
            4 | 5 => Self::HasAndIs(name, is),
            6 => Self::Absent(name),
            7 => Self::Least(dice.below(num_keys + 1)),
            8 => Self::Most(dice.below(num_keys)),
            9 | 10 => Self::Not(Box::new(Self::Has(name))),
            11 => Self::Not(Box::new(Self::Is(name, is))),
            12 => Self::Not(Box::new(Self::random(dice, num_keys, depth - 1))),
            13 => Self::All(Self::list(dice, num_keys, 2, depth - 1)),
            _ => Self::Any(Self::list(dice, num_keys, 2, depth - 1)),
        }
    }

    fn list(dice: &mut Dice, num_keys: usize, count: usize, depth: usize) -> Vec<Self> {
        let one = |_| Self::random(dice, num_keys, depth);
        (0..count).map(one).collect()
    }
}

fn compile(
    compiler: &GrammarCompiler,
    schema: &Value,
    property_order: PropertyOrder,
) -> Result<GrammarMatcher, CompileError> {
    let options = JsonSchemaOptions {
        property_order,
        ..JsonSchemaOptions::default()
    };
    let grammar = compiler.compile_json_schema(&schema.to_string(), &options)?;
    Ok(GrammarMatcher::new(&grammar))
}

/// Whether a text is a sentence, with a mask before each byte.
fn accepts(matcher: &GrammarMatcher, text: &str) -> bool {
    let mut matcher = matcher.fork();
    for byte in text.bytes() {
        let is_allowed = matcher
            .next_token_mask()
            .unwrap()
            .is_allowed(u32::from(byte));
        assert_eq!(
            matcher.accept_token(u32::from(byte)).unwrap(),
            is_allowed,
            "{text}"
        );
        if !is_allowed {
            return false;
        }
    }
    matcher
        .next_token_mask()
        .unwrap()
        .is_allowed(byte_vocabulary::EOS)
}

fn text(object: &[Option<bool>]) -> String {
    let there = object.iter().enumerate();
    let members =
        there.filter_map(|(name, value)| value.map(|value| format!("\"k{name}\":{value}")));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Every object of some keys, each absent, false or true.
fn objects(num_keys: usize) -> impl Iterator<Item = Vec<Option<bool>>> {
    (0..3_usize.pow(num_keys as u32)).map(move |mut number| {
        let mut one = || {
            let value = [None, Some(false), Some(true)][number % 3];
            number /= 3;
            value
        };
        (0..num_keys).map(|_| one()).collect()
    })
}

#[test]
fn random_conditions_mean_what_they_say() {
    const KEYS: usize = 10;
    let all: Vec<Vec<Option<bool>>> = objects(KEYS).collect();
    let cases = std::env::var("FORMWORK_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    let compiler = byte_vocabulary::compiler(CompilerOptions::default());
    let mut num_met = 0;
    for case in 0..cases.unwrap_or(40) {
        let mut dice = Dice(case);
        // Of few, and of many longer ones, which are decided together.
        let (num_clauses, length) = match dice.below(2) {
            0 => (4 + dice.below(14), 2),
            _ => (26 + dice.below(14), 4),
        };
        let clauses = (0..num_clauses).map(|_| {
            let count = length + dice.below(2);
            Condition::Any(Condition::list(&mut dice, KEYS, count, 2))
        });
        let condition = Condition::All(clauses.collect());
        let is_closed = dice.below(3) > 0;
        let named = (0..KEYS).map(|name| (key(name), json!({"type": "boolean"})));
        let schema = json!({
            "type": "object",
            "properties": named.collect::<Map<_, _>>(),
            "additionalProperties": !is_closed,
            "allOf": [condition.schema()],
        });
        let (met, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|object| condition.is_met(object));
        let can_be = !met.is_empty();
        let mut some = Vec::new();
        for list in [met, others] {
            some.extend((0..12.min(list.len())).map(|_| list[dice.below(list.len())].clone()));
        }
        for order in ORDERS {
            let matcher = match compile(&compiler, &schema, order) {
                Ok(matcher) => matcher,
                Err(CompileError::NoValue { .. }) => {
                    assert!(!can_be, "{case} {order:?} {schema}");
                    continue;
                }
                Err(other) => panic!("{case} {order:?} {schema}: {other}"),
            };
            // Others may help where there are such.
            assert!(can_be || !is_closed, "{case} {order:?} {schema}");
            num_met += usize::from(can_be);
            for object in &some {
                let text = text(object);
                let is_met = condition.is_met(object);
                assert_eq!(
                    accepts(&matcher, &text),
                    is_met,
                    "{case} {order:?} {text} {schema}"
                );
            }
        }
    }
    assert!(num_met > 20, "{num_met}");
}

/// How a key that is there, or isn't, is said.
#[derive(Clone, Copy)]
enum Way {
    Required,
    Values,
    False,
}

/// Three of so many keys or their absence, one of which has to be met, so many times; an answer is known.
fn clauses(way: Way, num_keys: usize, num_clauses: usize, seed: u64) -> Value {
    let mut dice = Dice(seed);
    let answer: Vec<bool> = (0..num_keys).map(|_| dice.below(2) == 0).collect();
    let mut clauses = Vec::new();
    while clauses.len() < num_clauses {
        let literals: Vec<(usize, bool)> = (0..3)
            .map(|_| (dice.below(num_keys), dice.below(2) == 0))
            .collect();
        if !literals.iter().any(|&(name, holds)| answer[name] == holds) {
            continue;
        }
        let any = literals.iter().map(|&(name, holds)| match (way, holds) {
            (Way::Required | Way::False, true) => Condition::Has(name).schema(),
            (Way::Required, false) => Condition::Not(Box::new(Condition::Has(name))).schema(),
            (Way::Values, holds) => Condition::HasAndIs(name, holds).schema(),
            (Way::False, false) => Condition::Absent(name).schema(),
        });
        clauses.push(json!({"anyOf": any.collect::<Vec<_>>()}));
    }
    let named = (0..num_keys).map(|name| (key(name), json!({"type": "boolean"})));
    json!({
        "type": "object",
        "properties": named.collect::<Map<_, _>>(),
        "additionalProperties": false,
        "allOf": clauses,
    })
}

/// From 18 to 80 keys these were refused, or let in and failed behind their first bytes.
#[test]
fn hundreds_of_clauses_are_served_to_their_end() {
    for (way, num_keys, num_clauses, max_steps) in [
        (Way::Required, 50, 210, 2_000_000),
        (Way::Required, 80, 336, 2_000_000),
        (Way::Values, 18, 75, 2_000_000),
        (Way::Values, 50, 190, 2_000_000),
        // Keys with which an end is known are not searched for one by one.
        (Way::Values, 70, 280, 500_000),
        (Way::False, 50, 150, 2_000_000),
        (Way::False, 80, 320, 2_000_000),
    ] {
        for seed in 0..2 {
            let schema = clauses(way, num_keys, num_clauses, seed);
            for order in ORDERS {
                let compiler = byte_vocabulary::compiler(CompilerOptions::default());
                let mut matcher = compile(&compiler, &schema, order).unwrap();
                let mut dice = Dice(seed);
                let mut text = Vec::new();
                while !matcher.is_completed() {
                    matcher.set_allowance(Some(max_steps));
                    let mask = matcher.next_token_mask().unwrap();
                    let white = |byte: &u32| b" \t\r\n".iter().any(|&one| u32::from(one) == *byte);
                    let bytes: Vec<u32> = mask
                        .token_ids()
                        .into_iter()
                        .filter(|byte| !white(byte))
                        .collect();
                    let byte = bytes[dice.below(bytes.len())];
                    if byte == byte_vocabulary::EOS {
                        break;
                    }
                    assert!(matcher.accept_token(byte).unwrap());
                    text.push(byte as u8);
                }
                let object: Value = serde_json::from_slice(&text).unwrap();
                assert!(jsonschema::is_valid(&schema, &object), "{object}");
            }
        }
    }
}
