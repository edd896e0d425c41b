//! Leaf policies: what balances over endpoints. One file each.

mod round_robin;

pub(crate) use round_robin::{Outcome, ReadyList, RoundRobin};

use crate::slots::Key;

/// Names a leaf of the balancer's trees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct LeafId(pub(crate) Key);
