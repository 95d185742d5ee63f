//! What other libraries call.
//!
//! Why this is sound: pointers are CUPTI's own, valid for one value each as its header says; none is kept.
#![allow(unsafe_code, reason = "called by the driver and by CUPTI")]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::time::ClockId;
use warpmeter_inject_page::{Reason, State, WORDS};

use crate::plan::{self, Plan};
use crate::pool::{Pool, SIZE};
use crate::process;
use crate::shared::Shared;
use crate::sums::{Sums, Told};
use crate::sys::{Cupti, Off};
use crate::worker::{self, Worker};

/// All that the library has, once it has begun.
#[derive(Debug)]
pub(crate) struct Everything {
    pub(crate) cupti: Cupti,
    pub(crate) pool: Pool,
}

static PAGE: OnceLock<Shared> = OnceLock::new();
static EVERYTHING: OnceLock<Everything> = OnceLock::new();
static FAILED: AtomicBool = AtomicBool::new(false);

/// Called by the CUDA driver when it is initialised. Always 1: whatever becomes of this library, the program goes on.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is the driver's")]
pub extern "C" fn InitializeInjection() -> i32 {
    guarded((), || {
        // Nobody asked this library to write to the program's standard error. The hook is that of its own copy of
        // the standard library.
        std::panic::set_hook(Box::new(|_| {}));
        begin();
    });
    1
}

/// Runs `call`, which must not unwind into another library. After a panic nothing is run any more.
pub(crate) fn guarded<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    if FAILED.load(Ordering::Relaxed) {
        return otherwise;
    }
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_panic| {
        FAILED.store(true, Ordering::Relaxed);
        worker::wake();
        otherwise
    })
}

/// Whether anything has panicked.
pub(crate) fn failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

fn begin() {
    if PAGE.get().is_some() {
        return;
    }
    let Some(shared) = Shared::new() else { return };
    let page = PAGE.get_or_init(|| shared);
    process::begin(page.descriptor());
    if let Err((reason, detail)) = start(page) {
        let told = Told {
            pid: std::process::id(),
            state: State::Off,
            reason,
            detail,
            elapsed: 0,
            sampled: 0,
            dropped: 0,
            cpu: 0,
            written: worker::clock(ClockId::Monotonic),
        };
        let mut words = vec![0; WORDS];
        Sums::default().write(&told, &mut words);
        page.publish(&words);
    }
}

/// Finds what is needed, and begins to ask for records.
fn start(page: &'static Shared) -> Result<(), Off> {
    let cupti = Cupti::open()?;
    let pool = Pool::new().ok_or((Reason::Failed, 0))?;
    let everything = EVERYTHING.get_or_init(|| Everything { cupti, pool });
    ask(everything, page).inspect_err(|_| everything.cupti.give_back())
}

fn ask(everything: &'static Everything, page: &'static Shared) -> Result<(), Off> {
    everything.cupti.subscribe(requested, completed)?;
    process::mind_the_end();
    let begun = Instant::now();
    let seed = u64::from(std::process::id()) << 32 ^ nanos();
    let mut plan = Plan::new(std::env::var(plan::VARIABLE).ok().as_deref(), seed);
    let enabled = plan.at(0).0;
    if enabled {
        everything.cupti.enable()?;
    }
    Worker::new(everything, page, plan, begun, enabled).spawn()
}

/// Something that differs from start to start, for processes with the same id in their containers.
fn nanos() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos().into())
}

/// CUPTI wants a buffer, perhaps in the thread that launches: nothing here waits or asks the system for memory.
extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let lent = guarded(None, || EVERYTHING.get().filter(|_| process::ours()).and_then(|all| all.pool.lend()));
    let (at, length) = lent.map_or((null_mut(), 0), |at| (at.as_ptr(), SIZE));
    // SAFETY: as argued at the head of this module.
    unsafe { buffer.write(at) };
    // SAFETY: as above.
    unsafe { size.write(length) };
    // SAFETY: as above.
    unsafe { most.write(0) };
}

/// CUPTI gives a buffer back.
extern "C" fn completed(_context: *mut c_void, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    guarded((), || {
        if let Some(all) = EVERYTHING.get().filter(|_| process::ours()) {
            all.pool.give_back(buffer, valid);
            worker::wake();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_the_library_and_nothing_else() {
        assert_eq!(guarded(0, || 5), 5);
        assert_eq!(guarded(7, || panic!("inside")), 7);
        assert_eq!(guarded(8, || 5), 8, "nothing is run any more");
        assert!(failed());
        let (mut buffer, mut size, mut most) = (std::ptr::dangling_mut(), 1, 1);
        requested(&raw mut buffer, &raw mut size, &raw mut most);
        assert!(buffer.is_null());
        assert_eq!((size, most), (0, 0), "CUPTI is given no buffer, and counts what it drops");
        completed(null_mut(), 0, null_mut(), 0, 0);
    }

    /// Panics must not leave a function that another library calls; of all of them, whoever writes the next.
    #[test]
    fn whatever_other_libraries_call_contains_its_panics() {
        let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
        let mut entries = 0;
        for source in sources.map(|entry| entry.unwrap().path()) {
            let text = std::fs::read_to_string(&source).unwrap();
            let (product, _tests) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
            // What follows a definition, up to its last line; types of functions have no name.
            for (at, _) in product.match_indices("extern \"C\" fn ") {
                let rest = &product[at..];
                let body = &rest[..rest.find("\n}").unwrap()];
                assert!(
                    body.contains("guarded(") || body.contains("contained("),
                    "{}: {body}",
                    source.display()
                );
                entries += 1;
            }
        }
        assert_eq!(entries, 6, "InitializeInjection, requested, completed, called, forked and leave");
    }
}
