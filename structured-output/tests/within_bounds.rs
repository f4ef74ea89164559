//! Masks within a number of tokens: wherever a mask can be made, they can, and following them ends in time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use structured_output::{
    CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions, PropertyOrder,
    TokenizerInfo,
};

/// Bytes, many words, and tokens that end a key or an item and go on in all ways.
fn info() -> Arc<TokenizerInfo> {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let ends = [
        "\":",
        "\": ",
        "\":\"",
        "\":{\"",
        "\":[",
        "\":1,\"",
        "\",\"",
        "\"]",
        "\"}",
        "\", \"",
        "\":\"\",\"",
        "\":1,\"a",
        "\":1}",
        "\",\"a\":",
    ];
    let words = [
        "", "a", "b", "no", "note", "kind", "x1", "_id", "e", "\\u0061", "é",
    ];
    for word in words {
        vocab.extend(ends.map(|end| [word, end].concat().into_bytes()));
    }
    for n in 0..12_000_usize {
        let letters = (0..2 + n % 7).map(|at| b'a' + ((n * 7919) >> (3 * at)) as u8 % 26);
        vocab.push(letters.collect());
    }
    let stop = vocab.len() as u32;
    vocab.push(Vec::new());
    Arc::new(TokenizerInfo::new(&vocab, vocab.len(), &[stop], &[]).unwrap())
}

fn compiler() -> GrammarCompiler {
    GrammarCompiler::new(info(), CompilerOptions::default())
}

fn options(order: PropertyOrder) -> JsonSchemaOptions {
    JsonSchemaOptions {
        property_order: order,
        ..JsonSchemaOptions::default()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

/// Masks within the bound and some more tokens: each is part of the mask and not empty, and what follows
/// the first comes to its end in time.
fn check_within(matcher: &GrammarMatcher, random: &mut Random, place: &str) {
    let mask = matcher.next_token_mask().unwrap();
    let least = matcher.min_tokens_to_complete();
    let least = least.unwrap_or_else(|error| panic!("{place}: {error}"));
    for more in [0, 1, 2, 5, 19] {
        let within = matcher.next_token_mask_within(least + more);
        let within = within.unwrap_or_else(|error| panic!("{place} + {more}: {error}"));
        let ids = within.token_ids();
        assert!(!ids.is_empty(), "{place} + {more}");
        assert!(ids.iter().all(|&id| mask.is_allowed(id)), "{place}");
        let completing = matcher.next_token_mask_completing(least + more).unwrap();
        let mut completing = completing.token_ids().into_iter();
        assert!(completing.all(|id| within.is_allowed(id)), "{place}");
        // A token of it leaves no more than that.
        let mut after = matcher.fork();
        assert!(after.accept_token(ids[random.below(ids.len())]).unwrap());
        let rest = after.min_tokens_to_complete().unwrap();
        assert!(rest < least + more, "{place} + {more}");
    }
    let mut matcher = matcher.fork();
    for left in (1..=least).rev() {
        let ids = matcher.next_token_mask_within(left).unwrap().token_ids();
        assert!(matcher.accept_token(ids[random.below(ids.len())]).unwrap());
        if matcher.is_terminated() {
            return;
        }
    }
    panic!("{place}: no end in {least} tokens");
}

/// Schemas whose objects need a key that is not the one that is being written.
const NEEDED: &[&str] = &[
    r#"{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}]}"#,
    r#"{"type":"object","minProperties":2}"#,
    r#"{"type":"object","dependentRequired":{"note":["b","c"]},"minProperties":1}"#,
    r#"{"type":"object","if":{"required":["no"]},"then":{"required":["b"]},"else":{"required":["c"]}}"#,
    r#"{"type":"object","not":{"required":["no"]},"required":["a"]}"#,
    r#"{"oneOf":[{"type":"object","properties":{"kind":{"const":"x"},"b":{"type":"integer"}},"required":["kind","b"]},
        {"type":"object","properties":{"kind":{"const":"y"},"c":{"type":"string"}},"required":["kind","c"]}]}"#,
    r#"{"type":"object","propertyNames":{"pattern":"^n"},"minProperties":3}"#,
    r#"{"type":"array","uniqueItems":true,"minItems":3,"items":{"type":"object","minProperties":1}}"#,
    r#"{"type":"array","uniqueItems":true,"minItems":3}"#,
];

const BEGINNINGS: &[&str] = &[
    "",
    "{",
    "{\"",
    "{\"no",
    "{\"no\":1,\"not",
    "{\"x\":{\"no",
    "{\"a\":\"no",
    "[",
    "[\"no",
    "[{\"no",
    "[\"a\",\"no",
    "[1,2",
];

#[test]
fn a_mask_within_a_bound_is_never_refused() {
    let compiler = compiler();
    // A neighbour in the same memory.
    let json = compiler.compile_builtin_json().unwrap();
    let mut random = Random(7);
    for schema in NEEDED {
        for order in [PropertyOrder::Any, PropertyOrder::Schema] {
            let grammar = compiler
                .compile_json_schema(schema, &options(order))
                .unwrap();
            for beginning in BEGINNINGS {
                let mut matcher = GrammarMatcher::new(&grammar);
                let bytes: Vec<u32> = beginning.bytes().map(u32::from).collect();
                if matcher.accept_tokens(&bytes).unwrap() {
                    let place = format!("{schema} {order:?} after {beginning}");
                    check_within(&matcher, &mut random, &place);
                }
            }
        }
    }
    let mut neighbour = GrammarMatcher::new(&json);
    for byte in br#"{"new key of its own":[{"another":"# {
        assert!(neighbour.accept_token(u32::from(*byte)).unwrap());
        neighbour.next_token_mask().unwrap();
    }
}

