//! The parser of endpoints.
#![no_main]

use crowfly_model::grpc::Endpoints;
use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parser::<Endpoints>(bytes));
