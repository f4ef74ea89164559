//! Which of the processor's instructions kernels are made of.

use std::sync::OnceLock;

use crate::model_executor::error::ModelError;

/// The variable that names a level, for comparing and for finding faults.
const VARIABLE: &str = "FORMWORK_CPU_LEVEL";

/// What the processor has. Levels beyond what the target guarantees come from detection alone, so that
/// safe code may rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SimdLevel {
    /// What the target guarantees.
    Portable,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Detected),
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512(Detected),
    /// AVX-512 with VNNI: dot products of bytes.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Detected),
    /// AVX-512 with VNNI and BF16: dot products of bfloat16 too.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Detected),
    /// The same with AMX: products of tiles of bfloat16 and of bytes.
    #[cfg(target_arch = "x86_64")]
    Amx(Detected),
    /// What every 64-bit ARM has.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// The same with dot products of bytes.
    #[cfg(target_arch = "aarch64")]
    NeonDot(Detected),
}

/// That the processor was asked: nothing outside this file makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Detected(());

/// What the levels of this architecture are called, the plainest first.
#[cfg(target_arch = "x86_64")]
const NAMES: &[&str] = &[
    "portable",
    "avx2",
    "avx512",
    "avx512_vnni",
    "avx512_bf16",
    "amx",
];
#[cfg(target_arch = "aarch64")]
const NAMES: &[&str] = &["portable", "neon", "neon_dot"];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NAMES: &[&str] = &["portable"];

impl SimdLevel {
    /// The level that `FORMWORK_CPU_LEVEL` names, or the fastest of this processor.
    ///
    /// # Errors
    /// The variable names no level, or one that this processor lacks.
    pub(crate) fn chosen() -> Result<Self, ModelError> {
        match std::env::var_os(VARIABLE) {
            Some(name) => Self::named(&name.to_string_lossy(), &Self::available()),
            None => Ok(Self::detect()),
        }
    }

    /// The level of `available` that is called `name`.
    fn named(name: &str, available: &[Self]) -> Result<Self, ModelError> {
        let found = available.iter().find(|level| level.name() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = available.iter().map(|level| level.name()).collect();
            let what = match NAMES.contains(&name) {
                true => format!("this processor has no {name}"),
                false => format!("{name:?} is no level"),
            };
            ModelError::Environment {
                variable: VARIABLE,
                problem: format!("{what}; it has {}", names.join(", ")),
            }
        })
    }

    /// The fastest level of this processor.
    pub(crate) fn detect() -> Self {
        static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
        *LEVEL.get_or_init(|| Self::fastest(&Self::available(), &has_slow_bf16_dot))
    }

    /// The last of `available`, but one whose products of bfloat16 are slower than those of f32.
    fn fastest(available: &[Self], has_slow_bf16_dot: &dyn Fn() -> bool) -> Self {
        let is_slow =
            |level: &Self| level.has_bf16_dot() && !level.has_tiles() && has_slow_bf16_dot();
        let fast = available.iter().rev().find(|level| !is_slow(level));
        fast.copied().unwrap_or(Self::Portable)
    }

    /// All levels of this processor, the plainest first.
    pub(crate) fn available() -> Vec<Self> {
        let mut levels = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                levels.push(Self::Avx2(Detected(())));
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                {
                    levels.push(Self::Avx512(Detected(())));
                    if is_x86_feature_detected!("avx512vnni") {
                        levels.push(Self::Avx512Vnni(Detected(())));
                        if is_x86_feature_detected!("avx512bf16") {
                            levels.push(Self::Avx512Bf16(Detected(())));
                            if super::tiles_x86::is_permitted() {
                                levels.push(Self::Amx(Detected(())));
                            }
                        }
                    }
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            levels.push(Self::Neon);
            if std::arch::is_aarch64_feature_detected!("dotprod") {
                levels.push(Self::NeonDot(Detected(())));
            }
        }
        levels
    }

    /// The same, for a test that goes through them; what is left out since the processor lacks it stands
    /// on stderr, once.
    #[cfg(test)]
    pub(crate) fn all_in_test() -> Vec<Self> {
        use std::io::Write;

        static SAID: OnceLock<()> = OnceLock::new();
        let available = Self::available();
        SAID.get_or_init(|| {
            let has = |name: &&str| available.iter().any(|level| level.name() == *name);
            let absent: Vec<&str> = NAMES.iter().copied().filter(|name| !has(name)).collect();
            if !absent.is_empty() {
                // Not by `eprintln`, which is shown only where a test fails.
                let _ = writeln!(
                    std::io::stderr(),
                    "kernels are not tested at levels that this processor lacks: {}",
                    absent.join(", ")
                );
            }
        });
        available
    }

    /// What it is called, in logs and in `FORMWORK_CPU_LEVEL`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => "avx512_vnni",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16(_) => "avx512_bf16",
            #[cfg(target_arch = "x86_64")]
            Self::Amx(_) => "amx",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot(_) => "neon_dot",
        }
    }

    /// Whether bfloat16 itself is multiplied.
    pub(crate) fn has_bf16_dot(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16(_) | Self::Amx(_) => true,
            _ => false,
        }
    }

    /// Whether whole tiles are multiplied.
    pub(crate) fn has_tiles(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx(_) => true,
            _ => false,
        }
    }
}

