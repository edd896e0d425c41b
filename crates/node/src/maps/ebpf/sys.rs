//! The system calls that aya has no way to make, and all of this crate's unsafe code.
//!
//! aya 0.14 loads programs and reads maps. It cannot replace the program of a pinned link, without which an upgrade
//! would leave a gap. It cannot tell which cgroup and program a link is of, either.

#![allow(unsafe_code, reason = "system calls: each block says why it is sound")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const OBJ_PIN: u32 = 6;
const OBJ_GET: u32 = 7;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const LINK_CREATE: u32 = 28;
const LINK_UPDATE: u32 = 29;
const LINK_DETACH: u32 = 34;

/// Attaches a program to a cgroup.
pub(super) fn create_link(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    attach_type: u32,
) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.u32(0, fd(program)?);
    attributes.u32(4, fd(cgroup)?);
    attributes.u32(8, attach_type);
    attributes.call_for_fd(LINK_CREATE)
}

/// Replaces the program of a link. A socket call runs the old one or the new one, never none.
pub(super) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.u32(0, fd(link)?);
    attributes.u32(4, fd(program)?);
    attributes.call(LINK_UPDATE).map(drop)
}

/// Detaches the program of a link. To remove its pin would do the same, but some time later.
pub(super) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.u32(0, fd(link)?);
    attributes.call(LINK_DETACH).map(drop)
}

/// Makes an object outlive this process.
pub(super) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attributes = Attributes::default();
    attributes.u64(0, path.as_ptr() as u64);
    attributes.u32(8, fd(object)?);
    // `path` lives until after the call.
    attributes.call(OBJ_PIN).map(drop)
}

/// Opens a pinned object.
pub(super) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attributes = Attributes::default();
    attributes.u64(0, path.as_ptr() as u64);
    // `path` lives until after the call.
    attributes.call_for_fd(OBJ_GET)
}

/// A link of a cgroup, as the kernel describes it.
pub(super) struct LinkInfo {
    /// The number of its program.
    pub(super) program: u32,
    /// The number of its cgroup, which is the inode of its directory. It is 0 if the cgroup is gone.
    pub(super) cgroup: u64,
}

/// The cgroup and the program of a link.
pub(super) fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    // struct bpf_link_info: type, id, prog_id, padding, then for cgroups: cgroup_id, attach_type.
    let mut info = [0_u64; 16];
    let size = u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    let mut attributes = Attributes::default();
    attributes.u32(0, fd(link)?);
    attributes.u32(4, size);
    attributes.u64(8, info.as_mut_ptr() as u64);
    // `info` lives until after the call, and is as long as was said.
    attributes.call(OBJ_GET_INFO_BY_FD)?;
    let [a, b, c, d, ..] = info[1].to_ne_bytes();
    Ok(LinkInfo {
        program: u32::from_ne_bytes([a, b, c, d]),
        cgroup: info[2],
    })
}

/// A `union bpf_attr`, as far as the calls above need it. The rest is zero.
#[derive(Default)]
struct Attributes {
    words: [u64; 8],
}

impl Attributes {
    fn u32(&mut self, offset: usize, value: u32) {
        let shift = if cfg!(target_endian = "little") == offset.is_multiple_of(8) {
            0
        } else {
            32
        };
        if let Some(word) = self.words.get_mut(offset / 8) {
            *word |= u64::from(value) << shift;
        }
    }

    fn u64(&mut self, offset: usize, value: u64) {
        if let Some(word) = self.words.get_mut(offset / 8) {
            *word = value;
        }
    }

    /// Makes the call. Pointers in the attributes must be valid until it returns, for as many bytes as
    /// the attributes say.
    fn call(&mut self, command: u32) -> io::Result<i64> {
        // SAFETY: the kernel reads `size_of_val(&self.words)` bytes from a buffer that is so long. The
        // callers in this file put in only pointers to values that they hold until this returns.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                self.words.as_mut_ptr(),
                size_of_val(&self.words),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(result)
    }

    fn call_for_fd(&mut self, command: u32) -> io::Result<OwnedFd> {
        let result = self.call(command)?;
        let result = i32::try_from(result).map_err(io::Error::other)?;
        // SAFETY: these commands return a new file descriptor, which nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(result) })
    }
}

fn fd(fd: BorrowedFd<'_>) -> io::Result<u32> {
    u32::try_from(fd.as_raw_fd()).map_err(io::Error::other)
}
