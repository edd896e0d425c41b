//! A forecast of the backends of a cluster's calls, made by the picker that a channel would use.
//!
//! A tool that judged a configuration by rules of its own could come to another answer than the
//! channel. So this module makes the channel's plan, tells the channel's balancer that every
//! endpoint is READY, and reads the picker.

use std::sync::Arc;
use std::time::Instant;

use crowfly_lb::{
    Balancer, BalancerEvent, CallCounters, Command, Connectivity, DropCause, EndpointState, Picker,
    Plan, Policy,
};
use crowfly_xds::XdsConfig;

use crate::plan::{EndpointChoice, Planner};

/// A forecast of the calls of a cluster, made as if every endpoint can be reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Forecast {
    /// Every call is dropped.
    Dropped {
        /// The leaf cluster that drops it.
        leaf: String,
        /// The category that takes all calls; `None` if the limit lets none through.
        category: Option<String>,
    },
    /// Every call fails, for this reason.
    Failing(String),
    /// Calls are sent.
    Sent {
        /// The leaf cluster whose endpoints get them.
        leaf: String,
        /// The share of calls that is not dropped.
        share: f64,
    },
}

/// The forecast for the calls of `cluster`; `None` if the configuration does not have it.
///
/// A policy of a program's own that is known by name only counts as `round_robin`, because nothing
/// else is known of it.
pub fn forecast(config: &XdsConfig, cluster: &str) -> Option<Forecast> {
    let state = config.clusters.get(cluster)?;
    let choice = EndpointChoice {
        stand_in: Some(Policy::RoundRobin),
        ..EndpointChoice::default()
    };
    let plan = Planner::new(choice).plan(&cluster.into(), state, config);
    let picker = with_all_ready(plan)?;
    if let Some(dropped) = picker.drops_all() {
        return Some(Forecast::Dropped {
            leaf: dropped.cluster.name.to_string(),
            category: match dropped.cause {
                DropCause::Category(category) => Some(category.to_string()),
                DropCause::Limit { .. } => None,
            },
        });
    }
    let shares = picker.shares();
    let Some(first) = shares.first() else {
        let failure = picker.failure();
        let why = failure.map_or_else(|| "no endpoint is used".into(), |why| why.reason.clone());
        return Some(Forecast::Failing(why.to_string()));
    };
    let leaf = first.cluster.as_ref();
    Some(Forecast::Sent {
        leaf: leaf.map_or_else(|| cluster.to_owned(), ToString::to_string),
        share: shares.iter().map(|share| share.probability).sum(),
    })
}

/// The picker of a plan whose endpoints are all READY.
fn with_all_ready(plan: Plan) -> Option<Arc<Picker<()>>> {
    let now = Instant::now();
    let cluster = plan.cluster.clone();
    let mut balancer = Balancer::new(0, Arc::new(CallCounters::new()));
    let mut last = None;
    balancer.handle(BalancerEvent::Plan(Arc::new(plan)), now);
    while balancer.flush_by().is_some() {
        balancer.flush(now);
        while let Some(command) = balancer.poll_command() {
            match command {
                Command::Connect { id, addresses, .. } => {
                    let Some(&address) = addresses.first() else {
                        continue;
                    };
                    let state = EndpointState::Ready {
                        transport: (),
                        address,
                    };
                    balancer.handle(BalancerEvent::Endpoint { id, state }, now);
                }
                Command::Publish { picker, .. } => last = Some(picker),
                Command::Outlier(_) | Command::Release(_) | Command::Reresolve(_) => {}
            }
        }
        // Some policies connect an endpoint only when a call asks for it.
        let endpoints = balancer.endpoints(cluster.as_str()).into_iter();
        for idle in endpoints.filter(|endpoint| endpoint.state == Connectivity::Idle) {
            balancer.handle(BalancerEvent::Demand(idle.id.into()), now);
        }
    }
    last
}
