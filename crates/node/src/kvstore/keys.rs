//! The keys of a ClusterMesh. They are those that Cilium writes, because the agent reads an etcd that Cilium fills.

use bytes::Bytes;

/// The configurations of all clusters.
pub(super) const CONFIG: &str = "cilium/cluster-config/";

/// The key that is rewritten every minute.
pub(super) const HEARTBEAT: &str = "cilium/.heartbeat";

/// The longest name of a cluster.
const MAX_CLUSTER_NAME: usize = 32;

/// The prefix of the keys that say which parts of a cluster are written in full.
pub(super) fn synced(cluster: &str) -> String {
    format!("cilium/synced/{cluster}/")
}

/// The key that says that all services of a cluster are written.
pub(super) fn canary(cluster: &str, is_cached: bool) -> String {
    format!("{}{}", synced(cluster), services_of_all(is_cached))
}

/// The prefix of the services of a cluster. Its slash keeps cluster `ab` out of cluster `a`.
pub(super) fn services(cluster: &str, is_cached: bool) -> Bytes {
    format!("{}/{cluster}/", services_of_all(is_cached)).into()
}

fn services_of_all(is_cached: bool) -> &'static str {
    if is_cached {
        "cilium/cache/services/v1"
    } else {
        "cilium/state/services/v1"
    }
}

/// The mistake in the name of a cluster, if there is one.
pub(super) fn check_cluster_name(name: &str) -> Result<(), String> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_valid = !name.is_empty()
        && name.len() <= MAX_CLUSTER_NAME
        && name.bytes().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if is_valid {
        return Ok(());
    }
    Err(format!(
        "expected the name of a cluster (a-z, 0-9 and inner `-`, at most {MAX_CLUSTER_NAME} characters), \
         got {:?}",
        shown(name.as_bytes())
    ))
}

/// A key as it is shown to people: an etcd may hold keys of any length, and of any bytes.
pub(super) fn shown(key: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(key))
}

/// A text whose length others decide, cut to what a line of a log can have.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N-59: names of clusters are those that Cilium allows.
    #[test]
    fn names_of_clusters() {
        for good in ["a", "ab", "a-b", "0", &"x".repeat(32)] {
            assert_eq!(check_cluster_name(good), Ok(()), "{good}");
        }
        for bad in ["", "A", "a/b", "-a", "a-", "a.b", "a_b", &"x".repeat(33)] {
            assert!(check_cluster_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_text_of_any_length_is_cut() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"ä".repeat(1_000_000)).chars().count(), 203);
    }
}
