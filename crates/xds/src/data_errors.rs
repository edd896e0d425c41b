//! Which trouble with a resource takes the good one away that is in use.
//!
//! gRFC A88 replaces what A53 and A57 said. Both are here, because its new behaviour is opt-in: the
//! rest of the crate asks these questions and does not know which of the two answers.

use std::time::Duration;

/// How long a server may take to send a resource before it counts as non-existent (gRFC A27).
const DOES_NOT_EXIST: Duration = Duration::from_secs(15);
/// The same where the server says so itself if a resource does not exist (gRFC A88).
const SLOW: Duration = Duration::from_secs(30);

/// How errors in the data of one server are dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataErrors {
    /// gRFC A53 and A57: deletion takes a resource away unless that is to be ignored; nothing else
    /// does.
    Classic {
        /// The server feature `ignore_resource_deletion`.
        ignore_deletion: bool,
    },
    /// gRFC A88: nothing takes a resource away, unless the server is not trusted to raise an alarm;
    /// then everything does.
    Uniform {
        /// The server feature `fail_on_data_errors`.
        fail: bool,
        /// The server feature `resource_timer_is_transient_error`.
        timer_is_transient: bool,
    },
}

impl DataErrors {
    /// Whether a good resource stays in use after the server deleted it.
    pub(crate) fn keep_on_deletion(self) -> bool {
        match self {
            Self::Classic { ignore_deletion } => ignore_deletion,
            Self::Uniform { fail, .. } => !fail,
        }
    }

    /// Whether a good resource stays in use after an invalid one came in its place.
    pub(crate) fn keep_on_invalid(self) -> bool {
        match self {
            Self::Classic { .. } => true,
            Self::Uniform { fail, .. } => !fail,
        }
    }

    /// Whether a good resource stays in use after the server reported `code` in its place; `None`
    /// if such reports are not read.
    pub(crate) fn keep_on_report(self, code: i32) -> Option<bool> {
        match self {
            Self::Classic { .. } => None,
            Self::Uniform { fail, .. } => Some(!fail || !is_data_error(code)),
        }
    }

    /// Whether an ignored deletion is told as an ambient error. gRFC A53 has it logged only.
    pub(crate) fn tells_ignored_deletion(self) -> bool {
        matches!(self, Self::Uniform { .. })
    }

    /// Whether a resource that does not come in time counts as a slow server.
    pub(crate) fn timer_is_transient(self) -> bool {
        matches!(
            self,
            Self::Uniform {
                timer_is_transient: true,
                ..
            }
        )
    }

    /// How long to wait for a resource.
    pub(crate) fn resource_timeout(self) -> Duration {
        if self.timer_is_transient() {
            SLOW
        } else {
            DOES_NOT_EXIST
        }
    }
}

impl Default for DataErrors {
    fn default() -> Self {
        Self::Classic {
            ignore_deletion: false,
        }
    }
}

/// NOT_FOUND and PERMISSION_DENIED speak about the resource; other codes about the moment.
fn is_data_error(code: i32) -> bool {
    const NOT_FOUND: i32 = 5;
    const PERMISSION_DENIED: i32 = 7;
    code == NOT_FOUND || code == PERMISSION_DENIED
}
