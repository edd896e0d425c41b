//! A small HTTP/2 client for gRPC.

mod hpack;
