//! Calls that go on while something happens, and the result of each.
//!
//! A test needs every result, because one failed call among thousands is what it looks for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crowfly::{Channel, WaitForReady};
use crowfly_e2e::rpc::{self, Spread};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tonic::{Extensions, Status};

/// The pause of a caller between two calls. With it the load is steady, and other processes have
/// time to run.
const PACE: Duration = Duration::from_millis(5);
const CALLERS: usize = 4;

/// Callers that call until they are stopped.
pub(crate) struct Load {
    ended: Arc<Mutex<Vec<Ended>>>,
    stopped: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
}

/// A call that is over.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) begun: Instant,
    pub(crate) at: Instant,
    /// The name of the backend that answered, or the failure.
    pub(crate) result: Result<String, Status>,
}

impl Load {
    /// Calls that fail if they cannot be sent.
    pub(crate) fn start(channel: &Channel) -> Self {
        Self::with(channel, WaitForReady(false))
    }

    /// Calls that wait until they can be sent.
    pub(crate) fn start_waiting(channel: &Channel) -> Self {
        Self::with(channel, WaitForReady(true))
    }

    fn with(channel: &Channel, wait_for_ready: WaitForReady) -> Self {
        let channel = channel.clone();
        Self::of(move || {
            let channel = channel.clone();
            async move {
                let mut extensions = Extensions::new();
                extensions.insert(wait_for_ready);
                rpc::unary_call_with(&channel, extensions).await
            }
        })
    }

    /// Calls of any kind, which return the name of the backend that answered.
    pub(crate) fn of<F>(call: impl Fn() -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Result<String, Status>> + Send,
    {
        let ended = Arc::<Mutex<Vec<Ended>>>::default();
        let stopped = Arc::<AtomicBool>::default();
        let caller = |_| {
            let (call, ended, stopped) = (call.clone(), ended.clone(), stopped.clone());
            tokio::spawn(async move {
                while !stopped.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let result = call().await;
                    ended.lock().unwrap().push(Ended {
                        begun,
                        at: Instant::now(),
                        result,
                    });
                    sleep(PACE).await;
                }
            })
        };
        let callers = (0..CALLERS).map(caller).collect();
        Self {
            ended,
            stopped,
            callers,
        }
    }

    /// Lets the last calls end; returns all of them.
    pub(crate) async fn stop(self) -> Vec<Ended> {
        self.stopped.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await.unwrap();
        }
        std::mem::take(&mut *self.ended.lock().unwrap())
    }

    /// Lets the last calls end; returns the number of answers of each backend.
    pub(crate) async fn stop_without_failure(self) -> Spread {
        let calls = self.stop().await;
        let failures: Vec<_> = calls.iter().filter(|call| call.result.is_err()).collect();
        assert!(
            failures.is_empty(),
            "{} of {} failed, such as {:?}",
            failures.len(),
            calls.len(),
            failures[0]
        );
        let mut spread = Spread::new();
        for backend in calls.into_iter().filter_map(|call| call.result.ok()) {
            *spread.entry(backend).or_default() += 1;
        }
        spread
    }
}
