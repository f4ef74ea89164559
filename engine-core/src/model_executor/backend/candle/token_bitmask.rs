//! Grammars' bitmasks on logits that are still on their device.
//!
//! On the CPU one operation of candle works on the packed words in place. A device for which it has no
//! kernel gets them unpacked, and chooses by a condition, which every device of candle knows; that way
//! was tried on the CPU alone.

use candle_core::{CpuStorage, Device, InplaceOp2, Layout, Result, Tensor, bail};
use structured_output::apply_token_bitmask_inplace;

/// Sets the logits `[rows, vocab_size]` to -inf that the rows' bitmasks don't allow. Rows beyond
/// `bitmasks`, and those without one, stay as they are. Equal slices go to the device once.
pub(super) fn apply_token_bitmasks(logits: Tensor, bitmasks: &[Option<&[u32]>]) -> Result<Tensor> {
    let masks = DistinctBitmasks::new(bitmasks);
    if masks.words.is_empty() {
        return Ok(logits);
    }
    if logits.device().is_cpu() {
        let words = masks.tensor(logits.device())?;
        let logits = logits.contiguous()?;
        let of_rows = masks.of_rows;
        logits.inplace_op2(&words, &ApplyTokenBitmask { of_rows })?;
        return Ok(logits);
    }
    masks.choose(&logits)
}

/// Bitmasks, each once, and which of them each row has.
struct DistinctBitmasks {
    /// `[distinct, num_words]`, of which the longest is full.
    words: Vec<u32>,
    num_words: usize,
    of_rows: Vec<Option<usize>>,
}

impl DistinctBitmasks {
    fn new(bitmasks: &[Option<&[u32]>]) -> Self {
        let num_words = bitmasks.iter().flatten().map(|words| words.len()).max();
        // A bitmask without a word allows nothing, as one word of zeros.
        let num_words = num_words.unwrap_or(0).max(1);
        let mut distinct: Vec<&[u32]> = Vec::new();
        let of_rows = bitmasks
            .iter()
            .map(|bitmask| {
                let bitmask = (*bitmask)?;
                let is_same = |known: &&[u32]| std::ptr::eq(*known, bitmask);
                Some(distinct.iter().position(is_same).unwrap_or_else(|| {
                    distinct.push(bitmask);
                    distinct.len() - 1
                }))
            })
            .collect();
        let mut words = vec![0; distinct.len() * num_words];
        for (row, bitmask) in words.chunks_mut(num_words).zip(&distinct) {
            row[..bitmask.len()].copy_from_slice(bitmask);
        }
        Self {
            words,
            num_words,
            of_rows,
        }
    }

    fn tensor(&self, device: &Device) -> Result<Tensor> {
        let shape = (self.words.len() / self.num_words, self.num_words);
        Tensor::from_slice(&self.words, shape, device)
    }

    /// The logits or -inf, by operations that every device has.
    fn choose(&self, logits: &Tensor) -> Result<Tensor> {
        let (num_rows, vocab_size) = logits.dims2()?;
        let mut allowed = vec![1_u8; num_rows * vocab_size];
        for (row, bitmask) in allowed.chunks_mut(vocab_size).zip(&self.of_rows) {
            let Some(bitmask) = bitmask else { continue };
            let words = &self.words[bitmask * self.num_words..][..self.num_words];
            for (token_id, allowed) in row.iter_mut().enumerate() {
                let word = words.get(token_id / 32).copied().unwrap_or(0);
                *allowed = (word >> (token_id % 32) & 1) as u8;
            }
        }
        let allowed = Tensor::from_vec(allowed, (num_rows, vocab_size), logits.device())?;
        let masked = Tensor::new(f32::NEG_INFINITY, logits.device())?;
        allowed.where_cond(logits, &masked.broadcast_as((num_rows, vocab_size))?)
    }
}

