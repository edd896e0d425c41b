//! The steps of a script. Each step runs against client and model at once, so that their views can
//! be compared after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crowfly_model::grpc::{Cluster, Endpoints};
use crowfly_testkit::Script;
use crowfly_xds::{Changed, DataErrors, Key, Protocol, ResourceError, TroubleReason};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::model::{Id, Kind, Known, Model, Said, Sent, Stream, Trouble};
use crate::wire::{Heard, send};

/// `stranger` is never watched by name.
const NAMES: [&str; 4] = ["a", "b", "c", "stranger"];
const KINDS: [Kind; 2] = [Kind::Cluster, Kind::Endpoints];

/// Something that happens.
#[derive(Clone)]
pub(crate) enum Step {
    Advance { milliseconds: u64 },
    Close,
    Open,
    Respond(Kind, Said),
    Unwatch(Kind, &'static str),
    UnwatchAll(Kind),
    Watch(Kind, &'static str),
    WatchAll(Kind),
}

/// One line each, so that a failing script can be read.
impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advance { milliseconds } => write!(f, "{milliseconds} ms pass"),
            Self::Close => f.write_str("the stream ends"),
            Self::Open => f.write_str("the stream opens"),
            Self::Respond(kind, said) => write!(f, "{kind:?} response: {said}"),
            Self::Unwatch(kind, name) => write!(f, "unwatch {kind:?} {name}"),
            Self::UnwatchAll(kind) => write!(f, "unwatch every {kind:?}"),
            Self::Watch(kind, name) => write!(f, "watch {kind:?} {name}"),
            Self::WatchAll(kind) => write!(f, "watch every {kind:?}"),
        }
    }
}

pub(crate) struct Run {
    protocol: Protocol,
    script: Script,
    model: Model,
    heard: Heard,
    responses: u32,
    last_end: Option<u64>,
    /// True if the step is a response.
    responding: bool,
    /// Names that the last response spoke of more than once.
    contradicted: BTreeSet<&'static str>,
}

/// A watcher's view of a resource: its value, or the reason that there is none, and any other
/// trouble.
type View = (Option<Result<u8, Trouble>>, Option<Trouble>);

impl Run {
    pub(crate) fn new(protocol: Protocol, mode: DataErrors) -> Self {
        Self {
            protocol,
            script: Script::with(protocol, mode),
            model: Model::new(protocol, mode),
            heard: Heard::default(),
            responses: 0,
            last_end: None,
            responding: false,
            contradicted: BTreeSet::new(),
        }
    }

