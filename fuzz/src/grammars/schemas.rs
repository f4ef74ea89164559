//! Schemas: of every keyword, and with what schemas are made to hang with.

use super::generate::{many, regex, text};
use crate::Random;

/// A whole schema, mostly with definitions that refer to each other and to the whole.
pub(crate) fn document(random: &mut Random) -> String {
    let root = schema(random, 3);
    let Some(members) = root.strip_prefix('{').filter(|members| members.len() > 1) else {
        return root;
    };
    if random.once_in(3) {
        return root;
    }
    let (x, y) = (definition(random), definition(random));
    format!("{{\"$defs\": {{\"x\": {x}, \"y\": {y}}}, {members}")
}

/// A definition, which may need itself, also for the same value.
fn definition(random: &mut Random) -> String {
    let inner = schema(random, 1);
    let to = random.pick(&["#", "#/$defs/x", "#/$defs/y", "#node"]);
    match random.below(9) {
        0 => format!("{{\"allOf\": [{inner}, {{\"$ref\": \"{to}\"}}]}}"),
        1 => format!("{{\"anyOf\": [{inner}, {{\"items\": {{\"$ref\": \"{to}\"}}}}]}}"),
        2 => format!("{{\"$ref\": \"{to}\", \"not\": {inner}}}"),
        3 => format!(
            "{{\"$dynamicAnchor\": \"node\", \"items\": {{\"$dynamicRef\": \"#node\"}}, \"contains\": {inner}}}"
        ),
        4 => format!(
            "{{\"propertyNames\": {{\"$ref\": \"{to}\"}}, \"additionalProperties\": {inner}}}"
        ),
        5 => format!(
            "{{\"properties\": {{\"a\": {{\"$ref\": \"{to}\"}}}}, \"required\": [\"a\"], \"unevaluatedProperties\": {inner}}}"
        ),
        6 => format!("{{{}}}", implications(random, &inner)),
        _ => inner,
    }
}

/// Keys that need each other: in a ring, in a row, all of all, or as it comes.
fn implications(random: &mut Random, inner: &str) -> String {
    let count = match random.below(4) {
        0 => 20 + random.below(60),
        _ => 2 + random.below(6),
    };
    let key = |n: usize| match n % count {
        0 => "a".to_owned(),
        n => format!("k{n}"),
    };
    let kind = random.below(4);
    // All of all is a long text.
    let count = if kind == 2 { count.min(12) } else { count };
    let needed = |random: &mut Random, n: usize| -> Vec<String> {
        let needed: Vec<usize> = match kind {
            0 => vec![n + 1],
            1 if n + 1 < count => vec![n + 1],
            1 => vec![],
            2 => (0..count).filter(|&other| other != n).collect(),
            _ => vec![random.below(count), random.below(count)],
        };
        needed
            .into_iter()
            .map(|n| format!("\"{}\"", key(n)))
            .collect()
    };
    let form = random.below(4);
    let mut entries = Vec::new();
    for n in 0..count {
        let names = needed(random, n).join(", ");
        let key = key(n);
        entries.push(match form {
            0 => format!("\"{key}\": [{names}]"),
            1 => format!("\"{key}\": {{\"required\": [{names}]}}"),
            2 => format!(
                "\"{key}\": {{\"required\": [{names}], \"properties\": {{\"a\": {inner}}}}}"
            ),
            _ => format!(
                "{{\"if\": {{\"required\": [\"{key}\"]}}, \"then\": {{\"required\": [{names}]}}}}"
            ),
        });
    }
    let entries = entries.join(", ");
    let said = match form {
        0 => format!("\"dependentRequired\": {{{entries}}}"),
        1 | 2 => format!("\"dependentSchemas\": {{{entries}}}"),
        _ => format!("\"allOf\": [{entries}]"),
    };
    match random.below(4) {
        0 => format!("{said}, \"required\": [\"a\"]"),
        1 => format!("{said}, \"type\": \"object\", \"maxProperties\": {count}"),
        2 => format!("{said}, \"type\": \"object\", \"minProperties\": 1"),
        _ => format!("{said}, \"properties\": {{\"a\": {inner}}}"),
    }
}

