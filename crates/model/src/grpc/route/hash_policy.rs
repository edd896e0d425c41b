//! The hash of a call, by which `ring_hash` chooses an endpoint (gRFC A42).
//!
//! A route lists policies, each of which may give a hash. The hashes are combined as in Envoy and in gRPC C-core, so
//! that clients in all languages choose the same endpoint.

mod rewrite;

use envoy_types::pb::envoy::config::route::v3::route_action::{
    HashPolicy as Proto,
    hash_policy::{FilterState, Header, PolicySpecifier},
};
use xxhash_rust::xxh64::xxh64;

use self::rewrite::Rewrite;
use super::{call_head::Headers, visible_header::VisibleHeader};
use crate::{Validator, grpc::decode::require_text};

/// The one filter state that gRPC has: a number that differs from channel to channel.
const CHANNEL_ID: &str = "io.grpc.channel_id";

/// The hash policies of a route, in the order of the resource.
///
/// ```
/// # use crowfly_model::grpc::route::HashPolicies;
/// let none = HashPolicies::default();
/// let headers = [("x-user", "ann")];
/// assert_eq!(none.hash(&headers[..], 7), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HashPolicies(Box<[HashPolicy]>);

/// One hash policy of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashPolicy {
    source: HashSource,
    /// True if later policies do not count once there is a hash.
    is_terminal: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HashSource {
    /// The number of the channel.
    ChannelId,
    /// The value of a header.
    Header(VisibleHeader, Option<Rewrite>),
}

impl HashPolicies {
    /// The policies, in the order of the resource, so that tools can tell of them.
    ///
    /// ```
    /// # use crowfly_model::grpc::route::HashPolicies;
    /// assert_eq!(HashPolicies::default().iter().count(), 0);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = &HashPolicy> {
        self.0.iter()
    }

    /// The hash of a call; `None` if no policy gives one. `channel_id` is a random number of the channel.
    pub fn hash<H: Headers + ?Sized>(&self, headers: &H, channel_id: u64) -> Option<u64> {
        let mut hash: Option<u64> = None;
        for policy in &self.0 {
            if let Some(next) = policy.source.hash(headers, channel_id) {
                // Two equal policies would otherwise cancel each other out.
                hash = Some(hash.map_or(next, |hash| hash.rotate_left(1) ^ next));
            }
            if policy.is_terminal && hash.is_some() {
                break;
            }
        }
        hash
    }
}

impl HashPolicy {
    /// The name of the header whose value is hashed; `None` if the hash is the number of the channel.
    pub fn header(&self) -> Option<&str> {
        match &self.source {
            HashSource::ChannelId => None,
            HashSource::Header(header, _) => Some(header.name()),
        }
    }

    /// True if later policies do not count once there is a hash.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }
}

impl HashSource {
    fn hash<H: Headers + ?Sized>(&self, headers: &H, channel_id: u64) -> Option<u64> {
        match self {
            Self::ChannelId => Some(channel_id),
            Self::Header(header, rewrite) => {
                let value = header.value(headers)?;
                let value = value.as_bytes();
                Some(match rewrite {
                    Some(rewrite) => xxh64(&rewrite.apply(value), 0),
                    None => xxh64(value, 0),
                })
            }
        }
    }
}

/// Reads the policies of a route. gRFC A42: one that is not supported gives no hash, and is no error.
pub(super) fn parse(proto: &[Proto], v: &mut Validator) -> HashPolicies {
    v.field("hash_policy", |v| {
        let policies = proto.iter().enumerate();
        let policies = policies.filter_map(|(i, policy)| v.index(i, |v| parse_policy(policy, v)));
        HashPolicies(policies.collect())
    })
}

fn parse_policy(proto: &Proto, v: &mut Validator) -> Option<HashPolicy> {
    let unsupported = match &proto.policy_specifier {
        Some(PolicySpecifier::FilterState(FilterState { key })) if key == CHANNEL_ID => {
            return Some(HashPolicy {
                source: HashSource::ChannelId,
                is_terminal: proto.terminal,
            });
        }
        Some(PolicySpecifier::Header(header)) => {
            return Some(HashPolicy {
                source: v.field("header", |v| parse_header(header, v))?,
                is_terminal: proto.terminal,
            });
        }
        Some(PolicySpecifier::ConnectionProperties(_)) => "connection_properties is",
        Some(PolicySpecifier::Cookie(_)) => "cookie is",
        Some(PolicySpecifier::FilterState(_)) => "other filter states than io.grpc.channel_id are",
        Some(PolicySpecifier::QueryParameter(_)) => "query_parameter is",
        None => "a policy of an unknown kind is",
    };
    v.unsupported(format!(
        "gives no hash: {unsupported} not supported (gRFC A42)"
    ));
    None
}

fn parse_header(proto: &Header, v: &mut Validator) -> Option<HashSource> {
    require_text(&proto.header_name, "header_name", v);
    let rewrite = proto.regex_rewrite.as_ref();
    let rewrite = rewrite.map(|proto| v.field("regex_rewrite", |v| rewrite::parse(proto, v)));
    let header = VisibleHeader::new(&proto.header_name);
    if header.is_hidden() {
        let message = "gives no hash: it is no header that routes see (gRFC A28)";
        v.unsupported_at("header_name", message);
        return None;
    }
    Some(HashSource::Header(header, rewrite.flatten()))
}
