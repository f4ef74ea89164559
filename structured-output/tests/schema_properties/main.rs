//! Random schemas against another validator, the `jsonschema` crate: what the masks lead to is valid,
//! and what is valid is accepted, however it is cut into tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod corpus;
mod distinct;
mod escapes;
mod evaluated;
mod implications;
mod minimal;
mod payload;
mod place;
mod random;
mod strict;
mod subject;
mod tagged;

use payload::Payload;
use place::within_memory;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use random::Random;
use serde_json::Value;
use structured_output::{Draft, PropertyOrder};
use subject::{Subject, Validator};

const DRAFTS: &[Draft] = &[
    Draft::Draft4,
    Draft::Draft6,
    Draft::Draft7,
    Draft::Draft2019_09,
    Draft::Draft2020_12,
];

/// A document on whose validity the two don't agree.
fn disagreement(schema: &Value, draft: Draft, seed: u64) -> Option<String> {
    let mut random = Random(seed);
    let documents = (0..12).map(|_| random::document(&mut random, 3)).collect();
    disagreement_on(schema, draft, documents, random)
}

/// Adds the documents that some walks along the masks lead to, and of each some that are like it. An error where
/// one isn't valid.
fn walks(
    subject: &Subject,
    validator: &Validator,
    random: &mut Random,
    num_walks: usize,
    num_mutated: usize,
    documents: &mut Vec<Value>,
) -> Result<(), String> {
    for _ in 0..num_walks {
        let Some(text) = subject.walk(random)? else {
            break;
        };
        let Some(document) = subject::document(&text) else {
            continue;
        };
        if !validator.is_valid(&document) {
            return Err(format!("the masks lead to {text}"));
        }
        for _ in 0..num_mutated {
            documents.push(random::mutated(random, &document));
        }
        documents.push(document);
    }
    Ok(())
}

/// One of some documents, or one that is like them or that masks lead to.
fn disagreement_on(
    schema: &Value,
    draft: Draft,
    mut documents: Vec<Value>,
    mut random: Random,
) -> Option<String> {
    let validator = Validator::new(schema, draft)?;
    let any = Subject::new(schema, draft, PropertyOrder::Any)?;
    let ordered = Subject::new(schema, draft, PropertyOrder::Schema)?;
    for subject in [&any, &ordered] {
        if let Err(error) = walks(subject, &validator, &mut random, 4, 3, &mut documents) {
            return Some(error);
        }
    }
    for document in documents {
        let Some(document) = subject::document(&document.to_string()) else {
            continue;
        };
        let valid = validator.is_valid(&document);
        let text = document.to_string();
        let Some(accepted) = within_memory(any.accepts(&text, &mut random)) else {
            continue;
        };
        if accepted != valid {
            return Some(format!(
                "{text} is {}valid",
                if valid { "" } else { "not " }
            ));
        }
        if !valid && within_memory(ordered.accepts(&text, &mut random)) == Some(true) {
            return Some(format!("{text} is not valid, in the schema's order"));
        }
    }
    None
}

/// A mask that is wrong: it leaves out how a valid document goes on, or has a token after which no
/// document is valid, or one that needs more than the tokens left.
fn wrong_mask(schema: &Value, draft: Draft, seed: u64) -> Option<String> {
    wrong_mask_on(schema, draft, |random| random::document(random, 3), seed)
}

