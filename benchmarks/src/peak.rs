//! How many multiplications the processor's cores can do at best: what a matrix product could reach.

use std::thread;
use std::time::Instant;

/// Numbers that are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// 32-bit floats.
    F32,
    /// Pairs of bfloat16, by tiles (AMX) or AVX512-BF16.
    Bf16,
    /// Fours of bytes, by tiles (AMX) or VNNI.
    Int8,
}

/// Loops of one run: some milliseconds.
const LOOPS: u64 = 1 << 21;

/// Multiplications and additions per second of `num_threads` threads that do nothing else, the best
/// of nine runs; `None` where the processor has no such instruction.
pub fn multiply_peak(numbers: Numbers, num_threads: usize) -> Option<f64> {
    let (run, per_loop) = kernel(numbers)?;
    let once = || {
        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..num_threads {
                scope.spawn(move || run(LOOPS));
            }
        });
        (num_threads as u64 * LOOPS * per_loop) as f64 / started.elapsed().as_secs_f64()
    };
    Some((0..9).map(|_| once()).fold(0.0, f64::max))
}

/// What runs so many loops, and the operations of a loop.
#[cfg(target_arch = "x86_64")]
fn kernel(numbers: Numbers) -> Option<(fn(u64), u64)> {
    #[cfg(target_os = "linux")]
    if let Some(kernel) = tiles::kernel(numbers) {
        return Some(kernel);
    }
    x86::kernel(numbers)
}

/// Written for x86-64 only.
#[cfg(not(target_arch = "x86_64"))]
fn kernel(_: Numbers) -> Option<(fn(u64), u64)> {
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::Numbers;

    /// Independent sums: more than two instructions per cycle of four or five cycles each need.
    const SUMS: usize = 12;

    pub(super) fn kernel(numbers: Numbers) -> Option<(fn(u64), u64)> {
        let sums = SUMS as u64;
        let has_512 = is_x86_feature_detected!("avx512f");
        match numbers {
            Numbers::F32 if has_512 => Some((
                // SAFETY: the processor has the instructions, as just asked.
                |loops| unsafe { f32_512(loops) },
                sums * 16 * 2,
            )),
            Numbers::F32 if is_x86_feature_detected!("fma") => Some((
                // SAFETY: as above.
                |loops| unsafe { f32_256(loops) },
                sums * 8 * 2,
            )),
            Numbers::Bf16 if has_512 && is_x86_feature_detected!("avx512bf16") => Some((
                // SAFETY: as above.
                |loops| unsafe { bf16_512(loops) },
                sums * 32 * 2,
            )),
            Numbers::Int8 if has_512 && is_x86_feature_detected!("avx512vnni") => Some((
                // SAFETY: as above.
                |loops| unsafe { int8_512(loops) },
                sums * 64 * 2,
            )),
            _ => None,
        }
    }

    #[target_feature(enable = "avx512f")]
    fn f32_512(loops: u64) {
        let (a, b) = black_box((_mm512_set1_ps(1.0), _mm512_set1_ps(1e-9)));
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..loops {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx,fma")]
    fn f32_256(loops: u64) {
        let (a, b) = black_box((_mm256_set1_ps(1.0), _mm256_set1_ps(1e-9)));
        let mut sums = [_mm256_setzero_ps(); SUMS];
        for _ in 0..loops {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn bf16_512(loops: u64) {
        let one = _mm512_set1_ps(1.0);
        let (a, b) = black_box((_mm512_cvtne2ps_pbh(one, one), _mm512_cvtne2ps_pbh(one, one)));
        let mut sums = [_mm512_setzero_ps(); SUMS];
        for _ in 0..loops {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, a, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    fn int8_512(loops: u64) {
        let (a, b) = black_box((_mm512_set1_epi8(1), _mm512_set1_epi8(2)));
        let mut sums = [_mm512_setzero_si512(); SUMS];
        for _ in 0..loops {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        black_box(sums);
    }
}

/// Products of tiles of 16 rows of 64 bytes (AMX), by assembly: there are no stable intrinsics.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tiles {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    use super::Numbers;

    pub(super) fn kernel(numbers: Numbers) -> Option<(fn(u64), u64)> {
        let sums = 4 * 16 * 16;
        match numbers {
            Numbers::Bf16 if is_permitted() => Some((bf16, sums * 32 * 2)),
            Numbers::Int8 if is_permitted() => Some((int8, sums * 64 * 2)),
            _ => None,
        }
    }

    /// Whether the processor has tiles of both kinds, and Linux gives them to this process.
    fn is_permitted() -> bool {
        const KINDS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        __cpuid(0).eax >= 7
            && __cpuid_count(7, 0).edx & KINDS == KINDS
            // SAFETY: two numbers are the arguments; the call touches no memory of this process, and
            // is refused where the system doesn't keep tiles.
            && unsafe {
                libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0
            }
    }

    /// The shapes of eight tiles.
    #[repr(C, align(64))]
    struct Config {
        palette: [u8; 16],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    static WHOLE: Config = Config {
        palette: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
        rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
    };

    macro_rules! multiply {
        ($loops:ident, $product:literal) => {
            // SAFETY: the processor has tiles, as `kernel` asked; the shapes are read from a static,
            // and nothing else of memory is touched.
            unsafe {
                asm!(
                    "ldtilecfg [{config}]",
                    "2:",
                    concat!($product, " tmm0, tmm4, tmm6"),
                    concat!($product, " tmm1, tmm4, tmm7"),
                    concat!($product, " tmm2, tmm5, tmm6"),
                    concat!($product, " tmm3, tmm5, tmm7"),
                    "dec {loops}",
                    "jnz 2b",
                    "tilerelease",
                    config = in(reg) &raw const WHOLE,
                    loops = inout(reg) $loops.max(1) => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        };
    }

    fn bf16(loops: u64) {
        multiply!(loops, "tdpbf16ps");
    }

    fn int8(loops: u64) {
        multiply!(loops, "tdpbssd");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_that_the_processor_has_runs() {
        for numbers in [Numbers::F32, Numbers::Bf16, Numbers::Int8] {
            if let Some((run, per_loop)) = kernel(numbers) {
                run(3);
                assert!(per_loop > 0);
            }
        }
    }
}
