//! Finds out if this machine can route, and how to mend what is missing.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::maps::ebpf;
use crate::sockets::kernel::hides_processes;

/// The oldest kernel whose programs may set the error of `connect()` (`bpf_set_retval`).
const OLDEST_KERNEL: (u32, u32) = (5, 18);

/// The rights that loading and attaching need, with their bits in `CapEff`. `CAP_SYS_ADMIN` holds all.
/// `CAP_PERFMON` is one of them, because without it the verifier forbids arithmetic that a processor
/// might speculate on.
const RIGHTS: [(&str, u32); 3] = [("CAP_BPF", 39), ("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38)];
const SYS_ADMIN: u32 = 21;

/// The rights that the agent needs besides, to end sockets in other network namespaces. One is to enter a namespace
/// (`setns`), and one to open those of other users' processes (`/proc/PID/ns/net`).
const SOCKET_RIGHTS: [(&str, u32); 2] = [("CAP_SYS_ADMIN", SYS_ADMIN), ("CAP_SYS_PTRACE", 19)];

/// One thing that routing needs, or a part of the agent that routing does not need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name: `kernel`, `cgroup`, `bpffs`, `privileges`, `programs` or `sockets`.
    pub name: &'static str,
    /// True if nothing is routed without it.
    pub needed: bool,
    /// True if it is as it should be.
    pub ok: bool,
    /// The state that was found.
    pub found: String,
    /// The way to mend it.
    pub fix: Option<String>,
}

/// Looks at everything that routing needs. The programs are loaded on trial, and removed again.
pub fn check(cgroup: &Path, pins: &Path) -> Vec<Finding> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut findings = vec![
        kernel(&read("/proc/sys/kernel/osrelease")),
        cgroup2(cgroup, &mounts),
        bpffs(pins, &mounts),
        privileges(&read("/proc/self/status")),
    ];
    if findings.iter().all(|finding| finding.ok) {
        findings.push(programs(pins));
    }
    findings.push(sockets(cgroup));
    findings
}

/// Finds out if sockets whose backend is gone can be ended in all network namespaces of a cgroup.
pub fn sockets(cgroup: &Path) -> Finding {
    ends_sockets(&read("/proc/self/status"), hides_processes(cgroup))
}

/// The names of the capabilities that an agent needs.
pub fn rights() -> impl Iterator<Item = &'static str> {
    RIGHTS.iter().map(|(name, _)| *name)
}

/// The names of the capabilities that the end of sockets in other network namespaces needs besides.
pub fn socket_rights() -> impl Iterator<Item = &'static str> {
    SOCKET_RIGHTS.iter().map(|(name, _)| *name)
}

/// The root of the first cgroup2 file system that is mounted.
pub fn default_cgroup() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounted(&mounts)
        .find(|(_, kind)| *kind == "cgroup2")
        .map(|(path, _)| path)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| error.to_string())
}

fn kernel(release: &str) -> Finding {
    let release = release.trim();
    let mut parts = release.split(['.', '-', '+']).map(str::parse::<u32>);
    let version = match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    };
    let (major, minor) = OLDEST_KERNEL;
    Finding {
        name: "kernel",
        needed: true,
        ok: version.is_some_and(|version| version >= OLDEST_KERNEL),
        found: release.to_owned(),
        fix: Some(format!("run Linux {major}.{minor} or newer")),
    }
    .unless_ok()
}

fn cgroup2(path: &Path, mounts: &str) -> Finding {
    let fix = match path.exists() {
        true => "give the directory of a cgroup v2 by --cgroup (`mount -t cgroup2` lists them)"
            .to_owned(),
        false => format!("mkdir {}, or give another by --cgroup", path.display()),
    };
    in_file_system("cgroup", "cgroup2", path, mounts, fix)
}

fn bpffs(pins: &Path, mounts: &str) -> Finding {
    // The agent makes the last directory itself.
    let parent = pins.parent().unwrap_or(pins);
    let path = if pins.exists() { pins } else { parent };
    let fix = "mount -t bpf bpf /sys/fs/bpf, or give a directory of a bpffs by --pins";
    in_file_system("bpffs", "bpf", path, mounts, fix.to_owned())
}

fn in_file_system(
    name: &'static str,
    kind: &str,
    path: &Path,
    mounts: &str,
    fix: String,
) -> Finding {
    let (ok, found) = match fs::canonicalize(path) {
        Ok(real) => {
            let within = mounted(mounts).filter(|(mount, _)| real.starts_with(mount));
            // The last of the longest: a later mount hides an earlier one.
            let on = within.max_by_key(|(mount, _)| mount.as_os_str().len());
            let on = on.map_or("no file system", |(_, kind)| kind);
            (on == kind, format!("{} is on {on}", path.display()))
        }
        Err(error) => (false, format!("{}: {error}", path.display())),
    };
    Finding {
        name,
        needed: true,
        ok,
        found,
        fix: Some(fix),
    }
    .unless_ok()
}

/// The bits of the capabilities in a `/proc/PID/status`.
fn capabilities(status: &str) -> u64 {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    effective.unwrap_or_default()
}

