//! libFuzzer's way to [`Target::Lark`].
#![no_main]

use structured_output_fuzz::Target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    Target::Lark.run(data);
});
