//! Decides which errors take a resource out of use, and which leave the last good one in use.
//!
//! gRFC A88 replaces the rules of A53 and A57. Both sets of rules are here, because A88 is opt-in.
//! The rest of the crate calls these methods and does not know which rules apply.

use std::time::Duration;

/// The time that a server has to send a resource before it counts as non-existent (gRFC A27).
const DOES_NOT_EXIST: Duration = Duration::from_secs(15);
/// The time that a server has to send a resource before it counts as slow (gRFC A88). It applies to
/// servers that report it themselves when a resource does not exist.
const SLOW: Duration = Duration::from_secs(30);

/// The treatment of errors in the data of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataErrors {
    /// gRFC A53 and A57: a deletion takes a resource out of use, unless deletions are ignored. No
    /// other error does.
    Classic {
        /// The server feature `ignore_resource_deletion`.
        ignore_deletion: bool,
    },
    /// gRFC A88: every data error takes a resource out of use if `fail` is set. Otherwise no data
    /// error does.
    Uniform {
        /// The server feature `fail_on_data_errors`.
        fail: bool,
        /// The server feature `resource_timer_is_transient_error`.
        timer_is_transient: bool,
    },
}

impl DataErrors {
    /// True if a good resource stays in use after the server deleted it.
    pub(crate) fn keep_on_deletion(self) -> bool {
        match self {
            Self::Classic { ignore_deletion } => ignore_deletion,
            Self::Uniform { fail, .. } => !fail,
        }
    }

    /// True if a good resource stays in use after the server sent an invalid one in its place.
    pub(crate) fn keep_on_invalid(self) -> bool {
        match self {
            Self::Classic { .. } => true,
            Self::Uniform { fail, .. } => !fail,
        }
    }

    /// True if a good resource stays in use after the server reported the status `code` in its
    /// place. `None` if such reports are ignored, because only gRFC A88 gives them a meaning.
    pub(crate) fn keep_on_report(self, code: i32) -> Option<bool> {
        match self {
            Self::Classic { .. } => None,
            Self::Uniform { fail, .. } => Some(!fail || !is_data_error(code)),
        }
    }

    /// True if watchers are told of an ignored deletion as an ambient error. gRFC A53 only logs it.
    pub(crate) fn tells_ignored_deletion(self) -> bool {
        matches!(self, Self::Uniform { .. })
    }

    /// True if a resource that does not arrive in time means that the server is slow. Otherwise it
    /// means that the resource does not exist.
    pub(crate) fn timer_is_transient(self) -> bool {
        matches!(
            self,
            Self::Uniform {
                timer_is_transient: true,
                ..
            }
        )
    }

    /// The time to wait for a resource before it is reported as slow or as non-existent.
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

/// True for NOT_FOUND and PERMISSION_DENIED, because they are about the resource. Other codes are
/// about a passing state of the server.
fn is_data_error(code: i32) -> bool {
    const NOT_FOUND: i32 = 5;
    const PERMISSION_DENIED: i32 = 7;
    code == NOT_FOUND || code == PERMISSION_DENIED
}
