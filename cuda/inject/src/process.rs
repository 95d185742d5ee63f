//! The process that the library is in: whether it is still that one, and when it ends.
#![allow(unsafe_code, reason = "handlers that the C library calls")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The process that was begun in; 0 in its children.
static PID: AtomicU32 = AtomicU32::new(0);
/// The descriptor of the page; -1 for none.
static FILE: AtomicI32 = AtomicI32::new(-1);
/// The page's inode: a program may close any number, and get it again for a file of its own.
static INODE: AtomicU64 = AtomicU64::new(0);
/// Whether the process ends.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Whether the library's thread is in a call of another library's.
static CALLING: AtomicBool = AtomicBool::new(false);

/// How long the end of the process waits for such a call to return.
const PATIENCE: Duration = Duration::from_millis(100);

/// Takes this process for the one that is summed, whose page has this descriptor.
pub(crate) fn begin(file: i32) {
    INODE.store(inode(file), Ordering::Relaxed);
    FILE.store(file, Ordering::Relaxed);
    PID.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: a plain function that lives as long as the process, as the library is never unloaded. That there is no
    // memory for it is made good by `ours`.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// Lets the end of the process wait for the library's thread. Called once CUPTI is there: handlers run in the reverse of
/// their order, so that this one runs before any of CUPTI's own.
pub(crate) fn mind_the_end() {
    // SAFETY: a plain function that lives as long as the process, as the library is never unloaded.
    unsafe { libc::atexit(leave) };
}

/// The inode of an open file; 0 if there is none. Safe in a handler of `fork`.
fn inode(file: i32) -> u64 {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the pointer is a local's.
    unsafe { libc::fstat(file, found.as_mut_ptr()) };
    // SAFETY: zeros are a value too, where nothing was written.
    let found = unsafe { found.assume_init() };
    found.st_ino
}

/// Whether this is that process: a child made by `fork` has none of its threads, and must not write to its page.
pub(crate) fn ours() -> bool {
    PID.load(Ordering::Relaxed) == std::process::id()
}

/// Runs `call`, which calls another library, unless the process ends.
pub(crate) fn calling<T>(call: impl FnOnce() -> T) -> Option<T> {
    CALLING.store(true, Ordering::SeqCst);
    let done = (!ENDING.load(Ordering::SeqCst)).then(call);
    CALLING.store(false, Ordering::SeqCst);
    done
}

/// In a child: the page is its parent's. All that is called here is safe in a handler of `fork`.
extern "C" fn forked() {
    contained(|| {
        PID.store(0, Ordering::Relaxed);
        let file = FILE.swap(-1, Ordering::Relaxed);
        if file >= 0 && inode(file) == INODE.load(Ordering::Relaxed) {
            // SAFETY: the descriptor is this library's own, and is not used in the child.
            unsafe { libc::close(file) };
        }
    });
}

/// At the end of the process: the driver's libraries are about to go, so that nothing may be in them any more.
extern "C" fn leave() {
    contained(|| {
        ENDING.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while CALLING.load(Ordering::SeqCst) && ours() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
    });
}

/// Runs what has to be done also after a panic elsewhere: one in here ends it and goes no further.
fn contained(call: impl FnOnce()) {
    let _panic = catch_unwind(AssertUnwindSafe(call));
}

/// Runs `start`, which starts a thread, with all signals blocked, so that the thread takes none of the program's.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is a local's.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first set was filled, the second is written; both are locals.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let started = start();
    if blocked {
        // SAFETY: the set was written by the call that blocked them.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    started
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

    use super::*;

    fn file() -> OwnedFd {
        rustix::fs::memfd_create("page", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn a_child_closes_the_page_and_no_file_that_has_its_number_by_now() {
        let page = file();
        begin(page.as_raw_fd());
        let mut number = page;
        rustix::io::dup2(File::open("/dev/null").unwrap(), &mut number).unwrap();
        forked();
        assert!(inode(number.as_raw_fd()) != 0, "the program's own file stays");

        let page = file().into_raw_fd();
        let before = inode(page);
        begin(page);
        forked();
        assert_ne!(inode(page), before, "the page is closed");
    }

    #[test]
    fn a_panic_at_the_end_of_a_process_goes_no_further() {
        contained(|| panic!("inside"));
        leave();
        assert!(calling(|| ()).is_none(), "nothing is called any more");
        ENDING.store(false, Ordering::SeqCst);
    }
}
