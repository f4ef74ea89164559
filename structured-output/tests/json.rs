//! JSON: the language of texts, masks against acceptance byte by byte, the official test suite.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::Value;
use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, Draft, Format, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, PropertyOrder, TokenizerInfo, Whitespace,
};

/// Pieces of JSON that tokens are made of, many across the borders of lexemes.
const PIECES: &[&str] = &[
    "{\"",
    "\":",
    "\": ",
    "\":\"",
    "\", \"",
    "\"}",
    "\"},{\"",
    "},",
    "}]",
    "[]",
    "{}",
    "[[",
    "]]",
    ", ",
    ": ",
    "null",
    "true",
    "false",
    "12",
    "1.5",
    "0,",
    "1]",
    "e1",
    "-",
    "ab",
    "abc",
    "a\":",
    "\\n",
    "\\u00",
    "\\\"",
    "\n  ",
    "\n",
    "  ",
    " \"",
    "é",
    "\"\"",
    "\"\":",
    "\":{},\"",
    "\":1,\"",
    "{\"a\":1}",
    "\",\"a\":",
    "b\":[",
    "1}",
];
const EOS: u32 = 256 + PIECES.len() as u32;

/// Byte tokens 0 to 255, then the pieces, then the stop token.
static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.extend(PIECES.iter().map(|piece| piece.as_bytes().to_vec()));
    vocab.push(Vec::new());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
});

fn schema(schema: &str, whitespace: Whitespace) -> Result<CompiledGrammar, CompileError> {
    let options = JsonSchemaOptions {
        whitespace,
        ..Default::default()
    };
    COMPILER.compile_json_schema(schema, &options)
}

fn accepts(grammar: &CompiledGrammar, text: &str) -> bool {
    let mut matcher = GrammarMatcher::new(grammar);
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
}

