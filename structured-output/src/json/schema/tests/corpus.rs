//! Real schemas with instances: MaskBench.

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::super::value::Value;
use super::{compile, parse, shared, written};
use crate::options::JsonSchemaOptions;

/// One has a back-reference.
const MAX_REFUSED: usize = 1;

#[test]
fn real_schemas() {
    let Some(folder) = shared("maskbench") else {
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    let mut refused: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut times = Vec::new();
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let case = parse(&std::fs::read_to_string(file).unwrap());
        let source = written(case.get("schema").unwrap());
        let start = Instant::now();
        let compiled = compile(&source, &JsonSchemaOptions::default());
        times.push((start.elapsed(), name.clone()));
        let mut compiled = match compiled {
            Ok(compiled) => compiled,
            Err(error) => {
                refused.entry(error.to_string()).or_default().push(name);
                continue;
            }
        };
        let Some(Value::Array(tests)) = case.get("tests") else {
            continue;
        };
        for (index, test) in tests.iter().enumerate() {
            let valid = test.get("valid") == Some(&Value::Bool(true));
            if compiled.allows(test.get("data").unwrap()) != valid {
                wrong.push(format!("{name} #{index}: should be {valid}"));
                break;
            }
        }
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].clone();
    let num_refused: usize = refused.values().map(Vec::len).sum();
    println!(
        "{} schemas, {num_refused} refused, {} with a wrong verdict; compile p50 {:?}, p99 {:?}",
        files.len(),
        wrong.len(),
        at(0.5),
        at(0.99),
    );
    println!("slowest: {:?}", &times[times.len().saturating_sub(8)..]);
    println!("refused: {refused:#?}");
    assert_eq!(wrong, [""; 0]);
    assert!(num_refused <= MAX_REFUSED, "{refused:#?}");
}
