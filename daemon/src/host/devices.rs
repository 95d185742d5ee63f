//! Which GPU device files a process has open, from the links in `/proc/PID/fd`.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use warpmeter_core::fact::Opened;

use super::directory::{self, Unread};

/// The most files of one process that are looked at: the links of a process with a million would take seconds.
pub(super) const FILES: usize = 4096;

/// What a look at a process's files gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// The device files among them.
    pub opened: Opened,
    /// How many files were looked at.
    pub files: usize,
    /// Whether there were more.
    pub cut: bool,
}

/// Names of GPU device files.
#[derive(Debug)]
pub(super) struct Devices {
    /// What their paths begin with, up to the minor number: `/dev/nvidia`.
    prefix: Vec<u8>,
}

impl Devices {
    /// Device files in `dev`, as the processes that open them see it.
    pub(super) fn new(dev: &Path) -> Self {
        Self { prefix: dev.join("nvidia").into_os_string().into_encoded_bytes() }
    }

    /// Looks at the open files of the process whose directory is `process`.
    pub(super) fn scan(&self, process: &OwnedFd, buffer: &mut [MaybeUninit<u8>]) -> Result<Scan, Unread> {
        let files = directory::open(process, "fd")?;
        let mut scan = Scan { opened: Opened::default(), files: 0, cut: false };
        let mut noted = Ok(());
        directory::entries(&files, buffer, |name, _| {
            if name.to_bytes().first() == Some(&b'.') {
                return true;
            }
            scan.cut = scan.files == FILES;
            if !scan.cut {
                scan.files += 1;
                noted = self.note(&files, name, &mut scan.opened);
            }
            !scan.cut && noted.is_ok()
        })?;
        noted?;
        scan.opened.minors.sort_unstable();
        scan.opened.minors.dedup();
        Ok(scan)
    }

    /// Adds what the link `name` leads to, if that is a GPU. A file that was closed meanwhile is not open.
    ///
    /// Root without `CAP_SYS_PTRACE`, as in a container, may list the links of a process that has more capabilities
    /// than it, and may follow none of them.
    fn note(&self, files: impl AsFd, name: &CStr, opened: &mut Opened) -> Result<(), Unread> {
        // Longer than any path that is looked for: one that is cut here is none of them.
        let mut target = [0_u8; 512];
        let length = match rustix::fs::readlinkat_raw(files, name, &mut target[..]).map_err(Unread::from) {
            Ok(length) => length,
            Err(Unread::Denied) => return Err(Unread::Denied),
            Err(_) => return Ok(()),
        };
        let Some(rest) = target.get(..length).and_then(|target| target.strip_prefix(&self.prefix[..])) else {
            return Ok(());
        };
        // The nodes of `/dev` are made anew while processes hold the old ones.
        match rest.strip_suffix(b" (deleted)").unwrap_or(rest) {
            b"ctl" => opened.control = true,
            b"-uvm" => opened.uvm = true,
            number => opened.minors.extend(minor(number)),
        }
        Ok(())
    }
}

/// The number that `text` is, without sign.
fn minor(text: &[u8]) -> Option<u32> {
    let digits = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}
