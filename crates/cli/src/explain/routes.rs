//! Reports on the routes of a virtual host, for a call or for all calls.
//!
//! The routes that a call may take come from the channel's router. The report of each other route says which part of
//! its condition the call does not meet.

use std::collections::BTreeSet;
use std::sync::Arc;

use crowfly_model::grpc::{
    Fraction,
    filter::{EffectiveFilter, FilterOverrides, Overrides},
    listener::ApiListener,
    route::{
        self, CallHead, ClusterChoice, Forward, HashPolicy, Headers, MaxDuration, Mismatch,
        PathMismatch, RetryPolicy, RouteAction, RouteTable, SkippedRoute, VirtualHost,
    },
};

use super::{
    ExplainedCall, FilterReport, HashPolicyReport, HeaderConditionReport, MismatchPart,
    MismatchReport, RetryReport, RouteReport, SplitReport, TimeoutReport, Verdict, wishes::Wishes,
};

const MILLION: u32 = 1_000_000;
/// The greatest status code of gRPC.
const MAX_CODE: i32 = 16;

/// Every route of the resource in its place, those left out too. The listener has limits and filters for all routes.
pub(super) fn of_host(
    host: &Arc<VirtualHost>,
    wishes: &Wishes,
    api: &ApiListener,
    call: &ExplainedCall,
) -> Vec<RouteReport> {
    let headers: Vec<_> = call.headers.iter().map(|h| (&h.name, &h.value)).collect();
    let head = call.path.as_deref().map(|path| CallHead {
        path,
        headers: &headers[..],
    });
    let taken = head.map(|head| Taken::new(host, &head));
    let used = host.routes.iter().enumerate().map(|(position, route)| {
        let index = host.index_of(position);
        let verdict = taken.as_ref().map(|taken| taken.verdict(position));
        let mut report = RouteReport {
            index,
            verdict,
            unsupported: wishes.of_route(index),
            ..described(route, host, api)
        };
        if let Some(head) = head
            .as_ref()
            .filter(|_| verdict == Some(Verdict::PassedOver))
        {
            report.pass_over(route, head);
        }
        report
    });
    let skipped = host.skipped.iter().map(|route| {
        let is_reached = taken.as_ref().is_none_or(|taken| {
            let end = taken.end.map(|position| host.index_of(position));
            end.is_none_or(|end| route.index < end)
        });
        left_out(route, call, is_reached)
    });
    let mut reports: Vec<_> = used.chain(skipped).collect();
    reports.sort_by_key(|report| report.index);
    reports
}

/// The routes that a call takes, by position.
struct Taken {
    by_chance: BTreeSet<usize>,
    /// The first route that takes every call that reaches it.
    end: Option<usize>,
}

impl Taken {
    fn new<H: Headers + ?Sized>(host: &Arc<VirtualHost>, call: &CallHead<'_, H>) -> Self {
        let table = RouteTable::compile(host, |_| ());
        let mut taken = Self {
            by_chance: BTreeSet::new(),
            end: None,
        };
        for position in table.candidates(call) {
            match host.routes[position].condition.fraction {
                None | Some(Fraction::ALL) => {
                    taken.end = Some(position);
                    break;
                }
                Some(share) if share.millionths() > 0 => {
                    taken.by_chance.insert(position);
                }
                Some(_) => {}
            }
        }
        taken
    }

    fn verdict(&self, position: usize) -> Verdict {
        match self.end {
            Some(end) if end == position => Verdict::Matches,
            Some(end) if end < position => Verdict::NotReached,
            _ if self.by_chance.contains(&position) => Verdict::ByChance,
            _ => Verdict::PassedOver,
        }
    }
}

/// The parts of the report that do not depend on the call.
fn described(route: &route::Route, host: &VirtualHost, api: &ApiListener) -> RouteReport {
    let condition = &route.condition;
    let headers = condition
        .headers
        .iter()
        .map(|matcher| HeaderConditionReport {
            name: matcher.name().to_owned(),
            expected: matcher.to_string(),
        });
    let forward = match &route.action {
        RouteAction::Forward(forward) => Some(&**forward),
        RouteAction::NonForwarding => None,
    };
    RouteReport {
        name: (!route.name.is_empty()).then(|| route.name.clone()),
        matcher: Some(condition.path.to_string()),
        headers: headers.collect(),
        share_per_million: condition.fraction.map(Fraction::millionths),
        clusters: forward.map_or_else(Vec::new, |forward| {
            split(&forward.clusters, |cluster| {
                let overrides = Overrides {
                    host: &host.filters,
                    route: &route.filters,
                    cluster,
                };
                let filters = api.filters.effective(overrides);
                filters.map(FilterReport::from).collect()
            })
        }),
        timeout: forward.and_then(|forward| timeout(forward, api.max_duration)),
        retry: forward.and_then(|forward| forward.retry.as_deref().map(RetryReport::from)),
        hash_policies: forward.map_or_else(Vec::new, |forward| {
            let policies = forward.hash_policies.iter();
            policies.map(HashPolicyReport::from).collect()
        }),
        auto_host_rewrite: forward.is_some_and(|forward| forward.auto_host_rewrite),
        ..RouteReport::default()
    }
}

