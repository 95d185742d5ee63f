//! This process's use of the library: initialisation, handles, and the way of a call to its device.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use warpmeter_simgpu::layout::{Device, Engine, Shared};
use warpmeter_simgpu::{FaultKind, Guard, Node, hash};

use crate::abi::{
    Answer, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS,
    UNINITIALIZED, code, nvmlDevice_t, nvmlGpuInstance_t, nvmlReturn_t,
};

static NODE: RwLock<Option<&'static Node>> = RwLock::new(None);
static USERS: AtomicU32 = AtomicU32::new(0);
static RELOADS: AtomicU64 = AtomicU64::new(0);

/// Marks our handles.
const HANDLE: u64 = 0x0005_1600_0000_0000;

/// `nvmlInit`.
pub(crate) fn init(name: &str) -> nvmlReturn_t {
    let node = {
        let mut slot = NODE.write().unwrap_or_else(PoisonError::into_inner);
        let unused = USERS.load(Ordering::SeqCst) == 0;
        if unused && slot.is_some_and(Node::replaced) {
            *slot = None;
        }
        if slot.is_none() {
            *slot = Node::from_env().map(|node| &*Box::leak(Box::new(node)));
        }
        *slot
    };
    let Some(node) = node else { return DRIVER_NOT_LOADED };
    let guard = node.lock();
    let now = guard.now;
    if guard.faulty_for(FaultKind::MissingSymbol, None, hash(name), now) {
        return FUNCTION_NOT_FOUND;
    }
    if guard.faulty(FaultKind::Late, None, now).is_some() {
        return DRIVER_NOT_LOADED;
    }
    let reloads = guard.reloads(now);
    drop(guard);
    if RELOADS.swap(reloads, Ordering::SeqCst) != reloads {
        USERS.store(0, Ordering::SeqCst);
    }
    USERS.fetch_add(1, Ordering::SeqCst);
    SUCCESS
}

/// `nvmlShutdown`.
pub(crate) fn shutdown() -> nvmlReturn_t {
    match USERS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) {
        Ok(_) => SUCCESS,
        Err(_) => UNINITIALIZED,
    }
}

/// The initialised node.
pub(crate) fn node() -> Result<&'static Node, nvmlReturn_t> {
    if USERS.load(Ordering::SeqCst) == 0 {
        return Err(UNINITIALIZED);
    }
    NODE.read().unwrap_or_else(PoisonError::into_inner).ok_or(UNINITIALIZED)
}

/// Takes the lock for a call that concerns no device.
pub(crate) fn on_node(name: &str, call: impl FnOnce(&mut Guard<'_>) -> Answer) -> nvmlReturn_t {
    let node = match node() {
        Ok(node) => node,
        Err(code) => return code,
    };
    let mut guard = node.lock();
    match admit(&guard, name) {
        Ok(()) => code(call(&mut guard)),
        Err(code) => code,
    }
}

fn admit(guard: &Guard<'_>, name: &str) -> Answer {
    if guard.faults == 0 {
        return Ok(());
    }
    let now = guard.now;
    if guard.faulty_for(FaultKind::MissingSymbol, None, hash(name), now) {
        return Err(FUNCTION_NOT_FOUND);
    }
    if guard.reloads(now) != RELOADS.load(Ordering::SeqCst)
        || guard.faulty(FaultKind::Late, None, now).is_some()
    {
        return Err(UNINITIALIZED);
    }
    Ok(())
}

/// What a handle names: a device, or a MIG device of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) device: usize,
    /// The engine behind a MIG device or GPU instance handle.
    pub(crate) part: Option<usize>,
}

impl Target {
    fn number(self) -> u64 {
        let part = self.part.map_or(0, |e| e as u64 + 1);
        let reloads = RELOADS.load(Ordering::SeqCst) & 0xff;
        HANDLE | reloads << 24 | (self.device as u64) << 12 | part << 1 | 1
    }

