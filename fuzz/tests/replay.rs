//! Every seed and every input that once broke something, through its target.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fuzz::{Mutator, Random, Target, remove_scratch, seeds};

// One test, since memory is counted over the whole process.
#[test]
fn seeds_findings_and_some_new_inputs_break_nothing() {
    for target in Target::ALL {
        let seeds = seeds(target).unwrap();
        assert!(!seeds.is_empty(), "{target:?} has no seeds");
        for seed in &seeds {
            target.run(seed);
        }
        let mutator = Mutator::new(target, seeds);
        let mut random = Random::new(1);
        for _ in 0..30 {
            target.run(&mutator.next(&mut random));
        }
    }
    remove_scratch();
}

#[test]
fn findings_are_of_targets() {
    for kind in ["seeds", "findings"] {
        let folder = format!("{}/{kind}", env!("CARGO_MANIFEST_DIR"));
        let names = Target::ALL.map(Target::name);
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(names.contains(&&*name), "{name} is no target");
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_inputs() {
    let inputs = || {
        let mutator = Mutator::new(Target::Lark, seeds(Target::Lark).unwrap());
        let mut random = Random::new(5);
        (0..50)
            .map(|_| mutator.next(&mut random))
            .collect::<Vec<_>>()
    };
    assert_eq!(inputs(), inputs());
}
