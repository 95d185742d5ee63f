//! Directories and small files of the kernel, read without an allocation for each.

use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

/// Why something could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It does not exist, or ceased to.
    Vanished,
    /// The kernel does not let this process see it.
    Denied,
    /// Anything else.
    Failed(Errno),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vanished => f.write_str("it does not exist"),
            Self::Denied => f.write_str("permission denied"),
            Self::Failed(errno) => errno.fmt(f),
        }
    }
}

impl From<Errno> for Unread {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::SRCH => Self::Vanished,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            other => Self::Failed(other),
        }
    }
}

/// Opens the directory `name` of `at`.
pub(crate) fn open(at: impl AsFd, name: &str) -> Result<OwnedFd, Unread> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// Calls `each` with the name and inode of every entry of `directory`, until it returns false.
pub(crate) fn entries(
    directory: impl AsFd,
    buffer: &mut [MaybeUninit<u8>],
    mut each: impl FnMut(&CStr, u64) -> bool,
) -> Result<(), Unread> {
    let mut entries = RawDir::new(directory, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !each(entry.file_name(), entry.ino()) {
            break;
        }
    }
    Ok(())
}

/// Calls `each` with the name of every directory in `directory`, until it returns false.
pub(crate) fn directories(
    directory: impl AsFd,
    buffer: &mut [MaybeUninit<u8>],
    mut each: impl FnMut(&str) -> bool,
) -> Result<(), Unread> {
    let mut entries = RawDir::new(directory, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_str().ok().filter(|name| !matches!(*name, "." | ".."));
        if let Some(name) = name.filter(|_| entry.file_type().is_dir())
            && !each(name)
        {
            break;
        }
    }
    Ok(())
}

/// Reads the file `name` of `at`, at most as much of it as `buffer` holds, and returns what was read.
///
/// A buffer that is not filled holds the whole file: the kernel makes the text of such a file in one piece.
pub(crate) fn read<'b>(at: impl AsFd, name: &str, buffer: &'b mut [u8]) -> Result<&'b [u8], Unread> {
    let file = file(at, name)?;
    let length = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut *buffer))?;
    Ok(buffer.get(..length).unwrap_or_default())
}

/// Opens the file `name` of `at`, for [`again`].
pub(crate) fn file(at: impl AsFd, name: &str) -> Result<OwnedFd, Unread> {
    // A file that a test or a mistake put there must not block a round: a FIFO would.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// Reads a file that stays open as [`read`] does: the kernel makes its text anew each time it is read from the start.
pub(crate) fn again(file: impl AsFd, buffer: &mut [u8]) -> Result<&[u8], Unread> {
    let length = rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut *buffer, 0))?;
    Ok(buffer.get(..length).unwrap_or_default())
}
