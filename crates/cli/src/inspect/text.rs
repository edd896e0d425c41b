//! The text of `crowfly inspect`: a table for each client. Each error is below the row of its
//! resource, because it would not fit into a column.

use std::{fmt::Write, time::SystemTime};

use super::view::{Client, Failure, Resource, View};
use crate::output::{self, printable};

const HEADERS: [&str; 5] = ["TYPE", "NAME", "STATE", "VERSION", "AGE"];
const NOTHING: &str = "-";

/// Writes the view as it is at `now`.
pub(super) fn render(view: &View, now: SystemTime) -> String {
    if view.clients.is_empty() {
        return "no xDS clients".to_owned();
    }
    let clients = view.clients.iter().map(|client| section(client, now));
    clients.collect::<Vec<_>>().join("\n\n")
}

fn section(client: &Client, now: SystemTime) -> String {
    let mut text = title(client);
    let rows: Vec<_> = client.resources.iter().map(|one| row(one, now)).collect();
    if rows.is_empty() {
        return text;
    }
    let headers = HEADERS.map(str::to_owned);
    let widths: [usize; 5] = std::array::from_fn(|column| {
        let cells = rows.iter().chain([&headers]);
        let lengths = cells.map(|row| row[column].chars().count());
        lengths.max().unwrap_or_default()
    });
    push_row(&mut text, &headers, widths);
    for (resource, row) in client.resources.iter().zip(&rows) {
        push_row(&mut text, row, widths);
        if let Some(error) = &resource.error {
            text.push_str("\n      ");
            text.push_str(&failure(error, resource, now));
        }
    }
    text
}

fn title(client: &Client) -> String {
    let mut text = match &*client.scope {
        "" => "client".to_owned(),
        scope => printable(scope),
    };
    let mut node = Vec::new();
    for (label, value) in [("node", &client.node.id), ("cluster", &client.node.cluster)] {
        if !value.is_empty() {
            node.push(format!("{label} {}", printable(value)));
        }
    }
    if !node.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(text, " ({})", node.join(", "));
    }
    let count = client.resources.len();
    let plural = if count == 1 { "" } else { "s" };
    let _ = write!(text, ": {count} resource{plural}");
    let errors = client.resources.iter().filter(|one| one.error.is_some());
    match errors.count() {
        0 => {}
        errors => {
            let _ = write!(text, ", {errors} in error");
        }
    }
    text
}

fn row(resource: &Resource, now: SystemTime) -> [String; 5] {
    let or_nothing = |text: Option<String>| text.unwrap_or_else(|| NOTHING.to_owned());
    [
        printable(resource.kind()),
        printable(&resource.name),
        printable(&resource.state),
        or_nothing(resource.version.as_deref().map(printable)),
        or_nothing(resource.updated.map(|since| age(since, now))),
    ]
}

fn push_row(text: &mut String, row: &[String; 5], widths: [usize; 5]) {
    let cells = row.iter().zip(widths);
    let cells: Vec<_> = cells
        .map(|(cell, width)| format!("{cell:width$}"))
        .collect();
    text.push_str("\n  ");
    text.push_str(cells.join("  ").trim_end());
}

/// The error of a resource, on a line below the version in use.
fn failure(failure: &Failure, resource: &Resource, now: SystemTime) -> String {
    let mut facts = Vec::new();
    let rejected = match &failure.version {
        Some(version) => Some(format!("version {} rejected", printable(version))),
        None if resource.state == "NACKED" => Some("update rejected".to_owned()),
        None => None,
    };
    let ago = failure.at.map(|at| format!("{} ago", age(at, now)));
    let what: Vec<_> = rejected.into_iter().chain(ago).collect();
    if !what.is_empty() {
        facts.push(what.join(" "));
    }
    if let Some(version) = &resource.version {
        facts.push(format!("version {} still in use", printable(version)));
    }
    let details: Vec<_> = failure.details.trim().lines().map(printable).collect();
    let details = details.join("\n        ");
    if facts.is_empty() {
        return details;
    }
    format!("{}: {details}", facts.join(", "))
}

/// The age of a time.
fn age(since: SystemTime, now: SystemTime) -> String {
    output::age(now.duration_since(since).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::view::Node;
    use super::*;
    use std::time::Duration;

    fn ago(now: SystemTime, seconds: u64) -> Option<SystemTime> {
        Some(now - Duration::from_secs(seconds))
    }

    fn resource(kind: &str, name: &str, state: &str) -> Resource {
        Resource {
            type_url: format!("type.googleapis.com/envoy.config.x.v3.{kind}"),
            name: name.to_owned(),
            state: state.to_owned(),
            version: None,
            updated: None,
            error: None,
            config: None,
        }
    }

    #[test]
    fn a_refused_version_stands_next_to_the_one_in_use() {
        let now = SystemTime::now();
        let mut client = Client {
            scope: "xds:///payments".to_owned(),
            node: Node {
                id: "web-1".to_owned(),
                cluster: "web".to_owned(),
            },
            resources: vec![
                Resource {
                    error: Some(Failure {
                        version: None,
                        at: ago(now, 3 * 3600),
                        details: "cluster gone: does not exist".to_owned(),
                    }),
                    ..resource("Cluster", "gone", "DOES_NOT_EXIST")
                },
                Resource {
                    version: Some("7".to_owned()),
                    updated: ago(now, 200),
                    error: Some(Failure {
                        version: Some("8".to_owned()),
                        at: ago(now, 4),
                        details: "cluster payments: invalid:\nlb_policy: \u{1b}[31mno".to_owned(),
                    }),
                    ..resource("Cluster", "payments", "NACKED")
                },
                Resource {
                    version: Some("12".to_owned()),
                    updated: ago(now, 3 * 86400),
                    ..resource("Listener", "payments", "ACKED")
                },
                resource("Secret", "tls", "REQUESTED"),
            ],
        };
        client.sort();
        let text = render(
            &View {
                clients: vec![client],
            },
            now,
        );
        let expected = "\
xds:///payments (node web-1, cluster web): 4 resources, 2 in error
  TYPE      NAME      STATE           VERSION  AGE
  Listener  payments  ACKED           12       3d
  Cluster   gone      DOES_NOT_EXIST  -        -
      3h ago: cluster gone: does not exist
  Cluster   payments  NACKED          7        3m
      version 8 rejected 4s ago, version 7 still in use: cluster payments: invalid:
        lb_policy: \\u{1b}[31mno
  Secret    tls       REQUESTED       -        -";
        assert_eq!(text, expected);
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let now = SystemTime::now();
        let clients = Vec::new();
        assert_eq!(render(&View { clients }, now), "no xDS clients");
        let client = Client {
            scope: String::new(),
            node: Node::default(),
            resources: Vec::new(),
        };
        let clients = vec![client];
        assert_eq!(render(&View { clients }, now), "client: 0 resources");
    }
}
