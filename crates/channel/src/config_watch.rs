//! The configurations of a channel, one after the other.
//!
//! The resolver has no I/O. So this module gives it the resources of the xDS client and the addresses of DNS. A channel
//! and `crowfly explain` both use it, so that both see the same configurations.

use std::sync::Arc;
use std::time::Duration;

use crowfly_client::{Batch, Subscriber, XdsClient};
use crowfly_xds::{ResolveRoots, Resolved, Resolver, View};
use tracing::error;

use crate::dns::{Names, Resolve};

/// Follows the configurations that the control plane and DNS give for a target. Each configuration comes whole, or not
/// at all (gRFC A74).
///
/// Each [`Channel`](crate::Channel) has a config watch. A tool gets one from
/// [`ChannelBuilder::watch_config`](crate::ChannelBuilder::watch_config), to find the backends of
/// calls without making any.
#[derive(Debug)]
pub struct ConfigWatch {
    resolver: Resolver,
    subscriber: Subscriber,
    names: Names,
    /// True if the resolver has input that it has not resolved yet.
    stale: bool,
}

/// The source of a channel's configurations. The source watches nothing until [`watch`](Self::watch) is called.
#[derive(Debug)]
pub(crate) struct ConfigSource {
    pub(crate) client: XdsClient,
    pub(crate) roots: ResolveRoots,
    pub(crate) node: String,
    pub(crate) dns_resolver: Arc<dyn Resolve>,
    pub(crate) dns_refresh: Option<Duration>,
}

impl ConfigSource {
    /// Begins to follow the configurations.
    pub(crate) fn watch(&self) -> ConfigWatch {
        ConfigWatch {
            resolver: Resolver::new(self.roots.clone(), self.node.as_str()),
            subscriber: self.client.subscriber(),
            names: Names::new(Arc::clone(&self.dns_resolver), self.dns_refresh),
            stale: true,
        }
    }
}

impl ConfigWatch {
    /// The next answer that differs from the last. The first one names the missing resources. `None` once the
    /// runtime shuts down. Cancel-safe.
    pub async fn next(&mut self) -> Option<Resolved> {
        loop {
            if self.stale
                && let Some(resolved) = self.step()
            {
                return Some(resolved);
            }
            tokio::select! {
                batch = self.subscriber.next() => self.updated(batch?),
                (name, outcome) = self.names.next() => {
                    self.resolver.answer(&name, outcome);
                    self.stale = true;
                }
            }
        }
    }

    /// The resources and DNS answers that are known at this moment, of all that are watched.
    pub fn view(&self) -> &View {
        self.resolver.view()
    }

    /// The names with which resolution begins.
    pub fn roots(&self) -> &ResolveRoots {
        self.resolver.roots()
    }

    /// Keeps a cluster watched even when no route leads to it any more.
    pub(crate) fn hold(&mut self, cluster: &Arc<str>) {
        self.resolver.hold(cluster);
        self.stale = true;
    }

    /// The opposite of [`hold`](Self::hold).
    pub(crate) fn release(&mut self, cluster: &str) {
        self.resolver.release(cluster);
        self.stale = true;
    }

    /// Looks up every DNS name again.
    pub(crate) fn reresolve(&mut self) {
        self.names.request();
    }

    fn updated(&mut self, batch: Batch) {
        for update in batch.updates {
            self.resolver.update(update.key, update.entry);
        }
        self.stale = true;
    }

    fn step(&mut self) -> Option<Resolved> {
        self.stale = false;
        let step = self.resolver.step();
        for key in step.watch {
            if let Err(error) = self.subscriber.watch(key) {
                error!(%error, "a configuration needs what this client cannot read");
            }
        }
        for key in step.unwatch {
            self.subscriber.unwatch(key);
        }
        for name in &step.watch_names {
            self.names.watch(name);
        }
        for name in &step.unwatch_names {
            self.names.unwatch(name);
        }
        step.resolved
    }
}
