//! The cookie of a session.
#![no_main]

use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::session_cookie(bytes));