/// Schema, texts of its language, texts that are not.
const CASES: &[(&str, &[&str], &[&str])] = &[
    (
        "true",
        &["1", "\"a\"", "[1, {\"a\":null}]", " {}\n", "-0.5e+7"],
        &["", "01", "[1,]", "nul", "{} {}"],
    ),
    (
        "{}",
        &["[]", "{ }", "[\n  1,\n  2\n]"],
        &["[  1]", "[1 ,  2]", "{\"a\":1,\"a\":2}"],
    ),
    (
        r#"{"type":"integer"}"#,
        &["0", "-12", "1.0", "3.0000"],
        &["1.5", "1e2", "1.00000", "\"1\""],
    ),
    (
        r#"{"oneOf":[{"const":1e1},{"const":5}]}"#,
        &["1e1", "10", "5"],
        &["5e0"],
    ),
    (
        r#"{"oneOf":[{"const":1e1},{"const":1.000000},{"type":"number","minimum":1}]}"#,
        &["11"],
        &["10", "1e1", "1", "1.000000"],
    ),
    (
        r#"{"type":["null","boolean"]}"#,
        &["null", "true"],
        &["0", "\"null\""],
    ),
    (
        r#"{"type":"string"}"#,
        &[r#""""#, r#""a\n\u00e9\uD83D\uDE00é😀""#],
        &[
            r#""\x""#,
            "\"\n\"",
            r#""\uD83D""#,
            r#""\uDE00""#,
            r#""\uD83Dx""#,
        ],
    ),
    (
        r#"{"type":"string","minLength":1,"maxLength":3}"#,
        &[r#""a""#, r#""é😀\n""#, r#""\u0001""#],
        &[r#""""#, r#""abcd""#, r#""\u0041""#],
    ),
    (
        r#"{"enum":["a/b",1,null]}"#,
        &[r#""a/b""#, r#""a\/b""#, "1", "1.0", "null"],
        &[r#""a""#, "1.5", "10"],
    ),
    (
        r#"{"const":-1.50}"#,
        &["-1.5", "-1.50", "-1.5000"],
        &["1.5", "-1.51", "-15e-1"],
    ),
    (
        r#"{"const":2.5e1}"#,
        &["25", "25.0", "2.5e1"],
        &["2.5", "25e0"],
    ),
    (r#"{"const":0}"#, &["0", "-0", "0.0"], &["1", "00"]),
    (r#"{"type":"number","enum":[1,"a"]}"#, &["1"], &[r#""a""#]),
    (
        r#"{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":2}"#,
        &["[1]", "[ 1 , 2 ]"],
        &["[]", "[1,2,3]", "[\"a\"]"],
    ),
    (
        r#"{"type":"array","prefixItems":[{"const":1},{"const":"x"}],"items":{"type":"null"},"minItems":2}"#,
        &["[1,\"x\"]", "[1,\"x\",null]"],
        &["[1]", "[1,null]", "[1,\"x\",1]"],
    ),
    (
        r#"{"items":[{"const":1}],"additionalItems":false,"type":"array"}"#,
        &["[]", "[1]"],
        &["[1,1]", "[2]"],
    ),
    (
        r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["b"]}"#,
        &[
            r#"{"b":""}"#,
            r#"{"a":1,"b":"x"}"#,
            r#"{"a":1,"b":"x","c":[]}"#,
            r#"{"b":"","d":1,"c":2}"#,
        ],
        &[
            "{}",
            r#"{"a":1}"#,
            r#"{"b":"","a":1}"#,
            r#"{"b":"","c":1,"c":2}"#,
            r#"{"b":"","c":1,"\u0063":2}"#,
            r#"{"a":1,"b":"","\u0061":1}"#,
        ],
    ),
    (
        r#"{"type":"object","properties":{"a":{}},"additionalProperties":false}"#,
        &["{}", r#"{"a":{"b":[]}}"#],
        &[r#"{"b":1}"#, r#"{"a":1,"b":1}"#],
    ),
    (
        r#"{"type":"object","additionalProperties":{"type":"integer"},"required":["x"]}"#,
        &[r#"{"x":1}"#, r#"{"x":1,"y":2}"#],
        &["{}", r#"{"x":""}"#, r#"{"y":2}"#],
    ),
    (
        r##"{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["next"],"additionalProperties":false}}}"##,
        &[r#"{"next":null}"#, r#"{"next":{"next":{"next":null}}}"#],
        &["null", "{}", r#"{"next":1}"#],
    ),
    (
        r#"{"oneOf":[{"type":"integer"},{"type":"string"}]}"#,
        &["1", "\"\""],
        &["null"],
    ),
    (
        r#"{"properties":{"a":false},"type":"object"}"#,
        &["{}", r#"{"b":1}"#],
        &[r#"{"a":1}"#],
    ),
    (r#"{"type":"array","items":false}"#, &["[]"], &["[1]"]),
];

#[test]
fn the_language_of_a_schema() {
    for (source, good, bad) in CASES {
        let grammar = schema(source, Whitespace::Flexible).unwrap();
        for text in *good {
            assert!(accepts(&grammar, text), "{source} accepts {text}");
        }
        for text in *bad {
            assert!(!accepts(&grammar, text), "{source} refuses {text}");
        }
    }
}

#[test]
fn whitespace_modes() {
    let texts = [
        ("{\"a\":[1,2],\"b\":{}}", [true, true, false, true]),
        ("{\"a\": [1, 2], \"b\": {}}", [true, true, true, false]),
        (
            "{\n  \"a\": [\n    1,\n    2\n  ]\n}",
            [true, true, false, false],
        ),
        ("{\n\t\"a\":[1, 2,\n3\n]\n}", [true, true, false, false]),
        ("{\n                \"a\": 1\n}", [true, true, false, false]),
        (
            "{\n                 \"a\": 1\n}",
            [false, true, false, false],
        ),
        ("{\"a\":\n1}", [false, true, false, false]),
        ("{\"a\" : 1}", [false, true, false, false]),
        ("{ \"a\": 1}", [false, true, false, false]),
        ("[1 ,2]", [false, true, false, false]),
        (" 1", [false, true, false, false]),
        ("{}\n", [false, true, false, false]),
        (" {\n\t\"a\" : [ ] }\n", [false, true, false, false]),
        ("{\n\n}", [false; 4]),
        ("{  }", [false; 4]),
    ];
    let modes = [
        Whitespace::Usual,
        Whitespace::Flexible,
        Whitespace::Spaced,
        Whitespace::Compact,
    ];
    for (text, expected) in texts {
        let found = modes.map(|mode| accepts(&schema("{}", mode).unwrap(), text));
        assert_eq!(found, expected, "{text}");
    }
}

/// Halves of surrogate pairs may stand in classes, and no text has them.
#[test]
fn halves_of_surrogate_pairs_in_classes() {
    let accepts = |pattern: &str, text: &str| {
        let source = format!(
            "{{\"pattern\": {}}}",
            serde_json::to_string(pattern).unwrap()
        );
        let grammar = schema(&source, Whitespace::Compact).unwrap();
        accepts(&grammar, &serde_json::to_string(text).unwrap())
    };
    for (pattern, text, expected) in [
        (r"^[^\ud800-\udfff]*$", "aé日\u{1f600}", true),
        (r"^[\ud800-\udfffa]*$", "aa", true),
        (r"^[\ud800-\udfffa]*$", "ab", false),
        (r"^[\u0000-\ud9ff]$", "\u{d7ff}", true),
        (r"^[\u0000-\ud9ff]$", "\u{e000}", false),
        (r"^[\udc00-\uffff]$", "\u{e000}", true),
        (r"^[\udc00-\uffff]$", "\u{d7ff}", false),
        (r"^[a-\udfff-]$", "-", true),
        (r"^[\ud83d\ude00-\ud83d\ude02]$", "\u{1f601}", true),
        (r"^[\ud83d\ude00]$", "\u{1f601}", false),
        (r"^([\uD800-\uDBFF][\uDC00-\uDFFF]|x)$", "x", true),
        // Code points are the unit.
        (r"^([\uD800-\uDBFF][\uDC00-\uDFFF]|x)$", "\u{1f600}", false),
    ] {
        assert_eq!(accepts(pattern, text), expected, "{pattern} and {text}");
    }
    for (pattern, message) in [
        (
            r"[\udfff-\ud800]",
            r"the range `\udfff-\ud800` runs backwards",
        ),
        (r"\ud800", "surrogates in pairs"),
    ] {
        let source = format!(
            "{{\"pattern\": {}}}",
            serde_json::to_string(pattern).unwrap()
        );
        let error = schema(&source, Whitespace::Compact)
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn refusals_point_at_what_they_refuse() {
    let cases = [
        (r#"{"type":"strin"}"#, "schema, at `#/type`"),
        (
            r##"{"$ref":"#/a"}"##,
            "schema, at `#/$ref`: `#/a` leads to no schema",
        ),
        (
            r##"{"$ref":"#"}"##,
            "schema, at `#`: this schema refers to itself",
        ),
        (
            r#"{"a":}"#,
            "schema, line 1, column 6: expected a JSON value",
        ),
    ];
    // What a draft doesn't know may be anything.
    for unknown in [
        r#"{"$schema":"http://json-schema.org/draft-04/schema#","$defs":1}"#,
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","$defs":{"a":{"type":1}}}"#,
    ] {
        assert!(schema(unknown, Whitespace::Compact).is_ok(), "{unknown}");
    }
    for (source, expected) in cases {
        let message = schema(source, Whitespace::Compact).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{source}: {message}");
    }
    let dead = [
        ("false", ""),
        (r#"{"type":"array","items":false,"minItems":1}"#, "/items"),
        (
            r##"{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}"##,
            "/properties/a",
        ),
        (
            r#"{"allOf":[{},{"type":"string","pattern":"^a$","minLength":2}]}"#,
            "/allOf/1",
        ),
        (
            r##"{"$ref":"#/$defs/a~0b","$defs":{"a~b":{"type":"object","required":["c/d"],"properties":{"c/d":{"enum":[]}}}}}"##,
            "/$defs/a~0b/properties/c~1d/enum",
        ),
        (
            r#"{"type":"array","minItems":2,"prefixItems":[{"type":"null"},{"enum":[]},false],"items":false}"#,
            "/prefixItems/1/enum",
        ),
        (
            r#"{"type":"array","minItems":2,"prefixItems":[{"type":"null"}],"items":false}"#,
            "/items",
        ),
        (
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","minItems":1,"items":[false]}"#,
            "/items/0",
        ),
        (r#"{"type":"integer","minimum":5,"maximum":3}"#, "/maximum"),
        (
            r#"{"type":["number"],"minimum":5,"exclusiveMaximum":3}"#,
            "/exclusiveMaximum",
        ),
        (
            r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string","minLength":5,"maxLength":3}}}"#,
            "/properties/a/maxLength",
        ),
        (
            r#"{"type":"integer","minLength":5,"maxLength":3,"enum":["a"]}"#,
            "",
        ),
    ];
    for (source, pointer) in dead {
        let error = schema(source, Whitespace::Compact).unwrap_err();
        let pointer = pointer.to_owned();
        assert_eq!(error, CompileError::NoValue { pointer }, "{source}");
    }
    // Not an assertion, or none that matters here.
    for source in [
        r#"{"format":"my-own","title":"x","x-y":1,"default":1}"#,
        r#"{"type":"string","minimum":1}"#,
    ] {
        assert!(schema(source, Whitespace::Compact).is_ok(), "{source}");
    }
}

/// Walks by the mask, and compares it at each place with what is accepted byte by byte.
fn check(grammar: &CompiledGrammar, choices: &[usize]) -> Result<String, TestCaseError> {
    let mut matcher = GrammarMatcher::new(grammar);
    let mut text = Vec::new();
    for &choice in choices {
        let mask = matcher.next_token_mask().unwrap();
        for token in 256..EOS {
            let bytes = grammar.tokenizer_info().token_bytes(token);
            let bytes: Vec<u32> = bytes.iter().map(|&byte| u32::from(byte)).collect();
            let by_bytes = matcher.validate_tokens(&bytes).unwrap() == bytes.len();
            let so_far = String::from_utf8_lossy(&text);
            prop_assert_eq!(
                mask.is_allowed(token),
                by_bytes,
                "{:?} after {}",
                PIECES[token as usize - 256],
                so_far
            );
            prop_assert_eq!(matcher.validate_tokens(&[token]).unwrap() == 1, by_bytes);
        }
        for byte in 0..256 {
            prop_assert_eq!(
                mask.is_allowed(byte),
                matcher.validate_tokens(&[byte]).unwrap() == 1
            );
        }
        prop_assert_eq!(mask.is_allowed(EOS), matcher.is_completed());
        let needed = matcher.min_tokens_to_complete().unwrap();
        prop_assert!(needed >= 1 && (needed == 1) == matcher.is_completed());
        // Pieces are likelier than bytes, so that texts get somewhere.
        let ids: Vec<u32> = mask
            .token_ids()
            .into_iter()
            .filter(|&id| id != EOS)
            .collect();
        let pieces: Vec<u32> = ids.iter().copied().filter(|&id| id >= 256).collect();
        let from = if choice % 4 == 0 || pieces.is_empty() {
            &ids
        } else {
            &pieces
        };
        let Some(&token) = from.get((choice / 4) % from.len().max(1)) else {
            break;
        };
        prop_assert!(matcher.accept_token(token).unwrap());
        text.extend_from_slice(grammar.tokenizer_info().token_bytes(token));
    }
    // To the end, by the bound.
    let bound = matcher.min_tokens_to_complete().unwrap();
    for left in (1..=bound).rev() {
        let ids = matcher.next_token_mask_within(left).unwrap().token_ids();
        let token = ids[choices[0] % ids.len()];
        prop_assert!(matcher.accept_token(token).unwrap());
        if matcher.is_terminated() {
            return Ok(String::from_utf8(text).unwrap());
        }
        text.extend_from_slice(grammar.tokenizer_info().token_bytes(token));
    }
    Err(TestCaseError::fail(format!(
        "not over within {bound}: {}",
        String::from_utf8_lossy(&text)
    )))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_object(choices in prop::collection::vec(any::<usize>(), 1..24)) {
        let text = check(&COMPILER.compile_builtin_json().unwrap(), &choices)?;
        prop_assert!(is_json(&text) && text.trim_start().starts_with('{'), "{}", text);
    }

    #[test]
    fn masks_of_schemas(
        which in 0..CASES.len(),
        mode in prop::sample::select(vec![Whitespace::Usual, Whitespace::Flexible, Whitespace::Spaced, Whitespace::Compact]),
        choices in prop::collection::vec(any::<usize>(), 1..16),
    ) {
        let grammar = schema(CASES[which].0, mode).unwrap();
        let text = check(&grammar, &choices)?;
        prop_assert!(accepts(&grammar, &text), "{}", text);
        prop_assert!(is_json(&text), "{}", text);
    }
}

/// Whether another parser takes it for JSON; it may find a number too large.
fn is_json(text: &str) -> bool {
    match serde_json::from_str::<Value>(text) {
        Ok(_) => true,
        Err(error) => error.to_string().starts_with("number out of range"),
    }
}

/// A folder of shared test data; `None`, with a note, where there is none.
fn shared(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FORMWORK_SHARED").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let path = root.unwrap_or(beside).join(folder);
    if path.is_dir() {
        return Some(path);
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{} is missing",
        path.display()
    );
    eprintln!("skipped: {} is missing", path.display());
    None
}

/// The official suite: nothing invalid is accepted; what is refused is refused by keyword.
#[test]
fn the_json_schema_test_suite() {
    let Some(suite) = shared("json-schema-test-suite") else {
        return;
    };
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let mut documents = BTreeMap::new();
    let root = suite.join("remotes");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                let uri = format!("http://localhost:1234/{name}");
                documents.insert(uri, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let (mut right, mut wrong, mut not_compiled) = (0, Vec::new(), 0);
    let mut wrongly_accepted: Vec<String> = Vec::new();
    for draft in ["draft2020-12", "draft7"] {
        let mut files: Vec<_> = std::fs::read_dir(suite.join(draft))
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        files.sort();
        for file in files
            .iter()
            .filter(|file| file.extension().is_some_and(|e| e == "json"))
        {
            let groups: Value =
                serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
            for group in groups.as_array().unwrap() {
                let options = JsonSchemaOptions {
                    whitespace: Whitespace::Compact,
                    property_order: PropertyOrder::Any,
                    format: Format::Annotate,
                    draft: if draft == "draft7" {
                        Draft::Draft7
                    } else {
                        Draft::Draft2020_12
                    },
                    documents: documents.clone(),
                    ..Default::default()
                };
                let compiled = COMPILER.compile_json_schema(&group["schema"].to_string(), &options);
                let grammar = match compiled {
                    Ok(grammar) => Some(grammar),
                    Err(CompileError::NoValue { .. }) => None,
                    Err(error) => {
                        let reason = error.to_string();
                        let reason = reason.split("`: ").last().unwrap_or_default();
                        *refused.entry(reason.to_owned()).or_default() += 1;
                        not_compiled += group["tests"].as_array().unwrap().len();
                        continue;
                    }
                };
                for test in group["tests"].as_array().unwrap() {
                    let text = test["data"].to_string();
                    let accepted = grammar
                        .as_ref()
                        .is_some_and(|grammar| accepts(grammar, &text));
                    let valid = test["valid"].as_bool().unwrap();
                    let name = file.file_name().unwrap().to_string_lossy().into_owned();
                    if accepted == valid {
                        right += 1;
                    } else if accepted {
                        wrongly_accepted.push(format!(
                            "{draft}/{name}: {} accepts {text}",
                            group["schema"]
                        ));
                    } else {
                        wrong.push(format!(
                            "{draft}/{name}: {} refuses {text}",
                            group["schema"]
                        ));
                    }
                }
            }
        }
    }
    eprintln!(
        "{right} right, {} wrongly refused, {not_compiled} not compiled",
        wrong.len()
    );
    for line in &wrong {
        eprintln!("  {line}");
    }
    for (reason, count) in refused {
        eprintln!("  {count:4} {reason}");
    }
    assert!(
        right > 0 && wrongly_accepted.is_empty(),
        "{wrongly_accepted:#?}"
    );
}