fn privileges(status: &str) -> Finding {
    let bits = capabilities(status);
    let has = |bit: u32| bits >> bit & 1 == 1 || bits >> SYS_ADMIN & 1 == 1;
    let missing = RIGHTS.iter().filter(|(_, bit)| !has(*bit));
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    Finding {
        name: "privileges",
        needed: true,
        ok: missing.is_empty(),
        found: match missing.is_empty() {
            true => rights().collect::<Vec<_>>().join(", "),
            false => format!("no {}", missing.join(" and no ")),
        },
        fix: Some("run as root, or give the process these capabilities".to_owned()),
    }
    .unless_ok()
}

fn ends_sockets(status: &str, hides_processes: bool) -> Finding {
    let bits = capabilities(status);
    let missing = SOCKET_RIGHTS.iter().filter(|(_, bit)| bits >> bit & 1 == 0);
    let mut missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    if hides_processes {
        missing.push("sight of all processes (hostPID)");
    }
    Finding {
        name: "sockets",
        needed: false,
        ok: missing.is_empty(),
        found: match missing.is_empty() {
            true => "those of gone backends are ended in all network namespaces".to_owned(),
            false => format!(
                "those of gone backends are not ended in other network namespaces: no {}",
                missing.join(" and no ")
            ),
        },
        fix: Some(
            "routing works without; to end them, give the agent these rights as well".to_owned(),
        ),
    }
    .unless_ok()
}

fn programs(pins: &Path) -> Finding {
    let loaded = ebpf::try_load(pins);
    Finding {
        name: "programs",
        needed: true,
        ok: loaded.is_ok(),
        found: match &loaded {
            Ok(()) => "the kernel takes them".to_owned(),
            Err(error) => causes(error),
        },
        fix: Some("the kernel lacks a feature of cgroup sockets or socket storage".to_owned()),
    }
    .unless_ok()
}

fn causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", causes(cause)),
        None => error.to_string(),
    }
}

impl Finding {
    /// A thing that is as it should be needs no mending.
    fn unless_ok(mut self) -> Self {
        if self.ok {
            self.fix = None;
        }
        self
    }
}

/// Every mount point with its file system, in the order of `/proc/self/mountinfo`.
fn mounted(mounts: &str) -> impl Iterator<Item = (PathBuf, &str)> {
    mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let path = before.split(' ').nth(4)?;
        Some((PathBuf::from(unescape(path)), after.split(' ').next()?))
    })
}

/// Spaces and the like are written as `\040`.
fn unescape(path: &str) -> String {
    let mut parts = path.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).map(|digits| u8::from_str_radix(digits, 8)) {
            Some(Ok(byte)) => {
                text.push(char::from(byte));
                text.push_str(&part[3..]);
            }
            _ => text.push_str(part),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw - ext4 /dev/root rw
30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
31 22 0:27 / /mnt/a\\040b rw - bpf bpf rw
";

    #[test]
    fn mounts_are_read() {
        let found: Vec<_> = mounted(MOUNTS).collect();
        assert_eq!(found[1], (PathBuf::from("/sys/fs/cgroup"), "cgroup2"));
        assert_eq!(found[2], (PathBuf::from("/mnt/a b"), "bpf"));
    }

    #[test]
    fn old_kernels_are_named() {
        assert!(kernel("6.18.44-fc\n").ok);
        assert!(kernel("5.18.0+deb").ok);
        let old = kernel("5.15.0-91-generic\n");
        assert!(!old.ok);
        assert_eq!(old.found, "5.15.0-91-generic");
        assert_eq!(old.fix.as_deref(), Some("run Linux 5.18 or newer"));
    }

    #[test]
    fn missing_rights_are_named() {
        let none = privileges("Name:\tx\nCapEff:\t0000000000000000\n");
        assert_eq!(
            none.found,
            "no CAP_BPF and no CAP_NET_ADMIN and no CAP_PERFMON"
        );
        let some = privileges("CapEff:\t0000004000001000\n");
        assert_eq!(some.found, "no CAP_BPF");
        assert!(privileges("CapEff:\t000000c000001000\n").ok);
        assert!(
            privileges("CapEff:\t0000000000200000\n").ok,
            "CAP_SYS_ADMIN"
        );
    }

    #[test]
    fn rights_to_end_sockets_are_named_and_not_needed() {
        let none = ends_sockets("CapEff:\t000000c000001000\n", true);
        assert_eq!((none.ok, none.needed), (false, false));
        let all = "no CAP_SYS_ADMIN and no CAP_SYS_PTRACE and no sight of all processes (hostPID)";
        assert!(none.found.ends_with(all), "{}", none.found);
        let hidden = ends_sockets("CapEff:\t0000000000280000\n", true);
        assert!(
            hidden
                .found
                .ends_with("no sight of all processes (hostPID)")
        );
        assert!(ends_sockets("CapEff:\t0000000000280000\n", false).ok);
    }

    #[test]
    fn a_directory_elsewhere_is_no_cgroup() {
        let found = cgroup2(Path::new("/"), MOUNTS);
        assert_eq!((found.ok, found.found.as_str()), (false, "/ is on ext4"));
        assert!(found.fix.unwrap().contains("--cgroup"));
    }
}
