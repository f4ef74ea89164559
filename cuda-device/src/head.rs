//! Grammar masks on the device, and the largest allowed logit of each row.

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, ensure, to_u32};
use crate::launch::Arguments;
use crate::rows::{MAX_GRID_ROWS, THREADS, ensure_width};
use crate::scratch::Room;

/// Tokens of a part of [`Device::masked_argmax`].
const PART_TOKENS: usize = 4096;
/// Bytes of a part's result: logit, token, whether one was not finite.
const CANDIDATE_BYTES: usize = 12;

/// Bitmasks of tokens on the device, and which of them each row has.
#[derive(Debug, Clone, Copy)]
pub struct Masks<'a> {
    /// `[num_slots, words]` u32: token t is allowed by bit `t % 32` of word `t / 32`; tokens without a word are not.
    pub pool: &'a Buffer,
    /// Masks in the pool.
    pub num_slots: usize,
    /// Words of a mask.
    pub words: usize,
    /// `[rows]` i32 slots, -1 for a row that may take any token. A row with a slot beyond the pool may take none.
    pub slots: &'a Buffer,
}

impl Masks<'_> {
    fn check(
        &self,
        device: &Device,
        operation: &'static str,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let Self {
            pool,
            num_slots,
            words,
            slots,
        } = *self;
        pool.require_rows(device, operation, "the pool", num_slots, words)?;
        slots.require_rows(device, operation, "slots", rows, 1)
    }
}

impl Device {
    /// Sets logits `[rows, width]` to -inf where the row's mask doesn't allow the token.
    pub fn mask_logits(
        &self,
        logits: &mut Buffer,
        rows: usize,
        width: usize,
        masks: Masks<'_>,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "mask_logits";
        let columns = ensure_width(NAME, width)?;
        logits.require_rows(self, NAME, "logits", rows, width)?;
        masks.check(self, NAME, rows)?;
        self.in_row_pieces(rows, |first, count| {
            let arguments = Arguments::new()
                .buffer_at(logits, first * width * 4)
                .u32(columns)
                .buffer(masks.pool)
                .u32(to_u32(NAME, "slots", masks.num_slots)?)
                .u32(to_u32(NAME, "words", masks.words)?)
                .buffer_at(masks.slots, first * 4);
            let grid = [columns.div_ceil(THREADS), count, 1];
            self.launch(NAME, grid, THREADS, 0, arguments)
        })
    }

    /// The token of the largest logit of each row `[rows, width]` among those below `num_tokens` that its mask allows,
    /// the lowest of equals, as `[rows]` i32; -1 where each of them is -inf, where there is none, or where one is NaN
    /// or +inf.
    pub fn masked_argmax(
        &self,
        logits: &Buffer,
        rows: usize,
        width: usize,
        num_tokens: usize,
        masks: Option<Masks<'_>>,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "masked_argmax";
        let columns = ensure_width(NAME, width)?;
        logits.require_rows(self, NAME, "logits", rows, width)?;
        out.require_rows(self, NAME, "out", rows, 1)?;
        ensure(num_tokens <= width && rows <= MAX_GRID_ROWS, NAME, || {
            format!("{num_tokens} tokens of {width}, {rows} rows of at most {MAX_GRID_ROWS}")
        })?;
        if let Some(masks) = &masks {
            masks.check(self, NAME, rows)?;
        }
        if rows == 0 {
            return Ok(());
        }
        let num_parts = num_tokens.div_ceil(PART_TOKENS).max(1);
        let mut scratch = self.scratch();
        let parts = scratch.room(self, Room::Parts, rows * num_parts * CANDIDATE_BYTES)?;
        let arguments = Arguments::new()
            .buffer(logits)
            .u32(columns)
            .u32(num_tokens as u32)
            .optional(masks.map(|masks| masks.pool))
            .u32(to_u32(
                NAME,
                "slots",
                masks.map_or(0, |masks| masks.num_slots),
            )?)
            .u32(to_u32(NAME, "words", masks.map_or(0, |masks| masks.words))?)
            .optional(masks.map(|masks| masks.slots))
            .u32(PART_TOKENS as u32)
            .address(parts);
        let grid = [num_parts as u32, rows as u32, 1];
        self.launch("part_argmax", grid, THREADS, 0, arguments)?;
        let arguments = Arguments::new()
            .address(parts)
            .u32(num_parts as u32)
            .buffer(out);
        self.launch("row_argmax", [rows as u32, 1, 1], 32, 0, arguments)
    }
}
