//! Scripts in which requests take their time: whatever happens while one is on its way, in the end
//! the server has heard of what is watched, and of nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crowfly_testkit::Script;
use crowfly_xds::{DataErrors, Protocol};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::model::{Id, Kind};
use crate::script::{Step, unwatch, unwatch_all, watch, watch_all};
use crate::wire::{Heard, send};

pub(crate) struct SlowRun {
    protocol: Protocol,
    script: Script,
    /// `*` stands for all of a type.
    watched: BTreeSet<Id>,
    types: BTreeSet<Kind>,
    stream: Option<OnStream>,
    responses: u32,
}

/// The messages that have passed on the open stream.
#[derive(Default)]
struct OnStream {
    heard: Heard,
    /// The nonces of what was said of types that are known.
    said: BTreeMap<Kind, Vec<String>>,
}

impl SlowRun {
    pub(crate) fn new(protocol: Protocol, mode: DataErrors) -> Self {
        let mut script = Script::with(protocol, mode);
        script.hold_sends();
        Self {
            protocol,
            script,
            watched: BTreeSet::new(),
            types: BTreeSet::new(),
            stream: None,
            responses: 0,
        }
    }

    /// Each step comes with whether the request on its way has gone out before it.
    pub(crate) fn all(&mut self, steps: &[(bool, Step)]) -> Result<(), TestCaseError> {
        for (sent, step) in steps {
            if *sent {
                self.script.confirm_send();
                self.listen();
            }
            self.step(step);
            self.listen();
        }
        self.settle();
        self.check()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Advance { milliseconds } => {
                self.script.advance(Duration::from_millis(*milliseconds));
            }
            Step::Close => {
                if self.stream.take().is_some() {
                    self.script.close("gone");
                }
            }
            Step::Open => {
                if self.script.try_open() {
                    self.stream = Some(OnStream::default());
                }
            }
            Step::Respond(kind, said) => {
                self.responses += 1;
                let nonce = format!("v{}", self.responses);
                if let Some(stream) = &mut self.stream
                    && self.types.contains(kind)
                {
                    let said = stream.said.entry(*kind).or_default();
                    said.push(nonce.clone());
                }
                send(&mut self.script, self.protocol, *kind, said, &nonce);
            }
            Step::Unwatch(kind, name) => {
                if self.watched.remove(&(*kind, *name)) {
                    unwatch(&mut self.script, *kind, name);
                }
            }
            Step::UnwatchAll(kind) => {
                self.watched.remove(&(*kind, "*"));
                unwatch_all(&mut self.script, *kind);
            }
            Step::Watch(kind, name) => {
                self.watched.insert((*kind, *name));
                self.types.insert(*kind);
                watch(&mut self.script, *kind, name);
            }
            Step::WatchAll(kind) => {
                self.watched.insert((*kind, "*"));
                self.types.insert(*kind);
                watch_all(&mut self.script, *kind);
            }
        }
    }

    /// Takes what the client has to say.
    fn listen(&mut self) {
        if self.script.take_close() {
            self.stream = None;
            self.types = self.watched.iter().map(|(kind, _)| *kind).collect();
        }
        while let Some(request) = self.script.take_request() {
            if let Some(stream) = &mut self.stream {
                stream.heard.take(request);
            }
        }
    }

    /// Lets every request go out.
    fn settle(&mut self) {
        // Each response is owed one request, and each type at most two more.
        for _ in 0..self.responses + 8 {
            self.script.confirm_send();
            self.listen();
        }
        self.script.no_request();
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let Some(OnStream { heard, said }) = &self.stream else {
            return Ok(());
        };
        prop_assert!(!self.watched.is_empty(), "a stream that nobody needs");
        for kind in [Kind::Cluster, Kind::Endpoints] {
            let watched = self.watched.iter().filter(|(of, _)| *of == kind);
            let names: BTreeSet<String> = watched.map(|(_, name)| (*name).to_owned()).collect();
            let told = heard.names.get(&kind);
            prop_assert_eq!(told.cloned().unwrap_or_default(), names, "{:?}", kind);
            let said = said.get(&kind).cloned().unwrap_or_default();
            let answered = heard.answers.iter().map(|(nonce, _)| nonce);
            let answered: Vec<String> = answered.filter(|n| said.contains(n)).cloned().collect();
            match self.protocol {
                Protocol::Delta => prop_assert_eq!(answered, said, "each response once, in order"),
                Protocol::StateOfTheWorld if told.is_some() => {
                    prop_assert_eq!(answered.last(), said.last(), "the newest response");
                }
                Protocol::StateOfTheWorld => {}
            }
        }
        Ok(())
    }
}
