//! Flow control of what the server sends (RFC 9113, section 5.2).

/// An increment that is as large is worth a frame, however large the window.
const WORTH_A_FRAME: u32 = 256 * 1024;

/// How much the server may send, on a stream or on all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    /// The most that may be under way.
    size: u32,
    /// The most that may be under way or unread. A stream's is its size.
    limit: u32,
    /// What the server may still send.
    left: u32,
    /// The number of bytes that came and were not read.
    unread: u32,
}

impl ReceiveWindow {
    /// What is given and what was not read are never more than `limit` together. A stream's limit is its
    /// size, so that it gets back what was read. A connection's is larger: what came is given back at once,
    /// because other streams need it.
    pub(crate) fn new(size: u32, limit: u32) -> Self {
        Self {
            size,
            limit,
            left: size,
            unread: 0,
        }
    }

    /// Something came; whether it was allowed to.
    #[must_use]
    pub(crate) fn receive(&mut self, len: usize) -> bool {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let left = self.left.checked_sub(len);
        self.left = left.unwrap_or(0);
        self.unread = self.unread.saturating_add(len);
        left.is_some()
    }

    /// Something was read, or thrown away.
    pub(crate) fn read(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.unread = self.unread.saturating_sub(len);
    }

    /// Makes a stream's window at least as large.
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

    /// How much more may be unread.
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
