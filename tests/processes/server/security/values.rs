//! Values of a request's fields: ordinary, extreme, hostile.

use serde_json::{Map, Value, json};

use super::random::Random;

/// The form that a field expects its values in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Strings,
    Ids,
    IdLists,
    Number,
    Flag,
    Bias,
    Schema,
    Grammar,
    Regex,
    Choice,
    Constraint,
    Format,
    Messages,
    /// Not among the shapes that stand in for others.
    Conversations,
    /// The same: questions of a decision.
    Questions,
    /// The same, by their names.
    NamedQuestions,
    Tools,
    ToolChoice,
    Template,
    Object,
    Nest,
    Logprobs,
}

use Shape::{
    Bias, Choice, Constraint, Conversations, Flag, Format, Grammar, IdLists, Ids, Logprobs,
    Messages, NamedQuestions, Nest, Number, Object, Questions, Regex, Schema, Strings, Template,
    Text, ToolChoice, Tools,
};

const ALL: [Shape; 20] = [
    Text, Strings, Ids, IdLists, Number, Flag, Bias, Schema, Grammar, Regex, Choice, Constraint,
    Format, Messages, Tools, ToolChoice, Template, Object, Nest, Logprobs,
];

/// A value for a field of this shape, of about `size` bytes where it may have any size: mostly of
/// the right shape, now and then a small one, an extreme number, or of another shape.
pub(super) fn value(shape: Shape, random: &mut Random, size: usize) -> Value {
    match random.below(10) {
        0 => extreme_number(random),
        1 => {
            let other = *random.one_of(&ALL);
            shaped(other, random, size)
        }
        2 | 3 => shaped(shape, random, 20),
        _ => shaped(shape, random, size),
    }
}

fn shaped(shape: Shape, random: &mut Random, size: usize) -> Value {
    match shape {
        Text => Value::from(text(random, size)),
        Strings => strings(random, size),
        Ids => {
            let step = 1 + random.below(50);
            (0..size / 5).map(|i| i * step % 4000).collect()
        }
        IdLists => {
            let per_list = *random.one_of(&[1, 10, 1000, 3000]);
            let list: Value = (0..per_list.min(size / 5 + 1)).collect();
            vec![list; (size / (5 * per_list)).clamp(1, 2000)].into()
        }
        Number => json!(random.below(21)),
        Flag => json!(random.once_in(2)),
        Bias => {
            let pairs = (0..size / 12).map(|i| (i.to_string(), json!(-1)));
            Value::Object(pairs.collect())
        }
        Schema => schema(random, size),
        Grammar => Value::from(grammar(random, size)),
        Regex => Value::from(regex(random, size)),
        Choice => strings(random, size),
        Constraint => constraint(random, size),
        Format => {
            let schema = schema(random, size);
            json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
        }
        Messages => messages(random, size),
        Conversations => {
            let count = (*random.one_of(&[1, 3, 100, 1024])).min(size / 40 + 1);
            vec![messages(random, size / count); count].into()
        }
        Questions => questions(random, size),
        NamedQuestions => named_questions(random, size),
        Tools => tools(random, size),
        ToolChoice => random
            .one_of(&[
                json!("auto"),
                json!("required"),
                json!("none"),
                json!({"type": "function", "function": {"name": "f0"}}),
            ])
            .clone(),
        Template => Value::from(template(random, size)),
        Object => {
            let pairs = (0..size / 16).map(|i| (format!("key{i}"), json!("v")));
            Value::Object(pairs.collect())
        }
        Nest => nest(random, size),
        Logprobs => json!(*random.one_of(&[0, 1, 5, 20])),
    }
}

fn extreme_number(random: &mut Random) -> Value {
    random
        .one_of(&[
            json!(-1),
            json!(0),
            json!(1),
            json!(64),
            json!(16_384),
            json!(16_385),
            json!(u32::MAX),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(0.5),
            json!(1e300),
            json!(-1e-300),
            Value::Null,
        ])
        .clone()
}

/// Text of `size` bytes in one of the forms that tokenizers and searches are slow at.
pub(super) fn text(random: &mut Random, size: usize) -> String {
    let piece = *random.one_of(&[
        "1",
        "a",
        " ",
        "\n",
        "word ",
        "\u{1f1e6}",
        "\u{0}",
        "é",
        "\u{301}",
        "<|im_start|>",
        "\"\\",
        "漢",
        "aB3$ ",
        "\u{202e}\u{9b}",
    ]);
    let mut text = piece.repeat(size / piece.len() + 1);
    if random.once_in(4) {
        text = text
            .chars()
            .map(|c| if random.once_in(9) { 'x' } else { c })
            .collect();
    }
    text
}

