//! The rows that pages show of a stream. They are worked out from its server half and its record
//! when a page is asked for. So a stream keeps no second copy of its state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crowfly_xds::{ServerHalf, SnapshotResource, Wanted};

use super::answers::{Answers, Since};
use super::refused::{Nack, Refusal};
use super::unanswered::{InFlight, Item};
use super::unix;
use super::view::{NackView, ResourceView, State, TypeView};

/// One resource that a client wants, with all that is known about it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: Arc<str>,
    pub(crate) state: State,
    /// The resource that is served; `None` if it does not exist.
    pub(crate) resource: Option<Arc<SnapshotResource>>,
    pub(crate) sent: Option<Arc<str>>,
    pub(crate) sent_at: Option<SystemTime>,
    pub(crate) acked: Option<Arc<str>>,
    pub(crate) lag_seconds: Option<f64>,
    pub(crate) refusal: Option<RowRefusal>,
}

/// The refusal of a resource.
#[derive(Debug)]
pub(crate) struct RowRefusal {
    pub(crate) version: Arc<str>,
    pub(crate) reason: String,
    pub(crate) at: SystemTime,
    pub(crate) one_of: usize,
}

/// One moment on both clocks: the record of a stream has the monotonic one, and pages the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) monotonic: Instant,
    pub(crate) wall: SystemTime,
}

impl Clock {
    pub(crate) fn now() -> Self {
        Self {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    fn time(self, at: Instant) -> SystemTime {
        let age = self.monotonic.saturating_duration_since(at);
        self.wall.checked_sub(age).unwrap_or(self.wall)
    }

    fn seconds_since(self, at: Instant) -> f64 {
        self.monotonic.saturating_duration_since(at).as_secs_f64()
    }
}

/// One type on a stream.
pub(super) fn of_type(
    half: &impl ServerHalf,
    type_url: &str,
    answers: &Answers,
    clock: Clock,
) -> TypeView {
    let wish = half.wish(type_url).unwrap_or_default();
    let state = if answers.is_refusing() {
        State::Nacked
    } else if wish.waiting > 0 {
        State::Waiting
    } else if !answers.unanswered.is_empty() {
        State::Sent
    } else {
        State::Acked
    };
    let waiting = answers.waiting.map(Since::time);
    let unanswered = answers.unanswered.iter().map(InFlight::due_since);
    let refused = answers.refused.all().map(|refusal| refusal.since);
    let refused = refused.chain(answers.refused.crowd().map(|crowd| crowd.since));
    let oldest = waiting.into_iter().chain(unanswered).chain(refused).min();
    let at =
        |answer: &Option<(Box<str>, Instant)>| answer.as_ref().map(|(_, at)| unix(clock.time(*at)));
    let version = |answer: &Option<(Box<str>, Instant)>| {
        answer.as_ref().map(|(version, _)| version.to_string())
    };
    TypeView {
        state,
        wildcard: wish.wildcard,
        resources: wish.resources,
        waiting: wish.waiting,
        unanswered: answers.unanswered.names(),
        refused: answers.refused.count(),
        sent_version: version(&answers.sent),
        sent_at: at(&answers.sent),
        acked_version: version(&answers.acked),
        acked_at: at(&answers.acked),
        lag_seconds: oldest.map(|oldest| clock.seconds_since(oldest)),
        last_nack: answers.refused.last().map(|of| nack(of, clock)),
    }
}

/// Each resource of a type that the client wants.
pub(super) fn of_resources(
    half: &impl ServerHalf,
    type_url: &str,
    answers: &Answers,
    clock: Clock,
) -> Vec<Row> {
    let in_flight = answers.unanswered.iter();
    // A newer response replaces what an older one has of the same name.
    let in_flight: BTreeMap<&str, (&InFlight, &Item)> = in_flight
        .flat_map(|of| of.items.iter().map(move |item| (&*item.name, (of, item))))
        .collect();
    let wanted = half.wanted(type_url).into_iter();
    let rows = wanted.map(|wanted| {
        let in_flight = in_flight.get(&*wanted.name).copied();
        row(wanted, in_flight, answers, clock)
    });
    rows.collect()
}

fn row(
    wanted: Wanted,
    in_flight: Option<(&InFlight, &Item)>,
    answers: &Answers,
    clock: Clock,
) -> Row {
    let refusal = refusal_of(&wanted, answers);
    let state = if wanted.waiting {
        State::Waiting
    } else if in_flight.is_some() {
        State::Sent
    } else if wanted.resource.is_none() {
        State::Missing
    } else if refusal.is_some() {
        State::Nacked
    } else {
        State::Acked
    };
    let acked = match (in_flight, &refusal) {
        (Some((_, item)), _) => item.accepted.clone(),
        (None, Some(refusal)) => refusal.accepted.clone(),
        (None, None) => wanted.sent.clone(),
    };
    let since = match state {
        State::Waiting => answers.waiting.map(Since::time),
        State::Sent => in_flight.map(|(of, _)| of.due_since()),
        State::Nacked => refusal.as_ref().map(|refusal| refusal.since),
        State::Acked | State::Missing => None,
    };
    let sent_at = wanted.sent.as_ref();
    let sent_at = sent_at.and_then(|_| match in_flight {
        Some((of, _)) => Some(of.sent_at),
        None => answers.recent.time(&wanted.name),
    });
    Row {
        name: wanted.name,
        state,
        resource: wanted.resource,
        sent: wanted.sent,
        sent_at: sent_at.map(|at| clock.time(at)),
        acked,
        lag_seconds: since.map(|since| clock.seconds_since(since)),
        refusal: refusal.map(|refusal| shown(&refusal, clock)),
    }
}

/// The refusal of a resource, or of one among so many that only their names are kept.
fn refusal_of(wanted: &Wanted, answers: &Answers) -> Option<Refusal> {
    if let Some(refusal) = answers.refused.of(&wanted.name) {
        return Some(refusal.clone());
    }
    let crowd = answers.refused.crowd();
    let crowd = crowd.filter(|crowd| crowd.has(&wanted.name))?;
    let version = wanted.sent.as_ref()?;
    Some(Refusal {
        nack: Arc::clone(&crowd.nack),
        version: Arc::clone(version),
        accepted: None,
        since: crowd.since,
    })
}

fn shown(refusal: &Refusal, clock: Clock) -> RowRefusal {
    RowRefusal {
        version: Arc::clone(&refusal.version),
        reason: refusal.nack.reason.to_string(),
        at: clock.time(refusal.nack.at),
        one_of: refusal.nack.one_of,
    }
}

fn nack(nack: &Nack, clock: Clock) -> NackView {
    NackView {
        version: nack.version.to_string(),
        message: nack.reason.to_string(),
        at: unix(clock.time(nack.at)),
        one_of: nack.one_of,
    }
}

impl Row {
    /// The row as a value.
    pub(super) fn view(&self, type_url: &str) -> ResourceView {
        let text = |version: &Option<Arc<str>>| version.as_deref().map(str::to_owned);
        let served = self.resource.as_ref().map(|of| of.version.to_string());
        ResourceView {
            type_url: type_url.to_owned(),
            name: self.name.to_string(),
            state: self.state,
            version: served,
            sent_version: text(&self.sent),
            sent_at: self.sent_at.map(unix),
            acked_version: text(&self.acked),
            lag_seconds: self.lag_seconds,
            nack: self.refusal.as_ref().map(|refusal| NackView {
                version: refusal.version.to_string(),
                message: refusal.reason.clone(),
                at: unix(refusal.at),
                one_of: refusal.one_of,
            }),
        }
    }
}
