//! The error of the whole command, and its text on one line. The binary prints nothing else when it
//! fails, so the text must have every cause.

use std::fmt::{self, Display, Formatter};

use crate::{
    admin_page::AdminError, backend::BackendError, bench::BenchError, certs::CertsError,
    control::ControlError, demo::DemoError, explain::ExplainError, inspect::InspectError,
    load::LoadError, loads::LoadsError, node::NodeError,
};

/// The reasons why a command could not run, by the part that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The clients of a control plane cannot be shown.
    #[error(transparent)]
    Clients(#[from] AdminError),
    /// The backend could not start or serve.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A benchmark could not be completed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The certificates cannot be made.
    #[error(transparent)]
    Certs(#[from] CertsError),
    /// The control plane could not start.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The demo could not be shown.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// A call cannot be explained.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// A configuration cannot be inspected.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The load generator has nothing to call.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The loads of a control plane cannot be shown.
    #[error(transparent)]
    Loads(#[from] LoadsError),
    /// The node agent could not run.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A peer process of the benchmark or the demo failed.
    #[cfg(target_os = "linux")]
    #[error("a peer failed")]
    Peer(#[from] std::io::Error),
}

/// Shows an error followed by its causes, on one line.
///
/// A cause that its effect already quotes is not repeated.
pub fn chain(error: &dyn std::error::Error) -> impl Display + '_ {
    Chain(error)
}

struct Chain<'a>(&'a dyn std::error::Error);

impl Display for Chain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !said.contains(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Self>>);

    #[test]
    fn chain_names_each_cause_once() {
        let inner = Layer("connection refused", None);
        let middle = Layer("connection refused", Some(Box::new(inner)));
        let outer = Layer("cannot reach 127.0.0.1:1", Some(Box::new(middle)));
        assert_eq!(
            chain(&outer).to_string(),
            "cannot reach 127.0.0.1:1: connection refused"
        );
    }
}
