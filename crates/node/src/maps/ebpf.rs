//! The maps and programs in the kernel.
//!
//! Maps and links are pinned below one directory of a bpffs, so traffic flows on while the agent is
//! down. An agent that starts opens the pins that it finds. It replaces the programs of the links,
//! because it may be another version: each link has a program at every moment.

mod access;
mod links;
mod memory;
mod pins;
mod reports;
mod sockets;
mod sys;

pub use memory::memory;
pub use pins::clean;
pub use reports::EbpfReports;
pub use sockets::EbpfSockets;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aya::maps::{HashMap, MapData, MapInfo};
use aya::programs::{Program, ProgramError};
use aya::{Ebpf, EbpfError, EbpfLoader, include_bytes_aligned};
use tracing::warn;

use access::CounterMap;
use links::Links;
use pins::{PinnedMaps, lock, remove_pins};

/// Built from `bpf/crowfly.bpf.c` by `bpf/build`.
static OBJECT: &[u8] = include_bytes_aligned!("../../bpf/crowfly.bpf.o");

/// The version of the maps' layout. It changes if programs and agents of the former version could not use the
/// maps. While there are pins of another version, an agent does not start.
const LAYOUT: &str = "v2";

const LINKS: &str = "links";

/// Each program with the number of its hook (`enum bpf_attach_type`).
const PROGRAMS: [(&str, u32); 10] = [
    // Hooks that show frontends come before those that hide them.
    ("crowfly_getpeername4", 29),
    ("crowfly_getpeername6", 30),
    ("crowfly_recvmsg4", 19),
    ("crowfly_recvmsg6", 20),
    ("crowfly_sock_release", 34),
    ("crowfly_sockops", 3),
    ("crowfly_connect4", 10),
    ("crowfly_connect6", 11),
    ("crowfly_sendmsg4", 14),
    ("crowfly_sendmsg6", 15),
];

/// Each map with the size of its keys and values.
const MAPS: [(&str, u32, u32); 11] = [
    ("svc", 20, 20),
    ("slots", 12, 12),
    ("backends", 4, 20),
    ("members", 8, 4),
    ("affinity", 16, 16),
    ("reverse", 32, 28),
    ("stats", 8, 32),
    ("conn", 4, 48),
    ("reported", 8, 32),
    ("labels", 4, 512),
    ("routed", 8, 28),
];

/// Where programs are attached and maps are pinned.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory of a cgroup (v2). Its processes, and those of cgroups below it, are routed.
    pub cgroup: PathBuf,
    /// A directory in a bpffs, which is the agent's own. It is made if it is not there.
    pub pins: PathBuf,
    /// The room in the maps.
    pub capacity: Capacity,
    /// True if TCP sockets are ended as well when their backend is gone. Those of UDP always are.
    pub ends_tcp: bool,
}

/// The room in the maps. Maps that are pinned already keep theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Frontends: a ClusterIP with a port.
    pub frontends: u32,
    /// Backends of frontends, summed over all frontends. A change of a frontend needs room for both
    /// its old ones and its new ones.
    pub slots: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            frontends: 65_536,
            slots: 262_144,
        }
    }
}

/// The maps in the kernel. Dropping this leaves them, and the programs, as they are.
pub struct EbpfMaps {
    directory: PathBuf,
    pinned: PinnedMaps,
    /// `None` until the programs are attached.
    links: Option<Links>,
    services: HashMap<MapData, [u8; 20], [u8; 20]>,
    slots: HashMap<MapData, [u8; 12], [u8; 12]>,
    backends: HashMap<MapData, u32, [u8; 20]>,
    members: HashMap<MapData, [u8; 8], u32>,
    counters: CounterMap,
    /// A second handle of the counters, for reads on another thread.
    counters_to_read: Arc<CounterMap>,
}

impl fmt::Debug for EbpfMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EbpfMaps").finish_non_exhaustive()
    }
}

