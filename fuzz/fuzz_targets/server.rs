//! A server against a client that asks for anything at any time.
#![no_main]

use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::server(bytes));
