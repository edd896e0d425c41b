//! The bootstrap file.
#![no_main]

use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::bootstrap(bytes));