/// Many short strings, or few long ones.
fn strings(random: &mut Random, size: usize) -> Value {
    let count = *random.one_of(&[1, 4, 128, 1024, size / 8 + 1]);
    let count = count.min(size / 4 + 1);
    let piece = text(random, size / count);
    (0..count)
        .map(|i| Value::from(format!("{piece}{i}")))
        .collect()
}

pub(super) fn schema(random: &mut Random, size: usize) -> Value {
    match random.below(9) {
        0 => {
            let property = |i: usize| (format!("p{i}"), json!({"type": "string"}));
            let properties: Map<String, Value> = (0..size / 26).map(property).collect();
            json!({"type": "object", "properties": properties})
        }
        1 => json!({"enum": strings(random, size)}),
        2 => {
            let mut inner = json!({"type": "integer"});
            for _ in 0..(size / 30).clamp(1, 60) {
                inner = json!({"type": "array", "items": inner});
            }
            inner
        }
        3 => {
            let branch = |i: usize| json!({"properties": {"a": {"const": i}}});
            json!({"anyOf": (0..size / 36 + 1).map(branch).collect::<Vec<_>>()})
        }
        4 => json!({"type": "string", "pattern": regex(random, size)}),
        5 => json!({"type": "object", "description": text(random, size)}),
        6 => listed_values(random, size),
        7 => searched_value(random),
        _ => {
            let definition = |i: usize| {
                let next = format!("#/$defs/d{}", i + 1);
                (
                    format!("d{i}"),
                    json!({"properties": {"n": {"$ref": next}}}),
                )
            };
            let count = size / 60 + 1;
            let mut definitions: Map<String, Value> = (0..count).map(definition).collect();
            definitions.insert(format!("d{count}"), json!({"type": "null"}));
            json!({"$ref": "#/$defs/d0", "$defs": definitions})
        }
    }
}

/// An `enum` of lists, objects or lists within each other.
fn listed_values(random: &mut Random, size: usize) -> Value {
    let make = *random.one_of(&[
        (|n| json!([n])) as fn(usize) -> Value,
        |n| json!({"k": n, "v": n.to_string()}),
        |n| json!([[[[[n]]]]]),
    ]);
    let count = size / make(10_000).to_string().len() + 1;
    json!({"enum": (0..count).map(make).collect::<Vec<_>>()})
}

/// A small schema whose values have to be searched for.
fn searched_value(random: &mut Random) -> Value {
    let n = random.below(6_000);
    random
        .one_of(&[
            json!({"type": "integer", "minimum": 100_000_000_000_000_000_u64, "multipleOf": 9_999_991 - n}),
            json!({"type": "string", "minLength": 10 * n, "pattern": format!(".*a.{{{n}}}")}),
            json!({"type": "array", "uniqueItems": true, "minItems": n, "items": {"type": "boolean"}}),
            json!({"type": "array", "minItems": n, "items": {"type": "string", "minLength": n}}),
            json!({"allOf": (1..7).map(|i| json!({"multipleOf": n * 7 + i})).collect::<Vec<_>>()}),
        ])
        .clone()
}

fn regex(random: &mut Random, size: usize) -> String {
    let piece = *random.one_of(&[
        "(a|b)", "a{0,9}", ".*x", "[a-z]", "(?=.*a)", "\\w", "(", "é?",
    ]);
    piece.repeat(size / piece.len() + 1)
}

fn grammar(random: &mut Random, size: usize) -> String {
    let count = size / 24 + 1;
    if random.once_in(3) {
        return format!("root ::= {}", text(random, size));
    }
    let mut grammar = String::from("root ::= r0\n");
    for i in 0..count {
        grammar.push_str(&format!("r{i} ::= \"w{i}\" r{}?\n", (i + 1) % count));
    }
    grammar
}

fn constraint(random: &mut Random, size: usize) -> Value {
    let (name, shape) = *random.one_of(&[
        ("json", Schema),
        ("regex", Regex),
        ("choice", Choice),
        ("grammar", Grammar),
        ("structural_tag", Object),
        ("json_object", Flag),
    ]);
    json!({name: shaped(shape, random, size)})
}

