//! Clusters among which the calls of a route are split by weight (gRFC A28). The sums of the
//! weights are kept, because each call draws a cluster.

use std::num::NonZeroU32;

use envoy_types::pb::envoy::config::route::v3::{
    self as pb,
    weighted_cluster::{ClusterWeight, RandomValueSpecifier},
};
use thiserror::Error;

use crate::{
    Features, Validator,
    grpc::{
        decode::require_text,
        filter::{self, FilterOverrides},
    },
};

/// Clusters among which one is drawn for each call.
///
/// ```
/// # use crowfly_model::grpc::filter::FilterOverrides;
/// # use crowfly_model::grpc::route::{WeightedCluster, WeightedClusters};
/// let entries = [("stable", 90), ("canary", 10)].map(|(name, weight)| WeightedCluster {
///     name: name.to_owned(),
///     weight: weight.try_into().unwrap(),
///     filters: FilterOverrides::default(),
/// });
/// let clusters = WeightedClusters::new(entries.into()).unwrap();
/// // The caller draws a number, uniform over all of `u64`, because this crate has no randomness.
/// assert_eq!(clusters.choose(0), 0);
/// assert_eq!(clusters.choose(u64::MAX), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedClusters {
    entries: Box<[WeightedCluster]>,
    /// For each entry, the sum of the weights up to it and with it.
    ends: Box<[u32]>,
}

/// One of the clusters among which calls are split. A cluster may be in several entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedCluster {
    /// The name of the cluster.
    pub name: String,
    /// The share of the calls, of the sum of all weights.
    pub weight: NonZeroU32,
    /// Filters with other settings for the calls of this entry (gRFC A39).
    pub filters: FilterOverrides,
}

impl WeightedClusters {
    /// Clusters whose weights sum up to at most `u32::MAX`.
    pub fn new(entries: Box<[WeightedCluster]>) -> Result<Self, InvalidWeights> {
        if entries.is_empty() {
            return Err(InvalidWeights::NoCluster);
        }
        let weights = entries.iter().map(|entry| u64::from(entry.weight.get()));
        let sums = weights.scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        let ends = sums.map(|sum| u32::try_from(sum).map_err(|_| InvalidWeights::TooLarge));
        Ok(Self {
            ends: ends.collect::<Result<_, _>>()?,
            entries,
        })
    }

    /// The clusters, in the order of the resource.
    pub fn entries(&self) -> &[WeightedCluster] {
        &self.entries
    }

    /// The place of the cluster for a call, by a random number that is uniform over all of `u64`.
    pub fn choose(&self, draw: u64) -> usize {
        let total = self.ends.last().copied().unwrap_or(1);
        let point = ((u128::from(draw) * u128::from(total)) >> 64) as u32;
        self.ends.partition_point(|end| *end <= point)
    }
}

/// Weights by which no cluster can be chosen.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InvalidWeights {
    /// No cluster has a weight above zero.
    #[error("expected a cluster with a weight above 0, got none")]
    NoCluster,
    /// The sum of the weights is not a `u32`.
    #[error("expected weights of at most 4294967295 together, got more")]
    TooLarge,
}

/// Reads weighted clusters. A weight of 0 takes its cluster out; the total is the sum, as in all gRPC clients.
pub(super) fn parse(
    proto: &pb::WeightedCluster,
    features: &Features,
    v: &mut Validator,
) -> Option<WeightedClusters> {
    note_ignored(proto, v);
    let entries: Vec<_> = v.field("clusters", |v| {
        let clusters = proto.clusters.iter().enumerate();
        clusters
            .filter_map(|(i, cluster)| v.index(i, |v| parse_entry(cluster, features, v)))
            .collect()
    });
    // Errors of entries are told already, and they may be why none is left.
    let is_complete = !entries.iter().any(Option::is_none);
    match WeightedClusters::new(entries.into_iter().flatten().collect()) {
        Ok(clusters) => is_complete.then_some(clusters),
        Err(InvalidWeights::NoCluster) if !is_complete => None,
        Err(error) => {
            v.error(error.to_string());
            None
        }
    }
}

/// One entry: `None` if its weight is 0, `Some(None)` after an error.
fn parse_entry(
    proto: &ClusterWeight,
    features: &Features,
    v: &mut Validator,
) -> Option<Option<WeightedCluster>> {
    require_text(&proto.name, "name", v);
    let Some(weight) = proto.weight else {
        v.error_at("weight", "expected a weight, got none");
        return Some(None);
    };
    let weight = NonZeroU32::new(weight.value)?;
    let custom = &features.custom_filters;
    let filters = filter::parse_overrides(&proto.typed_per_filter_config, custom, v);
    let name = proto.name.clone();
    Some((!name.is_empty()).then_some(WeightedCluster {
        name,
        weight,
        filters,
    }))
}

#[expect(deprecated, reason = "a server may still send the field")]
fn note_ignored(proto: &pb::WeightedCluster, v: &mut Validator) {
    let weights = proto.clusters.iter().filter_map(|cluster| cluster.weight);
    let sum: u64 = weights.map(|weight| u64::from(weight.value)).sum();
    if let Some(total) = proto.total_weight
        && u64::from(total.value) != sum
    {
        let message = format!("ignored: the weights are shares of their sum, {sum}");
        v.unsupported_at("total_weight", message);
    }
    if !proto.runtime_key_prefix.is_empty() {
        v.unsupported_at(
            "runtime_key_prefix",
            "ignored: the weights count (gRFC A28)",
        );
    }
    let random_value = match &proto.random_value_specifier {
        Some(RandomValueSpecifier::HeaderName(_)) => "header_name",
        Some(RandomValueSpecifier::UseHashPolicy(_)) => "use_hash_policy",
        None => return,
    };
    v.unsupported_at(
        random_value,
        "ignored: each call draws at random (gRFC A28)",
    );
}
