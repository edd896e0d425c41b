//! The headers of a request, for other crates. Those crates take a trait, because they know no HTTP
//! library.

use crowfly_lb::{HashHeader, hash_values};
use crowfly_model::grpc::route::Headers;
use http::{HeaderMap, HeaderValue};

/// The headers of a request.
#[derive(Debug)]
pub(crate) struct RequestHeaders<'a>(pub(crate) &'a HeaderMap);

/// The headers for balancing policies that hash one of them.
impl HashHeader for RequestHeaders<'_> {
    fn hash_header(&self, name: &str) -> Option<u64> {
        hash_values(self.values(name))
    }
}

/// The headers for the router.
impl Headers for RequestHeaders<'_> {
    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.get_all(name).iter().map(HeaderValue::as_bytes)
    }
}
