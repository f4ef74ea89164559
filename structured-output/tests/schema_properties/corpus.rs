//! Schemas that people wrote, with documents that differ from their own in a few places.

use std::path::{Path, PathBuf};

use serde_json::Value;
use structured_output::{Draft, PropertyOrder};

use crate::random::{self, Random};
use crate::subject::{self, Subject, Validator};

/// The files of the corpus; `None`, with a note, where there is none.
fn files() -> Option<Vec<PathBuf>> {
    let root = std::env::var_os("FORMWORK_SHARED").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = root.unwrap_or(beside).join("maskbench");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        let is_ci = std::env::var("CI").as_deref() == Ok("true");
        assert!(!is_ci, "{} is missing", folder.display());
        eprintln!("skipped: {} is missing", folder.display());
        return None;
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    Some(files)
}

/// The draft by which both read a schema. One that names none is read by draft 7, whose words most of
/// them use.
fn draft_of(schema: &Value) -> Draft {
    let uri = schema["$schema"].as_str().unwrap_or_default();
    let named = [
        ("draft-04", Draft::Draft4),
        ("draft-06", Draft::Draft6),
        ("2019-09", Draft::Draft2019_09),
        ("2020-12", Draft::Draft2020_12),
    ];
    let found = named.iter().find(|(name, _)| uri.contains(name));
    found.map_or(Draft::Draft7, |(_, draft)| *draft)
}

/// All values within a value, itself included.
fn parts<'a>(value: &'a Value, all: &mut Vec<&'a Value>) {
    all.push(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| parts(item, all)),
        Value::Object(members) => members.values().for_each(|member| parts(member, all)),
        _ => {}
    }
}

/// A document with something else at one place: a part of another, a change of what is there, or
/// nothing.
fn mutated(random: &mut Random, document: &Value, others: &[&Value]) -> Value {
    let stop = random.below(4) == 0;
    match document {
        Value::Array(items) if !items.is_empty() && !stop => {
            let mut items = items.clone();
            let at = random.below(items.len());
            items[at] = mutated(random, &items[at], others);
            items.into()
        }
        Value::Object(members) if !members.is_empty() && !stop => {
            let mut members = members.clone();
            let names: Vec<String> = members.keys().cloned().collect();
            let name = random.of(&names);
            match random.below(4) {
                0 => drop(members.remove(name)),
                _ => members[name] = mutated(random, &members[name], others),
            }
            members.into()
        }
        Value::String(text) if random.below(3) == 0 => {
            text.chars().rev().collect::<String>().into()
        }
        _ if random.below(2) == 0 => random::mutated(random, document),
        _ => (*random.of(others)).clone(),
    }
}

/// A document of a file on which the two don't agree.
fn disagreement(file: &Path, random: &mut Random, num_documents: usize) -> Option<String> {
    let case: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let schema = &case["schema"];
    let draft = draft_of(schema);
    let validator = Validator::new(schema, draft)?;
    let subject = Subject::new(schema, draft, PropertyOrder::Any)?;
    let own: Vec<&Value> = case["tests"]
        .as_array()?
        .iter()
        .map(|test| &test["data"])
        .collect();
    if own.is_empty() {
        return None;
    }
    let mut others = Vec::new();
    own.iter().for_each(|document| parts(document, &mut others));
    for _ in 0..num_documents {
        let mut document = (*random.of(&own)).clone();
        for _ in 0..random.below(3) {
            document = mutated(random, &document, &others);
        }
        let text = document.to_string();
        if text.len() > 4_000 || subject::document(&text).is_none() {
            continue;
        }
        let valid = validator.is_valid(&document);
        let accepted = match subject.accepts(&text, random) {
            // A limit says nothing of the text.
            Err(error) => {
                eprintln!("{}: {error}", file.display());
                continue;
            }
            Ok(accepted) => accepted,
        };
        if accepted != valid {
            let not = if valid { "" } else { "not " };
            return Some(format!("{}: {text} is {not}valid", file.display()));
        }
    }
    None
}

#[test]
fn schemas_of_the_corpus() {
    let Some(files) = files() else { return };
    // The same ones at each run; longer runs take more of them.
    let cases = std::env::var("FORMWORK_CASES").map_or(100, |cases| cases.parse().unwrap());
    let mut random = Random(cases as u64);
    let found: Vec<String> = (0..cases)
        .filter_map(|_| {
            subject::COMPILER.clear_cache();
            let file = random.of(&files).clone();
            disagreement(&file, &mut random, 12)
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
