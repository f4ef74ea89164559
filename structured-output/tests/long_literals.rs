//! Long literals: what is asked of them costs a few steps a byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{
    CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions, TokenizerInfo,
};

const STOP: u32 = 260;

fn info() -> Arc<TokenizerInfo> {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let words = ["the ", "quick", " brown", "{\""];
    vocab.extend(words.iter().map(|word| word.as_bytes().to_vec()));
    vocab.push(Vec::new());
    Arc::new(TokenizerInfo::new(&vocab, vocab.len(), &[STOP], &[]).unwrap())
}

/// A text of some length that never looks like itself.
fn text(length: usize) -> String {
    "the quick brown fox ".chars().cycle().take(length).collect()
}

/// Steps of each question of an engine at the start, and at a place in the midst.
fn steps(schema: &str) -> Vec<(&'static str, u64)> {
    const STEPS: u64 = 1 << 40;
    let compiler = GrammarCompiler::new(info(), CompilerOptions::default());
    let grammar = compiler
        .compile_json_schema(schema, &JsonSchemaOptions::default())
        .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    let mut costs = Vec::new();
    let mut ask = |name, matcher: &mut GrammarMatcher, question: &dyn Fn(&mut GrammarMatcher)| {
        matcher.set_allowance(Some(STEPS));
        question(matcher);
        costs.push((name, STEPS - matcher.allowance().unwrap()));
    };
    ask("bound", &mut matcher, &|m| drop::<u32>(m.min_tokens_bound().unwrap()));
    ask("bytes", &mut matcher, &|m| drop::<u32>(m.min_bytes_to_complete().unwrap()));
    ask("tokens", &mut matcher, &|m| drop::<u32>(m.min_tokens_to_complete().unwrap()));
    ask("jump", &mut matcher, &|m| drop(m.find_jump_forward_string().unwrap()));
    ask("mask", &mut matcher, &|m| drop(m.next_token_mask().unwrap()));
    ask("forced", &mut matcher, &|m| drop(m.forced_tokens().unwrap()));
    ask("all", &mut matcher, &|m| {
        let mut left = m.min_tokens_to_complete().unwrap();
        while !m.is_terminated() {
            m.next_token_mask().unwrap();
            m.min_bytes_to_complete().unwrap();
            m.has_forced_byte().unwrap();
            let mask = m.next_token_mask_completing(left).unwrap();
            let mut row = vec![0; 9];
            mask.write_to(&mut row);
            let id = (0..=STOP).rev().find(|id| row[*id as usize / 32] >> (id % 32) & 1 == 1).unwrap();
            assert!(m.accept_token(id).unwrap());
            left = m.min_tokens_to_complete().unwrap();
        }
    });
    costs
}

