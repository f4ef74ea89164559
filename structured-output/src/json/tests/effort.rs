//! What is to take few steps does.

use super::super::live::DEAD;
use super::super::node::{Kinds, Members, NodeId};
use super::super::programs::Programs;
use super::super::value::Value;
use crate::lexical::{Fuel, Lexicon, UNBOUNDED};

/// Exactly one of some objects, told apart by their `type`.
fn alternatives(lexicon: &mut Lexicon, programs: &mut Programs, count: usize) -> NodeId {
    let mut nodes = Vec::with_capacity(count);
    for number in 0..count {
        let text = Value::String(format!("t{number}"));
        let constant = programs.nodes().constant(lexicon, &text).unwrap();
        let any = programs.nodes().kinds(Kinds::ALL);
        let names = [("type".into(), constant), ("n".into(), any)];
        let members = programs.nodes().members(Members {
            named: names.into(),
            patterns: Box::default(),
            additional: any,
        });
        let has = programs.nodes().has("type");
        nodes.push(programs.nodes().all_of(&[members, has]));
    }
    let one = programs.nodes().one_of(&nodes);
    let object = programs.any_object();
    programs.nodes().all_of(&[object, one])
}

#[test]
fn whether_one_of_many_alternatives_has_a_value_is_told_by_the_first() {
    let steps = |count: usize| {
        let (mut lexicon, mut programs) = (Lexicon::new(Vec::new(), 8), Programs::default());
        let node = alternatives(&mut lexicon, &mut programs, count);
        let mut fuel = Fuel::new(10_000_000);
        let cost = programs.cost(&mut lexicon, node, &mut fuel).unwrap();
        // {"type":"t0"}
        assert_eq!(cost, 13);
        10_000_000 - fuel.left()
    };
    let (few, many) = (steps(40), steps(320));
    // With n log n it is some eleven times; with n², sixty-four.
    assert!(many < 16 * few, "{many} and {few} steps");
}

#[test]
fn bounds_on_a_length_are_counted() {
    let (mut lexicon, mut programs) = (Lexicon::new(Vec::new(), 8), Programs::default());
    let char = lexicon.json_constrained_char();
    let mut strings = |bounds: &[(u32, u32)], pattern: bool| {
        let mut all = vec![programs.nodes().kinds(Kinds::STRING)];
        for &(min, max) in bounds {
            let body = lexicon.repeat(char, min, max);
            let language = lexicon.json_quoted(body);
            all.push(programs.nodes().string(language));
        }
        if pattern {
            let ab = lexicon.literal(b"ab");
            let body = lexicon.star(ab);
            let language = lexicon.json_quoted(body);
            all.push(programs.nodes().string(language));
        }
        let node = programs.nodes().all_of(&all);
        let steps = if pattern { 5000 } else { 200 };
        programs.cost(&mut lexicon, node, &mut Fuel::new(steps))
    };
    assert_eq!(strings(&[(0, 1024), (1025, UNBOUNDED)], false), Ok(DEAD));
    assert_eq!(strings(&[(0, 5000), (5001, UNBOUNDED)], true), Ok(DEAD));
    assert_eq!(
        strings(&[(5, 2000), (1000, 3000), (0, 1500)], false),
        Ok(1002)
    );
    // Both bounds hold of a pattern too, which has to be searched.
    assert_eq!(strings(&[(0, 7), (3, UNBOUNDED)], true), Ok(6));
}
