//! libFuzzer's way to [`Target::StructuralTag`].
#![no_main]

use structured_output_fuzz::Target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    Target::StructuralTag.run(data);
});
