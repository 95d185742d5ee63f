//! Which processes map a CUDA driver library, and the files that they map.
//!
//! A container has its own root, and may have its own copy of the library. So a file is opened as the process sees it
//! and recognised by what it is, not by its path.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::mounts::{Unreached, Way, reopen};

/// The most of a process's memory map that is read, in bytes: some hundred thousand mappings.
const MAPS: u64 = 32 << 20;
/// The longest line of it that is looked at: paths have at most 4,096 bytes.
const LINE: u64 = 8192;
/// The most libraries of one process.
const LIBRARIES: usize = 8;
/// Magic number of overlay file systems.
const OVERLAYFS_SUPER_MAGIC: i64 = 0x794c_7630;

/// A library that a process maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// Its path as the process sees it.
    pub path: PathBuf,
    /// Its inode, as the memory map says.
    inode: u64,
    /// Where it is mapped, as `map_files` names it.
    range: String,
}

/// What a file is, whatever its path and the mount by which it is reached.
///
/// On an overlay the same file of a lower layer shows another device in each container, while probes go by the file
/// below. Inode, size and both times to the nanosecond say which that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    device: Option<u64>,
    inode: u64,
    size: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Identity {
    /// Whether the file was reached by a file system that belongs to one container.
    pub fn is_of_container(&self) -> bool {
        self.device.is_none()
    }

    /// Whether a probe on the one is a probe on the other.
    pub fn is_same(&self, other: &Self) -> bool {
        let (inodes, devices) = match (self.device, other.device) {
            (Some(one), Some(two)) => (self.inode == other.inode, one == two),
            // An overlay may put the number of a layer into the upper half.
            _ => (low(self.inode) == low(other.inode), true),
        };
        let rest = |of: &Self| (of.size, of.modified, of.changed);
        inodes && devices && rest(self) == rest(other)
    }
}

const fn low(inode: u64) -> u64 {
    inode & 0xffff_ffff
}

/// A library that was opened.
#[derive(Debug)]
pub struct Opened {
    /// Its file.
    pub file: File,
    /// What it is.
    pub identity: Identity,
}

/// Why a library could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The process has ended.
    #[error("the process has ended")]
    Gone,
    /// The kernel refused.
    #[error("{0}; reading files as another process sees them takes root and the capability SYS_PTRACE")]
    Refused(Errno),
    /// The path leads to another file.
    #[error(
        "its path leads to another file than the one that is mapped: it was replaced while in use; restart the process"
    )]
    Replaced,
    /// A file system may not answer whoever asks for the file.
    #[error(
        "it is on a file system ({0}) that a container may keep from answering: neither a local one nor, if it is of \
         the network or an overlay, one that the host has mounted too"
    )]
    Silent(String),
    /// The path leads to no file.
    #[error("it leads to no regular file")]
    NoFile,
}

/// Whether a path is that of a CUDA driver library: `libcuda.so`, or that and a version.
pub fn is_driver(path: &[u8]) -> bool {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.strip_prefix(b"libcuda.so").is_some_and(|rest| matches!(rest.first(), None | Some(b'.')))
}

/// The processes below the root of a process file system.
#[derive(Debug, Clone)]
pub struct Processes {
    root: PathBuf,
}

impl Processes {
    /// Those that `root` shows, which is `/proc` or a host's that is mounted elsewhere.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// All of them.
    pub fn all(&self) -> std::io::Result<Vec<u32>> {
        let entries = std::fs::read_dir(&self.root)?;
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Ok(pids.collect())
    }

    /// Whether one exists and has not ended. Its first thread may have, while others go on.
    pub fn lives(&self, pid: u32) -> bool {
        // Nothing of its memory is read: a page of that can be on a file system that never answers.
        self.stat(pid).is_some_and(|(ended, threads)| !ended || threads > 1)
    }

