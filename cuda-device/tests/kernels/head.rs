//! Masks and the largest logits.

use cuda_device::Masks;

use crate::support::{
    Numbers, assert_same, devices, download, download_i32, room, upload, upload_i32, upload_u32,
};

fn argmax(logits: &[f32], is_allowed: impl Fn(usize) -> bool) -> i32 {
    let mut best: Option<usize> = None;
    for (token, logit) in logits
        .iter()
        .enumerate()
        .filter(|(token, _)| is_allowed(*token))
    {
        if logit.is_nan() || *logit == f32::INFINITY {
            return -1;
        }
        if *logit > best.map_or(f32::NEG_INFINITY, |best| logits[best]) {
            best = Some(token);
        }
    }
    best.map_or(-1, |best| best as i32)
}

#[test]
fn masks_and_argmax() {
    for device in devices() {
        for vocab in [1, 31, 1000, 4097, 151_936, 49_153] {
            let (rows, num_slots, words) = (4, 3, usize::div_ceil(vocab, 32));
            let mut numbers = Numbers::new(15);
            let mut pool: Vec<u32> = (0..num_slots * words)
                .map(|_| numbers.next() & numbers.next())
                .collect();
            // One token alone.
            pool[words..2 * words].fill(0);
            let only = numbers.below(vocab);
            pool[words + only / 32] = 1 << (only % 32);
            let slots = [2, -1, 1, 0];
            let mut logits = numbers.values(rows * vocab);
            // Equals at several places.
            logits
                .iter_mut()
                .for_each(|logit| *logit = (*logit * 100.0).round() / 4.0);
            let is_allowed = |row: usize, token: usize| match slots[row] {
                -1 => true,
                slot => pool[slot as usize * words + token / 32] >> (token % 32) & 1 == 1,
            };
            let (pool_buffer, slots_buffer) =
                (upload_u32(&device, &pool), upload_i32(&device, &slots));
            let masks = Masks {
                pool: &pool_buffer,
                num_slots,
                words,
                slots: &slots_buffer,
            };
            let (mut buffer, mut out) = (upload(&device, &logits), room(&device, rows));
            for num_tokens in [vocab, vocab - vocab / 3] {
                device
                    .masked_argmax(&buffer, rows, vocab, num_tokens, Some(masks), &mut out)
                    .unwrap();
                let expected: Vec<i32> = (0..rows)
                    .map(|row| {
                        argmax(&logits[row * vocab..][..num_tokens], |token| {
                            is_allowed(row, token)
                        })
                    })
                    .collect();
                assert_eq!(download_i32(&device, &out, rows), expected, "{vocab}");
            }
            device.mask_logits(&mut buffer, rows, vocab, masks).unwrap();
            let expected: Vec<f32> = (0..rows * vocab)
                .map(|at| match is_allowed(at / vocab, at % vocab) {
                    true => logits[at],
                    false => f32::NEG_INFINITY,
                })
                .collect();
            assert_same(
                &download(&device, &buffer, rows * vocab),
                &expected,
                "mask_logits",
            );
            // Without masks, of what was masked before.
            device
                .masked_argmax(&buffer, rows, vocab, vocab, None, &mut out)
                .unwrap();
            let expected: Vec<i32> = expected
                .chunks(vocab)
                .map(|row| argmax(row, |_| true))
                .collect();
            assert_eq!(download_i32(&device, &out, rows), expected);
        }
    }
}

#[test]
fn logits_that_are_not_finite() {
    for device in devices() {
        let (rows, vocab) = (5, 40);
        let mut logits = vec![1.0; rows * vocab];
        logits[7] = f32::NAN;
        logits[vocab + 33] = f32::INFINITY;
        logits[2 * vocab..3 * vocab].fill(f32::NEG_INFINITY);
        logits[3 * vocab + 9] = f32::NAN; // Not allowed there.
        let pool = upload_u32(&device, &[0xff, 0]);
        let slots = upload_i32(&device, &[-1, -1, -1, 0, 1]);
        let masks = Masks {
            pool: &pool,
            num_slots: 1,
            words: 2,
            slots: &slots,
        };
        let (buffer, mut out) = (upload(&device, &logits), room(&device, rows));
        device
            .masked_argmax(&buffer, rows, vocab, vocab, Some(masks), &mut out)
            .unwrap();
        assert_eq!(download_i32(&device, &out, rows), [-1, -1, -1, 0, -1]);
    }
}

#[test]
fn a_mask_that_is_shorter_than_a_row_allows_nothing_behind_it() {
    for device in devices() {
        let pool = upload_u32(&device, &[u32::MAX]);
        let slots = upload_i32(&device, &[0, 9]);
        let masks = Masks {
            pool: &pool,
            num_slots: 1,
            words: 1,
            slots: &slots,
        };
        let mut logits = upload(&device, &[0.0; 80]);
        device.mask_logits(&mut logits, 2, 40, masks).unwrap();
        let found = download(&device, &logits, 80);
        assert_eq!(found[..32], [0.0; 32]);
        assert_eq!(
            found[32..],
            [f32::NEG_INFINITY; 48],
            "and a slot that isn't there"
        );
    }
}
