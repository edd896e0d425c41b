//! Trees on the wire.

use std::fmt;

use crowfly_lb::{Connectivity, Tree};

use super::v1;
use crate::state::ConnectivityState;

impl From<Tree> for v1::Tree {
    fn from(tree: Tree) -> Self {
        let state = tree.state.map(ConnectivityState::from);
        Self {
            label: tree.label,
            state: state.map_or(v1::State::Unspecified, v1::State::from).into(),
            in_flight: tree.in_flight,
            waiting: tree.waiting,
            note: tree.note.as_deref().unwrap_or_default().to_owned(),
            children: tree.children.into_iter().map(Self::from).collect(),
        }
    }
}

/// As [`Channel::tree`](crate::Channel::tree) prints it.
impl fmt::Display for v1::Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printable(self).fmt(f)
    }
}

impl From<ConnectivityState> for v1::State {
    fn from(state: ConnectivityState) -> Self {
        match state {
            ConnectivityState::Connecting => Self::Connecting,
            ConnectivityState::Idle => Self::Idle,
            ConnectivityState::Ready => Self::Ready,
            ConnectivityState::TransientFailure => Self::TransientFailure,
        }
    }
}

fn printable(tree: &v1::Tree) -> Tree {
    Tree {
        label: tree.label.clone(),
        state: match tree.state() {
            v1::State::Connecting => Some(Connectivity::Connecting),
            v1::State::Idle => Some(Connectivity::Idle),
            v1::State::Ready => Some(Connectivity::Ready),
            v1::State::TransientFailure => Some(Connectivity::TransientFailure),
            v1::State::Unspecified => None,
        },
        endpoint: None,
        in_flight: tree.in_flight,
        waiting: tree.waiting,
        note: (!tree.note.is_empty()).then(|| tree.note.as_str().into()),
        children: tree.children.iter().map(printable).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_prints_the_same_after_its_journey() {
        let leaf = |state, waiting, note: Option<&str>| Tree {
            label: "127.0.0.1:50051".to_owned(),
            state,
            endpoint: None,
            in_flight: Some(3),
            waiting,
            note: note.map(Into::into),
            children: Vec::new(),
        };
        let tree = Tree {
            label: "round_robin".to_owned(),
            in_flight: None,
            children: vec![
                leaf(Some(Connectivity::Connecting), None, None),
                leaf(Some(Connectivity::Idle), Some(0), None),
                leaf(Some(Connectivity::Ready), Some(2), None),
                leaf(Some(Connectivity::TransientFailure), None, Some("refused")),
            ],
            ..leaf(None, None, None)
        };
        let expected = "\
round_robin
├ 127.0.0.1:50051 CONNECTING 3 in flight
├ 127.0.0.1:50051 IDLE 3 in flight
├ 127.0.0.1:50051 READY 3 in flight, 2 waiting
└ 127.0.0.1:50051 TRANSIENT_FAILURE 3 in flight (refused)
";
        assert_eq!(tree.to_string(), expected);
        assert_eq!(v1::Tree::from(tree).to_string(), expected);
    }
}
