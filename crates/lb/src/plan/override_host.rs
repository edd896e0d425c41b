//! The settings of `xds_override_host`: which endpoints sessions may stick to, and how long their connections
//! are kept (A55, A75).

use std::{fmt, time::Duration};

use super::Health;

/// The settings by which sessions stick to the endpoints of a leaf cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverrideHost {
    /// The health of endpoints that sessions may stick to (A55).
    pub health: HealthSet,
    /// The time for which a connection that only sessions want is kept after its last use (A75).
    pub idle_timeout: Duration,
}

impl Default for OverrideHost {
    /// The settings of a cluster that says nothing: UNKNOWN and HEALTHY, and an hour.
    fn default() -> Self {
        Self {
            health: HealthSet::default(),
            idle_timeout: Duration::from_secs(60 * 60),
        }
    }
}

/// A set of [`Health`].
///
/// ```
/// use crowfly_lb::{Health, HealthSet};
///
/// let set = HealthSet::from_iter([Health::Healthy, Health::Draining]);
/// assert!(set.contains(HealthSet::of(Health::Draining)));
/// assert_eq!(set.to_string(), "HEALTHY+DRAINING");
/// assert_eq!(HealthSet::default().to_string(), "UNKNOWN+HEALTHY");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealthSet(u8);

impl HealthSet {
    /// The set of one.
    pub const fn of(health: Health) -> Self {
        Self(1 << health as u8)
    }

    /// Returns whether it has all of another set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

impl Default for HealthSet {
    /// UNKNOWN and HEALTHY (A55).
    fn default() -> Self {
        Self::from_iter([Health::Unknown, Health::Healthy])
    }
}

impl FromIterator<Health> for HealthSet {
    fn from_iter<I: IntoIterator<Item = Health>>(health: I) -> Self {
        let sets = health.into_iter().map(Self::of);
        Self(sets.fold(0, |bits, set| bits | set.0))
    }
}

impl fmt::Display for HealthSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Health::Unknown, "UNKNOWN"),
            (Health::Healthy, "HEALTHY"),
            (Health::Draining, "DRAINING"),
        ];
        let has = |health: Health| self.contains(Self::of(health));
        let mut names = names.iter().filter(|(health, _)| has(*health));
        let Some((_, first)) = names.next() else {
            return f.write_str("none");
        };
        f.write_str(first)?;
        names.try_for_each(|(_, name)| write!(f, "+{name}"))
    }
}
