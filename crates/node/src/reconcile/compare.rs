//! The maps against what they should hold: another program may have deleted or changed an entry.
//!
//! A comparison goes over all frontends, some at a time, because each entry costs a system call and the agent does
//! nothing else meanwhile. It does not look for entries that should not be there: they do no harm, and the next start
//! of an agent deletes them.

use std::ops::Bound::{Excluded, Unbounded};

use super::Reconciler;
use crate::maps::{MapError, Maps, Operation, Pair};
use crate::select::Frontend;

/// The frontends of one call of [`Reconciler::compare`].
const SOME: usize = 256;

/// The repairs of one call of [`Reconciler::compare`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// The frontends that had missing or wrong entries, with the number of these.
    pub frontends: Vec<(Frontend, usize)>,
    /// The programs that were not attached any more.
    pub programs: Vec<&'static str>,
    /// The reasons why something cannot be compared or repaired. The next comparison tries again.
    pub failed: Vec<MapError>,
}

/// The state of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    #[default]
    Done,
    Begun,
    /// All frontends up to this one were compared.
    UpTo(Frontend),
}

impl<M: Maps> Reconciler<M> {
    /// Begins a comparison, unless one is under way.
    pub fn begin_comparison(&mut self) {
        if self.compared == Progress::Done {
            self.compared = Progress::Begun;
        }
    }

    /// True if a comparison is under way.
    pub fn is_comparing(&self) -> bool {
        self.compared != Progress::Done
    }

    /// Compares the next frontends with the maps, and repairs what differs. The first call of a comparison looks at the
    /// programs as well.
    pub fn compare(&mut self) -> Repairs {
        let mut repairs = Repairs::default();
        let after = match self.compared {
            Progress::Done => return repairs,
            Progress::Begun => {
                match self.maps.attach_again() {
                    Ok(programs) => repairs.programs = programs,
                    Err(error) => repairs.failed.push(error),
                }
                Unbounded
            }
            Progress::UpTo(frontend) => Excluded(frontend),
        };
        let next = self.programmed.range((after, Unbounded)).take(SOME);
        let next: Vec<Frontend> = next.map(|(frontend, _)| *frontend).collect();
        for frontend in &next {
            match self.repair(*frontend) {
                Ok(0) => {}
                Ok(entries) => repairs.frontends.push((*frontend, entries)),
                Err(error) => repairs.failed.push(error),
            }
        }
        self.compared = match next.last() {
            Some(last) if next.len() == SOME => Progress::UpTo(*last),
            _ => Progress::Done,
        };
        repairs
    }

    /// Writes the entries of a frontend that are missing or wrong, in the order of a change.
    fn repair(&mut self, frontend: Frontend) -> Result<usize, MapError> {
        let mut repaired = 0;
        for operation in self.entries_of(frontend) {
            if !self.maps.holds(&operation)? {
                self.maps.apply(&operation)?;
                repaired += 1;
            }
        }
        Ok(repaired)
    }

    /// The changes that would write all entries of a frontend.
    fn entries_of(&self, frontend: Frontend) -> Vec<Operation> {
        let Some(programmed) = self.programmed.get(&frontend) else {
            return Vec::new();
        };
        let service = programmed.entry.service;
        let backends = programmed.backends.iter().filter_map(|id| {
            let held = self.backends.held.get(id)?;
            Some(Operation::PutBackend(*id, held.address()))
        });
        let slots = programmed.keys().zip(&programmed.slots);
        let slots = slots.map(|(key, slot)| Operation::PutSlot(key, *slot));
        let members = programmed.members.iter();
        let members = members.map(|&backend| Operation::PutMember(Pair { service, backend }));
        let entry = Operation::PutService(frontend, programmed.entry);
        let entries = backends.chain(slots).chain(members);
        entries.chain([entry]).collect()
    }
}
