//! The pins of an agent, of this version and of others.
//!
//! Below the agent's directory each version of the maps' layout has a directory of its own, with the pins of its
//! maps. The pins of its links are in [`LINKS`] below that.

use std::cmp::Reverse;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::maps::{MapData, MapInfo};
use tracing::warn;

use super::{InstallError, LINKS, MAPS, PROGRAMS, failed, sys};

/// The maps in use, and their pins. The lock keeps other agents away from the pins.
pub(super) struct PinnedMaps {
    directory: PathBuf,
    lock: File,
    maps: Vec<(&'static str, MapInfo, MapData)>,
}

impl PinnedMaps {
    /// Opens the maps of a directory that this agent has locked.
    pub(super) fn open(directory: &Path, lock: File) -> Result<Self, InstallError> {
        let maps = MAPS.iter().map(|(name, ..)| {
            let map = MapData::from_pin(directory.join(name));
            let map = map.and_then(|map| Ok((*name, map.info()?, map)));
            map.map_err(|source| InstallError::Map { name, source })
        });
        Ok(Self {
            directory: directory.to_owned(),
            lock,
            maps: maps.collect::<Result<_, _>>()?,
        })
    }

    /// The room of each map that has any, which its pin may have from another agent.
    pub(super) fn capacities(&self) -> Vec<(&'static str, u32)> {
        let rooms = self.maps.iter();
        let rooms = rooms.map(|(name, info, _)| (*name, info.max_entries()));
        rooms.filter(|(_, room)| *room > 0).collect()
    }

    /// Pins the maps whose pins are gone, or are pins of other maps. Without them the next agent would begin with empty
    /// maps.
    pub(super) fn pin_again(&mut self) -> Result<(), InstallError> {
        let directory = &self.directory;
        fs::create_dir_all(directory)
            .map_err(|source| failed(directory, "cannot make the directory", source))?;
        // A lock on a directory that was removed keeps nobody away from its successor.
        let is_same = same_file(&self.lock, directory);
        if !is_same.map_err(|source| failed(directory, "cannot read the directory", source))? {
            self.lock = lock(directory)?;
        }
        for (name, info, map) in &self.maps {
            let pin = directory.join(name);
            if MapInfo::from_pin(&pin).is_ok_and(|found| found.id() == info.id()) {
                continue;
            }
            remove(&pin).map_err(|source| failed(&pin, "cannot remove the pin", source))?;
            sys::pin(map.fd().as_fd(), &pin)
                .map_err(|source| failed(&pin, "cannot pin a map", source))?;
            warn!("the map {name} was not pinned any more, and is again");
        }
        Ok(())
    }
}

/// True if a path leads to the file that is open.
fn same_file(file: &File, path: &Path) -> io::Result<bool> {
    let (file, found) = (file.metadata()?, fs::metadata(path)?);
    Ok((file.dev(), file.ino()) == (found.dev(), found.ino()))
}

/// Detaches the programs and removes every map, also those of other versions of the agent. Returns the number
/// of pins that there were.
///
/// # Errors
/// An agent runs, or a pin cannot be removed.
pub fn clean(pins: &Path) -> Result<usize, InstallError> {
    let versions = versions(pins)?;
    let mut removed = 0;
    for directory in &versions {
        let _lock = lock(directory)?;
        removed += remove_pins(directory)
            .map_err(|source| failed(directory, "cannot remove the pins", source))?;
    }
    if !versions.is_empty() {
        fs::remove_dir(pins)
            .map_err(|source| failed(pins, "cannot remove the directory", source))?;
    }
    Ok(removed)
}

/// The directories of all versions that left pins.
pub(super) fn versions(pins: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let is_version = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.strip_prefix('v').unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && path.is_dir()
    };
    let mut paths =
        entries(pins).map_err(|source| failed(pins, "cannot read the directory", source))?;
    paths.retain(is_version);
    Ok(paths)
}

/// Locks a directory of pins until the file is dropped, however this process ends.
pub(super) fn lock(directory: &Path) -> Result<File, InstallError> {
    let file = File::open(directory)
        .map_err(|source| failed(directory, "cannot open the directory", source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(InstallError::Busy(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(directory, "cannot be locked", source)),
    }
}

/// Removes a directory of pins, and returns their number. What is no pin keeps it, which is an error.
pub(super) fn remove_pins(directory: &Path) -> io::Result<usize> {
    let mut removed = 0;
    let links = directory.join(LINKS);
    // Links first, and those that hide frontends before those that show them: the reverse of `attach`.
    let mut pins = entries(&links)?;
    pins.sort_by_key(|pin| Reverse(PROGRAMS.iter().position(|(name, _)| pin.ends_with(name))));
    for pin in pins {
        let Ok(link) = sys::open_pin(&pin) else {
            continue;
        };
        sys::detach_link(link.as_fd())?;
        removed += remove(&pin)?;
    }
    // By what is there and not by name: another version may have other maps.
    for pin in entries(directory)? {
        if sys::open_pin(&pin).is_ok() {
            removed += remove(&pin)?;
        }
    }
    for directory in [&links, directory] {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(removed)
}

/// Removes a pin if it is there, and returns the number of pins that were.
pub(super) fn remove(path: &Path) -> io::Result<usize> {
    match fs::remove_file(path) {
        Ok(()) => Ok(1),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The paths in a directory, which need not be there.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.path())).collect()
}