/// The reason why the kernel does not route.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// A file or directory.
    #[error("{}: {what}", path.display())]
    Path {
        /// Its path.
        path: PathBuf,
        /// The attempt that failed.
        what: &'static str,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The kernel does not take the object.
    #[error("the kernel does not take the maps")]
    Load(#[from] EbpfError),
    /// The kernel does not take a program.
    #[error("the kernel does not take the program {name}")]
    Program {
        /// Its name.
        name: &'static str,
        /// The reason, with the verifier's log.
        #[source]
        source: Box<ProgramError>,
    },
    /// The committed object is not what this file expects.
    #[error("the object has no {0}")]
    Missing(&'static str),
    /// A pinned map was made by another version.
    #[error(
        "{}: made by another version (keys of {key} bytes, values of {value}); \
         `crowfly node clean` removes it, which ends routing until the agent runs again",
        path.display()
    )]
    Layout {
        /// The path of its pin.
        path: PathBuf,
        /// The size of its keys.
        key: u32,
        /// The size of its values.
        value: u32,
    },
    /// An agent with another layout of the maps left its pins.
    #[error(
        "{}: made by another version, which routes on as it is; run that version, or \
         `crowfly node clean`, which ends routing until the agent runs again",
        .0.display()
    )]
    Version(PathBuf),
    /// Another agent runs.
    #[error("{}: another agent uses these pins", .0.display())]
    Busy(PathBuf),
    /// A map cannot be used.
    #[error("the map {name}")]
    Map {
        /// Its name.
        name: &'static str,
        /// The reason.
        #[source]
        source: aya::maps::MapError,
    },
}

impl EbpfMaps {
    /// Loads the programs, opens or makes the maps, and attaches the programs.
    ///
    /// # Errors
    /// The kernel, a directory or the rights of this process do not allow it. If there was no agent before, no pins are
    /// left. Otherwise its maps and links stay, and some links may have a program of this version already. Connections
    /// are routed on, because programs of both versions share the maps.
    pub fn install(settings: &Settings) -> Result<Self, InstallError> {
        let cgroup = File::open(&settings.cgroup)
            .map_err(|source| failed(&settings.cgroup, "cannot open the cgroup", source))?;
        let directory = settings.pins.join(LAYOUT);
        let versions = pins::versions(&settings.pins)?;
        // Its programs would go on choosing backends that nobody keeps up to date, before ours are asked.
        if let Some(other) = versions.iter().find(|version| **version != directory) {
            return Err(InstallError::Version(other.clone()));
        }
        let installed = Self::install_in(&directory, cgroup, settings);
        if installed.is_err() && versions.is_empty() {
            // The remains do no harm, but nobody asked for them.
            drop(clean(&settings.pins));
        }
        installed
    }

    fn install_in(
        directory: &Path,
        cgroup: File,
        settings: &Settings,
    ) -> Result<Self, InstallError> {
        let links = directory.join(LINKS);
        fs::create_dir_all(&links)
            .map_err(|source| failed(&links, "cannot make the directory", source))?;
        let lock = lock(directory)?;
        let mut ebpf = load(directory, settings.capacity, settings.ends_tcp)?;
        let mut maps = Self::take(&mut ebpf, lock, directory)?;
        let links = Links::attach(&ebpf, cgroup, &settings.cgroup, links)?;
        maps.links = Some(links);
        Ok(maps)
    }

    fn take(ebpf: &mut Ebpf, lock: File, directory: &Path) -> Result<Self, InstallError> {
        let mut map = |name| ebpf.take_map(name).ok_or(InstallError::Missing(name));
        let wrong = |name| move |source| InstallError::Map { name, source };
        Ok(Self {
            directory: directory.to_owned(),
            pinned: PinnedMaps::open(directory, lock)?,
            links: None,
            services: map("svc")?.try_into().map_err(wrong("svc"))?,
            slots: map("slots")?.try_into().map_err(wrong("slots"))?,
            backends: map("backends")?.try_into().map_err(wrong("backends"))?,
            members: map("members")?.try_into().map_err(wrong("members"))?,
            counters: map("stats")?.try_into().map_err(wrong("stats"))?,
            counters_to_read: Arc::new(reports::open(directory, "stats")?),
        })
    }
}

