//! Policies of the program's own, which a cluster names (gRFC A52).
//!
//! Programs define these policies, so this crate knows nothing of them. The crate finds the program's reader by the
//! name of the policy. The reader gets the configuration, so that a bad one is refused like any other bad field. The
//! resource keeps the value that the reader returned.

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;

use crate::Validator;

/// The balancing policies that a program has beside those of gRPC, by name.
///
/// Two values are equal if they have the same readers (the same `Arc`) under the same names.
///
/// ```
/// use std::sync::Arc;
///
/// # use crowfly_model::{Features, grpc::cluster::{CustomPolicies, MadePolicy, ReadPolicy}};
///
/// let sticky: Arc<ReadPolicy> = Arc::new(|config| match config["seconds"].as_u64() {
///     Some(seconds) => Ok(Arc::new(seconds) as MadePolicy),
///     None => Err("seconds: expected a number".to_owned()),
/// });
/// let features = Features {
///     custom_policies: CustomPolicies::NONE.with("myorg.Sticky", sticky),
///     ..Features::from_env()
/// };
/// ```
#[derive(Clone, Default)]
pub struct CustomPolicies {
    by_name: BTreeMap<Arc<str>, Arc<ReadPolicy>>,
    others: Option<Arc<ReadPolicy>>,
}

/// A reader: it makes a policy from its configuration, a JSON object, or returns the reason why the
/// configuration is bad.
pub type ReadPolicy = dyn Fn(&Value) -> Result<MadePolicy, String> + Send + Sync;

/// The value that a program's reader returned for the configuration of a policy.
pub type MadePolicy = Arc<dyn Any + Send + Sync>;

impl CustomPolicies {
    /// No policy.
    pub const NONE: Self = Self {
        by_name: BTreeMap::new(),
        others: None,
    };

    /// Adds a policy, in place of one of the same name.
    pub fn with(mut self, name: &str, read: Arc<ReadPolicy>) -> Self {
        self.by_name.insert(name.into(), read);
        self
    }

    /// Reads policies of all other names with `read`, except those of gRPC's own policies.
    pub fn with_all_others(mut self, read: Arc<ReadPolicy>) -> Self {
        self.others = Some(read);
        self
    }

    /// The reader that was added under this name.
    pub(super) fn named(&self, name: &str) -> Option<&ReadPolicy> {
        self.by_name.get(name).map(Arc::as_ref)
    }

    /// The reader for policies of this name: the one that was added under it, or the one for all others.
    pub(super) fn find(&self, name: &str) -> Option<&ReadPolicy> {
        self.named(name).or(self.others.as_deref())
    }
}

impl PartialEq for CustomPolicies {
    fn eq(&self, other: &Self) -> bool {
        fn all(policies: &CustomPolicies) -> impl Iterator<Item = (Option<&str>, *const ())> {
            let address = |read: &Arc<ReadPolicy>| Arc::as_ptr(read).cast();
            let named = policies.by_name.iter();
            let named = named.map(move |(name, read)| (Some(&**name), address(read)));
            named.chain(
                policies
                    .others
                    .iter()
                    .map(move |read| (None, address(read))),
            )
        }
        all(self).eq(all(other))
    }
}

impl Eq for CustomPolicies {}

impl fmt::Debug for CustomPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.others.as_ref().map(|_| "*");
        let names = self.by_name.keys().map(|name| &**name);
        f.debug_set().entries(names.chain(others)).finish()
    }
}

/// A policy of the program's own. Two are equal if they have the same name and configuration.
#[derive(Clone)]
pub struct CustomPolicyConfig {
    /// The name of the policy, such as `myorg.MyPolicy`.
    pub name: String,
    /// The configuration of the policy, an object.
    pub config: Value,
    /// The value that the program's reader returned for the configuration.
    pub made: MadePolicy,
}

impl PartialEq for CustomPolicyConfig {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.config) == (&other.name, &other.config)
    }
}

impl Eq for CustomPolicyConfig {}

impl fmt::Debug for CustomPolicyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, config, .. } = self;
        write!(f, "{name} {config}")
    }
}

/// Lets the program read the configuration of one of its policies; `None` after an error.
pub(super) fn read(
    name: &str,
    config: Value,
    policies: &CustomPolicies,
    v: &mut Validator,
) -> Option<CustomPolicyConfig> {
    let read = policies.find(name)?;
    let made = read(&config).map_err(|why| v.error(why)).ok()?;
    Some(CustomPolicyConfig {
        name: name.to_owned(),
        config,
        made,
    })
}
