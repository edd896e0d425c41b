//! The events of a random graph, as values that shrink and print.

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;

use super::piece::{Content, Piece};

/// The number of pieces of each sort but clusters.
const FEW: u8 = 4;
const CLUSTERS: u8 = 40;

/// The events: first each piece is there or not, then it changes.
#[derive(Clone, Debug)]
pub(crate) struct Script(pub(crate) Vec<Event>);

/// Something that happens.
#[derive(Clone)]
pub(crate) enum Event {
    /// The resolver hears one of the news that wait, by a number modulo their count.
    Hear(u8),
    Hold(u8),
    Release(u8),
    Say(Piece, Said),
    /// The resolver hears all news, and those that they lead to.
    Settle,
    Step,
}

/// The news of the server about a resource, or of DNS about a host.
#[derive(Clone)]
pub(crate) enum Said {
    Gone,
    Good(Content),
    Invalid,
}

/// One line each, so that a failing script can be read.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hear(which) => write!(f, "hear #{which}"),
            Self::Hold(cluster) => write!(f, "hold c{cluster}"),
            Self::Release(cluster) => write!(f, "release c{cluster}"),
            Self::Say(piece, Said::Gone) => write!(f, "{piece} is gone"),
            Self::Say(piece, Said::Good(content)) => write!(f, "{piece} is {content:?}"),
            Self::Say(piece, Said::Invalid) => write!(f, "{piece} is invalid"),
            Self::Settle => f.write_str("settle"),
            Self::Step => f.write_str("step"),
        }
    }
}

/// Random numbers, which become events once it is known how many clusters there are. Small ones
/// become simple events, as they are what is left of a script that fails.
#[derive(Clone, Debug)]
struct Raw {
    what: u8,
    which: u8,
    kind: u8,
    list: Vec<u8>,
}

fn raw() -> impl Strategy<Value = Raw> {
    (0..100u8, any::<u8>(), any::<u8>(), vec(any::<u8>(), 1..5)).prop_map(
        |(what, which, kind, list)| Raw {
            what,
            which,
            kind,
            list,
        },
    )
}

pub(crate) fn script() -> impl Strategy<Value = Script> {
    let first = vec(raw(), usize::from(CLUSTERS));
    let shape = (1..=CLUSTERS, any::<bool>());
    (shape, first, any::<bool>(), vec(raw(), 30..90)).prop_map(
        |((clusters, is_deep), first, settled, then)| {
            let graph = Shape { clusters, is_deep };
            let mut events = graph.first(&first);
            events.extend(settled.then_some(Event::Settle));
            events.extend(then.iter().map(|raw| graph.event(raw)));
            Script(events)
        },
    )
}

struct Shape {
    clusters: u8,
    /// True if there are long chains.
    is_deep: bool,
}

impl Shape {
    /// Says something of nearly every piece.
    fn first(&self, raws: &[Raw]) -> Vec<Event> {
        let say = |piece, content| Event::Say(piece, Said::Good(content));
        let mut events = vec![
            say(Piece::Listener, Content::Rds(0)),
            say(Piece::Routes(0), Content::Routes(self.far(&raws[0]))),
            say(Piece::Routes(1), Content::Routes(self.far(&raws[1]))),
        ];
        for (i, raw) in (0..self.clusters).zip(raws) {
            // One in 128 is not known.
            if raw.which % 128 != 1 {
                events.push(Event::Say(Piece::Cluster(i), self.said_of_cluster(i, raw)));
            }
        }
        for (i, raw) in (0..FEW).zip(&raws[2..]) {
            let list = Content::List(self.listed(i, raw));
            events.push(Event::Say(Piece::List(i), said(raw, list)));
            if raw.which % 128 != 2 {
                events.push(Event::Say(
                    Piece::Endpoints(i),
                    said(raw, Content::Endpoints),
                ));
            }
            if raw.which % 128 != 3 {
                events.push(Event::Say(Piece::Host(i), said(raw, Content::Endpoints)));
            }
        }
        events
    }

    fn event(&self, raw: &Raw) -> Event {
        let few = raw.which % FEW;
        let cluster = raw.which % self.clusters;
        match raw.what {
            0..20 => Event::Step,
            20..42 => Event::Hear(raw.which),
            42..50 => Event::Settle,
            50..68 => Event::Say(Piece::Cluster(cluster), self.said_of_cluster(cluster, raw)),
            68..74 => {
                let list = Content::List(self.listed(few, raw));
                Event::Say(Piece::List(few), said(raw, list))
            }
            74..80 => Event::Say(Piece::Endpoints(few), said(raw, Content::Endpoints)),
            80..85 => Event::Say(Piece::Host(few), said(raw, Content::Endpoints)),
            85..91 => {
                let routes = match raw.kind % 8 {
                    7 => Content::NoHost,
                    _ => Content::Routes(self.far(raw)),
                };
                Event::Say(Piece::Routes(raw.which % 2), said(raw, routes))
            }
            91..94 => {
                let listener = match raw.kind % 8 {
                    7 => Content::Socket,
                    5 | 6 => Content::Inline(self.far(raw)),
                    _ => Content::Rds(raw.which % 2),
                };
                Event::Say(Piece::Listener, said(raw, listener))
            }
            94..97 => Event::Hold(cluster),
            _ => Event::Release(cluster),
        }
    }

    fn said_of_cluster(&self, cluster: u8, raw: &Raw) -> Said {
        let few = raw.which % FEW;
        let kind = raw.kind % 16;
        let content = match (self.is_deep, kind) {
            (false, 0..4) | (true, 0..1) => Content::Eds(few),
            (false, 4..8) | (true, 1..2) => Content::Dns(few),
            (false, 8..12) | (true, 2..4) => Content::ByList(few),
            _ => Content::Aggregate(self.near(cluster, raw)),
        };
        said(raw, content)
    }

    /// Clusters that come soon after this one, and a few from anywhere.
    fn near(&self, cluster: u8, raw: &Raw) -> Vec<u8> {
        let pick = |n: &u8| match n {
            0..216 => (cluster + 1 + n % 3) % self.clusters,
            _ => n % self.clusters,
        };
        raw.list.iter().map(pick).collect()
    }

    fn listed(&self, list: u8, raw: &Raw) -> Vec<u8> {
        self.near(list * (self.clusters / FEW), raw)
    }

    fn far(&self, raw: &Raw) -> Vec<u8> {
        let numbers = raw.list.iter();
        numbers.map(|n| n % self.clusters).collect()
    }
}

/// Mostly what it is.
fn said(raw: &Raw, content: Content) -> Said {
    match raw.kind / 16 {
        15 => Said::Gone,
        14 => Said::Invalid,
        _ => Said::Good(content),
    }
}