/// Whether this processor begins a dot product of bfloat16 every other cycle only.
#[cfg(target_arch = "x86_64")]
fn has_slow_bf16_dot() -> bool {
    use std::arch::x86_64::__cpuid;

    let vendor = __cpuid(0);
    let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    begins_bf16_dot_every_other_cycle(vendor.as_flattened(), __cpuid(1).eax)
}

/// Others are not known to.
#[cfg(not(target_arch = "x86_64"))]
fn has_slow_bf16_dot() -> bool {
    false
}

/// Intel's since Sapphire Rapids do, which have tiles instead, unless the system or a virtual machine
/// keeps those back. Two products of f32 begin in each cycle, so widening is faster. `signature` is what
/// the processor says of family and model.
#[cfg(target_arch = "x86_64")]
fn begins_bf16_dot_every_other_cycle(vendor: &[u8], signature: u32) -> bool {
    const COOPER_LAKE: (u32, u32) = (6, 0x55);
    let family = signature >> 8 & 15;
    let model = signature >> 12 & 0xf0 | signature >> 4 & 15;
    vendor == b"GenuineIntel" && (family, model) != COOPER_LAKE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_found_by_its_name() {
        let available = SimdLevel::available();
        for level in &available {
            assert!(NAMES.contains(&level.name()));
            assert_eq!(SimdLevel::named(level.name(), &available).unwrap(), *level);
        }
        assert!(available.is_sorted());
        assert!(available.contains(&SimdLevel::detect()));
    }

    #[test]
    fn what_is_no_level_or_not_here_is_refused_with_what_is() {
        let only = [SimdLevel::Portable];
        let error = |name: &str| SimdLevel::named(name, &only).unwrap_err().to_string();
        assert_eq!(
            error("sse9"),
            "FORMWORK_CPU_LEVEL: \"sse9\" is no level; it has portable"
        );
        let best = NAMES.last().unwrap();
        if *best != "portable" {
            let expected =
                format!("FORMWORK_CPU_LEVEL: this processor has no {best}; it has portable");
            assert_eq!(error(best), expected);
        }
        assert!(error("").contains("no level"));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn slow_products_of_bfloat16_are_not_chosen_unless_there_are_tiles() {
        let levels = [
            SimdLevel::Portable,
            SimdLevel::Avx2(Detected(())),
            SimdLevel::Avx512(Detected(())),
            SimdLevel::Avx512Vnni(Detected(())),
            SimdLevel::Avx512Bf16(Detected(())),
            SimdLevel::Amx(Detected(())),
        ];
        for slow in [false, true] {
            for count in [1, 2, 3, 4, 6] {
                let level = SimdLevel::fastest(&levels[..count], &|| slow);
                assert_eq!(level, levels[count - 1], "{slow}");
            }
        }
        assert_eq!(SimdLevel::fastest(&levels[..5], &|| false), levels[4]);
        assert_eq!(SimdLevel::fastest(&levels[..5], &|| true), levels[3]);
        assert_eq!(SimdLevel::fastest(&[], &|| true), SimdLevel::Portable);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn processors_are_told_apart_by_maker_and_model() {
        let (intel, amd) = (b"GenuineIntel", b"AuthenticAMD");
        // Sapphire Rapids and Granite Rapids.
        assert!(begins_bf16_dot_every_other_cycle(intel, 0x000806f8));
        assert!(begins_bf16_dot_every_other_cycle(intel, 0x000a06d1));
        // Cooper Lake, and Zen 4.
        assert!(!begins_bf16_dot_every_other_cycle(intel, 0x0005065b));
        assert!(!begins_bf16_dot_every_other_cycle(amd, 0x00a10f11));
    }
}