fn wrong_mask_on(
    schema: &Value,
    draft: Draft,
    document: impl Fn(&mut Random) -> Value,
    seed: u64,
) -> Option<String> {
    let mut random = Random(seed);
    let validator = Validator::new(schema, draft)?;
    let subject = Subject::new(schema, draft, PropertyOrder::Any)?;
    let mut texts = Vec::new();
    for _ in 0..200 {
        let document = document(&mut random);
        if validator.is_valid(&document) {
            texts.push(document.to_string());
        }
    }
    for _ in 0..3.min(texts.len()) {
        let text = random.of(&texts);
        let mut at = random.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let place = subject.after(&text[..at])?;
        let missing = place.missing(&texts);
        if missing.is_some() {
            return missing;
        }
        for text in place.endings(&mut random) {
            let document = subject::document(&text);
            if document.is_some_and(|document| !validator.is_valid(&document)) {
                return Some(format!("a token allowed in {text}"));
            }
        }
        let wrong = place.wrong_within(&mut random);
        if wrong.is_some() {
            return wrong;
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("FORMWORK_CASES").map_or(150, |cases| cases.parse().unwrap()),
        max_shrink_iters: 0,
        failure_persistence: None,
        // The same cases at each run; longer runs look for new ones.
        rng_seed: match std::env::var_os("FORMWORK_CASES") {
            Some(_) => RngSeed::Random,
            None => RngSeed::Fixed(1),
        },
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_schemas(seed in any::<u64>(), draft in prop::sample::select(DRAFTS)) {
        // Long runs meet more states than a generation holds.
        subject::COMPILER.clear_cache();
        let schema = random::schema(&mut Random(seed), draft);
        if disagreement(&schema, draft, seed).is_some() {
            let least = minimal::schema(schema, |schema| disagreement(schema, draft, seed).is_some());
            let what = disagreement(&least, draft, seed).unwrap();
            prop_assert!(false, "{draft:?} {least}: {what}");
        }
    }

    #[test]
    fn keys_that_imply_each_other(seed in any::<u64>()) {
        subject::COMPILER.clear_cache();
        let mut random = Random(seed);
        let schema = implications::schema(&mut random);
        let draft = Draft::Draft2020_12;
        let wrong = |schema: &Value| {
            let mut random = Random(seed);
            let documents = (0..40).map(|_| implications::document(&mut random)).collect();
            disagreement_on(schema, draft, documents, random)
                .or_else(|| wrong_mask_on(schema, draft, implications::document, seed))
        };
        if wrong(&schema).is_some() {
            let least = minimal::schema(schema, |schema| wrong(schema).is_some());
            prop_assert!(false, "{least}: {}", wrong(&least).unwrap());
        }
    }

    #[test]
    fn distinct_items(seed in any::<u64>()) {
        subject::COMPILER.clear_cache();
        let mut random = Random(seed);
        let schema = distinct::schema(&mut random);
        let draft = Draft::Draft2020_12;
        let wrong = |schema: &Value| {
            let mut random = Random(seed);
            let documents = (0..60).map(|_| distinct::document(&mut random)).collect();
            // Masks within a number of tokens are dear here.
            let masks = || match seed % 4 {
                0 => wrong_mask_on(schema, draft, distinct::document, seed),
                _ => None,
            };
            disagreement_on(schema, draft, documents, random).or_else(masks)
        };
        if wrong(&schema).is_some() {
            let least = minimal::schema(schema, |schema| wrong(schema).is_some());
            prop_assert!(false, "{least}: {}", wrong(&least).unwrap());
        }
    }

    #[test]
    fn texts_that_other_members_tell_apart(seed in any::<u64>()) {
        subject::COMPILER.clear_cache();
        let mut random = Random(seed);
        let schema = tagged::schema(&mut random);
        let draft = Draft::Draft2020_12;
        let wrong = |schema: &Value| {
            let mut random = Random(seed);
            let documents = (0..40).map(|_| tagged::document(&mut random)).collect();
            let masks = || match seed % 3 {
                0 => wrong_mask_on(schema, draft, tagged::document, seed),
                _ => None,
            };
            disagreement_on(schema, draft, documents, random).or_else(masks)
        };
        if wrong(&schema).is_some() {
            let least = minimal::schema(schema, |schema| wrong(schema).is_some());
            prop_assert!(false, "{least}: {}", wrong(&least).unwrap());
        }
    }

    #[test]
    fn values_that_other_members_tell_apart(seed in any::<u64>()) {
        subject::COMPILER.clear_cache();
        let mut random = Random(seed);
        let payload = Payload::new(&mut random);
        let schema = payload.schema(&tagged::schema(&mut random), &mut random);
        let draft = Draft::Draft2020_12;
        let document = |random: &mut Random| {
            let document = tagged::document(random);
            payload.document(&document, random)
        };
        let wrong = |schema: &Value| {
            let mut random = Random(seed);
            let documents = (0..40).map(|_| document(&mut random)).collect();
            let masks = || match seed % 3 {
                0 => wrong_mask_on(schema, draft, document, seed),
                _ => None,
            };
            disagreement_on(schema, draft, documents, random).or_else(masks)
        };
        if wrong(&schema).is_some() {
            let least = minimal::schema(schema, |schema| wrong(schema).is_some());
            prop_assert!(false, "{least}: {}", wrong(&least).unwrap());
        }
    }

    #[test]
    fn unevaluated_in_schemas_that_hold_themselves(seed in any::<u64>()) {
        subject::COMPILER.clear_cache();
        let mut random = Random(seed);
        let schema = evaluated::schema(&mut random);
        let wrong = |schema: &Value| {
            let mut random = Random(seed);
            let documents = (0..40).map(|_| evaluated::document(&mut random, 4)).collect();
            disagreement_on(schema, Draft::Draft2020_12, documents, random)
        };
        if wrong(&schema).is_some() {
            let least = minimal::schema(schema, |schema| wrong(schema).is_some());
            prop_assert!(false, "{least}: {}", wrong(&least).unwrap());
        }
    }

    #[test]
    fn strict_is_within_the_schema(seed in any::<u64>(), draft in prop::sample::select(DRAFTS)) {
        subject::COMPILER.clear_cache();
        let schema = strict::schema(&mut Random(seed), draft);
        if strict::beyond(&schema, draft, seed).is_some() {
            let least = minimal::schema(schema, |schema| strict::beyond(schema, draft, seed).is_some());
            let what = strict::beyond(&least, draft, seed).unwrap();
            prop_assert!(false, "{draft:?} {least}: {what}");
        }
    }

    #[test]
    fn strings_with_any_escapes(seed in any::<u64>(), draft in prop::sample::select(DRAFTS)) {
        escapes::COMPILER.clear_cache();
        let schema = random::schema(&mut Random(seed), draft);
        if escapes::disagreement(&schema, draft, seed).is_some() {
            let least = minimal::schema(schema, |schema| escapes::disagreement(schema, draft, seed).is_some());
            let what = escapes::disagreement(&least, draft, seed).unwrap();
            prop_assert!(false, "{draft:?} {least}: {what}");
        }
    }

    #[test]
    fn masks_of_random_schemas(seed in any::<u64>(), draft in prop::sample::select(DRAFTS)) {
        // Long runs meet more states than a generation holds.
        subject::COMPILER.clear_cache();
        let schema = random::schema(&mut Random(seed), draft);
        if wrong_mask(&schema, draft, seed).is_some() {
            let least = minimal::schema(schema, |schema| wrong_mask(schema, draft, seed).is_some());
            let what = wrong_mask(&least, draft, seed).unwrap();
            prop_assert!(false, "{draft:?} {least}: {what}");
        }
    }
}
