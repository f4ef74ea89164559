//! Tiles: the matrix registers of x86-64 (AMX): whether a process may use them, and their shapes. By
//! assembly, since the compiler has no stable intrinsics for them.
//!
//! A tile is up to 16 rows of 64 bytes. A thread's tiles have the shapes of [`Tiles`] as long as one is
//! alive. Those of products are kept for the next panel, since loading them takes as long as a tenth of a
//! panel's product; at the end of a thread's part of a job they are released, so that there is nothing in
//! them that the system would have to save, and other code of the calling thread may have its own.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::cell::Cell;
use std::marker::PhantomData;

use crate::model_executor::compute_pool::call_at_end;

/// Rows of a tile.
pub(super) const TILE_ROWS: usize = 16;

/// Bytes of a tile's row.
pub(super) const TILE_BYTES: usize = 64;

/// Whether the processor multiplies tiles of bfloat16 and of bytes, and this process may use them.
pub(super) fn is_permitted() -> bool {
    has_tiles() && permission()
}

/// What the processor and the system's saving of registers say.
fn has_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;
    /// The tiles' shapes and what is in them.
    const SAVED: u64 = 0b11 << 17;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    if __cpuid_count(7, 0).edx & (BF16 | TILE | INT8) != BF16 | TILE | INT8 {
        return false;
    }
    let (low, high): (u32, u32);
    // SAFETY: the system has switched the instruction on, as just asked; it reads one register.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    (u64::from(high) << 32 | u64::from(low)) & SAVED == SAVED
}

/// Asks Linux for this process to use tiles: their eight kilobytes in each signal's frame are not
/// given without.
#[cfg(target_os = "linux")]
fn permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call has two numbers as arguments and touches no memory of this process.
    unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILEDATA,
        ) == 0
    }
}

/// How other systems are asked is not known here.
#[cfg(not(target_os = "linux"))]
fn permission() -> bool {
    false
}

/// The tiles' shapes as the processor reads them.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes of a row.
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

const _: () = assert!(size_of::<Config>() == 64);

thread_local! {
    /// For how many rows this thread's tiles have the shapes of [`Tiles::of_rows`]; 0 where they have others
    /// or none.
    static KEPT_ROWS: Cell<usize> = const { Cell::new(0) };
}

/// This thread's tiles in certain shapes, until it is dropped.
pub(super) struct Tiles {
    /// Whether the shapes stay until the end of the thread's part of a job.
    are_kept: bool,
    /// The shapes are a thread's own.
    thread: PhantomData<*const ()>,
}

impl Tiles {
    /// The shapes for products of `rows` rows, at least 1 and at most 32, with 32 columns: two tiles of
    /// rows, two of columns, and four of sums.
    ///
    /// # Safety
    /// The processor must have tiles and this process may use them. One value lives at a time.
    pub(super) unsafe fn of_rows(rows: usize) -> Self {
        if rows > 0 && KEPT_ROWS.get() == rows {
            return Self {
                are_kept: true,
                thread: PhantomData,
            };
        }
        let (first, second) = (
            rows.min(TILE_ROWS) as u8,
            rows.saturating_sub(TILE_ROWS) as u8,
        );
        let weights = TILE_ROWS as u8;
        // SAFETY: the caller vouches for the processor; no tile has more than 16 rows of 64 bytes.
        let mut tiles = unsafe {
            Self::load(
                [
                    first, first, second, second, first, second, weights, weights,
                ],
                [TILE_BYTES as u16; 8],
            )
        };
        tiles.are_kept = call_at_end(release);
        if tiles.are_kept {
            KEPT_ROWS.set(rows);
        }
        tiles
    }

    /// The shapes for [`multiply_bytes`](super::tile_products_x86::multiply_bytes) of 16 rows and of `rest` rows, fewer than 16.
    ///
    /// # Safety
    /// As for [`Self::of_rows`].
    pub(super) unsafe fn for_bytes(rest: usize) -> Self {
        let (rows, rest) = (TILE_ROWS as u8, rest as u8);
        // SAFETY: as above.
        unsafe {
            Self::load(
                [rows, rows, 8, rest, rest, 0, 0, 0],
                [64, 32, 64, 64, 32, 0, 0, 0],
            )
        }
    }

