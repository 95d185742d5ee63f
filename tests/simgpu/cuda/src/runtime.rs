//! This process's use of the driver: which devices it sees, and the threads that serve it.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use warpmeter_simgpu::layout::{NONE, Shared};
use warpmeter_simgpu::{FaultKind, Node, Process};

use crate::abi::{CuResult, NO_DEVICE, NOT_INITIALIZED};

/// The driver's "torn down" word, which every trampoline compares with [`GONE`].
pub(crate) static TORN_DOWN: AtomicU32 = AtomicU32::new(0);
/// Its value after the end.
pub(crate) const GONE: u32 = 0x321c_ba00;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());
static FORKED: AtomicBool = AtomicBool::new(false);

/// A device as this process numbers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visible {
    pub(crate) device: usize,
    pub(crate) engine: usize,
}

/// The initialised driver.
pub(crate) struct Runtime {
    pub(crate) node: &'static Node,
    pub(crate) process: Process,
    pub(crate) visible: Vec<Visible>,
    /// Device files held open, by minor number.
    open: Mutex<Vec<(u32, File)>>,
    _control: Option<File>,
}

/// The driver, if `cuInit` succeeded in this process.
pub(crate) fn runtime() -> Result<&'static Runtime, CuResult> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(NOT_INITIALIZED);
    }
    RUNTIME.get().ok_or(NOT_INITIALIZED)
}

/// `cuInit`.
pub(crate) fn init() -> Result<(), CuResult> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(NOT_INITIALIZED);
    }
    let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if RUNTIME.get().is_none() {
        let made = Runtime::start()?;
        RUNTIME.get_or_init(|| made).serve();
    }
    drop(starting);
    if runtime()?.visible.is_empty() { Err(NO_DEVICE) } else { Ok(()) }
}

extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// At exit, contexts end at once, as when the kernel closes the device files.
extern "C" fn leave() {
    let Ok(runtime) = runtime() else { return };
    TORN_DOWN.store(GONE, Ordering::Relaxed);
    let mut guard = runtime.node.lock();
    let now = guard.now;
    guard.advance_all(now);
    guard.remove_process(runtime.process);
    drop(guard);
    // The log is completed by the next process that may write it, if not by this one.
    drop(runtime.node.flush());
}

impl Runtime {
    fn start() -> Result<Self, CuResult> {
        let node: &'static Node = Box::leak(Box::new(Node::from_env().ok_or(NO_DEVICE)?));
        let guard = node.lock();
        if guard.faulty(FaultKind::Late, None, guard.now).is_some() {
            return Err(NO_DEVICE);
        }
        if let Some(fault) = guard.faulty(FaultKind::CudaError, None, guard.now) {
            return Err(CuResult::try_from(fault.arg).unwrap_or(NO_DEVICE));
        }
        let wanted = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let visible = visible(&guard, wanted.as_deref());
        drop(guard);
        let control = File::open(node.dir().join("dev/nvidiactl")).ok();
        Ok(Self {
            node,
            process: Process::current(),
            visible,
            open: Mutex::new(Vec::new()),
            _control: control,
        })
    }

    /// Sets up what must happen at fork, at exit, and every 50 ms.
    fn serve(&'static self) {
        // SAFETY: the handler is a plain function without arguments that lives as long as the process.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        // SAFETY: as above.
        unsafe { libc::atexit(leave) };
        let work = || {
            while !FORKED.load(Ordering::Relaxed) && TORN_DOWN.load(Ordering::Relaxed) != GONE {
                std::thread::sleep(Duration::from_millis(50));
                self.node.tick();
            }
        };
        // Without this thread the node is looked after by other processes, or later.
        drop(std::thread::Builder::new().name("cuda-EvtHandlr".to_owned()).spawn(work));
    }

    /// Opens a device's file, to be seen in `/proc/PID/fd`.
    pub(crate) fn hold_open(&self, minor: u32) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.iter().all(|o| o.0 != minor)
            && let Ok(file) = File::open(self.node.dir().join(format!("dev/nvidia{minor}")))
        {
            open.push((minor, file));
        }
    }
}

/// The devices in the order that `CUDA_VISIBLE_DEVICES` gives. An unknown entry hides those after it.
///
/// Without the variable: the undivided devices, or the first MIG device if there are none. An index or GPU UUID of a
/// divided device means its first MIG device.
fn visible(s: &Shared, wanted: Option<&str>) -> Vec<Visible> {
    let whole = |device: usize| {
        let d = &s.device[device];
        let first = d.engine as usize;
        let engines = first..first + d.engines as usize;
        let usable = engines.into_iter().find(|&e| s.engine[e].gi == NONE || s.engine[e].ci == 1)?;
        Some(Visible { device, engine: usable })
    };
    let count = s.devices as usize;
    let Some(wanted) = wanted else {
        let undivided: Vec<Visible> =
            (0..count).filter(|&d| s.device[d].mig == 0).filter_map(whole).collect();
        return if undivided.is_empty() { (0..count).filter_map(whole).take(1).collect() } else { undivided };
    };
    let find = |word: &str| {
        if let Ok(index) = word.parse::<usize>() {
            return if index < count { whole(index) } else { None };
        }
        if word.starts_with("GPU-") {
            return whole((0..count).find(|&d| s.device[d].uuid.as_str().starts_with(word))?);
        }
        let engine = (0..s.engines as usize).find(|&e| {
            s.engine[e].ci == 1 && word.starts_with("MIG-") && s.engine[e].uuid.as_str().starts_with(word)
        })?;
        Some(Visible { device: s.engine[engine].device as usize, engine })
    };
    wanted.split(',').map(str::trim).map_while(find).collect()
}
