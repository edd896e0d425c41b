//! Flow control of the server's DATA (RFC 9113, section 5.2).
//!
//! A stream gives bytes back when they are read, so that its reader sets the pace. The connection gives them back
//! when they come, because other streams need its window. Both have one type.

/// The increment that is worth a frame, however large the window.
const WORTH_A_FRAME: u32 = 256 * 1024;

/// The window of a stream, or of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    /// The most bytes that may be under way.
    size: u32,
    /// The most bytes that may be under way or unread. The limit of a stream is its size.
    limit: u32,
    /// The bytes that the server may still send.
    left: u32,
    /// The number of bytes that came and were not read.
    unread: u32,
}

impl ReceiveWindow {
    /// A window whose open and unread bytes are never more than `limit` together. The limit of a stream is
    /// its size, so that bytes are given back when they are read. The limit of a connection is larger: bytes
    /// are given back when they come, because other streams need the window.
    pub(crate) fn new(size: u32, limit: u32) -> Self {
        Self {
            size,
            limit,
            left: size,
            unread: 0,
        }
    }

    /// Records that bytes came. False if the window had no room for them.
    #[must_use]
    pub(crate) fn receive(&mut self, len: usize) -> bool {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let left = self.left.checked_sub(len);
        self.left = left.unwrap_or(0);
        self.unread = self.unread.saturating_add(len);
        left.is_some()
    }

    /// Records that bytes were read or thrown away.
    pub(crate) fn read(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.unread = self.unread.saturating_sub(len);
    }

    /// Makes the window of a stream at least this large.
    pub(crate) fn grow(&mut self, size: u32) {
        self.size = self.size.max(size);
        self.limit = self.size;
    }

    /// The increment for the server, once it is worth a frame.
    pub(crate) fn increment(&mut self) -> Option<u32> {
        let missing = self.size.min(self.room()).saturating_sub(self.left);
        if missing < (self.size / 4).clamp(1, WORTH_A_FRAME) {
            return None;
        }
        self.left += missing;
        Some(missing)
    }

    /// The bytes that may still be unread.
    pub(crate) fn room(&self) -> u32 {
        self.limit.saturating_sub(self.unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_comes_on_a_stream_than_was_read() {
        let mut window = ReceiveWindow::new(100, 100);
        assert!(window.receive(100));
        assert!(!window.receive(1));
        let mut window = ReceiveWindow::new(100, 100);
        assert!(window.receive(100));
        window.read(24);
        assert_eq!(window.increment(), None);
        window.read(26);
        assert_eq!(window.increment(), Some(50));
        assert!(window.receive(50));
        assert!(!window.receive(1));
    }

    #[test]
    fn a_connection_gets_back_what_came_until_too_much_is_unread() {
        let mut window = ReceiveWindow::new(100, 1_000);
        for _ in 0..9 {
            assert!(window.receive(100));
            assert_eq!(window.increment(), Some(100));
        }
        assert!(window.receive(100));
        assert_eq!(window.increment(), None);
        window.read(60);
        assert_eq!(window.increment(), Some(60));
        assert!(window.receive(60));
        assert!(!window.receive(1), "more than may be unread");
    }

    #[test]
    fn a_window_that_grew_is_given_at_once() {
        let mut window = ReceiveWindow::new(100, 100);
        window.grow(300);
        assert_eq!(window.increment(), Some(200));
        window.grow(200);
        assert_eq!(window.increment(), None);
        assert!(window.receive(300));
    }
}
