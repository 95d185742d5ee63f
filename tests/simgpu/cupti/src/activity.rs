//! Activity records: what this process has done on its devices, in buffers that it lends.
//!
//! One activity of the process at a time is put into a buffer; a full one is handed back by a thread of this library,
//! one that is not by `cuptiActivityFlushAll`, in the thread that calls it. Records are those of CUDA 12.8.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use cudarc::cupti::sys::{CUpti_ActivityKernel9, CUpti_ActivityMemcpy6, CUpti_ActivityMemset4};
use warpmeter_simgpu::kernel::REGISTERS;
use warpmeter_simgpu::layout::{Activity, kind, work};
use warpmeter_simgpu::trace::wants;
use warpmeter_simgpu::{FaultKind, Process};

use crate::abi::{Answer, Code, INVALID_OPERATION, INVALID_PARAMETER, UNKNOWN, code, put};
use crate::session::{node, ordinals};

const MAX_LIMIT_REACHED: Code = 12;
const INVALID_KIND: Code = 21;
const MULTIPLE_SUBSCRIBERS: Code = 39;

/// Kinds of records.
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;
const KERNEL: u32 = 3;
const CONCURRENT_KERNEL: u32 = 10;

type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// A buffer that was lent, and how much of it is records.
struct Buffer {
    at: NonNull<u8>,
    size: usize,
    used: usize,
}

#[derive(Default)]
struct State {
    callbacks: Option<(Requested, Completed)>,
    buffer: Option<Buffer>,
    dropped: u64,
    trace: Option<usize>,
}

// SAFETY: a buffer that was lent is this library's, whichever of its threads fills it.
unsafe impl Send for State {}

static SUBSCRIBED: AtomicBool = AtomicBool::new(false);