/// What follows a text that no key may repeat is told without the text: each token, also one that writes a
/// key again, is weighed as it is by itself.
#[test]
fn keys_are_weighed_as_each_by_itself() {
    let compiler = compiler();
    let mut random = Random(3);
    for (schema, beginnings) in [
        (NEEDED[0], &["{\"", "{\"no"][..]),
        (NEEDED[1], &["{\"", "{\"a", "{\"\":1,\""]),
        (
            r#"{"type":"object","propertyNames":{"pattern":"^(no|a|b)"},"minProperties":3}"#,
            &["{\"n", "{\"no\":1,\"no", "{\"a\":1,\"n"],
        ),
    ] {
        let grammar = compiler
            .compile_json_schema(schema, &options(PropertyOrder::Any))
            .unwrap();
        for beginning in beginnings {
            let mut matcher = GrammarMatcher::new(&grammar);
            let bytes: Vec<u32> = beginning.bytes().map(u32::from).collect();
            assert!(matcher.accept_tokens(&bytes).unwrap());
            let mask = matcher.next_token_mask().unwrap();
            let least = matcher.min_tokens_to_complete().unwrap();
            for left in [least, least + 1, least + 3] {
                // With less than all steps nothing is left out.
                let mut whole = matcher.fork();
                whole.set_allowance(Some(1_999_999));
                let within = whole.next_token_mask_within(left).unwrap();
                for id in mask.token_ids() {
                    if id > 450 && random.below(40) > 0 {
                        continue;
                    }
                    let mut after = matcher.fork();
                    assert!(after.accept_token(id).unwrap());
                    let rest = after.min_tokens_to_complete().unwrap();
                    assert_eq!(
                        within.is_allowed(id),
                        rest < left,
                        "{schema} after {beginning} token {id} within {left}: {rest}"
                    );
                }
            }
        }
    }
}

/// Objects that a member tells apart, each with names of its own.
fn one_of_kinds(count: usize) -> String {
    let kinds: Vec<String> = (0..count)
        .map(|n| {
            let members: Vec<String> = (0..4)
                .map(|m| format!(r#""name_{n}_{m}": {{"type": "string", "minLength": {m}}}"#))
                .collect();
            format!(
                r#"{{"type": "object", "properties": {{"type": {{"const": "k{n}"}}, {}}},
                    "required": ["type", "name_{n}_0", "name_{n}_2"]}}"#,
                members.join(", "),
            )
        })
        .collect();
    format!(r#"{{"oneOf": [{}]}}"#, kinds.join(", "))
}

/// How many tokens a text needs at least is told within the steps of a call, also where very many keys may
/// begin it.
#[test]
fn the_bound_of_wide_objects_is_known_at_once() {
    let names: Vec<String> = (0..200).map(|n| format!("\"field_{n}\"")).collect();
    let required = format!(
        r#"{{"type": "object", "properties": {{{}}}, "required": [{}]}}"#,
        names
            .iter()
            .map(|name| format!(r#"{name}: {{"type": "integer"}}"#))
            .collect::<Vec<String>>()
            .join(", "),
        names.join(", ")
    );
    let compiler = compiler();
    for schema in [required, one_of_kinds(24)] {
        for order in [PropertyOrder::Any, PropertyOrder::Schema] {
            let grammar = compiler
                .compile_json_schema(&schema, &options(order))
                .unwrap();
            for beginning in ["", "{"] {
                let mut matcher = GrammarMatcher::new(&grammar);
                let bytes: Vec<u32> = beginning.bytes().map(u32::from).collect();
                assert!(matcher.accept_tokens(&bytes).unwrap());
                let least = matcher.min_tokens_to_complete().unwrap();
                assert!(
                    !matcher
                        .next_token_mask_within(least)
                        .unwrap()
                        .token_ids()
                        .is_empty()
                );
                let bytes = matcher.min_bytes_to_complete().unwrap();
                assert!(least <= bytes + 1, "{least} tokens of {bytes} bytes");
            }
        }
    }
}

/// The same at random places of schemas that people wrote.
#[test]
fn masks_within_bounds_of_a_corpus() {
    let root = std::env::var_os("FORMWORK_SHARED").map(std::path::PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = root.unwrap_or(beside).join("maskbench");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} is missing", folder.display());
        return;
    };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    let cases = std::env::var("FORMWORK_CASES").map_or(40, |cases| cases.parse().unwrap());
    let compiler = compiler();
    let mut random = Random(11);
    for _ in 0..cases {
        let file = &files[random.below(files.len())];
        let text = std::fs::read_to_string(file).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let schema = document["schema"].to_string();
        for order in [PropertyOrder::Any, PropertyOrder::Schema] {
            let Ok(grammar) = compiler.compile_json_schema(&schema, &options(order)) else {
                continue;
            };
            let mut matcher = GrammarMatcher::new(&grammar);
            for _ in 0..random.below(25) {
                let ids = matcher.next_token_mask().unwrap().token_ids();
                assert!(matcher.accept_token(ids[random.below(ids.len())]).unwrap());
                if matcher.is_terminated() {
                    break;
                }
            }
            if !matcher.is_terminated() {
                let place = format!("{} {order:?}", file.display());
                check_within(&matcher, &mut random, &place);
            }
        }
    }
}