fn messages(random: &mut Random, size: usize) -> Value {
    let count = *random.one_of(&[1, 10, 10_000, 100_000]);
    let count = count.min(size / 34 + 1);
    let content = text(random, (size / count).saturating_sub(34));
    let role = |i: usize| {
        if i.is_multiple_of(2) {
            "user"
        } else {
            "assistant"
        }
    };
    if random.once_in(6) {
        let arguments = arguments(random, size / count);
        let function = json!({"name": "f", "arguments": arguments});
        let call = json!({"id": "c", "type": "function", "function": function});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        return vec![message; count].into();
    }
    let message = |i: usize| match random.once_in(50) {
        true => json!({"role": role(i), "content": [{"type": "text", "text": content}]}),
        false => json!({"role": role(i), "content": content}),
    };
    (0..count).map(message).collect()
}

/// A call's arguments: text of JSON with many small values.
fn arguments(random: &mut Random, size: usize) -> String {
    let piece = *random.one_of(&["0,", "[],", "{},", "\"\",", "[[0]],", "{\"a\":{}},"]);
    format!("{{\"a\": [{}0]}}", piece.repeat(size / piece.len()))
}

fn tools(random: &mut Random, size: usize) -> Value {
    let count = (*random.one_of(&[1, 3, 300, 10_000])).min(size / 80 + 1);
    let parameters = match random.once_in(2) {
        true => json!({"type": "object", "properties": {}}),
        false => json!({"type": "object", "properties": {"a": schema(random, size / count)}}),
    };
    let tool = |i: usize| {
        let function = json!({"name": format!("f{i}"), "parameters": parameters});
        json!({"type": "function", "function": function})
    };
    (0..count).map(tool).collect()
}

fn template(random: &mut Random, size: usize) -> String {
    let piece = *random.one_of(&[
        "{{ 'x\ny'|indent(1125899906842624) }}",
        "{{ 'x'|center(99999999999) }}",
        "{{ '%99999999d'|format(1) }}",
        "{% set a = 'x' * 30000 %}{{ a|replace('x', a)|length }}",
        "{% set n = namespace(s='xx') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{{ range(99999999)|list|length }}",
        "{{ (messages|string * 5000)|length }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}",
        "{{ [1] * 99999999 }}",
        "{{ messages|tojson(indent=99999999) }}",
        "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
        "{{ ('a,' * 999999).split(',')|join('xxxxxxxx')|length }}",
        "plain text ",
    ]);
    if random.once_in(4) {
        let open = *random.one_of(&["-", "[", "(", "not ", "{"]);
        return format!("{{{{ {}1 }}}}", open.repeat(size.min(300_000) / open.len()));
    }
    piece.repeat((size / piece.len()).clamp(1, 5000))
}

/// Lists or objects in one another, up to what a parser takes.
fn nest(random: &mut Random, size: usize) -> Value {
    let as_object = random.once_in(2);
    let mut inner = json!(text(random, size));
    for _ in 0..random.below(124) {
        inner = match as_object {
            true => json!({"a": inner}),
            false => json!([inner]),
        };
    }
    inner
}

/// Questions of each kind, with few options or as many as there is room for.
fn questions(random: &mut Random, size: usize) -> Value {
    let count = (*random.one_of(&[1, 2, 16, 400])).min(size / 40 + 1);
    let size = size / count;
    let question = |random: &mut Random, i: usize| {
        let asked = text(random, size / 4);
        match random.below(3) {
            0 => json!({"type": "predicate", "name": format!("q{i}"), "instructions": asked}),
            1 => {
                let values = strings(random, size);
                let values = values.as_array().cloned().unwrap_or_default();
                let choices: Vec<Value> = values.iter().map(|v| json!({"value": v})).collect();
                json!({"type": "choice", "instructions": asked, "choices": choices})
            }
            _ => {
                let levels: Vec<Value> = (0..2 + size / 64)
                    .map(|i| json!({"label": format!("level {i}"), "description": "of some words"}))
                    .collect();
                json!({"type": "score", "instructions": asked, "levels": levels})
            }
        }
    };
    (0..count).map(|i| question(random, i)).collect()
}

fn named_questions(random: &mut Random, size: usize) -> Value {
    let count = (*random.one_of(&[1, 2, 16, 200])).min(size / 40 + 1);
    let size = size / count;
    let question = |random: &mut Random| {
        let asked = text(random, size / 4);
        match random.below(3) {
            0 => json!({"type": "noul", "instructions": asked}),
            1 => {
                let criteria = (0..2 + size / 24).map(|i| (format!("option {i}"), json!("of it")));
                let criteria: Map<String, Value> = criteria.collect();
                json!({"type": "choice", "instructions": asked, "criteria": criteria})
            }
            _ => json!({"type": "score", "instructions": asked, "criteria": strings(random, size)}),
        }
    };
    let questions = (0..count).map(|i| (format!("q{i}"), question(random)));
    Value::Object(questions.collect())
}