fn schemas(length: usize) -> [(&'static str, String); 15] {
    let text = text(length);
    [
        ("const", format!(r#"{{"const":"{text}"}}"#)),
        (
            "property",
            format!(r#"{{"type":"object","properties":{{"a":{{"const":"{text}"}}}},"required":["a"]}}"#),
        ),
        (
            "name",
            format!(r#"{{"type":"object","properties":{{"{text}":{{"type":"integer"}}}},"required":["{text}"]}}"#),
        ),
        ("pattern", format!(r#"{{"type":"string","pattern":"^{text}$"}}"#)),
        ("enum", format!(r#"{{"enum":["{text}a","{text}bc"]}}"#)),
        (
            "names",
            format!(r#"{{"type":"object","properties":{{"{text}a":{{"type":"integer"}},"{text}bc":{{"type":"null"}}}},"required":["{text}a","{text}bc"]}}"#),
        ),
        ("optional", format!(r#"{{"type":"object","properties":{{"{text}a":{{"type":"integer"}},"{text}bc":{{"type":"null"}}}}}}"#)),
        ("closed", format!(r#"{{"type":"object","additionalProperties":false,"minProperties":1,"properties":{{"{text}a":{{"type":"integer"}},"{text}bc":{{"type":"null"}},"{text}":{{"type":"null"}}}}}}"#)),
        ("sized", format!(r#"{{"type":"string","pattern":"^{text}$","maxLength":9999}}"#)),
        ("search", format!(r#"{{"type":"string","pattern":"{text}","minLength":3}}"#)),
        ("two searches", format!(r#"{{"type":"string","pattern":"{text}","allOf":[{{"pattern":"brown"}}]}}"#)),
        ("unique", format!(r#"{{"type":"array","minItems":2,"uniqueItems":true,"items":{{"enum":["{text}a","{text}bc"]}}}}"#)),
        ("pattern names", format!(r#"{{"type":"object","minProperties":1,"additionalProperties":false,"patternProperties":{{"^{text}$":{{"type":"integer"}},"^the":{{"minimum":3}}}}}}"#)),
        ("not", format!(r#"{{"type":"string","minLength":3,"not":{{"const":"{text}"}}}}"#)),
        (
            "schemas",
            format!(r#"{{"type":"object","properties":{{"t":{{"anyOf":[{{"const":"{text}a"}},{{"const":"{text}bc"}},{{"type":"string","pattern":"^{text}.{{3,9}}$"}}]}}}},"required":["t"]}}"#),
        ),
    ]
}

#[test]
fn a_long_literal_costs_a_few_steps_a_byte() {
    for ((name, short), (_, long)) in schemas(500).into_iter().zip(schemas(1000)) {
        println!("{name} {:?}\n{name} {:?}", steps(&short), steps(&long));
    }
}

#[test]
fn sixteen_thousand() {
    for (name, schema) in schemas(16_000) {
        if std::env::var("ONLY").is_ok_and(|only| only != name) { continue; }
        let compiler = GrammarCompiler::new(info(), CompilerOptions::default());
        let compiled = compiler.compile_json_schema(&schema, &JsonSchemaOptions::default());
        let grammar = match compiled { Ok(g) => g, Err(e) => { println!("{name} {e}"); continue; } };
        let mut matcher = GrammarMatcher::new(&grammar);
        let t = std::time::Instant::now();
        println!("{name} {:?} {:?} {:?} {:?}", matcher.min_tokens_bound(), matcher.min_bytes_to_complete(), matcher.min_tokens_to_complete(), matcher.find_jump_forward_string().map(|s|s.len()));
        let mut n = 0;
        while let Ok(left) = matcher.min_tokens_to_complete() {
            if left == 0 { break; }
            if let Err(e) = matcher.next_token_mask() { println!("{e}"); break; }
            let ids = match matcher.next_token_mask_completing(left) { Ok(i) => i, Err(e) => { println!("{e}"); break; } };
            let mut row = vec![0; 9];
            ids.write_to(&mut row);
            let id = (0..=STOP).rev().find(|id| row[*id as usize / 32] >> (id % 32) & 1 == 1).unwrap();
            assert!(matcher.accept_token(id).unwrap());
            n += 1;
        }
        println!("  {n} tokens {:?}", t.elapsed());
    }
}

#[test]
fn property_names() {
    let schema = r#"{"type":"object","propertyNames":{"minLength":1990},"minProperties":1}"#;
    let compiler = GrammarCompiler::new(info(), CompilerOptions::default());
    let grammar = compiler.compile_json_schema(&schema, &JsonSchemaOptions::default()).unwrap();
    for budget in [2100_u32, 2050, 9000] {
    let mut m = GrammarMatcher::new(&grammar);
    let mut times = [0.0; 8];
    let mut steps = [0; 8];
    let mut n = 0;
    const STEPS: u64 = 1 << 40;
    let mut seed = 1_u64;
    while !m.is_terminated() && n < 2020 {
        let mut i = 0;
        let mut ask = |m: &mut GrammarMatcher, q: &mut dyn FnMut(&mut GrammarMatcher)| {
            m.set_allowance(Some(STEPS));
            let t = std::time::Instant::now();
            q(m);
            times[i] += t.elapsed().as_secs_f64();
            steps[i] += STEPS - m.allowance().unwrap();
            if budget == 2100 && [0,1,2,10,33,34,35,36,500,501,1000,1500].contains(&n) { print!("{}:{} ", i, STEPS - m.allowance().unwrap()); }
            i += 1;
        };
        ask(&mut m, &mut |m| drop(m.next_token_mask().unwrap()));
        ask(&mut m, &mut |m| { m.min_bytes_to_complete().unwrap(); });
        ask(&mut m, &mut |m| { m.min_tokens_to_complete().unwrap(); });
        ask(&mut m, &mut |m| { m.has_forced_byte().unwrap(); });
        let mut row = vec![0; 9];
        ask(&mut m, &mut |m| { m.next_token_mask().unwrap().write_to(&mut row); });
        ask(&mut m, &mut |m| { m.next_token_mask_completing(budget - n).unwrap(); });
        let ids: Vec<u32> = (0..=STOP).filter(|id| row[*id as usize / 32] >> (id % 32) & 1 == 1 && (*id == 34 || *id == 123 || *id==STOP || (*id > 96 && *id < 123) || n > 2000)).collect();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let id = ids[(seed >> 33) as usize % ids.len()];
        ask(&mut m, &mut |m| assert!(m.accept_token(id).unwrap()));
        if budget == 2100 && [0,1,2,10,33,34,35,36,500,501,1000,1500].contains(&n) { println!("n={n}"); }
        n += 1;
    }
    println!("{n} {times:.4?}\n{steps:?}");
    }
}
