//! The configuration that the rules ask for, computed without regard to cost.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::piece::{Content, Piece};

/// The news that the resolver has heard about the pieces that it watches.
pub(crate) type Heard = BTreeMap<Piece, Known>;

/// The knowledge of a piece. At least one of the two fields is set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) good: Option<(Content, u16)>,
    pub(crate) in_trouble: bool,
}

/// The result of a resolution.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Error,
    Ready(Config),
    Waiting {
        missing: BTreeSet<String>,
        in_use: Option<Config>,
    },
}

/// A configuration that serves calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) routed: Vec<u8>,
    pub(crate) clusters: BTreeMap<u8, State>,
    pub(crate) notes: usize,
}

impl Outcome {
    /// The configuration that serves calls from now on.
    pub(crate) fn serves(&self) -> Option<&Config> {
        match self {
            Self::Error => None,
            Self::Ready(config) => Some(config),
            Self::Waiting { in_use, .. } => in_use.as_ref(),
        }
    }
}

/// The state of a cluster in a configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Aggregate {
        leaves: Vec<u8>,
        notes: usize,
    },
    Leaf {
        instant: u16,
        /// The instant that the endpoints are of.
        endpoints: Option<u16>,
        notes: usize,
    },
    NoCluster,
    NoLeaf {
        missing: usize,
    },
    NoList,
    TooDeep {
        at: u8,
    },
}

pub(crate) struct Oracle<'a> {
    heard: &'a Heard,
    /// All that was looked at.
    pub(crate) watches: BTreeSet<Piece>,
}

/// A cluster by itself.
struct Found {
    /// `Err` with what is missing.
    state: Result<State, BTreeSet<Piece>>,
    /// Clusters that must be looked at for this one.
    leads_to: Vec<u8>,
}

/// A walk below an aggregate.
#[derive(Default)]
struct Flat {
    seen: Vec<u8>,
    leaves: Vec<u8>,
    notes: usize,
    absent: usize,
    missing: BTreeSet<Piece>,
    too_deep: Option<u8>,
    /// True if a piece was missing before the walk became too deep.
    was_missing: bool,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(heard: &'a Heard) -> Self {
        Self {
            heard,
            watches: BTreeSet::new(),
        }
    }

    pub(crate) fn resolve(&mut self, held: &BTreeSet<u8>, in_use: Option<&Config>) -> Outcome {
        let base = self.base();
        let routed = match &base {
            Ok(Ok((routed, _))) => routed.clone(),
            _ => Vec::new(),
        };
        let required = self.reach(routed.clone());
        let held = self.reach(held.iter().copied().collect());
        let missing = required
            .values()
            .filter_map(|found| found.state.as_ref().err());
        let missing: BTreeSet<String> = missing.flatten().map(Piece::to_string).collect();
        let clusters = whole(&required.into_iter().chain(held).collect());
        let waiting = |missing| Outcome::Waiting {
            missing,
            in_use: in_use.map(|config| carried(config, &clusters)),
        };
        match base {
            Err(()) => Outcome::Error,
            Ok(Err(piece)) => waiting([piece.to_string()].into()),
            Ok(Ok(_)) if !missing.is_empty() => waiting(missing),
            Ok(Ok((_, notes))) => Outcome::Ready(Config {
                routed,
                clusters,
                notes,
            }),
        }
    }

    /// The clusters that are routed to, and how much there is to note; or what is missing; or an
    /// error.
    fn base(&mut self) -> Result<Result<(Vec<u8>, usize), Piece>, ()> {
        let mut piece = Piece::Listener;
        let mut notes = 0;
        loop {
            let Some(known) = self.look(piece) else {
                return Ok(Err(piece));
            };
            let Some((content, _)) = known.good else {
                return Err(());
            };
            notes += usize::from(known.in_trouble);
            match content {
                Content::Rds(routes) => piece = Piece::Routes(routes),
                Content::Inline(to) | Content::Routes(to) => return Ok(Ok((to, notes))),
                _ => return Err(()),
            }
        }
    }

    fn reach(&mut self, mut next: Vec<u8>) -> BTreeMap<u8, Found> {
        let mut reached = BTreeMap::new();
        while let Some(name) = next.pop() {
            if let Entry::Vacant(place) = reached.entry(name) {
                let found = place.insert(self.cluster(name));
                next.extend(&found.leads_to);
            }
        }
        reached
    }

