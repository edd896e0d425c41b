//! The parser of listeners.
#![no_main]

use crowfly_model::grpc::Listener;
use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parser::<Listener>(bytes));
