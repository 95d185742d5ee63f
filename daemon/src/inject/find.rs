//! The memory file in which a process keeps its page.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, MemfdFlags, Mode, OFlags, StatxFlags, memfd_create, openat, readlinkat_raw, statx,
};
use rustix::io::pread;
use warpmeter_core::identity::ProcessId;
use warpmeter_inject_page::{BYTES, Broken, LINK, Page, word};

use crate::host::directory::{self, Unread};

/// The most files of a process that are looked at.
const FILES: usize = 4096;
/// How often a page is read before it counts as one that never stands still.
const TRIES: u32 = 3;

/// What memory files have in common: the file system of this machine's kernel in which they all are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    device: (u32, u32),
}

impl Memory {
    /// Learns it of a file of its own.
    pub(super) fn new() -> Option<Self> {
        let own = memfd_create("warpmeter", MemfdFlags::CLOEXEC).ok()?;
        Some(Self { device: looked_at(&own).ok()?.0 })
    }

    /// The memory file in which the process whose directory is `process` keeps its page; none if it has none.
    ///
    /// A link's words are what anybody can have a file called. So the file is looked at through a descriptor that
    /// opens nothing, without a question to the file system that it may be in; only memory as long as a page is then
    /// opened, by that descriptor: by its name it could be another file already.
    pub(super) fn find(self, process: &OwnedFd) -> Result<Option<OwnedFd>, Unread> {
        let directory = directory::open(process, "fd")?;
        let mut entries = vec![MaybeUninit::uninit(); 32 * 1024];
        let (mut link, mut seen, mut found) = ([0_u8; 64], 0, None);
        directory::entries(&directory, &mut entries, |name, _| {
            seen += 1;
            let length = readlinkat_raw(&directory, name, &mut link[..]).unwrap_or(0);
            if link.get(..length) == Some(LINK) {
                found = self.open(&directory, name);
            }
            found.is_none() && seen < FILES
        })?;
        Ok(found)
    }

    fn open(self, directory: &OwnedFd, name: &std::ffi::CStr) -> Option<OwnedFd> {
        let aside = openat(directory, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        looked_at(&aside).ok().filter(|found| *found == (self.device, BYTES as u64))?;
        let itself = format!("/proc/self/fd/{}", aside.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat(CWD, itself, flags, Mode::empty()).ok()
    }
}

/// A file's device and size, without a question to its file system.
fn looked_at(file: &OwnedFd) -> rustix::io::Result<((u32, u32), u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(file, c"", flags, StatxFlags::SIZE)?;
    Ok(((found.stx_dev_major, found.stx_dev_minor), found.stx_size))
}

/// The page that stands in a file, with its sequence; none if that is `known` already. `buffer` is as long as a page.
pub(super) fn read(
    file: &OwnedFd,
    known: Option<u64>,
    buffer: &mut [u8],
) -> Result<Option<(u64, Page)>, Broken> {
    for _ in 0..TRIES {
        let before = sequence(file)?;
        if known == Some(before) {
            return Ok(None);
        }
        if pread(file, &mut *buffer, 0).map_err(|_errno| Broken::Size)? != BYTES {
            return Err(Broken::Size);
        }
        if before.is_multiple_of(2) && sequence(file)? == before {
            return Ok(Some((before, Page::read(buffer)?)));
        }
    }
    Err(Broken::Torn)
}

fn sequence(file: &OwnedFd) -> Result<u64, Broken> {
    let mut bytes = [0; 8];
    let length = pread(file, &mut bytes[..], (word::SEQUENCE * 8) as u64).map_err(|_errno| Broken::Size)?;
    if length == bytes.len() { Ok(u64::from_le_bytes(bytes)) } else { Err(Broken::Size) }
}

/// The process's id as it knows itself: that in the innermost of its PID namespaces.
pub(super) fn inner_pid(process: &OwnedFd) -> Option<u64> {
    let mut text = [0; 4096];
    let status = directory::read(process, "status", &mut text).ok()?;
    let status = String::from_utf8_lossy(status);
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The directory of a process in `/proc`.
pub(super) fn directory_of(proc: &std::path::Path, id: ProcessId) -> Result<OwnedFd, Unread> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = proc.join(id.pid.0.to_string());
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use rustix::fs::ftruncate;
    use warpmeter_core::identity::HostPid;
    use warpmeter_core::time::MonoNs;
    use warpmeter_inject_page::{MAGIC, NAME, VERSION};

    use super::*;

    fn own() -> OwnedFd {
        let id = ProcessId { pid: HostPid(std::process::id()), start: MonoNs(0) };
        directory_of(std::path::Path::new("/proc"), id).unwrap()
    }

    fn file(bytes: usize) -> OwnedFd {
        let file = memfd_create(NAME, MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes as u64).unwrap();
        file
    }

    #[test]
    fn only_memory_as_long_as_a_page_is_opened_and_read() {
        let memory = Memory::new().unwrap();
        let mut buffer = vec![0; BYTES];
        let short = file(BYTES - 8);
        assert!(memory.find(&own()).unwrap().is_none());
        drop(short);
        let whole = file(BYTES);
        let found = memory.find(&own()).unwrap().unwrap();
        assert_eq!(read(&found, None, &mut buffer).unwrap_err(), Broken::Magic);
        for (place, value) in [(word::MAGIC, MAGIC), (word::VERSION, VERSION), (word::SEQUENCE, 4)] {
            rustix::io::pwrite(&whole, &u64::to_le_bytes(value), (place * 8) as u64).unwrap();
        }
        assert_eq!(read(&found, None, &mut buffer).unwrap().unwrap().0, 4);
        assert!(read(&found, Some(4), &mut buffer).unwrap().is_none(), "nothing new");
        // Even one that was sealed against nothing, and is cut short.
        ftruncate(&whole, 16).unwrap();
        assert_eq!(read(&found, None, &mut buffer).unwrap_err(), Broken::Size);
    }

    #[test]
    fn a_process_knows_itself_by_its_innermost_pid() {
        assert_eq!(inner_pid(&own()), Some(std::process::id().into()));
    }
}
