//! The configurations that a channel follows: those of a control plane, or its own.
//!
//! The driver is the same for both, so that balancing, connections and calls do not depend on where a target
//! comes from.

mod plain;

use std::sync::Arc;

use crowfly_xds::{Missing, Resolved};

pub(crate) use self::plain::{PlainConfigs, PlainSource};
use crate::config_watch::{ConfigSource as XdsSource, ConfigWatch};
use crate::load_reports::LoadStores;

/// The source of a channel's configurations. The source watches nothing until [`watch`](Self::watch) is called.
#[derive(Debug)]
pub(crate) enum ConfigSource {
    Plain(PlainSource),
    Xds(Box<XdsSource>),
}

impl ConfigSource {
    /// Begins to follow the configurations.
    pub(crate) fn watch(&self) -> Configs {
        match self {
            Self::Plain(source) => Configs::Plain(Box::new(source.watch())),
            Self::Xds(source) => Configs::Xds(Box::new(source.watch())),
        }
    }

    /// The load counting of the channel; nothing is counted without a control plane.
    pub(crate) fn load_stores(&self) -> LoadStores {
        match self {
            Self::Plain(_) => LoadStores::default(),
            Self::Xds(source) => LoadStores::new(source.client.clone()),
        }
    }

    /// The name of the target in logs.
    pub(crate) fn target(&self) -> &str {
        match self {
            Self::Plain(source) => source.name(),
            Self::Xds(source) => &source.roots.listener,
        }
    }

    /// The id of this client's node; empty without a control plane.
    pub(crate) fn node(&self) -> &str {
        match self {
            Self::Plain(_) => "",
            Self::Xds(source) => &source.node,
        }
    }

    /// Names the things that a call waits for.
    pub(crate) fn awaited(&self, missing: &Missing) -> String {
        match self {
            Self::Plain(_) => missing.to_string(),
            Self::Xds(_) => format!("{missing} from the xDS server"),
        }
    }
}

/// The configurations of a channel, one after the other.
#[derive(Debug)]
pub(crate) enum Configs {
    Plain(Box<PlainConfigs>),
    Xds(Box<ConfigWatch>),
}

impl Configs {
    /// The next configuration that differs from the last; `None` once the runtime shuts down. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Resolved> {
        match self {
            Self::Plain(configs) => Some(configs.next().await),
            Self::Xds(configs) => configs.next().await,
        }
    }

    /// Keeps a cluster watched even when no route leads to it any more.
    pub(crate) fn hold(&mut self, cluster: &Arc<str>) {
        if let Self::Xds(configs) = self {
            configs.hold(cluster);
        }
    }

    /// The opposite of [`hold`](Self::hold).
    pub(crate) fn release(&mut self, cluster: &str) {
        if let Self::Xds(configs) = self {
            configs.release(cluster);
        }
    }

    /// Looks up every DNS name again.
    pub(crate) fn reresolve(&mut self) {
        match self {
            Self::Plain(configs) => configs.reresolve(),
            Self::Xds(configs) => configs.reresolve(),
        }
    }
}
