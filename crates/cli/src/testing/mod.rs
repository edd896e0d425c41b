//! `grpc.testing.TestService`, the service of gRPC's interoperability tests.
//!
//! The demo, the load generator and the end-to-end tests use it, because every gRPC implementation
//! has it. So a client of any language can call our backend, and our client any backend.

#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "generated from proto/grpc/testing/test.proto; tests/codegen.rs keeps it so"
)]
mod generated {
    include!("generated/grpc.testing.rs");
}

pub use generated::*;

/// The serialized `FileDescriptorSet` of the test service, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/grpc.testing.bin");
