//! Which tokens are kept, and which of them is drawn.

use proptest::prelude::*;

use super::super::masked_row::MaskedRow;
use super::super::noise::Noise;
use super::super::nucleus::draw_before_filters;
use super::super::random_sample::random_sample;
use super::super::row::BlockMaxima;
use super::super::topk_topp::{Cutoff, Filters, cutoff};
use super::any_row;
use super::reference::{Settings, num_kept, ranked};

fn read(row: &[f32]) -> BlockMaxima {
    let mut maxima = BlockMaxima::default();
    maxima.read(row);
    maxima
}

fn cutoff_of(row: &[f32], settings: Settings) -> Cutoff {
    cutoff(
        row.into(),
        &read(row),
        settings.into(),
        &mut Vec::new(),
        &mut Vec::new(),
    )
}

impl From<Settings> for Filters {
    fn from(settings: Settings) -> Self {
        let Settings {
            temperature,
            min_p,
            top_k,
            top_p,
        } = settings;
        Self {
            inverse_temperature: 1.0 / f64::from(temperature),
            min_p,
            top_k,
            top_p,
        }
    }
}

/// Kept ids, first by rank first.
fn kept(row: &[f32], settings: Settings) -> Vec<u32> {
    let cutoff = cutoff_of(row, settings);
    let mut ids = ranked(row);
    ids.retain(|&id| cutoff.keeps(row[id as usize], id));
    for (id, &logit) in (0..).zip(row) {
        assert!(
            logit.is_finite() || !cutoff.keeps(logit, id),
            "a masked token is kept"
        );
    }
    ids
}

const OFF: Settings = Settings {
    temperature: 1.0,
    min_p: 0.0,
    top_k: 0,
    top_p: 1.0,
};

#[test]
fn top_k_keeps_exactly_k_and_the_lower_ids_among_equals() {
    let row = [1.0, 3.0, 2.0, 2.0, 2.0, 0.0];
    assert_eq!(kept(&row, Settings { top_k: 3, ..OFF }), [1, 2, 3]);
    assert_eq!(kept(&row, Settings { top_k: 1, ..OFF }), [1]);
    assert_eq!(kept(&row, Settings { top_k: 6, ..OFF }), [1, 2, 3, 4, 0, 5]);
    assert_eq!(
        kept(
            &row,
            Settings {
                top_k: u32::MAX,
                ..OFF
            }
        )
        .len(),
        6
    );
    assert_eq!(kept(&row, OFF).len(), 6);
}

#[test]
fn top_k_passes_over_masked_tokens() {
    let masked = f32::NEG_INFINITY;
    assert_eq!(
        kept(&[masked, 1.0, masked, 0.0], Settings { top_k: 3, ..OFF }),
        [1, 3]
    );
    let mut row = vec![masked; 640];
    row[600] = 1.0;
    assert_eq!(kept(&row, Settings { top_k: 3, ..OFF }), [600]);
}

#[test]
fn top_p_keeps_the_token_that_crosses() {
    // Probabilities 1/2, 1/4, 1/8, 1/8.
    let ln_2 = std::f32::consts::LN_2;
    let row = [0.0, -2.0 * ln_2, -ln_2, -2.0 * ln_2];
    let kept = |top_p| kept(&row, Settings { top_p, ..OFF });
    assert_eq!(kept(1e-9), [0]);
    assert_eq!(kept(0.49), [0]);
    assert_eq!(kept(0.51), [0, 2]);
    assert_eq!(kept(0.76), [0, 2, 1]);
    assert_eq!(kept(0.999), [0, 2, 1, 3]);
}

#[test]
fn top_p_reaches_its_share_exactly() {
    // Four equal tokens: sums are exact, and two reach a half.
    assert_eq!(kept(&[5.0; 4], Settings { top_p: 0.5, ..OFF }), [0, 1]);
    assert_eq!(kept(&[5.0; 4], Settings { top_p: 0.75, ..OFF }), [0, 1, 2]);
}

#[test]
fn min_p_is_a_share_of_the_largest_probability() {
    let row = [0.0, -0.6, -0.7, -3.0];
    // exp(-0.6) = 0.549, exp(-0.7) = 0.497.
    assert_eq!(kept(&row, Settings { min_p: 0.5, ..OFF }), [0, 1]);
    assert_eq!(kept(&row, Settings { min_p: 0.04, ..OFF }), [0, 1, 2, 3]);
    assert_eq!(
        kept(&[2.0, 1.0, 2.0], Settings { min_p: 1.0, ..OFF }),
        [0, 2]
    );
    // At temperature 2 the distances halve.
    assert_eq!(
        kept(
            &row,
            Settings {
                min_p: 0.5,
                temperature: 2.0,
                ..OFF
            }
        ),
        [0, 1, 2]
    );
}

