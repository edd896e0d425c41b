//! The memory that the kernel holds for the maps. `crowfly bench node` shows it beside the memory of the agent,
//! because the memory of a process does not include maps.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::{LAYOUT, MAPS, sys};

/// The bytes that each map takes now, as the kernel reckons them. Storage of sockets is not among them,
/// because the kernel counts that for the sockets.
///
/// # Errors
/// A map is not pinned below `pins`, or the kernel does not tell.
pub fn memory(pins: &Path) -> io::Result<Vec<(&'static str, u64)>> {
    let maps = MAPS.iter().map(|(name, ..)| {
        let map = sys::open_pin(&pins.join(LAYOUT).join(name))?;
        let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_raw_fd()))?;
        let bytes = about.lines().find_map(|line| line.strip_prefix("memlock:"));
        let bytes = bytes.and_then(|bytes| bytes.trim().parse().ok());
        let bytes = bytes.ok_or_else(|| io::Error::other(format!("map {name}: no memlock")))?;
        Ok((*name, bytes))
    });
    maps.collect()
}
