//! The table of all clients, one row for each stream, because a client's streams may have different
//! states.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crowfly_control::clients::{ClientList, ClientView, State, TypeView};

use crate::output::{age, columns, printable};

pub(super) const NOTHING: &str = "-";

const HEADERS: [&str; 8] = [
    "NODE",
    "KIND",
    "PROGRAM",
    "VIEW",
    "LOCALITY",
    "CONNECTED",
    "LAG",
    "STATE",
];

/// The short names of types that people use, in the order in which types refer to each other.
const SHORT: [(&str, &str); 6] = [
    ("Listener", "LDS"),
    ("RouteConfiguration", "RDS"),
    ("Cluster", "CDS"),
    ("ClusterLoadAssignment", "EDS"),
    ("Secret", "SDS"),
    ("Runtime", "RTDS"),
];

/// Writes the clients as they are at `now`.
pub(super) fn render(list: &ClientList, now: SystemTime) -> String {
    let mut lines = vec![title(list)];
    if !list.clients.is_empty() {
        let mut rows = vec![HEADERS.map(str::to_owned).to_vec()];
        rows.extend(list.clients.iter().map(|client| row(client, now)));
        lines.extend(columns(&rows));
    }
    lines.join("\n")
}

fn title(list: &ClientList) -> String {
    let in_state = |state: State| {
        let clients = list.clients.iter();
        let in_state = |client: &&ClientView| worst(client) == Some(state);
        clients.filter(in_state).count()
    };
    let mut text = match list.clients.len() {
        0 => "no clients".to_owned(),
        1 => "1 client".to_owned(),
        many => format!("{many} clients"),
    };
    let behind = in_state(State::Waiting) + in_state(State::Sent);
    for (count, what) in [(in_state(State::Nacked), "refusing"), (behind, "waiting")] {
        if count > 0 {
            text = format!("{text}, {count} {what}");
        }
    }
    text
}

fn worst(client: &ClientView) -> Option<State> {
    client.types.values().map(|of| of.state).max()
}

fn row(client: &ClientView, now: SystemTime) -> Vec<String> {
    let node = client.node.as_ref();
    let text = |text: Option<&str>| match text {
        None | Some("") => NOTHING.to_owned(),
        Some(text) => printable(text),
    };
    let lags = client.types.values().filter_map(|of| of.lag_seconds);
    vec![
        text(node.map(|node| node.id.as_str())),
        text(node.and_then(|node| node.kind.as_deref())),
        text(node.map(|node| node.user_agent.as_str())),
        text(client.view.as_deref()),
        text(node.map(|node| node.locality.as_str())),
        ago(client.connected_at, now),
        lag(lags.reduce(f64::max)),
        state(client),
    ]
}

/// The state of all types. Types with a problem come first, each with its own state.
fn state(client: &ClientView) -> String {
    let mut types: Vec<_> = client.types.iter().collect();
    types.sort_by_key(|(url, of)| (std::cmp::Reverse(of.state), order(url)));
    let (good, bad): (Vec<_>, Vec<_>) = types
        .into_iter()
        .partition(|(_, of)| of.state == State::Acked);
    let bad = bad.iter().map(|(url, of)| trouble(url, of));
    let mut parts: Vec<String> = bad.collect();
    if !good.is_empty() {
        let good = good.iter();
        let good = good.map(|(url, of)| format!("{} {}", short(url), of.resources));
        parts.push(format!("in sync: {}", good.collect::<Vec<_>>().join(", ")));
    }
    if parts.is_empty() {
        return "asked for nothing".to_owned();
    }
    parts.join("; ")
}

fn trouble(url: &str, of: &TypeView) -> String {
    let (count, what) = match of.state {
        State::Nacked => (of.refused, "refused"),
        State::Waiting => (of.waiting, "to be sent"),
        State::Sent => (of.unanswered, "unanswered"),
        State::Missing | State::Acked => (of.resources, "in sync"),
    };
    format!("{} {count} of {} {what}", short(url), of.resources)
}

/// The short name of a type that people use.
pub(super) fn short(url: &str) -> String {
    let name = kind(url);
    let known = SHORT.iter().find(|(known, _)| *known == name);
    known.map_or_else(|| printable(name), |(_, short)| (*short).to_owned())
}

/// The place of a type in the order in which types refer to each other.
pub(super) fn order(url: &str) -> usize {
    let name = kind(url);
    let place = SHORT.iter().position(|(known, _)| *known == name);
    place.unwrap_or(SHORT.len())
}

fn kind(url: &str) -> &str {
    let path = url.rsplit('/').next().unwrap_or_default();
    path.rsplit('.').next().unwrap_or_default()
}

pub(super) fn lag(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else {
        return NOTHING.to_owned();
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(lag) if lag < Duration::from_secs(1) => format!("{}ms", lag.as_millis()),
        Ok(lag) => age(lag),
        Err(_) => NOTHING.to_owned(),
    }
}

/// The age of a time in seconds since 1970.
pub(super) fn ago(at: u64, now: SystemTime) -> String {
    let at = UNIX_EPOCH + Duration::from_secs(at);
    format!("{} ago", age(now.duration_since(at).unwrap_or_default()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crowfly_control::clients::NodeView;

    pub(in super::super) const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

    pub(in super::super) fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    fn of(state: State, resources: usize) -> TypeView {
        TypeView {
            state,
            resources,
            ..TypeView::default()
        }
    }

    /// F-08: one row for each client, with the state of each type.
    #[test]
    fn a_row_has_the_state_of_each_type() {
        let refused = TypeView {
            refused: 1,
            lag_seconds: Some(75.0),
            ..of(State::Nacked, 20)
        };
        let waiting = TypeView {
            waiting: 2,
            lag_seconds: Some(0.25),
            ..of(State::Waiting, 3)
        };
        let unanswered = TypeView {
            unanswered: 4,
            lag_seconds: Some(2.0),
            ..of(State::Sent, 20)
        };
        let list = ClientList {
            clients: vec![
                ClientView {
                    connected_at: 1000,
                    node: Some(NodeView {
                        id: "web-1".to_owned(),
                        kind: Some("envoy".to_owned()),
                        user_agent: "envoy 1.40.0".to_owned(),
                        locality: "eu/a".to_owned(),
                        ..NodeView::default()
                    }),
                    view: Some("canary".to_owned()),
                    types: [
                        (CDS.to_owned(), refused),
                        (EDS.to_owned(), unanswered),
                        (LDS.to_owned(), of(State::Acked, 3)),
                    ]
                    .into(),
                    ..ClientView::default()
                },
                ClientView {
                    connected_at: 4590,
                    node: Some(NodeView {
                        id: "\u{1b}[31m".to_owned(),
                        ..NodeView::default()
                    }),
                    types: [(LDS.to_owned(), waiting)].into(),
                    ..ClientView::default()
                },
                ClientView {
                    connected_at: 4600,
                    ..ClientView::default()
                },
            ],
        };
        let expected = "\
3 clients, 1 refusing, 1 waiting
NODE        KIND   PROGRAM       VIEW    LOCALITY  CONNECTED  LAG    STATE
web-1       envoy  envoy 1.40.0  canary  eu/a      1h ago     1m     CDS 1 of 20 refused; EDS 4 of 20 unanswered; in sync: LDS 3
\\u{1b}[31m  -      -             -       -         10s ago    250ms  LDS 2 of 3 to be sent
-           -      -             -       -         0s ago     -      asked for nothing";
        assert_eq!(render(&list, at(4600)), expected);
        assert_eq!(render(&ClientList::default(), at(0)), "no clients");
    }
}
