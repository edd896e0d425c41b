//! The maps that the programs would read, in a form that a reviewer can read.

use std::fmt::Write;
use std::sync::Arc;

use crowfly_node::maps::SlotKey;
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::reconcile::Reconciler;
use crowfly_node::services::Services;

use super::error;

/// The maps that follow from services: each frontend with its slots and the backends that clients may return to
/// (its members), then all backends.
///
/// A slot has one backend, or two with the share of the first. Connections choose a slot at random,
/// then one of the two by its share.
pub(crate) fn maps(services: &Services) -> String {
    let mut reconciler = Reconciler::adopt(MemoryMaps::default()).unwrap();
    for (frontend, route) in services.routes() {
        reconciler.want(*frontend, Some(Arc::clone(route)));
    }
    reconciler.reconcile();
    assert!(reconciler.failed().is_empty(), "{:?}", reconciler.failed());
    let maps = reconciler.into_maps();
    let mut text = String::new();
    for (frontend, entry) in &maps.services {
        write!(text, "{frontend} is service {}", entry.service.0).unwrap();
        if entry.affinity > 0 {
            write!(text, " affinity={}s", entry.affinity).unwrap();
        }
        if entry.slots == 0 {
            write!(text, " without slots: {}", error(entry.without)).unwrap();
        }
        text.push('\n');
        for index in 0..entry.slots {
            let slot = maps.slots[&SlotKey {
                service: entry.service,
                generation: entry.generation,
                index,
            }];
            write!(text, "  slot {index}: backend {}", slot.first.0).unwrap();
            if slot.first != slot.second {
                let share = f64::from(slot.threshold) / f64::from(u32::MAX) * 100.0;
                write!(text, " {share:.1} %, else {}", slot.second.0).unwrap();
            }
            text.push('\n');
        }
        let members = maps.members.keys();
        let members = members.filter(|pair| pair.service == entry.service);
        let members: Vec<String> = members.map(|pair| pair.backend.0.to_string()).collect();
        if !members.is_empty() {
            writeln!(text, "  members: {}", members.join(", ")).unwrap();
        }
    }
    for (id, address) in &maps.backends {
        writeln!(text, "backend {} is {address}", id.0).unwrap();
    }
    text
}