impl EbpfMaps {
    /// The maps of load reports, to be used beside these.
    ///
    /// # Errors
    /// A pin cannot be opened.
    pub fn reports(&self) -> Result<EbpfReports, InstallError> {
        EbpfReports::open(&self.directory)
    }

    /// The sockets of the settings' cgroup that were routed.
    ///
    /// # Errors
    /// A pin cannot be opened.
    pub fn sockets(&self, settings: &Settings) -> Result<EbpfSockets, InstallError> {
        EbpfSockets::open(&self.directory, settings)
    }
}

/// Loads the programs into the kernel and removes them again.
///
/// # Errors
/// The kernel or the rights of this process do not allow it.
pub fn try_load(pins: &Path) -> Result<(), InstallError> {
    // No dot: a bpffs takes none.
    let name = pins.file_name().unwrap_or_default().to_string_lossy();
    let directory = pins.with_file_name(format!("{name}-check-{}", std::process::id()));
    let loaded = load(&directory, Capacity::default(), false);
    let removed = remove_pins(&directory);
    loaded?;
    removed.map_err(|source| failed(&directory, "cannot remove the pins", source))?;
    Ok(())
}

fn load(directory: &Path, capacity: Capacity, ends_tcp: bool) -> Result<Ebpf, InstallError> {
    fs::create_dir_all(directory)
        .map_err(|source| failed(directory, "cannot make the directory", source))?;
    for (name, key, value) in MAPS {
        check_layout(&directory.join(name), key, value)?;
    }
    let room = [
        ("svc", capacity.frontends),
        ("slots", capacity.slots),
        ("backends", capacity.slots),
        ("members", capacity.slots),
        // Pairs that have left a frontend stay while connections are open or not reported. A program that finds no room
        // loses counts, and nobody is told.
        ("stats", capacity.slots.saturating_mul(2)),
        // A pair without room here waits until others are forgotten.
        ("reported", capacity.slots),
        // A pair has one label, which many pairs have. Room that is not used costs 16 bytes for each.
        ("labels", capacity.slots),
    ];
    let ends_tcp = u32::from(ends_tcp);
    let mut loader = EbpfLoader::new();
    loader.override_global("ends_tcp", &ends_tcp, true);
    loader.default_map_pin_directory(directory);
    for (name, entries) in room {
        loader.map_max_entries(name, entries);
        if let Ok(found) = MapInfo::from_pin(directory.join(name))
            && found.max_entries() != entries
        {
            let kept = found.max_entries();
            warn!("map {name} keeps its room for {kept} entries, because it is in use");
        }
    }
    let mut ebpf = loader.load(OBJECT)?;
    for (name, _) in PROGRAMS {
        let program = ebpf.program_mut(name).ok_or(InstallError::Missing(name))?;
        let loaded = match program {
            Program::CgroupSockAddr(program) => program.load(),
            Program::CgroupSock(program) => program.load(),
            Program::SockOps(program) => program.load(),
            _ => return Err(InstallError::Missing(name)),
        };
        loaded.map_err(|source| InstallError::Program {
            name,
            source: Box::new(source),
        })?;
    }
    Ok(ebpf)
}

fn check_layout(path: &Path, key: u32, value: u32) -> Result<(), InstallError> {
    let Ok(found) = MapInfo::from_pin(path) else {
        return Ok(());
    };
    if (found.key_size(), found.value_size()) == (key, value) {
        return Ok(());
    }
    Err(InstallError::Layout {
        path: path.to_owned(),
        key: found.key_size(),
        value: found.value_size(),
    })
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> InstallError {
    InstallError::Path {
        path: path.to_owned(),
        what,
        source,
    }
}