pub(crate) fn schema(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        let leaves = [
            "true",
            "false",
            "{}",
            "{\"type\": \"string\"}",
            "{\"type\": \"integer\"}",
            "{\"const\": \"a\"}",
            "{\"enum\": [1, \"b\", null]}",
            "{\"type\": \"number\", \"minimum\": 0, \"maximum\": 12}",
            "{\"type\": \"string\", \"maxLength\": 3}",
            "{\"$ref\": \"#\"}",
            "{\"$ref\": \"#/$defs/x\"}",
            "{\"$ref\": \"#/$defs/y\", \"maxLength\": 4, \"required\": [\"b\"]}",
            "{\"$dynamicRef\": \"#node\"}",
            "{\"type\": [\"boolean\", \"null\"]}",
            "{\"pattern\": \"^a+$\"}",
            "{\"multipleOf\": 3}",
            "{\"format\": \"date\"}",
        ];
        return text(random, &leaves);
    }
    let keywords = many(random, 4, ", ", |random| {
        let inner = schema(random, depth - 1);
        let other = schema(random, depth - 1);
        let n = random.below(4);
        match random.below(32) {
            0 | 1 => format!("\"properties\": {{\"a\": {inner}, \"b\": {other}}}"),
            2 => "\"required\": [\"a\"]".to_owned(),
            3 => format!("\"additionalProperties\": {inner}"),
            4 => format!("\"patternProperties\": {{\"^a\": {inner}, \"b$\": {other}}}"),
            5 => format!("\"items\": {inner}"),
            6 => format!("\"prefixItems\": [{inner}, {other}]"),
            7 => format!("\"minItems\": {n}"),
            8 => format!("\"maxItems\": {n}"),
            9 => "\"uniqueItems\": true".to_owned(),
            10 => format!("\"contains\": {inner}"),
            11 => format!("\"allOf\": [{inner}, {other}]"),
            12 => format!("\"anyOf\": [{inner}, {other}]"),
            13 => format!("\"oneOf\": [{inner}, {other}]"),
            14 => format!("\"not\": {inner}"),
            15 => format!("\"if\": {inner}, \"then\": {other}"),
            16 => format!("\"minLength\": {n}, \"maxLength\": {}", n + 5),
            17 => format!("\"minimum\": {n}, \"exclusiveMaximum\": {}.5", n + 9),
            18 => format!("\"minProperties\": {n}"),
            19 => format!("\"dependentSchemas\": {{\"a\": {inner}}}"),
            20 => format!("\"unevaluatedProperties\": {inner}"),
            21 => format!("\"propertyNames\": {inner}"),
            22 => format!(
                "\"pattern\": {}",
                serde_json::Value::String(regex(random, 1))
            ),
            23 => implications(random, &inner),
            24 => format!("\"unevaluatedItems\": {inner}, \"prefixItems\": [{other}]"),
            25 => format!("\"anyOf\": [{inner}, {other}], \"unevaluatedProperties\": false"),
            26 => {
                let to = random.pick(&["#", "#/$defs/x", "#/$defs/y", "#/items", "#/not"]);
                format!("\"$ref\": \"{to}\"")
            }
            27 => {
                let names = random.pick(&[
                    "{\"$ref\": \"#\"}",
                    "{\"not\": {\"$ref\": \"#/$defs/x\"}}",
                    "{\"$ref\": \"#/$defs/x\", \"maxLength\": 3}",
                    "{\"anyOf\": [{\"const\": \"a\"}, {\"$ref\": \"#/$defs/y\"}]}",
                ]);
                format!("\"propertyNames\": {names}")
            }
            28 => {
                let (min, more) = (random.below(60), random.below(60));
                let max = min + more;
                format!("\"minItems\": {min}, \"maxItems\": {max}, \"items\": {inner}")
            }
            29 => format!(
                "\"contains\": {inner}, \"minContains\": {n}, \"maxContains\": {}",
                n + 1
            ),
            _ => format!(
                "\"type\": \"{}\"",
                random.pick(&["object", "array", "string", "integer", "number"])
            ),
        }
    });
    format!("{{{keywords}}}")
}
