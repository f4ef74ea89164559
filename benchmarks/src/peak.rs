//! How many multiplications the processor's cores can do at best: what a matrix product could reach.

use std::thread;
use std::time::Instant;

/// Numbers that are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// 32-bit floats.
    F32,
    /// Pairs of bfloat16, by AVX512-BF16.
    Bf16,
    /// Fours of bytes, by VNNI.
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
