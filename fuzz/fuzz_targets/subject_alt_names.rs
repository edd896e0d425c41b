//! The subject alternative names in the certificate of a server.
#![no_main]

use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::subject_alt_names(bytes));
