//! The condition of a route: on the path, on headers, and a share of calls (gRFC A28).
//!
//! A condition also says why a call does not meet it, so that errors and tools need no matcher of their own.

use std::fmt;

use envoy_types::pb::envoy::config::{core::v3::RuntimeFractionalPercent, route::v3 as pb};

use super::{
    CallHead, HeaderMatcher, HeaderMismatch, Headers, PathMatcher, PathMismatch, header_matcher,
};
use crate::{
    Validator,
    grpc::fraction::{self, Fraction},
};

/// The condition of a route. A call takes the route if it meets all parts.
///
/// ```
/// # use crowfly_model::grpc::route::{CallHead, Condition, PathMatcher};
/// let matcher = PathMatcher::Prefix { text: "/a.A/".to_owned(), case_sensitive: true };
/// let condition = Condition::of_path(matcher);
/// assert_eq!(condition.mismatch(&CallHead::of_path("/a.A/M")), None);
/// let mismatch = condition.mismatch(&CallHead::of_path("/b.B/M")).unwrap();
/// assert_eq!(mismatch.to_string(), "the path does not begin with it");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The condition on the path.
    pub path: PathMatcher,
    /// The conditions on headers.
    pub headers: Vec<HeaderMatcher>,
    /// The share of the calls that meet the other conditions; all of them if `None`.
    pub fraction: Option<Fraction>,
}

impl Condition {
    /// A condition on the path alone.
    pub const fn of_path(path: PathMatcher) -> Self {
        Self {
            path,
            headers: Vec::new(),
            fraction: None,
        }
    }

    /// True if the path and the headers of a call meet the condition. The share is left to a draw.
    ///
    /// ```
    /// # use crowfly_model::grpc::route::{CallHead, Condition, PathMatcher};
    /// let any = PathMatcher::Prefix { text: String::new(), case_sensitive: true };
    /// assert!(Condition::of_path(any).is_met_by(&CallHead::of_path("/a.A/M")));
    /// ```
    pub fn is_met_by<H: Headers + ?Sized>(&self, call: &CallHead<'_, H>) -> bool {
        self.path.matches(call.path)
            && self
                .headers
                .iter()
                .all(|matcher| matcher.matches(call.headers))
    }

    /// The first part of the condition that the path and the headers of a call do not meet. `None` if they meet all
    /// parts, so that the call may take the route. The share is left to a draw.
    pub fn mismatch<H: Headers + ?Sized>(&self, call: &CallHead<'_, H>) -> Option<Mismatch<'_>> {
        if let Some(mismatch) = self.path.mismatch(call.path) {
            return Some(Mismatch::Path(mismatch));
        }
        let mut headers = self.headers.iter();
        headers.find_map(|matcher| matcher.mismatch(call.headers).map(Mismatch::Header))
    }
}

/// The reason why a call does not meet the condition of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch<'a> {
    /// Path and headers meet the condition, but the call is not one of this share.
    Fraction(Fraction),
    /// A header does not meet its condition.
    Header(HeaderMismatch<'a>),
    /// The path does not meet its condition.
    Path(PathMismatch),
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction(share) => write!(f, "the call is not one of its {share}"),
            Self::Header(mismatch) => mismatch.fmt(f),
            Self::Path(mismatch) => mismatch.fmt(f),
        }
    }
}

/// Reads the parts of a condition besides the path; `None` after an error.
pub(super) fn parse(
    path: Option<PathMatcher>,
    proto: &pb::RouteMatch,
    v: &mut Validator,
) -> Option<Condition> {
    let headers: Vec<_> = v.field("headers", |v| {
        let headers = proto.headers.iter().enumerate();
        headers
            .map(|(i, header)| v.index(i, |v| header_matcher::parse(header, v)))
            .collect()
    });
    let fraction = match &proto.runtime_fraction {
        Some(fraction) => v.field("runtime_fraction", |v| parse_fraction(fraction, v)),
        None => Some(None),
    };
    Some(Condition {
        path: path?,
        headers: headers.into_iter().collect::<Option<_>>()?,
        fraction: fraction?,
    })
}

/// gRFC A28: a gRPC client has no runtime, so the default counts. The outer `None` is an error.
fn parse_fraction(proto: &RuntimeFractionalPercent, v: &mut Validator) -> Option<Option<Fraction>> {
    if !proto.runtime_key.is_empty() {
        v.unsupported_at("runtime_key", "ignored: default_value counts (gRFC A28)");
    }
    match proto.default_value {
        Some(share) => v.field("default_value", |v| fraction::parse(share, v).map(Some)),
        None => {
            // gRPC C-core takes every call, too.
            v.unsupported_at("default_value", "not set: every call is taken");
            Some(None)
        }
    }
}
