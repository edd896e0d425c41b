//! A source of counts whose numbers a test sets, because the true ones come from calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use crowfly_names::{ClusterLoad, LocalityId, LocalityLoad};
use crowfly_xds::load_report::LoadSource;

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) clusters: BTreeMap<String, FakeCluster>,
    /// The ways of reports, as the source is told them.
    pub(crate) told: Vec<&'static str>,
    pub(crate) cannot_store: bool,
}

pub(crate) struct FakeCluster {
    pub(crate) load: ClusterLoad,
    pub(crate) is_used: bool,
    pub(crate) is_listed_twice: bool,
}

impl FakeCluster {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            load: ClusterLoad {
                cluster: name.into(),
                eds_service_name: None,
                drops: Vec::new(),
                uncategorized_drops: 0,
                localities: vec![LocalityLoad {
                    locality: LocalityId::new("eu", "z", ""),
                    ..LocalityLoad::default()
                }],
                is_sparse: false,
            },
            is_used: true,
            is_listed_twice: false,
        }
    }

    fn take(&mut self) -> ClusterLoad {
        let taken = self.load.clone();
        self.load.drops.clear();
        self.load.uncategorized_drops = 0;
        let locality = &mut self.load.localities[0];
        *locality = LocalityLoad {
            locality: locality.locality.clone(),
            in_progress: locality.in_progress,
            ..LocalityLoad::default()
        };
        taken
    }
}

impl LoadSource for Fake {
    fn is_in_use(&self) -> bool {
        self.clusters.values().any(|cluster| cluster.is_used)
    }

    fn take(&mut self) -> Vec<ClusterLoad> {
        let mut loads = Vec::new();
        self.clusters.retain(|_, cluster| {
            loads.push(cluster.take());
            if cluster.is_listed_twice {
                loads.push(cluster.take());
            }
            cluster.is_used
        });
        loads
    }

    fn sending(&mut self) -> Result<(), Arc<str>> {
        self.told.push("sending");
        match self.cannot_store {
            true => Err("the map is full".into()),
            false => Ok(()),
        }
    }

    fn sent(&mut self) {
        self.told.push("sent");
    }

    fn unsent(&mut self) {
        self.told.push("unsent");
    }
}
