//! An HTTP/2 client that does anything, and a server that says anything, in any pieces.
#![no_main]
#![allow(dead_code, reason = "shared with the tests of the crate")]

#[path = "../../crates/http2/tests/http2/frames.rs"]
mod frames;
#[path = "../../crates/http2/tests/http2/fuzzing.rs"]
mod fuzzing;
#[path = "../../crates/http2/tests/http2/raw.rs"]
mod raw;
#[path = "../../crates/http2/tests/http2/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|script: &[u8]| fuzzing::play(script));
