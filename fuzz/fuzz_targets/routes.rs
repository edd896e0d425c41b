//! The parser of route configurations, and the router.
#![no_main]

use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::routes(bytes));