    /// Whether a thread has ended, and how many its process has.
    fn stat(&self, thread: u32) -> Option<(bool, u64)> {
        let stat = std::fs::read(self.path(thread).join("stat")).ok()?;
        // Its name may have any bytes, brackets too.
        let rest = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 2..)?;
        let mut fields = std::str::from_utf8(rest).ok()?.split(' ');
        let state = fields.next()?;
        Some((matches!(state, "Z" | "X" | "x"), fields.nth(16)?.parse().ok()?))
    }

    /// Whether a thread of a process goes on.
    pub fn runs(&self, pid: u32, thread: u32) -> bool {
        self.path(pid).join("task").join(thread.to_string()).exists()
            && self.stat(thread).is_some_and(|(ended, _)| !ended)
    }

    /// A thread by which a process's memory can be seen: its first, or another if that has ended.
    fn face(&self, pid: u32) -> u32 {
        match self.stat(pid) {
            Some((true, threads)) if threads > 1 => {
                self.threads(pid).into_iter().find(|thread| self.runs(pid, *thread)).unwrap_or(pid)
            }
            _ => pid,
        }
    }

    /// Its threads.
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        let tasks = std::fs::read_dir(self.path(pid).join("task")).into_iter().flatten();
        tasks.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// The driver libraries that it maps, each once. Nothing if its memory map cannot be read.
    pub fn libraries(&self, pid: u32) -> std::io::Result<Vec<Mapped>> {
        self.maps(pid, |mapped| is_driver(mapped.path.as_os_str().as_bytes()))
    }

    /// Whether it maps a library still, whatever that is called by now.
    pub fn keeps(&self, pid: u32, mapped: &Mapped) -> bool {
        let same = |other: &Mapped| (&other.range, other.inode) == (&mapped.range, mapped.inode);
        self.maps(pid, same).is_ok_and(|found| !found.is_empty())
    }

    fn maps(&self, pid: u32, wanted: impl Fn(&Mapped) -> bool) -> std::io::Result<Vec<Mapped>> {
        let maps = File::open(self.path(self.face(pid)).join("maps"))?;
        read_maps(BufReader::new(maps.take(MAPS)), wanted)
    }

    /// Opens a library as the process sees it, and makes sure that it is the one that it maps.
    pub fn open(&self, pid: u32, mapped: &Mapped) -> Result<Opened, OpenError> {
        let process = self.directory(self.face(pid))?;
        let way = Way { process: process.as_fd(), proc: &self.root };
        // The mapped file itself, which works whatever became of its path, but takes more than SYS_PTRACE.
        let (place, exact) = match way.follow(&format!("map_files/{}", mapped.range)) {
            Err(Unreached::Refused(_)) => (way.walk(&mapped.path), false),
            other => (other, true),
        };
        let place = place.map_err(|why| match why {
            Unreached::Silent(kind) => OpenError::Silent(kind.unwrap_or_else(|| "unknown".into())),
            Unreached::Refused(_) if !self.path(pid).exists() => OpenError::Gone,
            Unreached::Refused(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => OpenError::Replaced,
            Unreached::Refused(other) => OpenError::Refused(other),
        })?;
        let stat = rustix::fs::fstat(&place).map_err(OpenError::Refused)?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(OpenError::NoFile);
        }
        if !exact && low(stat.st_ino) != low(mapped.inode) {
            return Err(OpenError::Replaced);
        }
        let file = reopen(&place).map_err(OpenError::Refused)?;
        let overlay = rustix::fs::fstatfs(&file).is_ok_and(|fs| fs.f_type == OVERLAYFS_SUPER_MAGIC);
        let identity = Identity {
            device: (!overlay).then_some(stat.st_dev),
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        };
        Ok(Opened { file: File::from(file), identity })
    }

    /// Its directory. What is read through it is of that process, even if its pid is reused.
    fn directory(&self, pid: u32) -> Result<OwnedFd, OpenError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, self.path(pid), flags, Mode::empty()).map_err(gone)
    }

    fn path(&self, pid: u32) -> PathBuf {
        self.root.join(pid.to_string())
    }
}

const fn gone(errno: Errno) -> OpenError {
    match errno {
        Errno::NOENT | Errno::SRCH => OpenError::Gone,
        other => OpenError::Refused(other),
    }
}

fn read_maps(mut maps: impl BufRead, wanted: impl Fn(&Mapped) -> bool) -> std::io::Result<Vec<Mapped>> {
    let mut found: Vec<Mapped> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if maps.by_ref().take(LINE).read_until(b'\n', &mut line)? == 0 || found.len() == LIBRARIES {
            return Ok(found);
        }
        let Some(mapped) = parse(&line).filter(|mapped| wanted(mapped)) else { continue };
        // A library is mapped in pieces.
        if !found.iter().any(|other| other.inode == mapped.inode && other.path == mapped.path) {
            found.push(mapped);
        }
    }
}

/// A line of `/proc/PID/maps` that is of a file: `START-END PERMS OFFSET DEVICE INODE   PATH`.
fn parse(line: &[u8]) -> Option<Mapped> {
    let at = line.iter().position(|byte| *byte == b'/')?;
    let (before, path) = line.split_at_checked(at)?;
    let path = path.strip_suffix(b"\n").unwrap_or(path);
    let mut fields = std::str::from_utf8(before).ok()?.split_ascii_whitespace();
    let (range, inode) = (fields.next()?, fields.nth(3)?);
    let plain = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    range.bytes().all(plain).then_some(())?;
    // The kernel pads addresses with zeros here, but not in the names of `map_files`.
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let range = format!("{:x}-{:x}", number(start)?, number(end)?);
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let path = PathBuf::from(OsStr::from_bytes(path));
    Some(Mapped { path, inode: inode.parse().ok()?, range })
}

#[cfg(test)]
mod tests;