/// Logits `[rows, vocab_size]` in f32, masked in place by words `[distinct, num_words]`.
struct ApplyTokenBitmask {
    of_rows: Vec<Option<usize>>,
}

impl InplaceOp2 for ApplyTokenBitmask {
    fn name(&self) -> &'static str {
        "apply-token-bitmask"
    }

    fn cpu_fwd(
        &self,
        logits: &mut CpuStorage,
        logits_layout: &Layout,
        words: &CpuStorage,
        words_layout: &Layout,
    ) -> Result<()> {
        let (CpuStorage::F32(logits), CpuStorage::U32(words)) = (logits, words) else {
            bail!("{} takes f32 logits and u32 words", self.name());
        };
        let (Some((start, end)), Some((words_start, words_end))) = (
            logits_layout.contiguous_offsets(),
            words_layout.contiguous_offsets(),
        ) else {
            bail!("{} takes contiguous tensors", self.name());
        };
        let (_, vocab_size) = logits_layout.shape().dims2()?;
        let (_, num_words) = words_layout.shape().dims2()?;
        let bitmasks: Vec<&[u32]> = words[words_start..words_end].chunks(num_words).collect();
        let rows = logits[start..end].chunks_mut(vocab_size.max(1));
        for (row, bitmask) in rows.zip(&self.of_rows) {
            if let Some(bitmask) = bitmask.and_then(|index| bitmasks.get(index)) {
                apply_token_bitmask_inplace(row, bitmask);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What [`apply_token_bitmask_inplace`] makes of each row.
    fn expected(logits: &[f32], vocab_size: usize, bitmasks: &[Option<&[u32]>]) -> Vec<f32> {
        let mut logits = logits.to_vec();
        for (row, bitmask) in logits.chunks_mut(vocab_size).zip(bitmasks) {
            if let Some(bitmask) = bitmask {
                apply_token_bitmask_inplace(row, bitmask);
            }
        }
        logits
    }

    proptest! {
        #[test]
        fn equals_the_rows_masked_one_by_one(
            vocab_size in 1_usize..100,
            masks in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..5), 1..4),
            rows in prop::collection::vec(prop::option::of(0_usize..4), 1..7),
            num_free in 0_usize..3,
        ) {
            let bitmasks: Vec<Option<&[u32]>> = rows
                .iter()
                .map(|row| row.map(|index| masks[index % masks.len()].as_slice()))
                .collect();
            let num_rows = rows.len() + num_free;
            let logits: Vec<f32> = (0..num_rows * vocab_size).map(|n| n as f32 - 40.0).collect();
            let tensor = || Tensor::from_slice(&logits, (num_rows, vocab_size), &Device::Cpu).unwrap();
            let flat = |tensor: Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let expected = expected(&logits, vocab_size, &bitmasks);
            let masked = apply_token_bitmasks(tensor(), &bitmasks).unwrap();
            prop_assert_eq!(flat(masked), expected.clone());
            let chosen = DistinctBitmasks::new(&bitmasks).choose(&tensor()).unwrap();
            prop_assert_eq!(flat(chosen), expected);
        }
    }

    #[test]
    fn equal_bitmasks_go_to_the_device_once() {
        let (one, other) = ([1_u32, 2], [3_u32, 4]);
        let rows = [Some(&one[..]), None, Some(&other[..]), Some(&one[..])];
        let masks = DistinctBitmasks::new(&rows);
        assert_eq!(masks.words, [1, 2, 3, 4]);
        assert_eq!(masks.of_rows, [Some(0), None, Some(1), Some(0)]);
    }

    #[test]
    fn other_tensors_are_refused() {
        let logits = Tensor::zeros((2, 4), candle_core::DType::F64, &Device::Cpu).unwrap();
        let words = [5_u32];
        let error = apply_token_bitmasks(logits, &[Some(&words[..])]).unwrap_err();
        assert!(error.to_string().contains("apply-token-bitmask"), "{error}");
    }
}
