//! Runs a script against the resolver and the oracle, and compares them after each step.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_model::grpc::cluster::ClusterKind;
use crowfly_testkit::NODE_ID;
use crowfly_xds::{
    CacheEntry, ClusterError, ClusterResult, Members, ResolveRoots, Resolved, Resolver, Step, View,
    XdsConfig, resolve,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::oracle::{Config, Heard, Known, Oracle, Outcome, State};
use super::piece::Piece;
use super::script::{Event, Said, Script};
use crate::server::Server;

type Checked = Result<(), TestCaseError>;

pub(crate) struct Run {
    server: Server,
    resolver: Resolver,
    /// The state of each piece, known to the resolver or not.
    truth: BTreeMap<Piece, Truth>,
    /// The pieces that the resolver watches and whose news it has not heard.
    news: BTreeSet<Piece>,
    heard: Heard,
    holds: BTreeMap<u8, usize>,
    /// True if the resolver was told anything since its last step.
    is_moved: bool,
    instant: u16,
    last: Option<Resolved>,
    /// The last configuration that the resolver gave.
    config: Option<Arc<XdsConfig>>,
    /// The configuration that serves calls.
    in_use: Option<Arc<XdsConfig>>,
    /// The oracle's configuration that serves calls.
    expected_in_use: Option<Config>,
    /// The newest instant seen in a configuration, by what it is of.
    newest: BTreeMap<String, u16>,
    /// The situations that the script has led to.
    pub(crate) seen: BTreeSet<&'static str>,
    /// The number of configurations that the resolver gave.
    pub(crate) configs: usize,
}

struct Truth {
    known: Known,
    /// `None` of a host.
    entry: Option<CacheEntry>,
}

impl Run {
    pub(crate) fn new() -> Self {
        let roots = ResolveRoots {
            listener: "web".into(),
            authority: "web".into(),
            held: BTreeSet::new(),
        };
        Self {
            server: Server::new(),
            resolver: Resolver::new(roots, NODE_ID),
            truth: BTreeMap::new(),
            news: BTreeSet::new(),
            heard: Heard::new(),
            holds: BTreeMap::new(),
            is_moved: true,
            instant: 0,
            last: None,
            config: None,
            in_use: None,
            expected_in_use: None,
            newest: BTreeMap::new(),
            seen: BTreeSet::new(),
            configs: 0,
        }
    }

    pub(crate) fn all(&mut self, script: &Script) -> Checked {
        for (index, event) in script.0.iter().enumerate() {
            self.happen(event).map_err(|error| {
                TestCaseError::fail(format!("event {index}, {event:?}: {error}"))
            })?;
        }
        self.settle()?;
        self.check_end()
    }

    fn happen(&mut self, event: &Event) -> Checked {
        match event {
            Event::Hear(which) => {
                let index = usize::from(*which) % self.news.len().max(1);
                if let Some(piece) = self.news.iter().nth(index).copied() {
                    self.hear(piece);
                }
            }
            Event::Hold(cluster) => {
                self.is_moved = true;
                *self.holds.entry(*cluster).or_default() += 1;
                let name = Piece::Cluster(*cluster).name();
                self.resolver.hold(&name.into());
            }
            Event::Release(cluster) => {
                self.is_moved = true;
                self.resolver.release(&Piece::Cluster(*cluster).name());
                if let Some(holds) = self.holds.get_mut(cluster) {
                    *holds -= 1;
                }
                self.holds.retain(|_, holds| *holds > 0);
            }
            Event::Say(piece, said) => self.say(*piece, said),
            Event::Settle => self.settle()?,
            Event::Step => self.step()?,
        }
        Ok(())
    }

    fn say(&mut self, piece: Piece, said: &Said) {
        self.instant += 1;
        let truth = self.truth.remove(&piece);
        let is_new = truth.is_none();
        let before = truth.and_then(|truth| truth.known.good);
        let known = match said {
            Said::Gone => Known {
                good: None,
                in_trouble: true,
            },
            Said::Good(content) => Known {
                good: Some((content.clone(), self.instant)),
                in_trouble: false,
            },
            Said::Invalid => Known {
                good: before,
                in_trouble: true,
            },
        };
        let entry = piece.key().map(|key| {
            let any = match said {
                Said::Gone => None,
                Said::Good(content) => Some(piece.resource(content, self.instant)),
                Said::Invalid => Some(piece.invalid()),
            };
            if is_new {
                self.server.watch(&key);
            }
            self.server.say(&key, any.as_ref())
        });
        self.truth.insert(piece, Truth { known, entry });
        if self.is_watched(piece) {
            self.news.insert(piece);
        }
    }

    fn is_watched(&self, piece: Piece) -> bool {
        let watches = self.resolver.watches();
        match piece.key() {
            Some(key) => watches.resources.contains(&key),
            None => watches.names.contains(&piece.dns_name()),
        }
    }

    /// Tells the resolver the state of a piece.
    fn hear(&mut self, piece: Piece) {
        self.news.remove(&piece);
        self.is_moved = true;
        let truth = &self.truth[&piece];
        let mut known = truth.known.clone();
        if let (Some(key), Some(entry)) = (piece.key(), &truth.entry) {
            self.resolver.update(key, entry.clone());
        } else {
            self.resolver.answer(&piece.dns_name(), outcome(&known));
            if known.in_trouble {
                // A lookup that fails leaves the answer before it.
                let before = self.heard.get(&piece);
                known.good = before.and_then(|before| before.good.clone());
            }
        }
        self.heard.insert(piece, known);
    }

    fn settle(&mut self) -> Checked {
        loop {
            self.step()?;
            if self.news.is_empty() {
                return Ok(());
            }
            while let Some(piece) = self.news.first().copied() {
                self.hear(piece);
            }
        }
    }

    fn step(&mut self) -> Checked {
        let step = self.resolver.step();
        if !std::mem::take(&mut self.is_moved) {
            prop_assert_eq!(step, Step::default(), "nothing has happened");
            return Ok(());
        }
        let ended = step.unwatch.iter().map(|key| Piece::of(&key.name));
        let ended = ended.chain(step.unwatch_names.iter().map(|name| Piece::of(&name.host)));
        for piece in ended {
            self.heard.remove(&piece);
            self.news.remove(&piece);
        }
        let begun = step.watch.iter().map(|key| Piece::of(&key.name));
        let begun = begun.chain(step.watch_names.iter().map(|name| Piece::of(&name.host)));
        self.news
            .extend(begun.filter(|piece| self.truth.contains_key(piece)));
        if let Some(resolved) = step.resolved {
            prop_assert!(
                self.last.as_ref() != Some(&resolved),
                "the same was given again"
            );
            self.configs += usize::from(matches!(resolved, Resolved::Ready(_)));
            self.last = Some(resolved);
        }
        self.check_scratch(self.resolver.view())?;
        self.in_use = self.last.as_ref().and_then(in_use).cloned();
        if let Some(config) = self.in_use.clone() {
            self.check_config(&config)?;
            self.config = Some(config);
        }
        self.check_oracle()
    }

    /// The last result of the resolver is that of a resolution from scratch.
    fn check_scratch(&self, view: &View) -> Checked {
        let scratch = resolve(view, self.resolver.roots(), self.in_use.as_ref());
        prop_assert_eq!(self.last.as_ref(), Some(&scratch.resolved));
        prop_assert_eq!(self.resolver.watches(), scratch.watches);
        Ok(())
    }

    /// So does what the oracle says, which knows what the resolver should have heard.
    fn check_oracle(&mut self) -> Checked {
        let mut oracle = Oracle::new(&self.heard);
        let holds = self.holds.keys().copied().collect();
        let expected = oracle.resolve(&holds, self.expected_in_use.as_ref());
        self.expected_in_use = expected.serves().cloned();
        let actual = observe(self.last.as_ref().unwrap());
        prop_assert_eq!(&actual, &expected);
        let watches = self.resolver.watches();
        let resources = watches.resources.iter().map(|key| Piece::of(&key.name));
        let names = watches.names.iter().map(|name| Piece::of(&name.host));
        let watched: BTreeSet<String> = resources.chain(names).map(|p| p.to_string()).collect();
        let expected_watches: BTreeSet<String> =
            oracle.watches.iter().map(Piece::to_string).collect();
        prop_assert_eq!(watched, expected_watches);
        self.remember(&actual);
        Ok(())
    }

    /// Each routed cluster is there; what is equal is the same; and no instant goes back.
    fn check_config(&mut self, config: &Arc<XdsConfig>) -> Checked {
        let is_whole = matches!(self.last, Some(Resolved::Ready(_)));
        for name in config.routed() {
            prop_assert!(config.clusters.contains_key(name), "{} is not there", name);
        }
        for (name, result) in &config.clusters {
            let before = self.config.as_ref().and_then(|c| c.clusters.get(name));
            if let Some(before) = before.filter(|before| *before == result) {
                prop_assert!(is_same(before, result), "{} is another Arc", name);
                self.seen.insert("same cluster");
            }
            if let State::Aggregate { leaves, .. } = state(result) {
                for leaf in leaves {
                    let leaf = config.clusters.get(&*Piece::Cluster(leaf).name());
                    let is_leaf =
                        leaf.is_some_and(|leaf| !matches!(state(leaf), State::Aggregate { .. }));
                    prop_assert!(is_leaf, "{name} leads to no leaf");
                }
            }
            if let Ok(cluster) = result
                && let State::Leaf {
                    instant, endpoints, ..
                } = state(result)
            {
                self.check_instant(name, instant)?;
                if let (Some(of), Some(instant)) = (cluster.endpoints(), endpoints) {
                    // Clusters share endpoints, and one that is kept has older ones than the others.
                    let of = if is_whole {
                        of.name.clone()
                    } else {
                        format!("{} of {name}", of.name)
                    };
                    self.check_instant(&of, instant)?;
                }
            }
        }
        Ok(())
    }

    fn check_instant(&mut self, name: &str, instant: u16) -> Checked {
        let newest = self.newest.entry(name.to_owned()).or_default();
        prop_assert!(*newest <= instant, "{name} is of {instant}, after {newest}");
        *newest = instant;
        Ok(())
    }

    /// In the end the resolver knows what is the case, and nothing depends on how it came about.
    fn check_end(&self) -> Checked {
        let mut view = View::new(NODE_ID);
        for (piece, truth) in &self.truth {
            if let (Some(key), Some(entry)) = (piece.key(), &truth.entry) {
                view.put(key, entry.clone());
            }
        }
        for (piece, known) in self.heard.iter().filter(|(piece, _)| piece.key().is_none()) {
            // An answer that is older than the trouble is still the answer.
            let good = Known {
                in_trouble: false,
                ..known.clone()
            };
            if known.good.is_some() {
                view.answer(&piece.dns_name(), outcome(&good));
            }
            view.answer(&piece.dns_name(), outcome(&self.truth[piece].known));
        }
        self.check_scratch(&view)
    }

    fn remember(&mut self, outcome: &Outcome) {
        let config = match outcome {
            Outcome::Error => {
                self.seen.insert("an error");
                return;
            }
            Outcome::Waiting { in_use: None, .. } => {
                self.seen.insert("waiting");
                return;
            }
            Outcome::Waiting {
                in_use: Some(config),
                ..
            } => {
                self.seen.insert("waiting, and in use");
                config
            }
            Outcome::Ready(config) => config,
        };
        for state in config.clusters.values() {
            self.seen.insert(match state {
                State::Aggregate { notes: 0, .. } => "aggregate",
                State::Aggregate { .. } => "note",
                State::Leaf {
                    endpoints: Some(_), ..
                } => "leaf with endpoints",
                State::Leaf { .. } => "leaf without endpoints",
                State::NoCluster => "no cluster",
                State::NoLeaf { .. } => "no leaf",
                State::NoList => "no list",
                State::TooDeep { .. } => "too deep",
            });
        }
    }
}

/// How a lookup ends.
fn outcome(known: &Known) -> Result<Vec<SocketAddr>, Arc<str>> {
    match &known.good {
        Some((_, instant)) if !known.in_trouble => {
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], *instant))])
        }
        // The one as good as the other.
        Some(_) => Ok(Vec::new()),
        None => Err("no such host".into()),
    }
}

