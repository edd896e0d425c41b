//! The limits of the books. They hold for all clients together, and a share of them for each stream.

/// The most that the books keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most rows. A row with a full history takes about a kilobyte.
    pub(super) rows: usize,
    /// The most rows that one stream may bring, so that no client takes them from all others.
    pub(super) rows_of_stream: usize,
    /// The most entries in all rows. Each name of a category or metric is one, and so are the last
    /// word of a reporter about a row and each metric in it. The largest takes about 600 bytes.
    pub(super) entries: usize,
    /// The most entries that one report may take.
    pub(super) entries_of_stream: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows: 50_000,
            rows_of_stream: 10_000,
            entries: 500_000,
            entries_of_stream: 100_000,
        }
    }
}
