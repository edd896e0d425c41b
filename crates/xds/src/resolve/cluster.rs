//! Finds the endpoints of a cluster or, for an aggregate, its leaves.
//!
//! Each cluster is worked out apart from all others, so that an error of one does not affect
//! another (gRFC A74).

use std::collections::HashSet;
use std::sync::Arc;

use crowfly_model::grpc::cluster::{Aggregate, Children, ClusterKind, EndpointSource};
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints};

use super::config::{ClusterError, ClusterResult, ClusterState, MAX_DEPTH, Members};
use super::look::Look;
use crate::error::ResourceError;
use crate::kind::Key;

/// The result of a look at one cluster.
#[derive(Debug)]
pub(super) struct Found {
    /// The cluster or its error; `None` while a piece is missing.
    pub(super) result: Option<ClusterResult>,
    /// The leaves of an aggregate that are known so far. They are looked at while others are still
    /// missing.
    pub(super) leaves: Vec<Arc<str>>,
}

/// Looks at the cluster named `name`.
pub(super) fn find(look: &mut Look<'_>, name: &Arc<str>) -> Found {
    let cluster = match look.resource::<Cluster>(name) {
        None => return Found::end(None),
        Some(Err(error)) => return Found::end(Some(Err(ClusterError::Resource(error)))),
        Some(Ok(cluster)) => cluster,
    };
    match &cluster.kind {
        ClusterKind::Aggregate(aggregate) => find_leaves(look, name, &cluster, aggregate),
        ClusterKind::Leaf(leaf) => {
            let endpoints = match &leaf.source {
                EndpointSource::Dns(name) => look.name(name),
                EndpointSource::Eds { service_name } => {
                    let name = service_name.as_deref().unwrap_or(&cluster.name);
                    look.resource::<Endpoints>(name)
                }
            };
            // The cluster has no endpoints, and a note says why (gRFC A74).
            let endpoints =
                endpoints.map(|found| found.map_err(|error| look.notes.push(error)).ok());
            let state = endpoints.map(|endpoints| {
                Ok(ClusterState {
                    cluster,
                    members: Members::Endpoints(endpoints),
                    notes: std::mem::take(&mut look.notes),
                })
            });
            Found::end(state)
        }
    }
}

fn find_leaves(
    look: &mut Look<'_>,
    name: &Arc<str>,
    cluster: &Arc<Cluster>,
    aggregate: &Aggregate,
) -> Found {
    let mut walk = Walk {
        seen: HashSet::from([Key::of::<Cluster>(name).name]),
        leaves: Vec::new(),
        absent: Vec::new(),
        too_deep: None,
        look,
    };
    let list = walk.descend(&aggregate.children, 0);
    let Walk {
        leaves,
        absent,
        too_deep,
        ..
    } = walk;
    let is_final = list.is_err() || too_deep.as_ref().is_some_and(|deep| deep.is_final);
    if !look.missing.is_empty() && !is_final {
        return Found {
            result: None,
            leaves,
        };
    }
    look.missing.clear();
    let node = || Arc::clone(look.view.node());
    let cluster_name = Arc::clone(name);
    let error = match (list, too_deep) {
        (Err(error), _) => Some(ClusterError::List {
            cluster: cluster_name,
            error,
        }),
        (Ok(()), Some(deep)) => Some(ClusterError::TooDeep {
            cluster: cluster_name,
            at: deep.at,
            node: node(),
        }),
        (Ok(()), None) if leaves.is_empty() => Some(ClusterError::NoLeaf {
            cluster: cluster_name,
            missing: absent.clone(),
            node: node(),
        }),
        (Ok(()), None) => None,
    };
    if let Some(error) = error {
        return Found::end(Some(Err(error)));
    }
    let mut notes = std::mem::take(&mut look.notes);
    notes.extend(absent);
    let state = ClusterState {
        cluster: Arc::clone(cluster),
        members: Members::Leaves(leaves.clone()),
        notes,
    };
    Found {
        result: Some(Ok(Arc::new(state))),
        leaves,
    }
}

/// One depth-first walk below one aggregate. Each walk has its own set of seen clusters, because a
/// cluster may be below several aggregates and has a place in each.
struct Walk<'a, 'v> {
    look: &'a mut Look<'v>,
    seen: HashSet<Arc<str>>,
    leaves: Vec<Arc<str>>,
    /// The errors of clusters that are left out. gRFC A74 leaves the choice between this and a leaf
    /// that always fails.
    absent: Vec<ResourceError>,
    too_deep: Option<TooDeep>,
}

/// The first place where a walk came too deep.
struct TooDeep {
    at: Arc<str>,
    /// True if everything before this place is known, so that no missing piece can change the
    /// result. Otherwise a missing list may reach the same cluster first, by a shorter way.
    is_final: bool,
}

impl Walk<'_, '_> {
    /// Visits the children of an aggregate at `depth`. The error is that of the resource that holds
    /// its list.
    fn descend(&mut self, children: &Children, depth: usize) -> Result<(), ResourceError> {
        let list = match children {
            Children::Inline(list) => Arc::clone(list),
            Children::Resource(name) => match self.look.resource::<ClusterConfig>(name) {
                None => return Ok(()),
                Some(list) => list?,
            },
        };
        for child in &list.clusters {
            self.visit(child, depth + 1);
        }
        Ok(())
    }

    /// Visits one cluster below the aggregate. The walk goes on where data is missing, so that all
    /// watches start at once.
    fn visit(&mut self, name: &str, depth: usize) {
        if depth >= MAX_DEPTH {
            let is_final = self.look.missing.is_empty();
            self.too_deep.get_or_insert_with(|| TooDeep {
                at: name.into(),
                is_final,
            });
            return;
        }
        // Only the first place of a cluster counts (gRFC A37). This also ends a circle.
        if !self.seen.insert(Key::of::<Cluster>(name).name) {
            return;
        }
        let name: Arc<str> = name.into();
        let notes = self.look.notes.len();
        let cluster = match self.look.resource::<Cluster>(&name) {
            None => return,
            Some(Err(error)) => return self.absent.push(error),
            Some(Ok(cluster)) => cluster,
        };
        match &cluster.kind {
            ClusterKind::Leaf(_) => {
                // An ambient error of a leaf is noted in the result of the leaf itself.
                self.look.notes.truncate(notes);
                self.leaves.push(name);
            }
            ClusterKind::Aggregate(aggregate) => {
                if let Err(error) = self.descend(&aggregate.children, depth) {
                    self.absent.push(error);
                }
            }
        }
    }
}

impl Found {
    fn end(result: Option<Result<ClusterState, ClusterError>>) -> Self {
        Self {
            result: result.map(|result| result.map(Arc::new).map_err(Arc::new)),
            leaves: Vec::new(),
        }
    }
}
