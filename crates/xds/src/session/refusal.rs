//! The text of a NACK.
//!
//! It lists every bad resource up to a size limit, because a server refuses a request that is too
//! large.

use std::fmt::{self, Write as _};

use envoy_types::pb::google::rpc::Status;

const INVALID_ARGUMENT: i32 = 3;
/// Well under the 4 MiB that gRPC servers accept by default.
const MAX_BYTES: usize = 256 << 10;

/// All errors of a response in one text (gRFC A46), up to a size limit. A request over the limit of
/// the server would end the stream, and the next one as well. Errors beyond the limit are only
/// counted, because a response can hold millions.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    text: String,
    errors: usize,
    left_out: usize,
}

impl Refusal {
    pub(super) fn push(&mut self, error: fmt::Arguments<'_>) {
        self.errors += 1;
        if self.left_out == 0 {
            let end = self.text.len();
            // A String takes all that is written to it.
            let _ = writeln!(self.text, "{error}");
            if self.text.len() <= MAX_BYTES {
                return;
            }
            self.text.truncate(end);
        }
        self.left_out += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.errors == 0
    }

    /// The number of errors, including those that are not in the text.
    pub(super) fn len(&self) -> usize {
        self.errors
    }

    /// A NACK's `error_detail`; none for an ACK.
    pub(super) fn to_status(&self) -> Option<Status> {
        if self.is_empty() {
            return None;
        }
        let mut message = self.to_string();
        // The message may wait for long, so it keeps no spare memory.
        message.shrink_to_fit();
        Some(Status {
            code: INVALID_ARGUMENT,
            message,
            ..Status::default()
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.left_out {
            0 => f.write_str(self.text.trim_end()),
            left_out => write!(f, "{}and {left_out} more", self.text),
        }
    }
}