    /// The shapes for attention of `rows` rows, at most 16: four tiles of sums, two of rows and two of
    /// what they are multiplied with, 16 deep.
    ///
    /// # Safety
    /// As for [`Self::of_rows`].
    pub(super) unsafe fn for_attention(rows: usize) -> Self {
        let rows = rows.min(TILE_ROWS) as u8;
        // SAFETY: as above.
        unsafe {
            Self::load(
                [rows, rows, rows, rows, rows, rows, 8, 8],
                [64, 64, 64, 64, 32, 32, 64, 64],
            )
        }
    }

    /// # Safety
    /// As for [`Self::of_rows`]; a tile has at most 16 rows of at most 64 bytes, or no rows of none.
    unsafe fn load(rows: [u8; 8], row_bytes: [u16; 8]) -> Self {
        let mut config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for (tile, (rows, row_bytes)) in std::iter::zip(rows, row_bytes).enumerate() {
            // Neither may be 0 alone.
            if rows > 0 {
                config.rows[tile] = rows;
                config.row_bytes[tile] = row_bytes;
            }
        }
        KEPT_ROWS.set(0);
        // SAFETY: the caller vouches for the processor and the shapes; the instruction reads the 64
        // bytes of `config`, which are in memory since the block may read all of it.
        unsafe {
            asm!(
                "ldtilecfg [{}]",
                in(reg) &raw const config,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            );
        }
        Self {
            are_kept: false,
            thread: PhantomData,
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        if !self.are_kept {
            release();
        }
    }
}

/// Takes this thread's tiles their shapes. Called only after they had some.
fn release() {
    KEPT_ROWS.set(0);
    // SAFETY: there were shapes, so the processor has tiles.
    unsafe {
        asm!(
            "tilerelease",
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_executor::compute_pool::ComputePool;

    /// This thread's shapes; all 0 where it has none.
    fn shapes() -> Config {
        let mut config = Config {
            palette: 7,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        // SAFETY: the instruction writes 64 bytes; the tests ask for tiles before.
        unsafe {
            asm!("sttilecfg [{}]", in(reg) &raw mut config, options(nostack, preserves_flags));
        }
        config
    }

    #[test]
    fn shapes_of_products_last_until_the_end_of_a_job() {
        if !is_permitted() {
            return;
        }
        for threads in [1, 2] {
            let pool = ComputePool::new(threads).unwrap();
            let tile = |index: usize, _| {
                // Others in between, as attention has them, don't go for those that were kept.
                let rows = [5, 5, 32, 20, 20, 5][index % 6];
                // SAFETY: the processor has tiles, and one value lives at a time.
                unsafe {
                    drop(Tiles::of_rows(rows));
                    assert_eq!(KEPT_ROWS.get(), rows);
                    let kept = shapes();
                    assert_eq!(usize::from(kept.rows[0]), rows.min(TILE_ROWS));
                    let second = rows.saturating_sub(TILE_ROWS);
                    assert_eq!(usize::from(kept.rows[5]), second);
                    if index.is_multiple_of(4) {
                        let other = Tiles::for_attention(5);
                        assert_eq!(shapes().rows[5], 5);
                        drop(other);
                        assert_eq!(shapes().palette, 0);
                    }
                }
            };
            pool.run(100, &tile).unwrap();
            assert_eq!((shapes().palette, KEPT_ROWS.get()), (0, 0));
            pool.run(100, &|_, _| assert_eq!(KEPT_ROWS.get(), 0))
                .unwrap();
        }
    }

    #[test]
    fn shapes_outside_of_jobs_last_as_long_as_their_value() {
        if !is_permitted() {
            return;
        }
        // SAFETY: the processor has tiles, and one value lives at a time.
        let tiles = unsafe { Tiles::of_rows(3) };
        assert_eq!((shapes().rows[0], KEPT_ROWS.get()), (3, 0));
        drop(tiles);
        assert_eq!(shapes().palette, 0);
    }
}
