//! Headers as routes see them (gRFC A28).
//!
//! A route sees the metadata that the program set for its call, and `content-type`. All other headers of HTTP/2
//! count as absent, because in most gRPC implementations routing is above the transport that adds them.

use super::call_head::{Headers, Value};

/// A header by its name, and the value that routes see of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VisibleHeader {
    name: String,
    visibility: Visibility,
}

/// The value that a route sees of a header, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visibility {
    /// The call's own value.
    Seen,
    /// Always `application/grpc`, because a transport may add the header later (gRFC A28).
    ContentType,
    /// None, even if the call has the header.
    Hidden,
}

const CONTENT_TYPE: &[u8] = b"application/grpc";

impl VisibleHeader {
    /// The header of this name, of any case.
    pub(super) fn new(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        Self {
            visibility: Visibility::of(&name),
            name,
        }
    }

    /// The name, in lower case.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// True if routes never see the header.
    pub(super) fn is_hidden(&self) -> bool {
        self.visibility == Visibility::Hidden
    }

    /// The value that a route sees; `None` if the header is absent, or counts as such.
    pub(super) fn value<'a, H: Headers + ?Sized>(&self, headers: &'a H) -> Option<Value<'a>> {
        match self.visibility {
            Visibility::Seen => Value::of(headers, &self.name),
            Visibility::ContentType => Some(Value::One(CONTENT_TYPE)),
            Visibility::Hidden => None,
        }
    }
}

impl Visibility {
    fn of(name: &str) -> Self {
        if name == "content-type" {
            return Self::ContentType;
        }
        // gRPC's PROTOCOL-HTTP2: what is not Custom-Metadata.
        let is_transport = name.starts_with(':')
            || name.starts_with("grpc-")
            || matches!(name, "te" | "user-agent");
        if is_transport || name.ends_with("-bin") {
            return Self::Hidden;
        }
        Self::Seen
    }
}
