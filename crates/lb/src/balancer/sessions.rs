//! Wakes the calls of sessions that wait.
//!
//! Such a call waits for the state of one endpoint, which most pickers do not depend on. So a change that it may
//! wait for makes a picker be published, even if that is the one in use.

use super::Balancer;

impl<T> Balancer<T> {
    /// Has the clusters settled in which something changed for sessions. Returns whether there are any.
    pub(super) fn hear_sessions(&mut self) -> bool {
        let stirred = self.pool.take_stirred();
        for changed in &stirred {
            if let Some(root) = self.clusters.get_mut(&changed.tree) {
                root.agenda.touch(changed.within);
                root.wakes |= changed.wakes;
                self.dirty_clusters.insert(changed.tree.clone());
            }
        }
        !stirred.is_empty()
    }

    /// Notes the calls to wake after a cluster was settled.
    pub(super) fn wake_sessions(&mut self) {
        for changed in self.pool.take_stirred() {
            if let Some(root) = self.clusters.get_mut(&changed.tree) {
                root.wakes |= changed.wakes;
            }
        }
    }
}