/// The clusters of a route. `filters` are those of a cluster, given the overrides of its entry.
fn split(
    choice: &ClusterChoice,
    filters: impl Fn(Option<&FilterOverrides>) -> Vec<FilterReport>,
) -> Vec<SplitReport> {
    let clusters = match choice {
        ClusterChoice::Cluster(name) => {
            return vec![SplitReport {
                cluster: name.clone(),
                weight: None,
                per_million: MILLION,
                filters: filters(None),
            }];
        }
        ClusterChoice::Weighted(clusters) => clusters.entries(),
    };
    let total: u64 = clusters.iter().map(|one| u64::from(one.weight.get())).sum();
    let report = |one: &route::WeightedCluster| SplitReport {
        cluster: one.name.clone(),
        weight: Some(one.weight.get()),
        // At most a million, because a weight is part of the total.
        per_million: ((u64::from(one.weight.get()) * u64::from(MILLION) + total / 2) / total)
            as u32,
        filters: filters(Some(&one.filters)),
    };
    clusters.iter().map(report).collect()
}

/// gRFC A31: the limit of the route counts, and the listener's if the route has none.
fn timeout(forward: &Forward, listener: MaxDuration) -> Option<TimeoutReport> {
    let (limit, set_by) = match forward.max_duration {
        MaxDuration::Unset => (listener, "listener"),
        own => (own, "route"),
    };
    let seconds = limit.limit()?.as_secs_f64();
    Some(TimeoutReport { seconds, set_by })
}

impl From<EffectiveFilter<'_>> for FilterReport {
    fn from(filter: EffectiveFilter<'_>) -> Self {
        Self {
            name: filter.name.to_owned(),
            config: filter.config.to_string(),
            set_by: filter.set_by.to_string(),
            ignored_override: filter.unfit.map(|(set_by, _)| set_by.to_string()),
        }
    }
}

impl From<&HashPolicy> for HashPolicyReport {
    fn from(policy: &HashPolicy) -> Self {
        Self {
            header: policy.header().map(str::to_owned),
            terminal: policy.is_terminal(),
        }
    }
}

impl From<&RetryPolicy> for RetryReport {
    fn from(policy: &RetryPolicy) -> Self {
        let codes = 0..=MAX_CODE;
        Self {
            max_attempts: policy.max_attempts,
            retry_on: codes
                .filter(|code| policy.retry_on.contains(*code))
                .collect(),
            base_interval_seconds: policy.base_interval.as_secs_f64(),
            max_interval_seconds: policy.max_interval.as_secs_f64(),
        }
    }
}

impl RouteReport {
    /// Adds the reason why the call does not take the route.
    fn pass_over<H: Headers + ?Sized>(&mut self, route: &route::Route, call: &CallHead<'_, H>) {
        let condition = &route.condition;
        // A call that meets path and headers, and yet never takes the route: its share is 0.
        let share = || condition.fraction.map(Mismatch::Fraction);
        let Some(mismatch) = condition.mismatch(call).or_else(share) else {
            return;
        };
        self.why = Some(mismatch.to_string());
        self.mismatch = Some(match &mismatch {
            Mismatch::Fraction(share) => MismatchReport {
                part: MismatchPart::Share,
                header: None,
                expected: share.to_string(),
                found: None,
                differs_in_case: false,
            },
            Mismatch::Header(header) => MismatchReport {
                part: MismatchPart::Header,
                header: Some(header.matcher.name().to_owned()),
                expected: header.matcher.to_string(),
                found: header.value.clone(),
                differs_in_case: false,
            },
            Mismatch::Path(path) => MismatchReport {
                part: MismatchPart::Path,
                header: None,
                expected: condition.path.to_string(),
                found: Some(call.path.to_owned()),
                differs_in_case: *path == PathMismatch::Case,
            },
        });
    }
}

fn left_out(route: &SkippedRoute, call: &ExplainedCall, is_reached: bool) -> RouteReport {
    let note = match (is_reached, &call.path) {
        (false, _) => None,
        (_, None) => Some("the calls that it is for go to the routes after it"),
        _ => Some("for a client that supports it, the call might match it"),
    };
    RouteReport {
        index: route.index,
        name: (!route.name.is_empty()).then(|| route.name.clone()),
        verdict: Some(Verdict::LeftOut),
        why: Some(route.reason.clone()),
        note: note.map(str::to_owned),
        ..RouteReport::default()
    }
}