fn is_same(a: &ClusterResult, b: &ClusterResult) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
        (Err(a), Err(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

/// An answer in the terms of the oracle.
fn observe(resolved: &Resolved) -> Outcome {
    match resolved {
        Resolved::Error(_) => Outcome::Error,
        Resolved::Ready(config) => Outcome::Ready(observe_config(config)),
        Resolved::Waiting { missing, in_use } => Outcome::Waiting {
            missing: missing.0.clone(),
            in_use: in_use.as_deref().map(observe_config),
        },
    }
}

fn observe_config(config: &XdsConfig) -> Config {
    let clusters = config.clusters.iter();
    Config {
        routed: config.routed().map(index).collect(),
        clusters: clusters
            .map(|(name, result)| (index(name), state(result)))
            .collect(),
        notes: config.notes.len(),
    }
}

/// The configuration that serves calls after an answer.
fn in_use(resolved: &Resolved) -> Option<&Arc<XdsConfig>> {
    match resolved {
        Resolved::Error(_) => None,
        Resolved::Ready(config) => Some(config),
        Resolved::Waiting { in_use, .. } => in_use.as_ref(),
    }
}

fn state(result: &ClusterResult) -> State {
    let cluster = match result {
        Ok(cluster) => cluster,
        Err(error) => {
            return match &**error {
                ClusterError::List { .. } => State::NoList,
                ClusterError::NoLeaf { missing, .. } => State::NoLeaf {
                    missing: missing.len(),
                },
                ClusterError::Resource(_) => State::NoCluster,
                ClusterError::TooDeep { at, .. } => State::TooDeep { at: index(at) },
                other => panic!("unexpected: {other:?}"),
            };
        }
    };
    let notes = cluster.notes.len();
    match (&cluster.members, &cluster.cluster.kind) {
        (Members::Endpoints(endpoints), ClusterKind::Leaf(leaf)) => State::Leaf {
            instant: leaf.max_concurrent_requests.try_into().unwrap(),
            endpoints: endpoints.as_ref().map(|endpoints| {
                let endpoint = &endpoints.priorities[0][0].endpoints[0];
                endpoint.addresses[0].port()
            }),
            notes,
        },
        (Members::Leaves(leaves), ClusterKind::Aggregate(_)) => State::Aggregate {
            leaves: leaves.iter().map(|leaf| index(leaf)).collect(),
            notes,
        },
        other => panic!("members do not fit: {other:?}"),
    }
}

fn index(name: &str) -> u8 {
    match Piece::of(name) {
        Piece::Cluster(index) => index,
        other => panic!("expected a cluster, got {other}"),
    }
}
