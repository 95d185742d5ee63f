//! Which file systems may be asked for a file: those that answer whatever a container does.
//!
//! A file system that a program serves (FUSE) answers when that program likes, and whoever asks it waits, even if he is
//! killed. Anybody may mount one in his own container. So a path is walked a step at a time, by descriptors that ask
//! nothing, and a directory is only looked into when the mount that it is on is known to be harmless. A descriptor
//! keeps its mount alive: what the kernel's list of mounts then says of its number is said of that mount.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// The most of a list of mounts that is read, in bytes: the kernel allows 100,000 mounts in a namespace.
const LIST: u64 = 32 << 20;
/// File systems that answer by themselves, from a disk or from memory.
const LOCAL: [&str; 24] = [
    "bcachefs", "btrfs", "devtmpfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "iso9660",
    "jfs", "nilfs2", "ntfs3", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "ubifs", "udf", "vfat",
    "xfs", "zfs",
];
/// How a descriptor asks for nothing.
const ASK_NOTHING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why a file was not reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// The kernel refused.
    Refused(Errno),
    /// A file system on the way may not answer: its type, if that is known.
    Silent(Option<String>),
}

impl From<Errno> for Unreached {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno)
    }
}

/// A mount of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    device: String,
    kind: String,
}

/// The mounts that a process sees, by number.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mounts(HashMap<u64, Mount>);

impl Mounts {
    /// Those of a `mountinfo`, below a directory; none if it cannot be read.
    fn of(directory: BorrowedFd<'_>, name: &Path) -> Self {
        let mut text = Vec::new();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(directory, name, flags, Mode::empty()).map(File::from);
        match opened.map(|file| file.take(LIST).read_to_end(&mut text)) {
            Ok(Ok(_)) => Self::parse(&text),
            _ => Self::default(),
        }
    }

    /// Lines of `ID PARENT MAJOR:MINOR ROOT PLACE OPTIONS [FIELD]… - TYPE SOURCE OPTIONS`; places have no spaces.
    fn parse(text: &[u8]) -> Self {
        let mount = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            let mut fields = line.split(' ');
            let (id, device) = (fields.next()?.parse().ok()?, fields.nth(1)?.to_owned());
            let kind = fields.skip_while(|field| *field != "-").nth(1)?.to_owned();
            Some((id, Mount { device, kind }))
        };
        Self(text.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }
}

/// Whether what is on a file system of this type may be asked for: always, never, or if the host has it mounted too.
fn answers(kind: &str) -> Option<bool> {
    match kind {
        kind if LOCAL.contains(&kind) => Some(true),
        kind if kind.starts_with("fuse") => Some(false),
        _ => None,
    }
}

/// A way to the files of a process.
#[derive(Debug)]
pub(crate) struct Way<'p> {
    /// The process's own directory of a process file system.
    pub process: BorrowedFd<'p>,
    /// The root of that file system.
    pub proc: &'p Path,
}

impl Way<'_> {
    /// The file at a path without symbolic links, as the process sees it. Nothing can be read by the descriptor.
    pub(crate) fn walk(&self, path: &Path) -> Result<OwnedFd, Unreached> {
        let flags = ASK_NOTHING & !OFlags::NOFOLLOW;
        let mut at = rustix::fs::openat(self.process, "root", flags, Mode::empty())?;
        // A process that has changed its root within its mount namespace shows paths from that namespace's root.
        let from = rustix::fs::readlinkat(self.process, "root", Vec::new()).ok();
        let from = from.as_ref().map(|from| Path::new(OsStr::from_bytes(from.as_bytes())));
        let path = from.and_then(|from| path.strip_prefix(from).ok()).unwrap_or(path);
        let mut mount = self.check(&at, None)?;
        for part in path.components() {
            match part {
                Component::RootDir => {}
                Component::Normal(name) => {
                    at = rustix::fs::openat(&at, name, ASK_NOTHING, Mode::empty())?;
                    mount = self.check(&at, Some(mount))?;
                }
                _ => return Err(Errno::NOENT.into()),
            }
        }
        Ok(at)
    }

    /// The file that a link of the process's directory leads to.
    pub(crate) fn follow(&self, link: &str) -> Result<OwnedFd, Unreached> {
        let flags = ASK_NOTHING & !OFlags::NOFOLLOW;
        let file = rustix::fs::openat(self.process, link, flags, Mode::empty())?;
        self.check(&file, None)?;
        Ok(file)
    }

    /// The number of the mount that a descriptor is on, if that may be asked; `known` is one of which that is known.
    fn check(&self, at: &OwnedFd, known: Option<u64>) -> Result<u64, Unreached> {
        let id = mount_of(at)?;
        if known == Some(id) {
            return Ok(id);
        }
        let host = self.proc.join("1/mountinfo");
        let own = Mounts::of(self.process, Path::new("mountinfo"));
        let (found, hosts) = if let Some(found) = own.0.get(&id) {
            (found.clone(), None)
        } else {
            // One with a root of its own in the host's namespace does not see the mount that it is on.
            let hosts = Mounts::of(CWD, &host);
            let found = hosts.0.get(&id).cloned().ok_or(Unreached::Silent(None))?;
            (found, Some(hosts))
        };
        let may = answers(&found.kind).unwrap_or_else(|| {
            let hosts = hosts.unwrap_or_else(|| Mounts::of(CWD, &host));
            hosts.0.values().any(|other| other.device == found.device)
        });
        if may { Ok(id) } else { Err(Unreached::Silent(Some(found.kind))) }
    }
}

/// The number of the mount that a descriptor is on.
fn mount_of(file: &OwnedFd) -> Result<u64, Errno> {
    let path = format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path).map_err(|_unreadable| Errno::IO)?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.and_then(|id| id.trim().parse().ok()).ok_or(Errno::IO)
}

/// Opens for reading what a descriptor that asks for nothing stands for.
pub(crate) fn reopen(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

#[cfg(test)]
mod tests;
