//! The limits of the books. They hold for all clients together, and a share of them for each stream.

/// The most that the books keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most rows. A row with a full history takes about a kilobyte.
    pub(super) rows: usize,
    /// The most rows that one stream may bring, so that no client takes them from all others.
    pub(super) rows_of_stream: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows: 50_000,
            rows_of_stream: 10_000,
        }
    }
}
