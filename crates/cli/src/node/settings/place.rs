//! The section `node`: the name, the zone and the pods of this node. The agent needs them, because policies and
//! hints choose backends by node and zone.

use clap::Args;
use crowfly_node::{cidr::Cidr, model::Place};
use serde::Deserialize;

use super::value::Parsed;

/// The place of this machine.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlaceSettings {
    /// The name of this node, for internalTrafficPolicy and PreferSameNode
    #[arg(
        id = "node-name",
        long = "node-name",
        value_name = "NAME",
        env = "CROWFLY_NODE_NAME"
    )]
    pub name: Option<String>,

    /// The zone of this node, for PreferSameZone
    #[arg(long, value_name = "ZONE", env = "CROWFLY_NODE_ZONE")]
    pub zone: Option<String>,

    /// The addresses of pods on this node: an xDS endpoint inside is on this node, if it names none
    #[arg(
        id = "pod-cidrs",
        long = "pod-cidrs",
        value_name = "CIDR,...",
        value_delimiter = ',',
        env = "CROWFLY_NODE_POD_CIDRS"
    )]
    pub pod_cidrs: Option<Vec<Parsed<Cidr>>>,
}

impl PlaceSettings {
    /// Fills each setting that is absent here with that of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            name: self.name.or(other.name),
            zone: self.zone.or(other.zone),
            pod_cidrs: self.pod_cidrs.or(other.pod_cidrs),
        }
    }

    /// The place, and the addresses of pods.
    pub(super) fn into_place(self) -> (Place, Vec<Cidr>) {
        let place = Place {
            node: self.name.map(Into::into),
            zone: self.zone.map(Into::into),
        };
        let cidrs = self.pod_cidrs.unwrap_or_default().into_iter();
        (place, cidrs.map(|cidr| cidr.0).collect())
    }
}
