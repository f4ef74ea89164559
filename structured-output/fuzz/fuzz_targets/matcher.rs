//! libFuzzer's way to [`Target::Matcher`].
#![no_main]

use structured_output_fuzz::Target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    Target::Matcher.run(data);
});