#[test]
fn min_p_is_quick_where_its_boundary_is_near_zero() {
    // Around 0 there are a billion floats between the exact boundary and a rounded one.
    let settings = Settings {
        min_p: (-2.0f32).exp(),
        ..OFF
    };
    assert_eq!(
        kept(&[2.0, 1e-6, 1e-30, 0.0, -1e-30, -1e-6], settings)[..2],
        [0, 1]
    );
    let settings = Settings {
        min_p: 0.5,
        temperature: 1e-5,
        ..OFF
    };
    assert_eq!(kept(&[0.0, -6.9e-6, -7e-6, f32::MIN], settings), [0, 1]);
    let settings = Settings {
        min_p: f32::MIN_POSITIVE,
        ..OFF
    };
    assert_eq!(
        kept(&[f32::MIN, f32::MAX, f32::MAX.next_down()], settings),
        [1]
    );
}

#[test]
fn top_p_looks_at_what_min_p_and_top_k_left() {
    // Ten equal tokens; of the 4 that top_k leaves, 2 hold half.
    let settings = Settings {
        top_k: 4,
        top_p: 0.5,
        ..OFF
    };
    assert_eq!(kept(&[0.0; 10], settings), [0, 1]);
    // exp(-1) = 0.37: min_p leaves two tokens, of which the first holds 0.73.
    let settings = Settings {
        min_p: 0.3,
        top_p: 0.7,
        ..OFF
    };
    assert_eq!(kept(&[0.0, -1.0, -1.5, -1.5, -1.5], settings), [0]);
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let temperature = prop_oneof![Just(1.0), Just(0.01), Just(2.0), 0.1..2.0f32];
    let min_p = prop_oneof![2 => Just(0.0), 1 => 0.0..0.2f32, 1 => Just(1.0), 1 => Just(1e-12)];
    let top_k = prop_oneof![1 => Just(0), 1 => 1..5u32, 1 => 1..400u32];
    let top_p = prop_oneof![1 => Just(1.0), 2 => 0.01..1.0f32, 1 => Just(1e-7), 1 => Just(0.9)];
    (temperature, min_p, top_k, top_p).prop_map(|(temperature, min_p, top_k, top_p)| Settings {
        temperature,
        min_p,
        top_k,
        top_p,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn kept_tokens_are_the_references(row in any_row(), settings in any_settings()) {
        let ours = kept(&row, settings);
        let (least, most) = (num_kept(&row, settings, -1e-11), num_kept(&row, settings, 1e-11));
        prop_assert!(
            (least..=most).contains(&ours.len()),
            "{} kept instead of {}..={}", ours.len(), least, most
        );
        prop_assert_eq!(&ours[..], &ranked(&row)[..ours.len()]);
    }

    #[test]
    fn a_draw_is_the_best_of_all_kept_tokens(
        row in any_row(), settings in any_settings(), seed: u64, index: u64,
    ) {
        let noise = Noise::new(seed, index);
        let cutoff = cutoff_of(&row, settings);
        let max = f64::from(row.iter().copied().fold(f32::MIN, f32::max));
        let inverse_temperature = 1.0 / f64::from(settings.temperature);
        let mut best = (f64::INFINITY, u32::MAX);
        for id in kept(&row, settings) {
            let scaled = (f64::from(row[id as usize]) - max) * inverse_temperature;
            let time = noise.exponential(id) / super::super::math::exp(scaled);
            if time < best.0 || (time == best.0 && id < best.1) {
                best = (time, id);
            }
        }
        let drawn = random_sample(
            row.as_slice().into(), &read(&row), settings.into(), cutoff, &noise,
        );
        prop_assert_eq!(drawn, Some(best.1));
    }

    #[test]
    fn a_draw_before_the_filters_is_the_draw_after_them(
        row in any_row(), settings in any_settings(), seed: u64, index: u64,
    ) {
        let settings = Settings { top_k: 0, ..settings };
        let (noise, maxima) = (Noise::new(seed, index), read(&row));
        let masked_row = MaskedRow::from(row.as_slice());
        let before = draw_before_filters(masked_row, &maxima, settings.into(), &noise);
        if before.is_some() {
            let cutoff = cutoff_of(&row, settings);
            let after = random_sample(masked_row, &maxima, settings.into(), cutoff, &noise);
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn argmax_is_the_first_by_rank(row in any_row()) {
        prop_assert_eq!(read(&row).argmax(row.as_slice().into()), ranked(&row).first().copied());
    }
}

#[test]
fn a_draw_before_the_filters_mostly_tells() {
    let peaked = |id: u16| -f32::from(id) / 40.0;
    let flat = |id: u16| f32::from(id * 7 % 4000) / 4000.0;
    for (row, top_p, least) in [
        ((0..4000).map(flat).collect::<Vec<f32>>(), 0.9, 950),
        ((0..4000).map(flat).collect(), 0.5, 950),
        ((0..4000).map(peaked).collect(), 0.9, 950),
        // Tokens of one probability are told apart by their ids alone.
        (vec![0.0; 4000], 0.5, 0),
        // The most probable token is kept whatever it has.
        (vec![0.0, -20.0, -20.0], 0.1, 1000),
    ] {
        let settings = Settings { top_p, ..OFF };
        let maxima = read(&row);
        let draw = |seed| {
            let noise = Noise::new(seed, 0);
            draw_before_filters(row.as_slice().into(), &maxima, settings.into(), &noise)
        };
        let told = (0..1000).filter_map(draw).count();
        assert!(told >= least, "{told} of 1000 at {top_p}");
    }
}
