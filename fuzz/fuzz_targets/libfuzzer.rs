//! libFuzzer's way to every target: the environment variable `FUZZ_TARGET` names one.
#![no_main]

use std::sync::OnceLock;

use fuzz::Target;

static TARGET: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let target = Target::ALL.into_iter().find(|target| target.name() == name);
        target.expect("FUZZ_TARGET names no target")
    });
    target.run(data);
});
