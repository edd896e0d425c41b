//! The balancing tree of one cluster, as data.
//!
//! A plan says what should be balanced over and how; it holds no state, so two plans can be
//! compared, printed and built by a pure function. [`Balancer`](crate::Balancer) turns the
//! difference between the plan it has and the next one into commands.

use std::{fmt, net::SocketAddr, num::NonZeroU32, sync::Arc};

use crate::{ClusterName, LocalityId, Tree};

/// What one cluster balances over, and how.
///
/// Prints as the tree an operator reads:
///
/// ```
/// # use std::{net::SocketAddr, num::NonZeroU32, sync::Arc};
/// # use crowfly_lb::{Endpoint, Locality, LocalityId, Node, Plan};
/// # let endpoint = |port| Endpoint::from(SocketAddr::from(([127, 0, 0, 1], port)));
/// let locality = |zone, weight, endpoints| Locality {
///     id: LocalityId::new("us", zone, ""),
///     weight: NonZeroU32::new(weight).unwrap(),
///     child: Node::RoundRobin(endpoints),
/// };
/// let plan = Plan {
///     cluster: "payments".into(),
///     root: Node::Localities(vec![
///         locality("a", 70, Arc::from([endpoint(1234), endpoint(1235)])),
///         locality("b", 30, Arc::from([endpoint(1236)])),
///     ]),
///     note: None,
///     reresolves: false,
/// };
/// assert_eq!(plan.to_string(), "\
/// cluster payments
/// └ localities
///   ├ us/a weight 70
///   │ └ round_robin
///   │   ├ 127.0.0.1:1234
///   │   └ 127.0.0.1:1235
///   └ us/b weight 30
///     └ round_robin
///       └ 127.0.0.1:1236
/// ");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The cluster that the plan is for.
    pub cluster: ClusterName,
    /// The root of the tree. An empty tree fails every pick.
    pub root: Node,
    /// What the resolver has to add to a failure (A88's resolution note), such as
    /// `EDS resource payments-eds does not exist`.
    pub note: Option<Arc<str>>,
    /// Whether its endpoints come from a name that can be looked up again when they are lost
    /// (A37: from DNS, not from EDS).
    pub reresolves: bool,
}

/// One node of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// `xds_wrr_locality`: a random locality, by weight, among those that can take a call.
    Localities(Vec<Locality>),
    /// `round_robin`: each endpoint in turn.
    RoundRobin(Arc<[Endpoint]>),
}

/// A locality and its share of the calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locality {
    /// Its identity: a locality that stays keeps its connections.
    pub id: LocalityId,
    /// Its share among its siblings. A locality of weight 0 never reaches a plan (A52).
    pub weight: NonZeroU32,
    /// What is balanced over inside the locality.
    pub child: Node,
}

/// One backend: at least one address, the main one first.
///
/// Several addresses are several ways to reach the same backend (A61), so it counts once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    addresses: Arc<[SocketAddr]>,
}

impl Endpoint {
    /// An endpoint reachable at any of `addresses`, or `None` if there are none.
    pub fn new(addresses: impl Into<Arc<[SocketAddr]>>) -> Option<Self> {
        let addresses = addresses.into();
        (!addresses.is_empty()).then_some(Self { addresses })
    }

    /// Its addresses, the main one first.
    pub fn addresses(&self) -> &Arc<[SocketAddr]> {
        &self.addresses
    }

    /// What identifies the endpoint inside its locality: A61 treats its addresses as a set.
    pub(crate) fn identity(&self) -> Arc<[SocketAddr]> {
        if self.addresses.is_sorted_by(|left, right| left < right) {
            return self.addresses.clone();
        }
        let mut sorted = self.addresses.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.into()
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            addresses: Arc::from([address]),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.addresses.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            address.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Tree::from(self).fmt(f)
    }
}
