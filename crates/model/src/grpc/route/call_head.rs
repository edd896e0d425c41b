//! The parts of a call that routes look at.
//!
//! The router asks for headers by a trait, because this crate knows no HTTP library. A channel implements it
//! for its map of headers, and a tool for a list.

use smallvec::SmallVec;

/// The headers of a call.
///
/// ```
/// # use crowfly_model::grpc::route::Headers;
/// let headers = [("x-user", "ann"), ("x-tag", "a"), ("x-tag", "b")];
/// assert_eq!(headers.values("x-tag").count(), 2);
/// ```
pub trait Headers {
    /// The values of the header of this name, in order. The name is in lower case.
    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]>;
}

impl<N: AsRef<str>, V: AsRef<[u8]>> Headers for [(N, V)] {
    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.iter()
            .filter(|(found, _)| found.as_ref().eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_ref())
    }
}

/// The parts of a call that routes look at.
///
/// ```
/// # use crowfly_model::grpc::route::CallHead;
/// let headers = [("x-user", "ann")];
/// let call = CallHead { path: "/helloworld.Greeter/SayHello", headers: &headers[..] };
/// # assert_eq!(call.path.len(), 28);
/// ```
#[derive(Debug)]
pub struct CallHead<'a, H: ?Sized> {
    /// `/service/method`
    pub path: &'a str,
    /// The headers that the caller set.
    pub headers: &'a H,
}

impl<'a> CallHead<'a, [(&'static str, &'static str)]> {
    /// A call without headers.
    ///
    /// ```
    /// # use crowfly_model::grpc::route::CallHead;
    /// assert_eq!(CallHead::of_path("/a.A/M").path, "/a.A/M");
    /// ```
    pub const fn of_path(path: &'a str) -> Self {
        Self { path, headers: &[] }
    }
}

impl<H: ?Sized> Clone for CallHead<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: ?Sized> Copy for CallHead<'_, H> {}

/// The value of a header. Several values are one, joined by commas (gRFC A28).
#[derive(Debug)]
pub(super) enum Value<'a> {
    One(&'a [u8]),
    /// On the stack, unless the values are long.
    Joined(SmallVec<[u8; 128]>),
}

impl<'a> Value<'a> {
    /// The value of the header of this name; `None` if the call does not have it.
    pub(super) fn of<H: Headers + ?Sized>(headers: &'a H, name: &str) -> Option<Self> {
        let mut values = headers.values(name);
        let first = values.next()?;
        let Some(second) = values.next() else {
            return Some(Self::One(first));
        };
        let mut joined = SmallVec::from_slice(first);
        for value in std::iter::once(second).chain(values) {
            joined.push(b',');
            joined.extend_from_slice(value);
        }
        Some(Self::Joined(joined))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::One(value) => value,
            Self::Joined(value) => value,
        }
    }
}
