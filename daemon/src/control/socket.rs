//! The listening end: one daemon at a time, whatever dead ones left behind.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// The listening end. Dropped, the socket is removed.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of the socket's file.
    file: (u64, u64),
    /// Locked as long as this lives.
    _lock: File,
}

impl Socket {
    /// Listens on `path`, whose directory is made if need be. A socket that a dead daemon left is replaced.
    pub(super) fn listen(path: &Path) -> std::io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(std::io::Error::other("a file that is no socket is there"));
            }
            Ok(_) if is_listened_on(path) => {
                return Err(std::io::Error::other("another daemon listens there"));
            }
            _ => {}
        }
        // Nobody but the owner may connect at any moment, so it gets its name only after its mode.
        let unnamed = beside(path, ".new");
        // Whoever has the lock is alone here: what has this name is of a daemon that died on the way.
        match fs::remove_file(&unnamed) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&unnamed)?;
        let named = fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))
            .and_then(|()| identity(&unnamed))
            .and_then(|file| fs::rename(&unnamed, path).map(|()| file));
        let file = match named {
            Ok(file) => file,
            Err(error) => {
                fs::remove_file(&unnamed)?;
                return Err(error);
            }
        };
        listener.set_nonblocking(true)?;
        Ok(Self { path: path.to_owned(), listener, file, _lock: lock })
    }

    /// The next connection, if one waits.
    pub(super) fn accept(&self) -> Option<UnixStream> {
        self.listener.accept().ok().map(|(stream, _)| stream)
    }

    /// Whether the socket's file is still this one.
    pub(super) fn is_there(&self) -> bool {
        identity(&self.path).is_ok_and(|file| file == self.file)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // What has the name now may be another daemon's.
        if self.is_there()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "remove the control socket");
        }
    }
}

/// Takes the lock of the socket at `path`, which one daemon at a time has, across containers that share the
/// directory. The kernel lets go of it when a daemon ends, however it does.
fn lock(path: &Path) -> std::io::Result<File> {
    let lock = File::options().create(true).append(true).mode(0o600).open(beside(path, ".lock"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(std::io::Error::other("another daemon listens there")),
        Err(error) => Err(error.into()),
    }
}

/// Whether somebody listens at `path`. Does not wait for one who takes no connections.
fn is_listened_on(path: &Path) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let connected = socket.and_then(|socket| connect(&socket, &address));
    matches!(connected, Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INPROGRESS))
}

/// `path` with more behind its name.
fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(more);
    name.into()
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}
