//! The programs and links that an agent of an older version leaves in the kernel.
//!
//! `older.bpf.o` is the first object that this repository had. Its programs share the layout of their maps with
//! today's, and differ from them.

use std::collections::BTreeMap;
use std::fs::{self, File};

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::{CgroupAttachMode, Program, loaded_programs};
use aya::{EbpfLoader, include_bytes_aligned};

use crate::lab::Lab;

static OBJECT: &[u8] = include_bytes_aligned!("older.bpf.o");

/// Maps that the first version did not have.
pub(crate) const LATER_MAPS: [&str; 3] = ["reported", "labels", "routed"];

/// Programs that are others today.
pub(crate) const CHANGED: [&str; 6] = [
    "crowfly_connect4",
    "crowfly_connect6",
    "crowfly_sendmsg4",
    "crowfly_sendmsg6",
    "crowfly_sock_release",
    "crowfly_sockops",
];

/// A pinned link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) id: u32,
    pub(crate) program: u32,
    /// The kernel's hash of the program's instructions.
    pub(crate) tag: u64,
}

/// The links of an agent by name.
pub(crate) fn links(lab: &Lab) -> BTreeMap<String, Link> {
    let pins = fs::read_dir(lab.pins().join("v2/links")).unwrap();
    let links = pins.map(|pin| {
        let pin = pin.unwrap();
        let link = FdLink::from(PinnedLink::from_pin(pin.path()).unwrap());
        let info = link.info().unwrap();
        let (id, program) = (info.id(), info.program_id());
        // Programs of other tests may go in between, which ends the list.
        let mut programs = loaded_programs().flatten();
        let tag = programs.find(|it| it.id() == program).unwrap().tag();
        let name = pin.file_name().into_string().unwrap();
        (name, Link { id, program, tag })
    });
    let links: BTreeMap<_, _> = links.collect();
    assert_eq!(links.len(), 10, "{links:?}");
    links
}

/// Puts the first version's programs in the place of those that an agent left. Connections must not be made
/// meanwhile: only an agent knows how to leave no gap.
pub(crate) fn install(lab: &Lab) {
    let pins = lab.pins().join("v2");
    // `clean` detaches at once. The kernel detaches a link without a pin some time later.
    let old = lab.pins().with_file_name("old");
    fs::create_dir_all(old.join("v2")).unwrap();
    fs::rename(pins.join("links"), old.join("v2/links")).unwrap();
    let (ok, text) = lab.crowfly(&["clean", "--pins", old.to_str().unwrap()]);
    assert!(ok && text.contains(": 10 pins removed"), "{text}");
    fs::create_dir(pins.join("links")).unwrap();
    let mut loader = EbpfLoader::new();
    let mut ebpf = loader
        .default_map_pin_directory(&pins)
        .load(OBJECT)
        .unwrap();
    let cgroup = File::open(lab.cgroup()).unwrap();
    let mode = CgroupAttachMode::Single;
    for (name, program) in ebpf.programs_mut() {
        let link: FdLink = match program {
            Program::CgroupSockAddr(program) => {
                program.load().unwrap();
                let link = program.attach(&cgroup, mode).unwrap();
                program.take_link(link).unwrap().try_into().unwrap()
            }
            Program::CgroupSock(program) => {
                program.load().unwrap();
                let link = program.attach(&cgroup, mode).unwrap();
                program.take_link(link).unwrap().try_into().unwrap()
            }
            Program::SockOps(program) => {
                program.load().unwrap();
                let link = program.attach(&cgroup, mode).unwrap();
                program.take_link(link).unwrap().try_into().unwrap()
            }
            _ => panic!("{name}"),
        };
        link.pin(pins.join("links").join(name)).unwrap();
    }
}
