//! Passes over a row, compiled for several vector widths and chosen at run time.
//!
//! Plain Rust over a fixed number of lanes. The compiler may not fuse its operations or reorder its
//! sums, so a wider vector only takes more of the lanes at a time: the bits are the same on every
//! machine.

/// How wide the processor's vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VectorWidth {
    /// What the target guarantees.
    Portable,
    /// AVX2.
    #[cfg(target_arch = "x86_64")]
    Bits256,
    /// AVX-512 F and DQ.
    #[cfg(target_arch = "x86_64")]
    Bits512,
}

impl VectorWidth {
    /// The widest of this processor. The standard library remembers what it has found out.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                return Self::Bits512;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Bits256;
            }
        }
        Self::Portable
    }

    /// All widths of this processor.
    #[cfg(test)]
    pub(super) fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        match Self::detect() {
            Self::Bits512 => return vec![Self::Portable, Self::Bits256, Self::Bits512],
            Self::Bits256 => return vec![Self::Portable, Self::Bits256],
            Self::Portable => {}
        }
        vec![Self::Portable]
    }
}

/// What is compiled for each width.
pub(super) trait Pass {
    /// What it finds.
    type Output;

    /// Goes over the row. To be inlined always, so that it is compiled with the width's instructions.
    fn run(self) -> Self::Output;
}

/// Runs `pass` as compiled for `width`, which the processor has: widths come from detection.
pub(super) fn run_at_width<P: Pass>(width: VectorWidth, pass: P) -> P::Output {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn bits_256<P: Pass>(pass: P) -> P::Output {
        pass.run()
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn bits_512<P: Pass>(pass: P) -> P::Output {
        pass.run()
    }
    match width {
        VectorWidth::Portable => pass.run(),
        // SAFETY: a width comes from detection: the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        VectorWidth::Bits256 => unsafe { bits_256(pass) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        VectorWidth::Bits512 => unsafe { bits_512(pass) },
    }
}
