//! An open node: the mapped state file and the lock around it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Mutex;

use rustix::mm::{MapFlags, ProtFlags};

use crate::layout::{LOG_RECORDS, MAGIC, Shared, VERSION};
use crate::{Error, Process, clock, oracle};

/// The variable that names the state directory.
pub const STATE_VARIABLE: &str = "SIMGPU_STATE";
/// Name of the state file.
pub(crate) const STATE_FILE: &str = "state";
/// Name of the oracle's log.
pub const ORACLE_FILE: &str = "oracle.jsonl";

/// A node opened by this process.
#[derive(Debug)]
pub struct Node {
    shared: NonNull<Shared>,
    dir: PathBuf,
    /// Device and inode of the state file.
    file: (u64, u64),
    log: Mutex<Option<File>>,
}

// SAFETY: the mapping is shared memory that lives as long as the process; every access to its
// contents goes through `Guard`, which holds the process-shared mutex inside it.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    /// Opens the node in `dir`.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(STATE_FILE);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| Error::file("open state file", &path, e))?;
        let metadata = file.metadata().map_err(|e| Error::file("inspect state file", &path, e))?;
        if metadata.len() != size_of::<Shared>() as u64 {
            return Err(Error::Version(path));
        }
        let shared = map(&file).map_err(|e| Error::file("map state file", &path, e))?;
        let file = (metadata.dev(), metadata.ino());
        let node = Self { shared, dir: dir.to_owned(), file, log: Mutex::new(None) };
        // SAFETY: the mapping is as long as `Shared` (checked above); this word never changes after creation, so
        // reading it needs no lock.
        let magic = unsafe { (*shared.as_ptr()).magic };
        // SAFETY: as above.
        let version = unsafe { (*shared.as_ptr()).version };
        if (magic, version) == (MAGIC, VERSION) { Ok(node) } else { Err(Error::Version(path)) }
    }

    /// Opens the node that `SIMGPU_STATE` names, if any.
    pub fn from_env() -> Option<Self> {
        Self::open(Path::new(&std::env::var_os(STATE_VARIABLE)?)).ok()
    }

    /// Whether the directory holds this node no longer: it was made anew, or is gone.
    pub fn replaced(&self) -> bool {
        let now = std::fs::metadata(self.dir.join(STATE_FILE));
        now.map_or(true, |m| (m.dev(), m.ino()) != self.file)
    }

    /// The state directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes the lock. If its holder died, the tables are put in order first.
    pub fn lock(&self) -> Guard<'_> {
        // SAFETY: the pointer names the mutex initialised by `create`, in a mapping that is never undone.
        let mutex = unsafe { &raw mut (*self.shared.as_ptr()).mutex };
        // SAFETY: `mutex` is an initialised mutex.
        let status = unsafe { libc::pthread_mutex_lock(mutex) };
        let mut guard = Guard { node: self, now: clock::mono() };
        if status == libc::EOWNERDEAD {
            guard.rebuild();
            guard.recoveries += 1;
            // SAFETY: this thread holds the mutex, in the inconsistent state that EOWNERDEAD announces.
            unsafe { libc::pthread_mutex_consistent(mutex) };
        }
        if guard.logged as usize > LOG_RECORDS * 3 / 4 {
            self.write_log(&mut guard);
        }
        guard
    }

    /// Housekeeping, at most every 50 ms of all processes together: advances every engine, buries dead
    /// processes, and writes the oracle's log.
    pub fn tick(&self) {
        let mut guard = self.lock();
        let now = guard.now;
        if now.saturating_sub(guard.swept) < 50 * clock::MILLI {
            return;
        }
        guard.swept = now;
        guard.buried = now;
        let processes = guard.processes();
        drop(guard);
        // Reading `/proc` takes longer than anything else here, so it is done without the lock.
        let dead: Vec<Process> = processes.into_iter().filter(|p| !p.alive()).collect();
        let mut guard = self.lock();
        let now = guard.now;
        for process in dead {
            guard.remove_process(process);
        }
        guard.advance_all(now);
        oracle::close_old(&mut guard, now);
        self.write_log(&mut guard);
    }

    /// Advances to now and writes all that the oracle knows.
    pub fn flush(&self) -> Result<(), Error> {
        let mut guard = self.lock();
        let now = guard.now;
        guard.advance_all(now);
        guard.bury_dead();
        oracle::close_all(&mut guard);
        self.write_log(&mut guard);
        if guard.logged == 0 {
            Ok(())
        } else {
            Err(Error::file("write", self.dir.join(ORACLE_FILE), std::io::ErrorKind::PermissionDenied))
        }
    }

    /// Writes waiting records. When this process may not, they stay for one that may.
    fn write_log(&self, shared: &mut Shared) {
        if shared.logged == 0 {
            return;
        }
        let Ok(mut log) = self.log.lock() else { return };
        if log.is_none() {
            *log = OpenOptions::new().append(true).open(self.dir.join(ORACLE_FILE)).ok();
        }
        if let Some(file) = log.as_mut()
            && file.write_all(oracle::lines(shared).as_bytes()).is_ok()
        {
            shared.logged = 0;
        }
    }
}

/// Maps the whole state file for reading and writing.
pub(crate) fn map(file: &File) -> std::io::Result<NonNull<Shared>> {
    // SAFETY: a new mapping at an address that the kernel chooses aliases nothing in this process.
    let at = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            size_of::<Shared>(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file,
            0,
        )
    }?;
    NonNull::new(at.cast()).ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
}

/// The lock, held; and the time, read after it was taken.
#[derive(Debug)]
pub struct Guard<'a> {
    node: &'a Node,
    /// `CLOCK_MONOTONIC` when the lock was taken.
    pub now: u64,
}

impl Deref for Guard<'_> {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: the mutex is held, so no thread of any process writes to the mapping.
        unsafe { self.node.shared.as_ref() }
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Shared {
        let mut shared = self.node.shared;
        // SAFETY: the mutex is held, so no other reference into the mapping is in use.
        unsafe { shared.as_mut() }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: the pointer names the mutex that this guard holds.
        let mutex = unsafe { &raw mut (*self.node.shared.as_ptr()).mutex };
        // SAFETY: this thread locked it in `Node::lock`.
        unsafe { libc::pthread_mutex_unlock(mutex) };
    }
}
