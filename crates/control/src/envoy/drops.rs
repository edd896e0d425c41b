//! The drops of a cluster's endpoints, in the form that Envoys take.
//!
//! gRPC draws for each category of drops. An Envoy refuses endpoints with several categories. So it is
//! sent one, with the share of the calls that any of them drops.

use endpoint::ClusterLoadAssignment;
use endpoint::cluster_load_assignment::Policy;
use endpoint::cluster_load_assignment::policy::DropOverload;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::envoy::r#type::v3::fractional_percent::DenominatorType;
use prost::Message;

const MILLION: u32 = 1_000_000;

/// The policy of endpoints alone. With thousands of endpoints, reading them would cost far more.
#[derive(Clone, PartialEq, Message)]
struct PolicyOnly {
    #[prost(message, optional, tag = "4")]
    policy: Option<Policy>,
}

/// Endpoints with their drops changed; `None` if they need no change.
pub(super) fn adapted(endpoints: &[u8]) -> Option<ClusterLoadAssignment> {
    let policy = PolicyOnly::decode(endpoints).ok()?.policy?;
    if policy.drop_overloads.len() < 2 {
        return None;
    }
    let mut endpoints = ClusterLoadAssignment::decode(endpoints).ok()?;
    let policy = endpoints.policy.as_mut()?;
    policy.drop_overloads = vec![together(&policy.drop_overloads)];
    Some(endpoints)
}

/// One category that drops as many calls as all of these, one after the other.
fn together(drops: &[DropOverload]) -> DropOverload {
    let names: Vec<&str> = drops.iter().map(|drop| drop.category.as_str()).collect();
    let kept: f64 = drops.iter().map(kept_share).product();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to a million"
    )]
    let numerator = ((1.0 - kept) * f64::from(MILLION)).round() as u32;
    DropOverload {
        category: names.join("+"),
        drop_percentage: Some(FractionalPercent {
            numerator,
            denominator: DenominatorType::Million.into(),
        }),
    }
}

/// The share of calls that a category lets through.
fn kept_share(drop: &DropOverload) -> f64 {
    let Some(dropped) = &drop.drop_percentage else {
        return 1.0;
    };
    let denominator = match dropped.denominator() {
        DenominatorType::Hundred => 100,
        DenominatorType::TenThousand => 10_000,
        DenominatorType::Million => MILLION,
    };
    let share = f64::from(dropped.numerator) / f64::from(denominator);
    1.0 - share.min(1.0)
}
