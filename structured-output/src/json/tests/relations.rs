//! What is plain of two nodes' shapes against a search for values of their combinations.

use proptest::prelude::*;

use super::super::live::DEAD;
use super::super::relation::Relation;
use super::fuel;
use super::random::{cases, engine};
use super::spec::{Spec, spec};
use crate::options::PropertyOrder;

/// Nodes with many constants, of which shapes say most.
fn listing() -> impl Strategy<Value = Spec> {
    const CONSTANTS: [&str; 6] = ["\"a\"", "\"b\"", "\"ab\"", "\"\"", "true", "1"];
    let constant = prop::sample::select(CONSTANTS.as_slice()).prop_map(Spec::Constant);
    let list = prop::collection::vec(constant, 0..4).prop_map(Spec::AnyOf);
    let leaf = prop_oneof![
        list,
        (0..128_u8).prop_map(Spec::Kinds),
        Just(Spec::Text("ab", 1)),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            inner.clone().prop_map(|spec| Spec::Not(Box::new(spec))),
            some().prop_map(Spec::AllOf),
            some().prop_map(Spec::AnyOf),
            some().prop_map(Spec::OneOf),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * cases()))]

    #[test]
    fn what_is_plain_is_so(
        one in prop_oneof![3 => listing(), 1 => spec()],
        other in prop_oneof![3 => listing(), 1 => spec()],
    ) {
        let Ok(Some(mut engine)) = engine(&one, PropertyOrder::Any) else {
            return Ok(());
        };
        let root = engine.root;
        let machine = &mut engine.machine;
        let (lexicon, programs) = (&mut machine.lexicon, &mut machine.programs);
        let node = one.node(lexicon, programs, root);
        let beside = other.node(lexicon, programs, root);
        let relation = programs.relation(lexicon, node, beside, &mut fuel()).unwrap();
        let not = programs.nodes().not(beside);
        let [inside, outside] = [beside, not].map(|way| {
            let both = programs.nodes().all_of(&[node, way]);
            programs.cost(lexicon, both, &mut fuel()).unwrap() != DEAD
        });
        match relation {
            Relation::Within => prop_assert!(!outside),
            Relation::Apart => prop_assert!(!inside),
            Relation::Partly => prop_assert!(inside && outside),
            Relation::Unknown => {}
        }
        match programs.overlap(lexicon, node, beside, &mut fuel()).unwrap() {
            Relation::Within => prop_assert!(!outside),
            Relation::Apart => prop_assert!(!inside),
            Relation::Partly | Relation::Unknown => {}
        }
    }

    #[test]
    fn atoms_are_disjoint_and_all_values(
        list in prop::collection::vec(prop_oneof![3 => listing(), 1 => spec()], 1..4),
    ) {
        let Ok(Some(mut engine)) = engine(&Spec::AnyOf(list.clone()), PropertyOrder::Any) else {
            return Ok(());
        };
        let root = engine.root;
        let machine = &mut engine.machine;
        let (lexicon, programs) = (&mut machine.lexicon, &mut machine.programs);
        let nodes: Vec<_> = list.iter().map(|spec| spec.node(lexicon, programs, root)).collect();
        let Some(atoms) = programs.atoms(lexicon, &nodes, &mut fuel()).unwrap() else {
            return Ok(());
        };
        let mut all = Vec::new();
        for (at, atom) in atoms.iter().enumerate() {
            all.push(atom.node);
            // What holds of none of them, by what is said.
            let mut wrong: Vec<_> = atoms[..at].iter().map(|other| other.node).collect();
            for (number, &node) in (0_u32..).zip(&nodes) {
                wrong.push(match atom.said.contains(&number) {
                    true => programs.nodes().not(node),
                    false => node,
                });
            }
            for wrong in wrong {
                let both = programs.nodes().all_of(&[atom.node, wrong]);
                prop_assert_eq!(programs.cost(lexicon, both, &mut fuel()).unwrap(), DEAD);
            }
        }
        let known = programs.nodes().any_of(&all);
        let left = programs.nodes().not(known);
        prop_assert_eq!(programs.cost(lexicon, left, &mut fuel()).unwrap(), DEAD);
    }
}

#[test]
fn lists_of_strings_are_compared() {
    let any =
        |list: &[&'static str]| Spec::AnyOf(list.iter().map(|text| Spec::Constant(text)).collect());
    let not = |spec: Spec| Spec::Not(Box::new(spec));
    let strings = Spec::Kinds(16);
    let cases = [
        (any(&["\"a\""]), any(&["\"a\"", "\"b\""]), Relation::Within),
        (any(&["\"a\"", "\"b\""]), any(&["\"a\""]), Relation::Partly),
        (any(&["\"a\""]), any(&["\"b\"", "true"]), Relation::Apart),
        (
            any(&["\"a\"", "true"]),
            any(&["\"a\"", "null"]),
            Relation::Partly,
        ),
        (any(&["\"a\""]), not(any(&["\"b\""])), Relation::Within),
        (any(&["\"a\""]), not(any(&["\"a\""])), Relation::Apart),
        (strings.clone(), any(&["\"a\""]), Relation::Partly),
        (
            Spec::AllOf(vec![strings, not(any(&["\"a\""])), not(any(&["\"b\""]))]),
            any(&["\"a\"", "\"b\""]),
            Relation::Apart,
        ),
    ];
    for (one, other, expected) in cases {
        let mut engine = engine(&one, PropertyOrder::Any).unwrap().unwrap();
        let machine = &mut engine.machine;
        let (lexicon, programs) = (&mut machine.lexicon, &mut machine.programs);
        let node = one.node(lexicon, programs, engine.root);
        let beside = other.node(lexicon, programs, engine.root);
        let relation = programs
            .relation(lexicon, node, beside, &mut fuel())
            .unwrap();
        assert_eq!(relation, expected, "{one:?} {other:?}");
    }
}
