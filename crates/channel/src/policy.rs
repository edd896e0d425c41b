//! Balancing policies of your own, which the clusters of a control plane may name (gRFC A52).
//!
//! A policy decides which endpoints of a list to connect, and which endpoint gets a call. Crowfly does the
//! rest: connections, states, localities, priorities and counters.
//!
//! A policy is registered under a name, with a function that reads its configuration. A cluster names it in
//! `load_balancing_policy`, in an entry that is a `TypedStruct` of that name. A client uses the first entry of the list
//! that it knows, so a client without the policy uses a later one.
//!
//! ```
//! use std::sync::Arc;
//!
//! use crowfly::policy::{
//!     CallContext, CustomPolicy, Endpoint, PolicyRegistry, ReadySet, Selection, Selector,
//! };
//!
//! /// Sends every call to the first backend that is ready, after `skip` others.
//! #[derive(Debug)]
//! struct First {
//!     skip: usize,
//! }
//!
//! impl CustomPolicy for First {
//!     fn name(&self) -> &str {
//!         "myorg.First"
//!     }
//!
//!     fn build(&self, _: &[Endpoint]) -> Arc<dyn Selector> {
//!         Arc::new(Self { skip: self.skip })
//!     }
//! }
//!
//! impl Selector for First {
//!     fn pick<'a>(&self, _: &CallContext<'_>, ready: ReadySet<'a>) -> Selection<'a> {
//!         ready.get(self.skip).map_or(Selection::Queue, Selection::Send)
//!     }
//! }
//!
//! let policies = PolicyRegistry::new().with("myorg.First", |config| {
//!     let skip = config["skip"].as_u64().ok_or("skip: expected a number")?;
//!     Ok::<_, &str>(First { skip: skip as usize })
//! });
//! let channel = crowfly::Channel::builder("xds:///payments").policies(&policies);
//! ```
//!
//! A cluster with the policy, and another one for clients that do not have it:
//!
//! ```yaml
//! load_balancing_policy:
//!   policies:
//!   - typed_extension_config:
//!       name: ours
//!       typed_config:
//!         "@type": type.googleapis.com/xds.type.v3.TypedStruct
//!         type_url: type.googleapis.com/myorg.First
//!         value: { skip: 1 }
//!   - typed_extension_config:
//!       name: everybody else's
//!       typed_config:
//!         "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
//! ```
//!
//! Inside a `WrrLocality` the policy is used once for each locality, else once for all endpoints of a
//! priority. The example `custom_policy` has a whole program.

use std::fmt::Display;
use std::sync::Arc;

#[doc(inline)]
pub use crowfly_lb::{
    CallContext, CallOutcome, Connectivity, Counted, CustomPolicy, Endpoint, LocalityId, ReadyRef,
    ReadySet, Selection, Selector,
};
use crowfly_model::grpc::cluster::{self, CustomPolicies, MadePolicy};
use serde_json::Value;

/// The policies of a program, by the names that clusters use for them.
///
/// Make one registry and give it to every channel. Channels to one target share an xDS client only if their
/// registries are clones of one.
///
/// ```
/// # use std::{num::NonZeroUsize, sync::Arc};
/// # use crowfly::policy::{CustomPolicy, Endpoint, PolicyRegistry, Selector};
/// use serde::Deserialize;
///
/// #[derive(Debug, Deserialize)]
/// struct Subset {
///     size: NonZeroUsize,
/// }
/// # impl CustomPolicy for Subset {
/// #     fn name(&self) -> &str { "myorg.Subset" }
/// #     fn build(&self, _: &[Endpoint]) -> Arc<dyn Selector> { unimplemented!() }
/// # }
///
/// let policies = PolicyRegistry::new()
///     .with("myorg.Subset", |config| Subset::deserialize(config));
/// let payments = crowfly::Channel::builder("xds:///payments").policies(&policies);
/// let accounts = crowfly::Channel::builder("xds:///accounts").policies(&policies);
/// ```
#[derive(Clone, Debug, Default)]
pub struct PolicyRegistry(CustomPolicies);

impl PolicyRegistry {
    /// No policy.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry that accepts every policy name and every configuration. The registry is for tools that show
    /// configurations. On a channel, calls of clusters with such a policy fail.
    pub fn of_all_names() -> Self {
        let nothing = |_: &Value| Ok(Arc::new(()) as MadePolicy);
        Self(CustomPolicies::NONE.with_all_others(Arc::new(nothing)))
    }

    /// Adds a policy, in place of one of the same name. The name should be that of a protobuf message in a package of
    /// yours, such as `myorg.MyPolicy`. The name should equal [`CustomPolicy::name`].
    ///
    /// `read` gets the configuration, a JSON object, and must not panic. If it returns an error, the cluster is
    /// refused. The NACK has the error with its path, and the last good version of the cluster stays in use. A policy
    /// is kept while its configuration does not change.
    pub fn with<P, E>(
        self,
        name: &str,
        read: impl Fn(&Value) -> Result<P, E> + Send + Sync + 'static,
    ) -> Self
    where
        P: CustomPolicy + 'static,
        E: Display,
    {
        let read = move |config: &Value| match read(config) {
            Ok(policy) => Ok(Arc::new(Made(Arc::new(policy))) as MadePolicy),
            Err(error) => Err(error.to_string()),
        };
        Self(self.0.with(name, Arc::new(read)))
    }
}

impl From<PolicyRegistry> for CustomPolicies {
    fn from(registry: PolicyRegistry) -> Self {
        registry.0
    }
}

/// A policy inside of a resource. The model keeps it as `Any`, because it does not know the type.
struct Made(Arc<dyn CustomPolicy>);

/// The policy that a cluster names; `None` if it was not read by a registry with such a policy.
pub(crate) fn made(policy: &cluster::CustomPolicyConfig) -> Option<Arc<dyn CustomPolicy>> {
    let made = policy.made.downcast_ref::<Made>()?;
    Some(Arc::clone(&made.0))
}
