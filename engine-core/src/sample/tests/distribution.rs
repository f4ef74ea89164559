//! Drawn tokens against the reference's probabilities: Pearson's chi-square test, with fixed
//! seeds. Each test also shows that it would notice a distribution that is slightly off.

use protocol::{LogprobsMode, SamplingParams};

use super::super::{Sampler, SamplerScratch, VocabSizes};
use super::reference::{Settings, chi_square, critical_value, probabilities};
use super::{sample, state_of};

const DRAWS: u32 = 30_000;

const OFF: Settings = Settings {
    temperature: 1.0,
    min_p: 0.0,
    top_k: 0,
    top_p: 1.0,
};

/// Uneven, with a tie, a masked token and one far below the others.
const SMALL: [f32; 10] = [
    0.3,
    1.2,
    -0.5,
    2.0,
    1.2,
    f32::NEG_INFINITY,
    0.9,
    -1.4,
    1.7,
    -0.1,
];

/// Three blocks of the noise and a part of a fourth.
fn wide() -> Vec<f32> {
    (0..200u32)
        .map(|id| ((id * 37 % 101) as f32) * 0.05)
        .collect()
}

fn params_of(settings: Settings, seed: u64) -> SamplingParams {
    let Settings {
        temperature,
        min_p,
        top_k,
        top_p,
    } = settings;
    SamplingParams {
        temperature,
        min_p,
        top_k,
        top_p,
        seed: Some(seed),
        ..Default::default()
    }
}

/// Draws along one output: the index of the noise changes.
fn counts_of(row: &[f32], settings: Settings, seed: u64) -> Vec<u32> {
    let vocab = VocabSizes {
        logits: row.len(),
        tokenizer: row.len(),
    };
    let sampler = Sampler::new(vocab, LogprobsMode::RawLogprobs);
    let mut scratch = SamplerScratch::default();
    let mut logits = row.to_vec();
    let mut state = state_of(params_of(settings, seed), &[], &[]);
    let mut counts = vec![0; row.len()];
    for _ in 0..DRAWS {
        logits.copy_from_slice(row);
        let output = sampler
            .sample_row(&mut logits, &state, None, &mut scratch)
            .unwrap();
        counts[output.token_id as usize] += 1;
        state.append(output.token_id);
    }
    counts
}

fn fits(counts: &[u32], probabilities: &[f64]) -> bool {
    chi_square(counts, probabilities) < critical_value(probabilities)
}

/// The draws fit these settings, and none of the wrong ones.
fn check(row: &[f32], settings: Settings, wrong: &[Settings]) {
    for seed in [1, 0xdead_beef_0000_0001] {
        let counts = counts_of(row, settings, seed);
        let expected = probabilities(row, settings);
        let statistic = chi_square(&counts, &expected);
        assert!(
            fits(&counts, &expected),
            "{settings:?}, seed {seed}: {statistic} is above {}",
            critical_value(&expected)
        );
        for &wrong in wrong {
            let unlike = probabilities(row, wrong);
            assert!(
                !fits(&counts, &unlike),
                "{settings:?} can't be told from {wrong:?}"
            );
        }
    }
}

#[test]
fn temperature() {
    let off = |temperature| Settings { temperature, ..OFF };
    check(&SMALL, off(1.0), &[off(0.95), off(1.05)]);
    check(&SMALL, off(0.5), &[off(0.48), off(0.52)]);
    check(&SMALL, off(2.0), &[off(1.8), off(2.2)]);
    check(&wide(), off(0.7), &[off(0.65), off(0.75)]);
}

#[test]
fn top_k() {
    let top_k = |top_k| Settings { top_k, ..OFF };
    check(&SMALL, top_k(4), &[top_k(3), top_k(5), OFF]);
    check(
        &wide(),
        top_k(20),
        &[
            top_k(19),
            top_k(21),
            Settings {
                temperature: 1.5,
                ..top_k(20)
            },
        ],
    );
}

#[test]
fn top_p() {
    let top_p = |top_p| Settings { top_p, ..OFF };
    check(&SMALL, top_p(0.8), &[top_p(0.7), top_p(0.9), OFF]);
    check(&wide(), top_p(0.5), &[top_p(0.45), top_p(0.55)]);
}

#[test]
fn min_p() {
    let min_p = |min_p| Settings { min_p, ..OFF };
    check(&SMALL, min_p(0.3), &[min_p(0.15), min_p(0.4), OFF]);
    check(&wide(), min_p(0.4), &[min_p(0.35), min_p(0.45)]);
}

#[test]
fn all_together() {
    let all = Settings {
        temperature: 1.4,
        min_p: 0.15,
        top_k: 7,
        top_p: 0.85,
    };
    let wrong = [
        Settings {
            temperature: 1.2,
            ..all
        },
        Settings { min_p: 0.5, ..all },
        Settings { top_k: 4, ..all },
        Settings { top_p: 0.6, ..all },
        Settings { top_p: 1.0, ..all },
    ];
    check(&SMALL, all, &wrong);
}

#[test]
fn seeds_are_as_good_as_indices() {
    let mut counts = vec![0; SMALL.len()];
    for seed in 0..u64::from(DRAWS) {
        let state = state_of(params_of(OFF, seed), &[], &[]);
        counts[sample(&SMALL, &state, None).token_id as usize] += 1;
    }
    assert!(fits(&counts, &probabilities(&SMALL, OFF)));
}

#[test]
fn successive_draws_are_independent() {
    let row = [0.0, 0.5, 1.0, 0.2];
    let single = probabilities(&row, OFF);
    let pairs: Vec<f64> = single
        .iter()
        .flat_map(|first| single.iter().map(move |second| first * second))
        .collect();
    let mut state = state_of(params_of(OFF, 7), &[], &[]);
    let mut counts = vec![0; pairs.len()];
    for _ in 0..DRAWS {
        let mut draw = || {
            let token_id = sample(&row, &state, None).token_id;
            state.append(token_id);
            token_id as usize
        };
        let pair = (draw(), draw());
        counts[pair.0 * row.len() + pair.1] += 1;
    }
    assert!(fits(&counts, &pairs));
}