    pub(crate) fn all(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        for (index, step) in steps.iter().enumerate() {
            let before = self.views();
            self.step(step)
                .and_then(|()| self.check(&before))
                .map_err(|error| TestCaseError::fail(format!("step {index}, {step:?}: {error}")))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.heard.answers.clear();
        self.heard.versions.clear();
        self.contradicted.clear();
        self.responding = matches!(step, Step::Respond(..));
        let mut answer = None;
        match step {
            Step::Advance { milliseconds } => self.advance(*milliseconds),
            Step::Close => self.close()?,
            Step::Open => self.open(),
            Step::Respond(kind, said) => {
                self.responses += 1;
                let version = format!("v{}", self.responses);
                send(&mut self.script, self.protocol, *kind, said, &version);
                let refused = self.model.responded(*kind, said, &version);
                answer = refused
                    .filter(|_| self.is_answerable(*kind))
                    .map(|refused| (version, refused));
                self.contradicted = said.contradicted();
            }
            Step::Unwatch(kind, name) if self.model.watched.contains_key(&(*kind, *name)) => {
                unwatch(&mut self.script, *kind, name);
                self.model.unwatch((*kind, name));
            }
            Step::Unwatch(..) => {}
            Step::UnwatchAll(kind) => {
                unwatch_all(&mut self.script, *kind);
                self.model.unwatch_all(*kind);
            }
            Step::Watch(kind, name) => {
                watch(&mut self.script, *kind, name);
                self.model.watch((*kind, name));
            }
            Step::WatchAll(kind) => {
                watch_all(&mut self.script, *kind);
                self.model.watch_all(*kind);
            }
        }
        while let Some(request) = self.script.take_request() {
            self.heard.take(request);
        }
        if let Step::Respond(..) = step {
            let first = self.heard.answers.first().cloned();
            prop_assert_eq!(first, answer, "the answer to the response");
        }
        Ok(())
    }

    /// In state of the world, a type that was not asked for on this stream cannot be answered: a
    /// request without names would ask for everything.
    fn is_answerable(&self, kind: Kind) -> bool {
        self.protocol == Protocol::Delta || self.heard.names.contains_key(&kind)
    }

    fn open(&mut self) {
        if self.model.stream == Stream::Connecting && self.script.try_open() {
            self.heard = Heard::default();
            self.model.opened();
        }
    }

    /// gRFC A57: at once after a stream that brought something, unless they end in quick
    /// succession; otherwise after a wait.
    fn close(&mut self) -> Result<(), TestCaseError> {
        let answered = match self.model.stream {
            Stream::Idle | Stream::Waiting => return Ok(()),
            Stream::Connecting => false,
            Stream::Open { answered } => answered,
        };
        self.script.close("gone");
        let asks = self.script.time_to_timeout().is_none();
        let now = self.model.now;
        let calm = self
            .last_end
            .replace(now)
            .is_none_or(|end| end + 1_000 <= now);
        prop_assert_eq!(
            asks,
            answered && calm,
            "whether the next stream comes at once"
        );
        self.model.closed(if asks {
            Stream::Connecting
        } else {
            Stream::Waiting
        });
        Ok(())
    }

    /// Passes the time in pieces, so that a stream that is due is seen.
    fn advance(&mut self, milliseconds: u64) {
        self.script.advance(Duration::from_millis(milliseconds));
        self.model.advance(milliseconds);
        if self.model.stream == Stream::Waiting && self.script.time_to_timeout().is_none() {
            self.model.stream = Stream::Connecting;
        }
    }

    fn check(&mut self, before: &BTreeMap<Id, View>) -> Result<(), TestCaseError> {
        self.script.take_close();
        let now = self.views();
        for (id, known) in self.model.known() {
            let expected = expected(known);
            prop_assert_eq!(&now[id], &expected, "what the watcher of {:?} knows", id);
        }
        self.check_told(before, &now)?;
        if self.model.is_open() {
            self.check_held()?;
            self.check_heard()?;
        }
        Ok(())
    }

    /// The client holds what is watched, and nothing else.
    fn check_held(&self) -> Result<(), TestCaseError> {
        let held = self.script.cache().iter().map(|(key, _)| key.clone());
        let watched = self.model.known().map(|(id, _)| key(*id));
        let (held, watched): (BTreeSet<Key>, BTreeSet<Key>) = (held.collect(), watched.collect());
        prop_assert_eq!(held, watched, "what is held");
        Ok(())
    }

    /// Watchers are told of what changed for them, and of nothing else.
    fn check_told(
        &mut self,
        before: &BTreeMap<Id, View>,
        now: &BTreeMap<Id, View>,
    ) -> Result<(), TestCaseError> {
        let told: Vec<(Key, Changed)> = self.script.changes();
        for (id, view) in now {
            let unknown = (None, None);
            let old = match before.get(id) {
                Some(old) => old,
                // It came by itself.
                None if self.responding && self.model.unnamed.contains_key(id) => &unknown,
                None => continue,
            };
            let key = key(*id);
            let of_key = told.iter().filter(|(told, _)| *told == key);
            let told: BTreeSet<bool> = of_key.map(|(_, of)| *of == Changed::Data).collect();
            let (data, ambient) = (old.0 != view.0, old.1 != view.1);
            let expected: BTreeSet<bool> = match (data, ambient) {
                (true, _) => [true].into(),
                (false, true) => [false].into(),
                (false, false) => BTreeSet::new(),
            };
            // A resource that came twice may have changed and changed back: then it is told as changed
            // data, which says more than an error beside it.
            let is_told = match self.contradicted.contains(id.1) {
                true => told.is_superset(&expected) || told.contains(&true),
                false => told == expected,
            };
            prop_assert!(
                is_told,
                "{:?} went from {:?} to {:?}, and was told {:?}",
                id,
                old,
                view,
                told
            );
        }
        Ok(())
    }

    /// The server knows of the names that are watched, and on a new stream of the versions held.
    fn check_heard(&self) -> Result<(), TestCaseError> {
        for kind in KINDS {
            let watched = self.model.watched.keys().filter(|(of, _)| *of == kind);
            let everything = self.model.whole.contains(&kind).then_some("*");
            let names = watched.map(|(_, name)| *name).chain(everything);
            let names: BTreeSet<String> = names.map(str::to_owned).collect();
            let heard = self.heard.names.get(&kind).cloned().unwrap_or_default();
            prop_assert_eq!(
                heard,
                names,
                "the names that the server heard of {:?}",
                kind
            );
            if let Some(versions) = self.heard.versions.get(&kind) {
                let of_kind = self.model.known().filter(|((of, _), _)| *of == kind);
                let held = of_kind.filter_map(|((_, name), known)| {
                    Some(((*name).to_owned(), known.version()?.to_owned()))
                });
                let held: BTreeMap<String, String> = held.collect();
                prop_assert_eq!(versions, &held, "the versions of {:?}", kind);
            }
        }
        Ok(())
    }

    /// The views of the client's watchers.
    fn views(&self) -> BTreeMap<Id, View> {
        let ids = self.model.known().map(|(id, _)| *id);
        ids.map(|id| (id, self.view(id))).collect()
    }

    fn view(&self, id: Id) -> View {
        let (kind, name) = id;
        let read = match kind {
            Kind::Cluster => {
                let read = self.script.read::<Cluster>(name);
                read.map(|read| read.map(|value| value.eds_name().unwrap().parse().unwrap()))
            }
            Kind::Endpoints => {
                let read = self.script.read::<Endpoints>(name);
                read.map(|read| read.map(|value| port(&value) - 1))
            }
        };
        let entry = self.script.cache().entry(&key(id));
        let ambient = entry.and_then(|entry| entry.ambient()).map(trouble);
        let read = read.map(|read| read.map_err(|error| trouble(&error)));
        (read, ambient)
    }
}

pub(crate) fn watch(script: &mut Script, kind: Kind, name: &str) {
    match kind {
        Kind::Cluster => script.subscribe::<Cluster>(name),
        Kind::Endpoints => script.subscribe::<Endpoints>(name),
    }
}

pub(crate) fn unwatch(script: &mut Script, kind: Kind, name: &str) {
    match kind {
        Kind::Cluster => script.unsubscribe::<Cluster>(name),
        Kind::Endpoints => script.unsubscribe::<Endpoints>(name),
    }
}

pub(crate) fn watch_all(script: &mut Script, kind: Kind) {
    match kind {
        Kind::Cluster => script.subscribe_all::<Cluster>(),
        Kind::Endpoints => script.subscribe_all::<Endpoints>(),
    }
}

pub(crate) fn unwatch_all(script: &mut Script, kind: Kind) {
    match kind {
        Kind::Cluster => script.unsubscribe_all::<Cluster>(),
        Kind::Endpoints => script.unsubscribe_all::<Endpoints>(),
    }
}

fn expected(known: &Known) -> View {
    match (known.value, known.trouble) {
        (Some(value), trouble) => (Some(Ok(value)), trouble),
        (None, trouble) => (trouble.map(Err), None),
    }
}

fn key((kind, name): Id) -> Key {
    match kind {
        Kind::Cluster => Key::of::<Cluster>(name),
        Kind::Endpoints => Key::of::<Endpoints>(name),
    }
}

fn port(endpoints: &Endpoints) -> u8 {
    let endpoint = &endpoints.priorities[0][0].endpoints[0];
    u8::try_from(endpoint.addresses[0].port()).unwrap()
}

fn trouble(error: &ResourceError) -> Trouble {
    match &error.reason {
        TroubleReason::Connectivity(_) => Trouble::OutOfReach,
        TroubleReason::Deleted => Trouble::Deleted,
        TroubleReason::Invalid(_) => Trouble::Invalid,
        TroubleReason::Reported { code, .. } => Trouble::Reported(*code),
        TroubleReason::Slow(_) | TroubleReason::TimedOut(_) => Trouble::TimedOut,
        other => panic!("unexpected: {other}"),
    }
}

pub(crate) fn mode() -> impl Strategy<Value = DataErrors> {
    prop_oneof![
        any::<bool>().prop_map(|ignore_deletion| DataErrors::Classic { ignore_deletion }),
        any::<(bool, bool)>().prop_map(|(fail, timer_is_transient)| DataErrors::Uniform {
            fail,
            timer_is_transient,
        }),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let kind = || proptest::sample::select(&KINDS[..]);
    let watchable = || proptest::sample::select(&NAMES[..3]);
    prop_oneof![
        6 => (kind(), watchable()).prop_map(|(kind, name)| Step::Watch(kind, name)),
        2 => (kind(), watchable()).prop_map(|(kind, name)| Step::Unwatch(kind, name)),
        3 => kind().prop_map(Step::WatchAll),
        1 => kind().prop_map(Step::UnwatchAll),
        5 => Just(Step::Open),
        2 => Just(Step::Close),
        2 => (1..20_000_u64).prop_map(|milliseconds| Step::Advance { milliseconds }),
        8 => (kind(), said()).prop_map(|(kind, said)| Step::Respond(kind, said)),
    ]
}

/// Steps with more coming and going of few names, for what happens while a request is on its way.
pub(crate) fn busy_step() -> impl Strategy<Value = Step> {
    let kind = || proptest::sample::select(&KINDS[..]);
    let id = || {
        let name = proptest::sample::select(&NAMES[..2]);
        (kind(), name)
    };
    prop_oneof![
        7 => id().prop_map(|(kind, name)| Step::Watch(kind, name)),
        6 => id().prop_map(|(kind, name)| Step::Unwatch(kind, name)),
        1 => kind().prop_map(Step::WatchAll),
        1 => kind().prop_map(Step::UnwatchAll),
        4 => Just(Step::Open),
        1 => Just(Step::Close),
        3 => step(),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let name = || proptest::sample::select(&NAMES[..]);
    let sent = prop_oneof![
        3 => (0..3_u8).prop_map(Sent::Good),
        1 => Just(Sent::Bad),
    ];
    let code = proptest::sample::select(&[5, 7, 14][..]);
    let parts = (
        vec((name(), sent), 0..4),
        vec((name(), code), 0..2),
        vec(name(), 0..2),
        proptest::bool::weighted(0.1),
    );
    parts.prop_map(|(resources, reports, removed, garbled)| Said {
        resources,
        reports,
        removed,
        garbled,
    })
}
