//! What an open file of a process is. No file is opened or asked about itself: a dead server would not answer.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use warpmeter_core::probe::Doing;

use super::socket;
use crate::host::directory;

/// The most that is read of a table of sockets or mounts.
const TABLE: usize = 1 << 20;
/// Sockets that are remembered, and file systems by process and mount.
const REMEMBERED: usize = 4096;
/// The most tables that are read in one round of samples: a server with many new connections costs no more.
const TABLES: u32 = 8;

/// What is known of sockets and mounts.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// By the inode, which is the socket's alone.
    sockets: HashMap<u64, Doing>,
    /// By process and number of the mount.
    mounts: HashMap<(u32, u32), Doing>,
    left: u32,
    table: Vec<u8>,
}

impl Files {
    /// A new round of samples begins.
    pub(super) fn begin(&mut self) {
        self.left = TABLES;
    }

    /// Forgets what may have changed.
    pub(super) fn forget(&mut self) {
        self.mounts.clear();
        self.sockets.clear();
    }

    /// What a thread of the process `pid` with this directory does that waits for a file; `disk` if it is on a disk.
    pub(super) fn doing(&mut self, process: &OwnedFd, pid: u32, fd: u32, disk: Doing) -> Doing {
        let mut target = [0_u8; 64];
        let Ok(length) = rustix::fs::readlinkat_raw(process, format!("fd/{fd}"), &mut target[..]) else {
            return Doing::Unknown;
        };
        let target = target.get(..length).unwrap_or_default();
        let bracketed =
            |kind: &str| target.strip_prefix(kind.as_bytes()).and_then(|rest| rest.strip_suffix(b"]"));
        if let Some(inode) = bracketed("socket:[").and_then(number) {
            return self.socket(process, inode);
        }
        if target.starts_with(b"pipe:[") || target == b"anon_inode:[eventfd]" {
            return Doing::Lock;
        }
        if target == b"anon_inode:[timerfd]" {
            return Doing::Timer;
        }
        if target.first() == Some(&b'/') { self.path(process, pid, fd, disk) } else { Doing::Unknown }
    }

    fn socket(&mut self, process: &OwnedFd, inode: u64) -> Doing {
        if let Some(doing) = self.sockets.get(&inode) {
            return *doing;
        }
        let mut found = None;
        for (table, look) in socket::TABLES {
            if found.is_none() && self.read(process, table) {
                found = look(&self.table, inode);
            }
        }
        let Some(doing) = found else { return Doing::Unknown };
        if self.sockets.len() >= REMEMBERED {
            self.sockets.clear();
        }
        self.sockets.insert(inode, doing);
        doing
    }

    /// What waiting for a file by a path is: its mount says of which kind its file system is.
    fn path(&mut self, process: &OwnedFd, pid: u32, fd: u32, disk: Doing) -> Doing {
        let mut text = [0_u8; 1024];
        let Ok(info) = directory::read(process, &format!("fdinfo/{fd}"), &mut text) else {
            return Doing::Unknown;
        };
        let Some(mount) = String::from_utf8_lossy(info)
            .lines()
            .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse::<u32>().ok())
        else {
            return Doing::Unknown;
        };
        let known = self.mounts.get(&(pid, mount)).copied();
        let kind = known.unwrap_or_else(|| {
            if !self.read(process, "mountinfo") {
                return Doing::Unknown;
            }
            let kind = file_system(&self.table, mount).map_or(Doing::Unknown, |name| kind(&name));
            if self.mounts.len() >= REMEMBERED {
                self.mounts.clear();
            }
            self.mounts.insert((pid, mount), kind);
            kind
        });
        if kind == Doing::DiskRead { disk } else { kind }
    }

    /// Reads a file of a process into the table, if there may still be one in this round.
    fn read(&mut self, process: &OwnedFd, name: &str) -> bool {
        self.table.clear();
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::openat(process, name, flags, Mode::empty()) else { return false };
        let mut part = [0_u8; 16 * 1024];
        while self.table.len() < TABLE {
            match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut part[..])) {
                Ok(0) => return true,
                Ok(length) => self.table.extend_from_slice(part.get(..length).unwrap_or_default()),
                Err(_) => return false,
            }
        }
        // What was read of a larger one is right, as far as it goes.
        true
    }
}

pub(super) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The kind of the file system that is mounted as `mount`, in the text of `mountinfo`.
fn file_system(table: &[u8], mount: u32) -> Option<String> {
    let text = String::from_utf8_lossy(table);
    let line = text.lines().find(|line| line.split(' ').next().is_some_and(|id| id.parse() == Ok(mount)))?;
    line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
}

/// What waiting for a file system of this kind is: disk or network; unknown for those that are neither.
fn kind(name: &str) -> Doing {
    match name {
        "nfs" | "nfs4" | "fuse" | "virtiofs" | "cifs" | "smb3" | "smbfs" | "ceph" | "9p" | "lustre"
        | "gpfs" | "beegfs" | "afs" | "pvfs2" => Doing::Network,
        _ if name.starts_with("fuse.") => Doing::Network,
        "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "zfs" | "f2fs" | "bcachefs" | "overlay" | "fuseblk"
        | "squashfs" | "erofs" | "iso9660" | "vfat" | "exfat" | "ntfs3" => Doing::DiskRead,
        _ => Doing::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn own(file: &impl AsRawFd) -> Doing {
        let mut files = Files::default();
        files.begin();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = rustix::fs::open("/proc/self", flags, Mode::empty()).unwrap();
        let fd = file.as_raw_fd().unsigned_abs();
        files.doing(&process, std::process::id(), fd, Doing::DiskWrite)
    }

    #[test]
    fn who_connects_waits_for_the_network_and_who_accepts_for_requests() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (inbound, _) = listener.accept().unwrap();
            assert_eq!((own(&out), own(&inbound)), (Doing::Network, Doing::Request), "{address}");
        }
    }

    #[test]
    fn local_sockets_and_pipes_are_other_threads() {
        let (one, _other) = UnixStream::pair().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!((own(&one), own(&reader)), (Doing::Lock, Doing::Lock));
    }

    #[test]
    fn what_is_on_no_disk_is_not_waited_for_as_one() {
        for path in ["/dev/zero", "/proc/self/stat"] {
            assert_eq!(own(&std::fs::File::open(path).unwrap()), Doing::Unknown, "{path}");
        }
        let mut memory = tempfile::NamedTempFile::new().unwrap();
        memory.write_all(b"data").unwrap();
        let kind = own(memory.as_file());
        assert!([Doing::DiskWrite, Doing::Unknown].contains(&kind), "disk or memory: {kind:?}");
    }

    #[test]
    fn a_mount_says_of_which_kind_its_file_system_is() {
        let table = b"36 35 98:0 /mnt1 /mnt/a rw,noatime master:1 - ext3 /dev/root rw\n\
            360 35 0:43 / /data rw shared:7 master:2 - nfs4 server:/export rw\n";
        assert_eq!(file_system(table, 36).as_deref(), Some("ext3"));
        assert_eq!(file_system(table, 360).as_deref(), Some("nfs4"));
        assert_eq!(file_system(table, 3), None);
        let kinds = ["ext4", "nfs4", "fuse.gcsfuse", "tmpfs", "proc", "whatever"].map(kind);
        let expected =
            [Doing::DiskRead, Doing::Network, Doing::Network, Doing::Unknown, Doing::Unknown, Doing::Unknown];
        assert_eq!(kinds, expected);
    }
}
