//! libFuzzer's way to [`Target::Ebnf`].
#![no_main]

use structured_output_fuzz::Target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    Target::Ebnf.run(data);
});
