//! Grammars' bitmasks on the device: each that comes again is there already.

use std::collections::HashMap;

use cuda_device::{Buffer, Device, Masks};

use crate::model_executor::Bitmask;
use crate::model_executor::error::ModelError;

/// Masks that the pool keeps. With a vocabulary of 151,936 tokens they are 78 MB.
pub(super) const NUM_SLOTS: usize = 4096;

/// Slots of a mask each, found by the masks' numbers, the least recently used given away first.
pub(super) struct MaskPool {
    /// `[num_slots, num_words]`
    words: Buffer,
    num_words: usize,
    slots: Vec<Slot>,
    by_number: HashMap<u64, usize>,
    /// Counts the calls of [`Self::place`].
    call: u64,
    /// Masks that were uploaded.
    pub(super) num_uploads: u64,
    padded: Vec<u32>,
}

/// What a slot holds.
#[derive(Clone, Copy, Default)]
struct Slot {
    number: Option<u64>,
    /// The call that used it last.
    used: u64,
}

impl MaskPool {
    /// A pool of `num_slots` masks for a vocabulary of `num_tokens`.
    pub(super) fn new(
        device: &Device,
        num_slots: usize,
        num_tokens: usize,
    ) -> Result<Self, ModelError> {
        let num_words = num_tokens.div_ceil(32);
        Ok(Self {
            words: device.allocate(num_slots * num_words * size_of::<u32>())?,
            num_words,
            slots: vec![Slot::default(); num_slots],
            by_number: HashMap::new(),
            call: 0,
            num_uploads: 0,
            padded: Vec::new(),
        })
    }

    /// The masks of rows whose slots are in `slots` on the device.
    pub(super) fn masks<'a>(&'a self, slots: &'a Buffer) -> Masks<'a> {
        Masks {
            pool: &self.words,
            num_slots: self.slots.len(),
            words: self.num_words,
            slots,
        }
    }

    /// The slot of each of `num_rows` rows, -1 where it has no mask. What is not there is uploaded.
    ///
    /// # Errors
    /// [`ModelError::Input`] where there are more masks than slots.
    pub(super) fn place(
        &mut self,
        device: &Device,
        bitmasks: &[Option<Bitmask<'_>>],
        num_rows: usize,
    ) -> Result<Vec<i32>, ModelError> {
        self.call += 1;
        let mut slots = vec![-1; num_rows];
        for (slot, bitmask) in slots.iter_mut().zip(bitmasks) {
            if let Some(bitmask) = bitmask {
                *slot = self.slot_of(device, *bitmask)? as i32;
            }
        }
        Ok(slots)
    }

    fn slot_of(&mut self, device: &Device, bitmask: Bitmask<'_>) -> Result<usize, ModelError> {
        let known = bitmask
            .number
            .and_then(|number| self.by_number.get(&number));
        if let Some(&index) = known {
            self.slots[index].used = self.call;
            return Ok(index);
        }
        let oldest = self
            .slots
            .iter()
            .enumerate()
            .min_by_key(|(_, slot)| slot.used);
        let free = oldest.filter(|(_, slot)| slot.used < self.call);
        let Some((index, _)) = free else {
            return Err(ModelError::Input {
                field: "bitmasks",
                problem: format!("must be at most {} at a time", self.slots.len()),
            });
        };
        if let Some(forgotten) = self.slots[index].number {
            self.by_number.remove(&forgotten);
        }
        self.slots[index] = Slot::default();
        // A word that a mask lacks allows nothing.
        self.padded.clear();
        self.padded
            .extend(bitmask.words.iter().take(self.num_words));
        self.padded.resize(self.num_words, 0);
        let offset = index * self.num_words * size_of::<u32>();
        device.upload(&mut self.words, offset, super::bytes_of(&self.padded))?;
        // Known only now: an upload that fails leaves none that isn't there.
        self.slots[index] = Slot {
            number: bitmask.number,
            used: self.call,
        };
        if let Some(number) = bitmask.number {
            self.by_number.insert(number, index);
        }
        self.num_uploads += 1;
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use cuda_device::ThreadOrder;

    use super::*;

    /// What is in a slot.
    fn read(pool: &MaskPool, device: &Device, slot: i32) -> Vec<u32> {
        let mut bytes = vec![0; pool.num_words * 4];
        let offset = slot as usize * bytes.len();
        device.download(&pool.words, offset, &mut bytes).unwrap();
        let words = bytes.as_chunks::<4>().0.iter();
        words.map(|word| u32::from_le_bytes(*word)).collect()
    }

    #[test]
    fn what_comes_again_is_there_and_the_oldest_goes() {
        let device = Device::simulator(ThreadOrder::Ascending).unwrap();
        let mut pool = MaskPool::new(&device, 4, 70).unwrap();
        let words: Vec<[u32; 3]> = (0..6).map(|number| [number, 7, 100 + number]).collect();
        let mask = |number: usize| {
            Some(Bitmask {
                words: &words[number],
                number: Some(number as u64),
            })
        };
        let mut check = |numbers: &[Option<usize>], uploads: u64| {
            let masks: Vec<_> = numbers.iter().map(|number| number.and_then(mask)).collect();
            let slots = pool.place(&device, &masks, masks.len() + 1).unwrap();
            for (slot, number) in slots.iter().zip(numbers) {
                match number {
                    Some(number) => assert_eq!(read(&pool, &device, *slot), words[*number]),
                    None => assert_eq!(*slot, -1),
                }
            }
            assert_eq!(slots.last(), Some(&-1));
            assert_eq!(
                std::mem::take(&mut pool.num_uploads),
                uploads,
                "{numbers:?}"
            );
        };
        check(&[Some(0), None, Some(1), Some(0)], 2);
        check(&[Some(2), Some(3)], 2);
        check(&[Some(1), Some(0)], 0);
        // 2 and 3 are the oldest now.
        check(&[Some(4), Some(5)], 2);
        check(&[Some(0), Some(1), Some(4), Some(5)], 0);
        check(&[Some(2)], 1);
    }

    #[test]
    fn masks_without_a_number_are_uploaded_each_time_and_too_many_are_refused() {
        let device = Device::simulator(ThreadOrder::Ascending).unwrap();
        let mut pool = MaskPool::new(&device, 2, 40).unwrap();
        let short = [9_u32];
        let mask = Some(Bitmask::from(short.as_slice()));
        for _ in 0..3 {
            let slots = pool.place(&device, &[mask], 1).unwrap();
            assert_eq!(read(&pool, &device, slots[0]), [9, 0]);
        }
        assert_eq!(pool.num_uploads, 3);
        let error = pool.place(&device, &[mask, mask, mask], 3).unwrap_err();
        assert!(error.to_string().contains("at most 2 at a time"), "{error}");
    }
}
