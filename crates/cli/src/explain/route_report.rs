//! The report on a route as data: its condition, its decision about a call, and its settings for calls. Text and JSON
//! are both made from it.

use serde::Serialize;

/// One route of a virtual host, and its decision about the call.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RouteReport {
    /// The index of the route in the resource's list.
    pub index: usize,
    /// The name of the route, if it has one.
    pub name: Option<String>,
    /// The condition on the path, such as `prefix /pkg.Service/`; `null` if the route was left out.
    #[serde(rename = "match")]
    pub matcher: Option<String>,
    /// The conditions on headers.
    pub headers: Vec<HeaderConditionReport>,
    /// The share of the calls that meet the other conditions, in millionths; `null` if it takes all of them.
    pub share_per_million: Option<u32>,
    /// The clusters of the route; none if the route was left out, or does not forward.
    pub clusters: Vec<SplitReport>,
    /// The time that a call may take; `null` if the route forwards no calls or there is no limit.
    pub timeout: Option<TimeoutReport>,
    /// The retry policy of the route; `null` if it has none.
    pub retry: Option<RetryReport>,
    /// The policies that give a call its hash, for clusters that balance by hash.
    pub hash_policies: Vec<HashPolicyReport>,
    /// True if calls have the host name of their endpoint as authority (gRFC A81).
    pub auto_host_rewrite: bool,
    /// The decision about the call; `null` without a path.
    pub verdict: Option<Verdict>,
    /// The part of the condition that the call does not meet, if the route is passed over.
    pub mismatch: Option<MismatchReport>,
    /// The reason of the verdict in words, where it is not obvious.
    pub why: Option<String>,
    /// A remark on clients that support more than this one.
    pub note: Option<String>,
    /// Fields of the route that are set and have no effect. For a route that was left out, `why` has
    /// the reason instead.
    pub unsupported: Vec<String>,
}

/// The decision of a route about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The call meets the condition, and a draw decides if it takes the route or goes on to the next ones.
    ByChance,
    /// The client ignores the route, because it does not support a field of it.
    LeftOut,
    /// The call takes the route, unless it took one by chance before.
    Matches,
    /// A route before this one matches.
    NotReached,
    /// The call does not meet the condition of the route.
    PassedOver,
}

impl RouteReport {
    /// True if the call may take the route, or if no call was asked about.
    pub(super) fn is_open(&self) -> bool {
        let open = [None, Some(Verdict::Matches), Some(Verdict::ByChance)];
        open.contains(&self.verdict)
    }
}

/// The condition on one header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeaderConditionReport {
    /// The name of the header, in lower case.
    pub name: String,
    /// The condition on its value, such as `exact "a"` or `not present`.
    pub expected: String,
}

/// A cluster of a route, with its share of the route's calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SplitReport {
    /// The name of the cluster.
    pub cluster: String,
    /// The weight of the cluster; `null` if the route has one cluster for all calls.
    pub weight: Option<u32>,
    /// The number of calls that go to the cluster, of a million that take the route.
    pub per_million: u32,
    /// The filters that these calls pass, in order, without the router.
    pub filters: Vec<FilterReport>,
}

/// A filter that calls pass, with the configuration that is in force (gRFC A39).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilterReport {
    /// The name of the filter in the listener's chain.
    pub name: String,
    /// The configuration in words.
    pub config: String,
    /// The place of the configuration: `listener`, `virtual host`, `route` or `weighted cluster`.
    pub set_by: String,
    /// The place of an override that has no effect, because it is for another kind of filter.
    pub ignored_override: Option<String>,
}

/// The longest time that a call may take (gRFC A31).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeoutReport {
    /// The time in seconds.
    pub seconds: f64,
    /// The resource that sets it: `route` or `listener`.
    pub set_by: &'static str,
}

/// The rule by which failed attempts of a call are repeated (gRFC A44).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetryReport {
    /// The most attempts of a call, the first one included.
    pub max_attempts: u32,
    /// The status codes after which there is another attempt, as numbers.
    pub retry_on: Vec<i32>,
    /// The time before the first retry, in seconds.
    pub base_interval_seconds: f64,
    /// The longest time before a retry, in seconds.
    pub max_interval_seconds: f64,
}

/// A policy that gives a call its hash (gRFC A42).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HashPolicyReport {
    /// The name of the header whose value is hashed; `null` if the hash is a number of the channel.
    pub header: Option<String>,
    /// True if later policies do not count once there is a hash.
    pub terminal: bool,
}

/// The part of a condition that a call does not meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MismatchReport {
    /// The part.
    pub part: MismatchPart,
    /// The name of the header, if the part is a header.
    pub header: Option<String>,
    /// The expected value, or the condition on it.
    pub expected: String,
    /// The value that the call has; `null` if the header is absent or counts as such.
    pub found: Option<String>,
    /// True if a path differs in case alone.
    pub differs_in_case: bool,
}

/// A part of the condition of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchPart {
    /// A header.
    Header,
    /// The path.
    Path,
    /// The share of calls, which is 0.
    Share,
}
