//! The official test suite, on nodes.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::super::value::Value;
use super::{compile, parse, shared, written};
use crate::options::Draft;
use crate::options::{Format, JsonSchemaOptions};

#[derive(Default, Debug)]
struct Count {
    right: usize,
    wrongly_accepted: Vec<String>,
    wrongly_rejected: Vec<String>,
    refused: Vec<String>,
}

/// The suite's extra documents, by URI.
fn remotes(root: &Path) -> BTreeMap<String, String> {
    let mut documents = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                let uri = format!("http://localhost:1234/{name}");
                documents.insert(uri, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    documents
}

fn run(folder: &Path, options: &JsonSchemaOptions) -> Count {
    let mut count = Count::default();
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let Value::Array(groups) = parse(&std::fs::read_to_string(&file).unwrap()) else {
            panic!("{name}");
        };
        for group in groups.iter() {
            let text = |value: &Value, key: &str| match value.get(key) {
                Some(Value::String(text)) => text.clone(),
                _ => panic!("{name}: no {key}"),
            };
            let at = format!("{name}: {}", text(group, "description"));
            let Some(Value::Array(tests)) = group.get("tests") else {
                panic!("{at}");
            };
            let mut compiled = match compile(&written(group.get("schema").unwrap()), options) {
                Ok(compiled) => compiled,
                Err(error) => {
                    for _ in tests.iter() {
                        count.refused.push(format!("{at}: {error}"));
                    }
                    continue;
                }
            };
            for test in tests.iter() {
                let at = format!("{at}: {}", text(test, "description"));
                let valid = test.get("valid") == Some(&Value::Bool(true));
                match (compiled.allows(test.get("data").unwrap()), valid) {
                    (true, false) => count.wrongly_accepted.push(at),
                    (false, true) => count.wrongly_rejected.push(at),
                    _ => count.right += 1,
                }
            }
        }
    }
    println!(
        "{}: {} right, {} wrongly accepted, {} wrongly rejected, {} refused",
        folder.display(),
        count.right,
        count.wrongly_accepted.len(),
        count.wrongly_rejected.len(),
        count.refused.len(),
    );
    count
}

fn options(root: &Path, draft: Draft, format: Format) -> JsonSchemaOptions {
    JsonSchemaOptions {
        draft,
        format,
        documents: remotes(&root.join("remotes")),
        ..JsonSchemaOptions::default()
    }
}

#[test]
fn required_tests() {
    let Some(root) = shared("json-schema-test-suite") else {
        return;
    };
    for (folder, draft) in [
        ("draft2020-12", Draft::Draft2020_12),
        ("draft7", Draft::Draft7),
    ] {
        let count = run(&root.join(folder), &options(&root, draft, Format::Annotate));
        assert_eq!(count.wrongly_accepted, [""; 0], "{folder}");
        assert_eq!(count.wrongly_rejected, [""; 0], "{folder}");
        assert_eq!(count.refused, [""; 0], "{folder}");
    }
}

/// What is read otherwise than the suite has it: the option `annotate` goes before a meta-schema's
/// vocabulary, and `contentMediaType` and `contentEncoding` are annotations. The languages of some
/// formats are smaller than the formats: `Lexicon::json_string_format`.
#[test]
fn optional_tests() {
    let Some(root) = shared("json-schema-test-suite") else {
        return;
    };
    for (folder, draft, not_read) in [
        ("draft2020-12", Draft::Draft2020_12, "format-assertion: "),
        ("draft7", Draft::Draft7, "content: "),
    ] {
        let folder = root.join(folder).join("optional");
        let count = run(&folder, &options(&root, draft, Format::Annotate));
        let mut accepted = count.wrongly_accepted.iter();
        assert!(accepted.all(|test| test.starts_with(not_read)), "{count:?}");
        assert_eq!(count.wrongly_rejected, [""; 0]);
        assert_eq!(count.refused, [""; 0]);
        let count = run(
            &folder.join("format"),
            &options(&root, draft, Format::Assert),
        );
        assert_eq!(count.wrongly_accepted, [""; 0]);
        assert_eq!(count.refused, [""; 0]);
        assert!(count.wrongly_rejected.len() <= 30, "{count:?}");
    }
}
