//! The section `node`: the place of the machine.

use clap::Args;
use crowfly_node::model::Place;
use serde::Deserialize;

/// The place of this machine.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlaceSettings {
    /// The name of this node, for internalTrafficPolicy and PreferSameNode
    #[arg(long = "node-name", value_name = "NAME", env = "CROWFLY_NODE_NAME")]
    pub name: Option<String>,

    /// The zone of this node, for PreferSameZone
    #[arg(long, value_name = "ZONE", env = "CROWFLY_NODE_ZONE")]
    pub zone: Option<String>,
}

impl PlaceSettings {
    /// These settings, and others where these say nothing.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            name: self.name.or(other.name),
            zone: self.zone.or(other.zone),
        }
    }

    pub(super) fn into_place(self) -> Place {
        Place {
            node: self.name.map(Into::into),
            zone: self.zone.map(Into::into),
        }
    }
}