fn state() -> MutexGuard<'static, State> {
    static STATE: Mutex<State> = Mutex::new(State { callbacks: None, buffer: None, dropped: 0, trace: None });
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn bit(kind: u32) -> Answer<u32> {
    match kind {
        KERNEL | CONCURRENT_KERNEL => Ok(wants::KERNELS),
        MEMCPY => Ok(wants::COPIES),
        MEMSET => Ok(wants::SETS),
        _ => Err(INVALID_KIND),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiSubscribe(out: *mut *mut c_void, _called: *const c_void, _data: *mut c_void) -> Code {
    if SUBSCRIBED.swap(true, Ordering::Relaxed) {
        return MULTIPLE_SUBSCRIBERS;
    }
    code(put(out, std::ptr::without_provenance_mut(0x1000)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(_subscriber: *mut c_void) -> Code {
    SUBSCRIBED.store(false, Ordering::Relaxed);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks(
    requested: Option<Requested>,
    completed: Option<Completed>,
) -> Code {
    let Some(callbacks) = requested.zip(completed) else { return INVALID_PARAMETER };
    state().callbacks = Some(callbacks);
    0
}

/// Changes what is wanted of this process.
fn change(to: impl FnOnce(u32) -> u32) -> Answer {
    let node = node().ok_or(UNKNOWN)?;
    let mut guard = node.lock();
    if let Some(fault) = guard.faulty(FaultKind::CuptiError, None, guard.now) {
        return Err(u32::try_from(fault.arg).unwrap_or(UNKNOWN));
    }
    let at = guard.trace_of(Process::current()).ok_or(UNKNOWN)?;
    let trace = &mut guard.trace[at];
    trace.wanted = to(trace.wanted);
    drop(guard);
    state().trace = Some(at);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: u32) -> Code {
    static THREAD: Once = Once::new();
    let enable = || {
        let bit = bit(kind)?;
        if state().callbacks.is_none() {
            return Err(INVALID_OPERATION);
        }
        change(|wanted| wanted | bit)?;
        // Without it, buffers are handed back by flushes only.
        THREAD.call_once(|| drop(std::thread::Builder::new().name("cupti".to_owned()).spawn(deliver)));
        Ok(())
    };
    code(enable())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: u32) -> Code {
    code(bit(kind).and_then(|bit| change(|wanted| wanted & !bit)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(_flags: u32) -> Code {
    let hangs = || {
        let Some(node) = node() else { return false };
        let guard = node.lock();
        guard.faulty(FaultKind::CuptiHang, None, guard.now).is_some()
    };
    while hangs() {
        std::thread::sleep(Duration::from_millis(20));
    }
    code(pull(true))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream: u32,
    out: *mut usize,
) -> Code {
    code(put(out, usize::try_from(std::mem::take(&mut state().dropped)).unwrap_or(usize::MAX)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> Code {
    if buffer.is_null() || record.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: CUPTI's contract: a pointer to a record of this buffer, or null before the first.
    let last = unsafe { record.read() };
    let next = if last.is_null() {
        0
    } else {
        // SAFETY: as above; a record begins with its kind.
        let length = length(unsafe { last.cast::<[u8; 4]>().read() });
        last.addr() - buffer.addr() + length
    };
    if next >= valid {
        return MAX_LIMIT_REACHED;
    }
    code(put(record, buffer.wrapping_add(next)))
}

const fn length(kind: [u8; 4]) -> usize {
    match u32::from_ne_bytes(kind) {
        MEMCPY => size_of::<CUpti_ActivityMemcpy6>(),
        MEMSET => size_of::<CUpti_ActivityMemset4>(),
        _ => size_of::<CUpti_ActivityKernel9>(),
    }
}

/// Hands full buffers back.
fn deliver() {
    loop {
        std::thread::sleep(Duration::from_millis(2));
        // What goes wrong now may go right later.
        let _failed = pull(false);
    }
}

/// Puts what was done into buffers, and hands back those that are full; with `all`, also the last.
fn pull(all: bool) -> Answer {
    let mut state = state();
    let (Some(at), Some((requested, completed))) = (state.trace, state.callbacks) else { return Ok(()) };
    let node = node().ok_or(UNKNOWN)?;
    let names = ordinals()?;
    let mut guard = node.lock();
    let now = guard.now;
    guard.advance_all(now);
    let overflow = guard.faulty(FaultKind::CuptiOverflow, None, now).is_some();
    let (done, lost) = guard.take_activity(at, usize::MAX);
    state.dropped += lost;
    let places: Vec<Option<u32>> = (0..guard.engines as usize)
        .map(|engine| {
            let device = &guard.device[guard.engine[engine].device as usize];
            let ordinal = names.iter().position(|name| name == device.pci_bus.as_str());
            ordinal.and_then(|ordinal| u32::try_from(ordinal).ok())
        })
        .collect();
    drop(guard);
    for activity in done {
        let ordinal = places[activity.engine as usize].unwrap_or(0);
        let record = encode(&activity, ordinal);
        if overflow || !state.room(record.len(), requested, completed) {
            state.dropped += 1;
            continue;
        }
        if let Some(buffer) = &mut state.buffer {
            // SAFETY: there is room for it, and the buffer is this library's now.
            let to = unsafe { buffer.at.add(buffer.used) };
            // SAFETY: as above; the two do not overlap.
            unsafe { to.copy_from_nonoverlapping(NonNull::from(&record[0]), record.len()) };
            buffer.used += record.len();
        }
    }
    if all && let Some(buffer) = state.buffer.take() {
        completed(null_mut(), 0, buffer.at.as_ptr(), buffer.size, buffer.used);
    }
    Ok(())
}

impl State {
    /// Whether there is room for so many bytes, in a new buffer if need be.
    fn room(&mut self, bytes: usize, requested: Requested, completed: Completed) -> bool {
        if let Some(full) = self.buffer.take_if(|buffer| buffer.size - buffer.used < bytes) {
            completed(null_mut(), 0, full.at.as_ptr(), full.size, full.used);
        }
        if self.buffer.is_none() {
            let (mut at, mut size, mut most) = (null_mut(), 0, 0);
            requested(&raw mut at, &raw mut size, &raw mut most);
            self.buffer = NonNull::new(at).filter(|_| size >= bytes).map(|at| Buffer { at, size, used: 0 });
        }
        self.buffer.is_some()
    }
}

/// The record of an activity.
fn encode(activity: &Activity, ordinal: u32) -> Vec<u8> {
    let Activity { op, end, .. } = activity;
    let copy = match (op.kind, op.work) {
        (kind::H2D, _) => Some(1),
        (kind::D2H, _) => Some(2),
        (_, work::COPY) => Some(8),
        _ => None,
    };
    macro_rules! record {
        ($of:ident { $($field:ident: $type:ty = $value:expr,)* }) => {{
            let mut bytes = vec![0; size_of::<$of>()];
            $({
                let value: $type = $value;
                let at = std::mem::offset_of!($of, $field);
                bytes[at..at + size_of::<$type>()].copy_from_slice(&value.to_ne_bytes());
            })*
            bytes
        }};
    }
    if let Some(copy) = copy {
        return record!(CUpti_ActivityMemcpy6 {
            kind: u32 = MEMCPY,
            copyKind: u8 = copy,
            bytes: u64 = op.bytes,
            start: u64 = op.begun,
            end: u64 = *end,
            deviceId: u32 = ordinal,
        });
    }
    if op.work == work::SET {
        return record!(CUpti_ActivityMemset4 {
            kind: u32 = MEMSET,
            bytes: u64 = op.bytes,
            start: u64 = op.begun,
            end: u64 = *end,
            deviceId: u32 = ordinal,
        });
    }
    record!(CUpti_ActivityKernel9 {
        kind: u32 = CONCURRENT_KERNEL,
        start: u64 = op.begun,
        end: u64 = *end,
        deviceId: u32 = ordinal,
        gridX: u32 = op.grid,
        gridY: u32 = 1,
        gridZ: u32 = 1,
        blockX: u32 = op.block,
        blockY: u32 = 1,
        blockZ: u32 = 1,
        registersPerThread: u16 = u16::try_from(REGISTERS).unwrap_or(u16::MAX),
        dynamicSharedMemory: u32 = op.shared,
        name: u64 = op.function,
    })
}
