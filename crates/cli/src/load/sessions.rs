//! Sessions: each has cookies of its own, as the callers of a program have.
//!
//! The calls of a session come one after the other, because a call sends the cookie that the answer
//! to the call before has set.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tonic::{
    Response, Status,
    metadata::{AsciiMetadataValue, MetadataMap},
};

use super::Stats;
use crate::testing::SimpleResponse;

/// The sessions of a load, which take turns.
#[derive(Debug)]
pub(super) struct Sessions {
    all: Box<[Arc<Mutex<Session>>]>,
    next: AtomicUsize,
}

impl Sessions {
    /// A load of this many sessions, which have no cookie yet.
    pub(super) fn new(count: usize) -> Self {
        Self {
            all: (0..count).map(|_| Arc::default()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// The next session, once its last call has ended; `None` if there are no sessions.
    pub(super) async fn next(&self) -> Option<OwnedMutexGuard<Session>> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let session = self.all.get(turn.checked_rem(self.all.len())?)?;
        Some(Arc::clone(session).lock_owned().await)
    }
}

/// One session: its cookies, and the server that it is on.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Names and values.
    cookies: Vec<(String, String)>,
    server: Option<String>,
    has_moved: bool,
}

impl Session {
    /// Adds the cookies of the session to the metadata of a call.
    pub(super) fn identify(&self, metadata: &mut MetadataMap) {
        let cookies = self.cookies.iter();
        let cookies: Vec<_> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if let Ok(header) = AsciiMetadataValue::try_from(cookies.join("; "))
            && !cookies.is_empty()
        {
            metadata.append("cookie", header);
        }
    }

    /// Handles the end of a call: the cookies that it set, and the server that answered.
    pub(super) fn called(
        &mut self,
        result: &Result<Response<SimpleResponse>, Status>,
        stats: &Stats,
    ) {
        match result {
            Ok(response) => {
                self.keep_cookies(response.metadata());
                self.answered_by(&response.get_ref().hostname, stats);
            }
            Err(status) => self.keep_cookies(status.metadata()),
        }
    }

    /// Keeps the cookies of a response. A cookie of the same name is replaced; attributes have no
    /// effect.
    fn keep_cookies(&mut self, metadata: &MetadataMap) {
        for set in metadata.get_all("set-cookie") {
            let pair = set.to_str().ok().and_then(|set| set.split(';').next());
            let Some((name, value)) = pair.and_then(|pair| pair.trim().split_once('=')) else {
                continue;
            };
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
    }

    fn answered_by(&mut self, server: &str, stats: &Stats) {
        match &self.server {
            Some(known) if known == server => return,
            Some(_) => {
                stats.session_moved(!self.has_moved);
                self.has_moved = true;
            }
            None => stats.session_began(),
        }
        self.server = Some(server.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(by: &str, cookies: &[&str]) -> Result<Response<SimpleResponse>, Status> {
        let mut response = Response::new(SimpleResponse {
            hostname: by.to_owned(),
            ..SimpleResponse::default()
        });
        for cookie in cookies {
            let cookie = cookie.parse().unwrap();
            response.metadata_mut().append("set-cookie", cookie);
        }
        Ok(response)
    }

    fn cookie(session: &Session) -> Option<String> {
        let mut metadata = MetadataMap::new();
        session.identify(&mut metadata);
        let cookie = metadata.get("cookie")?;
        Some(cookie.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_session_sends_back_the_last_cookie_of_each_name() {
        let stats = Stats::with_sessions(1);
        let mut session = Session::default();
        assert_eq!(cookie(&session), None);
        session.called(
            &answer("a", &["s=1; HttpOnly; Path=/", "t=x=y", "odd"]),
            &stats,
        );
        assert_eq!(cookie(&session).unwrap(), "s=1; t=x=y");
        session.called(&answer("a", &["s=2"]), &stats);
        assert_eq!(cookie(&session).unwrap(), "t=x=y; s=2");
        // A failure may set one, too.
        let mut status = Status::unavailable("");
        status
            .metadata_mut()
            .insert("set-cookie", "s=3".parse().unwrap());
        session.called(&Err(status), &stats);
        assert_eq!(cookie(&session).unwrap(), "t=x=y; s=3");
    }

    #[tokio::test]
    async fn sessions_take_turns_and_their_moves_are_counted() {
        let stats = Stats::with_sessions(4);
        let sessions = Sessions::new(4);
        // The last session is never answered.
        for servers in [["a", "b", "c"], ["a", "b", "d"], ["a", "a", "c"]] {
            for server in servers {
                let mut session = sessions.next().await.unwrap();
                session.called(&answer(server, &[]), &stats);
            }
            let _unanswered = sessions.next().await.unwrap();
        }
        let report = stats.report().sessions.unwrap();
        assert_eq!((report.stayed, report.moved, report.moves), (1, 2, 3));
        assert_eq!(report.unanswered, 1);
        assert!(Sessions::new(0).next().await.is_none());
    }
}