    fn cluster(&mut self, name: u8) -> Found {
        let end = |state| Found {
            state,
            leads_to: Vec::new(),
        };
        let piece = Piece::Cluster(name);
        let Some(known) = self.look(piece) else {
            return end(Err([piece].into()));
        };
        let Some((content, instant)) = known.good else {
            return end(Ok(State::NoCluster));
        };
        let notes = usize::from(known.in_trouble);
        let endpoints = match content {
            Content::Dns(host) => Piece::Host(host),
            Content::Eds(eds) => Piece::Endpoints(eds),
            aggregate => return self.aggregate(name, &aggregate, notes),
        };
        end(match self.look(endpoints) {
            None => Err([endpoints].into()),
            Some(known) => Ok(State::Leaf {
                instant,
                endpoints: known.good.map(|(_, instant)| instant),
                notes: notes + usize::from(known.in_trouble),
            }),
        })
    }

    fn aggregate(&mut self, name: u8, content: &Content, notes: usize) -> Found {
        let mut flat = Flat {
            seen: vec![name],
            notes,
            ..Flat::default()
        };
        let has_list = self.below(content, 1, &mut flat);
        let settled = !has_list || (flat.too_deep.is_some() && !flat.was_missing);
        if !settled && !flat.missing.is_empty() {
            return Found {
                state: Err(flat.missing),
                leads_to: flat.leaves,
            };
        }
        let state = match flat.too_deep {
            _ if !has_list => State::NoList,
            Some(at) => State::TooDeep { at },
            None if flat.leaves.is_empty() => State::NoLeaf {
                missing: flat.absent,
            },
            None => State::Aggregate {
                leaves: flat.leaves.clone(),
                notes: flat.notes + flat.absent,
            },
        };
        let leads_to = match &state {
            State::Aggregate { .. } => flat.leaves,
            _ => Vec::new(),
        };
        Found {
            state: Ok(state),
            leads_to,
        }
    }

    /// Walks the children of an aggregate. Returns true if their list is there, as far as is known.
    fn below(&mut self, content: &Content, depth: usize, flat: &mut Flat) -> bool {
        let children = match content {
            Content::Aggregate(children) => children.clone(),
            Content::ByList(list) => {
                let piece = Piece::List(*list);
                match self.look(piece) {
                    None => {
                        flat.missing.insert(piece);
                        return true;
                    }
                    Some(Known { good: None, .. }) => return false,
                    Some(known) => {
                        flat.notes += usize::from(known.in_trouble);
                        let Some((Content::List(children), _)) = known.good else {
                            panic!("a list is a list");
                        };
                        children
                    }
                }
            }
            other => panic!("expected an aggregate, got {other:?}"),
        };
        for child in children {
            self.visit(child, depth, flat);
        }
        true
    }

    fn visit(&mut self, name: u8, depth: usize, flat: &mut Flat) {
        // The sixteenth level is at depth 15.
        if depth == 16 {
            if flat.too_deep.is_none() {
                flat.too_deep = Some(name);
                flat.was_missing = !flat.missing.is_empty();
            }
            return;
        }
        if flat.seen.contains(&name) {
            return;
        }
        flat.seen.push(name);
        let piece = Piece::Cluster(name);
        match self.look(piece) {
            None => {
                flat.missing.insert(piece);
            }
            Some(Known { good: None, .. }) => flat.absent += 1,
            Some(Known {
                good: Some((Content::Dns(_) | Content::Eds(_), _)),
                ..
            }) => flat.leaves.push(name),
            Some(Known {
                good: Some((aggregate, _)),
                in_trouble,
            }) => {
                flat.notes += usize::from(in_trouble);
                if !self.below(&aggregate, depth + 1, flat) {
                    flat.absent += 1;
                }
            }
        }
    }

    fn look(&mut self, piece: Piece) -> Option<Known> {
        self.watches.insert(piece);
        self.heard.get(&piece).cloned()
    }
}

/// The clusters that lack nothing, and none of whose leaves does.
fn whole(all: &BTreeMap<u8, Found>) -> BTreeMap<u8, State> {
    let is_here = |name: &u8| all[name].state.is_ok();
    let whole = all
        .iter()
        .filter(|(_, found)| found.leads_to.iter().all(is_here));
    whole
        .filter_map(|(name, found)| Some((*name, found.state.as_ref().ok()?.clone())))
        .collect()
}

/// A configuration that serves on: what is whole is as it is now. A routed cluster that is not stays
/// as it was, and its leaves are leaves.
fn carried(config: &Config, now: &BTreeMap<u8, State>) -> Config {
    let mut clusters = now.clone();
    for name in config.routed.iter().filter(|name| !now.contains_key(name)) {
        let was = &config.clusters[name];
        clusters.insert(*name, was.clone());
        let State::Aggregate { leaves, .. } = was else {
            continue;
        };
        for leaf in leaves {
            if matches!(now.get(leaf), None | Some(State::Aggregate { .. })) {
                clusters.insert(*leaf, config.clusters[leaf].clone());
            }
        }
    }
    Config {
        clusters,
        ..config.clone()
    }
}
