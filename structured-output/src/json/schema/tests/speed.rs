use super::super::super::value::Value;
use super::*;
use std::time::{Duration, Instant};
#[test]
fn speed() {
    let n = std::env::var("SPEED").unwrap_or_default();
    for name in n.split(',') {
        let case =
            parse(&std::fs::read_to_string(format!("/work/shared/maskbench/{name}")).unwrap());
        let source = written(case.get("schema").unwrap());
        let mut parse_time = Duration::MAX;
        let mut new_time = Duration::MAX;
        let mut run_time = Duration::MAX;
        let mut warm = Duration::MAX;
        for _ in 0..5 {
            let mut lexicon = Lexicon::new(Vec::new(), 8);
            let mut nodes = Nodes::default();
            let t = Instant::now();
            let v = Value::parse(&source, 1000).unwrap();
            parse_time = parse_time.min(t.elapsed());
            drop(v);
            for i in 0..2 {
                let t = Instant::now();
                let mut c =
                    SchemaCompiler::new(&source, &JsonSchemaOptions::default(), &Limits::default())
                        .unwrap();
                new_time = new_time.min(t.elapsed());
                let t = Instant::now();
                while c.run(&mut lexicon, &mut nodes, 64).unwrap().is_none() {}
                if i == 0 {
                    run_time = run_time.min(t.elapsed());
                } else {
                    warm = warm.min(t.elapsed());
                }
            }
            println!("states {}", lexicon.memory_bytes());
        }
        println!(
            "{name} {} parse {parse_time:?} new {new_time:?} run {run_time:?} warm {warm:?}",
            source.len()
        );
    }
}