    /// The handle of a device or MIG device.
    pub(crate) fn handle(self) -> nvmlDevice_t {
        std::ptr::without_provenance_mut(usize::try_from(self.number()).unwrap_or(0))
    }

    /// The handle of a GPU instance, or of its compute instance.
    pub(crate) fn instance(self) -> nvmlGpuInstance_t {
        std::ptr::without_provenance_mut(usize::try_from(self.number()).unwrap_or(0))
    }

    fn parse(address: usize) -> Option<Self> {
        let number = address as u64;
        let reloads = RELOADS.load(Ordering::SeqCst) & 0xff;
        if number & 0xffff_ffff_0000_0001 != HANDLE | 1 || (number >> 24) & 0xff != reloads {
            return None;
        }
        let device = usize::try_from((number >> 12) & 0xfff).ok()?;
        let part = usize::try_from((number >> 1) & 0x7ff).ok()?;
        Some(Self { device, part: part.checked_sub(1) })
    }
}

/// A device under the lock, advanced to now.
pub(crate) struct View<'a> {
    pub(crate) guard: Guard<'a>,
    pub(crate) target: Target,
    pub(crate) now: u64,
}

impl View<'_> {
    pub(crate) fn shared(&self) -> &Shared {
        &self.guard
    }

    pub(crate) fn device(&self) -> &Device {
        &self.guard.device[self.target.device]
    }

    pub(crate) fn is_mig(&self) -> bool {
        self.target.part.is_some()
    }

    /// Whether this is a physical device in MIG mode.
    pub(crate) fn divided(&self) -> bool {
        !self.is_mig() && self.device().mig == 1
    }

    /// The engines behind the handle.
    pub(crate) fn engines(&self) -> &[Engine] {
        let d = self.device();
        let first = d.engine as usize;
        let range = self.target.part.map_or(first..first + d.engines as usize, |e| e..e + 1);
        self.guard.engine.get(range).unwrap_or_default()
    }

    /// The one engine behind the handle, if there is one.
    pub(crate) fn engine(&self) -> Result<&Engine, nvmlReturn_t> {
        match self.engines() {
            [engine] if !self.divided() => Ok(engine),
            _ => Err(NOT_SUPPORTED),
        }
    }

    pub(crate) fn faulty(&self, kind: FaultKind) -> bool {
        self.guard.faulty(kind, Some(self.target.device), self.now).is_some()
    }

    /// Refuses MIG device handles.
    pub(crate) fn physical(&self) -> Answer {
        if self.is_mig() { Err(NOT_SUPPORTED) } else { Ok(()) }
    }
}

/// A call on the device that a handle names. Faults strike here.
pub(crate) fn on_device<T>(
    name: &str,
    handle: *mut T,
    call: impl FnOnce(&mut View<'_>) -> Answer,
) -> nvmlReturn_t {
    code(reach(name, handle.addr()).and_then(|mut view| call(&mut view)))
}

fn reach(name: &str, address: usize) -> Result<View<'static>, nvmlReturn_t> {
    let node = node()?;
    loop {
        let mut guard = node.lock();
        let now = guard.now;
        admit(&guard, name)?;
        let target = Target::parse(address).ok_or(INVALID_ARGUMENT)?;
        if target.device >= guard.devices as usize {
            return Err(INVALID_ARGUMENT);
        }
        let device = Some(target.device);
        if guard.faults > 0 {
            if guard.faulty(FaultKind::Crash, device, now).is_some() {
                std::process::abort();
            }
            if guard.faulty(FaultKind::Hang, device, now).is_some() {
                drop(guard);
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            if guard.faulty(FaultKind::Lost, device, now).is_some() {
                return Err(GPU_IS_LOST);
            }
            if guard.faulty_for(FaultKind::NotSupported, device, hash(name), now) {
                return Err(NOT_SUPPORTED);
            }
        }
        guard.advance_device(target.device, now);
        return Ok(View { guard, target, now });
    }
}
