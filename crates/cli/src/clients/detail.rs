//! The resources of one client, with those that it refused first, because an operator looks for
//! these.

use std::time::SystemTime;

use crowfly_control::clients::{ClientList, ClientView, NackView, Protocol, ResourceView, State};

use super::table::{NOTHING, ago, lag, order, short};
use crate::output::{columns, printable};

const HEADERS: [&str; 7] = ["TYPE", "NAME", "STATE", "SERVED", "ACCEPTED", "SENT", "LAG"];

/// Writes the resources of each stream of a client as they are at `now`.
pub(super) fn render(list: &ClientList, now: SystemTime) -> String {
    let sections = list.clients.iter().map(|client| section(client, now));
    sections.collect::<Vec<_>>().join("\n\n")
}

fn section(client: &ClientView, now: SystemTime) -> String {
    let mut resources: Vec<_> = client.resources.iter().flatten().collect();
    resources.sort_by_key(|row| {
        let is_good = row.nack.is_none();
        (is_good, std::cmp::Reverse(row.state), order(&row.type_url))
    });
    let mut cells = vec![HEADERS.map(str::to_owned).to_vec()];
    cells.extend(resources.iter().map(|row| cells_of(row, now)));
    let mut lines = vec![title(client, now)];
    let mut rows = columns(&cells).into_iter();
    if !resources.is_empty() {
        lines.extend(rows.next());
    }
    for (resource, row) in resources.into_iter().zip(rows) {
        lines.push(row);
        if let Some(nack) = &resource.nack {
            lines.push(format!("    {}", refusal(nack, resource, now)));
        }
    }
    lines.join("\n")
}

fn title(client: &ClientView, now: SystemTime) -> String {
    let node = client.node.clone().unwrap_or_default();
    let view = client.view.as_deref().map(|view| format!("view {view}"));
    let cluster = match &*node.cluster {
        "" => None,
        cluster => Some(format!("cluster {cluster}")),
    };
    let peer = client.peer.map(|peer| format!("from {peer}"));
    let protocol = match client.protocol {
        Protocol::StateOfTheWorld => "state of the world",
        Protocol::Delta => "delta",
    };
    let facts = [
        Some(node.user_agent),
        cluster,
        Some(node.locality),
        view,
        peer,
        Some(protocol.to_owned()),
        Some(format!("connected {}", ago(client.connected_at, now))),
    ];
    let facts = facts.into_iter().flatten();
    let facts = facts.filter(|fact| !fact.is_empty());
    let facts: Vec<_> = facts.map(|fact| printable(&fact)).collect();
    format!("{}: {}", printable(&node.id), facts.join(", "))
}

fn cells_of(row: &ResourceView, now: SystemTime) -> Vec<String> {
    let version = |version: &Option<String>| {
        let version = version.as_deref().filter(|version| !version.is_empty());
        version.map_or_else(|| NOTHING.to_owned(), printable)
    };
    let state = match row.state {
        State::Acked => "in sync",
        State::Missing => "does not exist",
        State::Sent => "unanswered",
        State::Waiting => "to be sent",
        State::Nacked => "refused",
    };
    let sent = row.sent_at.map(|at| ago(at, now));
    vec![
        short(&row.type_url),
        printable(&row.name),
        state.to_owned(),
        version(&row.version),
        version(&row.acked_version),
        sent.unwrap_or_else(|| NOTHING.to_owned()),
        lag(row.lag_seconds),
    ]
}

/// The refusal of a resource, below its row.
fn refusal(nack: &NackView, row: &ResourceView, now: SystemTime) -> String {
    let reason: Vec<_> = nack.message.trim().lines().map(printable).collect();
    let reason = reason.join("\n      ");
    let used = match &row.acked_version {
        Some(version) => format!("version {} is in use", printable(version)),
        None => "no version is in use".to_owned(),
    };
    let (version, ago) = (printable(&nack.version), ago(nack.at, now));
    let what = match nack.one_of {
        1 => format!("version {version} refused {ago}"),
        many => format!(
            "version {version} refused {ago}, or another of the {many} resources sent with it"
        ),
    };
    format!("{what}; {used}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::{CDS, at};
    use super::*;
    use crowfly_control::clients::NodeView;

    fn row(name: &str, state: State, nack: Option<NackView>) -> ResourceView {
        ResourceView {
            type_url: CDS.to_owned(),
            name: name.to_owned(),
            state,
            version: Some("v2".to_owned()),
            sent_version: Some("v2".to_owned()),
            sent_at: Some(90),
            acked_version: Some("v1".to_owned()),
            lag_seconds: nack.as_ref().map(|_| 10.0),
            nack,
        }
    }

    /// F-08: refused resources come first, with reason and time.
    #[test]
    fn refused_resources_come_first() {
        let nack = |one_of| NackView {
            version: "v2".to_owned(),
            message: "cluster b:\nno \u{1b}policy".to_owned(),
            at: 96,
            one_of,
        };
        let missing = ResourceView {
            version: None,
            acked_version: None,
            sent_at: None,
            ..row("gone", State::Missing, None)
        };
        let client = ClientView {
            connected_at: 0,
            protocol: Protocol::Delta,
            peer: Some("10.0.0.1:5".parse().unwrap()),
            node: Some(NodeView {
                id: "web-1".to_owned(),
                cluster: "web".to_owned(),
                user_agent: "envoy 1.40.0".to_owned(),
                ..NodeView::default()
            }),
            view: Some("canary".to_owned()),
            resources: Some(vec![
                row("a", State::Acked, None),
                missing,
                row("b", State::Nacked, Some(nack(1))),
                row("c", State::Waiting, Some(nack(7))),
            ]),
            ..ClientView::default()
        };
        let list = ClientList {
            clients: vec![client],
        };
        let expected = "\
web-1: envoy 1.40.0, cluster web, view canary, from 10.0.0.1:5, delta, connected 1m ago
TYPE  NAME  STATE           SERVED  ACCEPTED  SENT     LAG
CDS   b     refused         v2      v1        10s ago  10s
    version v2 refused 4s ago; version v1 is in use: cluster b:
      no \\u{1b}policy
CDS   c     to be sent      v2      v1        10s ago  10s
    version v2 refused 4s ago, or another of the 7 resources sent with it; version v1 is in use: cluster b:
      no \\u{1b}policy
CDS   gone  does not exist  -       -         -        -
CDS   a     in sync         v2      v1        10s ago  -";
        assert_eq!(render(&list, at(100)), expected);
    }
}
