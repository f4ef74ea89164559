//! Random clauses beside all values of their variables tried one by one.

use proptest::prelude::*;

use super::{Clauses, Literal};
use crate::lexical::Fuel;

fn is_met(clauses: &[Vec<(usize, bool)>], bits: u32) -> bool {
    clauses.iter().all(|clause| {
        let mut literals = clause.iter();
        literals.any(|&(var, holds)| (bits >> var & 1 == 1) == holds)
    })
}

fn literal(variables: &[Literal], (var, holds): (usize, bool)) -> Literal {
    match holds {
        true => variables[var],
        false => !variables[var],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clauses_are_met_if_they_can_be(
        all in prop::collection::vec(
            prop::collection::vec((0..9_usize, any::<bool>()), 1..=4),
            0..60,
        ),
    ) {
        let mut clauses = Clauses::new();
        let variables: Vec<Literal> = (0..9).map(|_| clauses.variable()).collect();
        // Some at a time: more may be said once an answer is known.
        for end in [all.len() / 2, all.len()] {
            let start = if end == all.len() { all.len() / 2 } else { 0 };
            for clause in &all[start..end] {
                let literals: Vec<Literal> =
                    clause.iter().map(|&one| literal(&variables, one)).collect();
                clauses.add(&literals);
            }
            let can_be = (0..1 << 9).any(|bits| is_met(&all[..end], bits));
            let is_solved = clauses.solve(&mut Fuel::new(1_000_000)).unwrap();
            prop_assert_eq!(is_solved, can_be);
            if is_solved {
                let bits = (0..9).fold(0, |bits, var| {
                    bits | u32::from(clauses.holds(variables[var]) == Some(true)) << var
                });
                prop_assert!(is_met(&all[..end], bits));
            }
        }
    }
}

/// More pigeons than holes: what it takes is counted.
#[test]
fn what_is_hard_runs_out_of_steps() {
    let mut clauses = Clauses::new();
    let mut is_in: Vec<Vec<Literal>> = Vec::new();
    for _ in 0..11 {
        let holes: Vec<Literal> = (0..10).map(|_| clauses.variable()).collect();
        clauses.add(&holes);
        for other in &is_in {
            for (&one, &same) in holes.iter().zip(other) {
                clauses.add(&[!one, !same]);
            }
        }
        is_in.push(holes);
    }
    assert!(clauses.solve(&mut Fuel::new(100_000)).is_err());
}
