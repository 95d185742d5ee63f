//! The calls into libcupti, and those into libcuda that name devices.
//!
//! Every function is looked up before any is called, and results are numbers: a newer library may give others than
//! have names here. The program's own copy of CUPTI is used if it has loaded one, since two do not work beside each
//! other.
//!
//! Why the calls are sound: signatures are those of the headers; pointers are to locals that live over the call, or to
//! buffers of the length that goes with them.
#![allow(unsafe_code, reason = "calls into NVIDIA's libraries")]
#![allow(non_snake_case, reason = "functions have the library's names")]

use std::ffi::{OsString, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};
use warpmeter_inject_page::Reason;

use crate::entry::guarded;
use crate::record::{KERNEL, MEMCPY, MEMSET, Record};
use crate::sums::Name;

/// The variable that names CUPTI's library.
const VARIABLE: &str = "WARPMETER_INJECT_CUPTI";
/// The names by which it is looked for otherwise.
const NAMES: [&str; 4] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"];
/// `RTLD_NOLOAD`: only what the process has loaded already.
const ONLY_LOADED: i32 = libc::RTLD_NOLOAD;
/// `CUPTI_ERROR_MAX_LIMIT_REACHED`: there are no more records in the buffer.
const NO_MORE: u32 = 12;
/// The kinds of records that are wanted.
const KINDS: [u32; 3] = [KERNEL, MEMCPY, MEMSET];

/// Whether records of an interface version are known: those of CUDA 11.8 to 12.9, and of 13.
const fn is_known(version: u32) -> bool {
    matches!(version, 18..=99 | 130_000..=139_999)
}

/// Called for a buffer: where it is, its length, and how many records are to be put into it at most (0: any number).
type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Called with a buffer: two words without a meaning, then where it is, its length, and how many bytes are records.
type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// Called for what is subscribed to: nothing.
type Called = extern "C" fn(*mut c_void, u32, u32, *const c_void);

macro_rules! functions {
    ($table:ident: $($name:ident($($argument:ty),*);)*) => {
        #[derive(Debug)]
        struct $table { $($name: unsafe extern "C" fn($($argument),*) -> u32,)* }

        impl $table {
            fn look_up(library: &Library) -> Option<Self> {
                Some(Self { $($name: {
                    const NAME: &str = concat!(stringify!($name), "\0");
                    // SAFETY: the type is the function's, as published.
                    *unsafe { library.get(NAME.as_bytes()) }.ok()?
                },)* })
            }
        }
    };
}

functions! { Functions:
    cuptiGetVersion(*mut u32);
    cuptiSubscribe(*mut *mut c_void, Called, *mut c_void);
    cuptiUnsubscribe(*mut c_void);
    cuptiActivityRegisterCallbacks(Requested, Completed);
    cuptiActivityEnable(u32);
    cuptiActivityDisable(u32);
    cuptiActivityFlushAll(u32);
    cuptiActivityGetNextRecord(*mut u8, usize, *mut *mut u8);
    cuptiActivityGetNumDroppedRecords(*mut c_void, u32, *mut usize);
}

functions! { Driver:
    cuDeviceGet(*mut i32, i32);
    cuDeviceGetUuid(*mut [u8; 16], i32);
    cuDeviceGetUuid_v2(*mut [u8; 16], i32);
    cuDeviceGetAttribute(*mut i32, i32, i32);
}

/// Why there is nothing to call: the reason, and the number that goes with it.
pub(crate) type Off = (Reason, u64);

/// CUPTI's library, which stays open for the life of the process.
#[derive(Debug)]
pub(crate) struct Cupti {
    functions: Functions,
    /// What CUPTI knows this library by, once it has subscribed.
    subscriber: AtomicPtr<c_void>,
    _open: ManuallyDrop<Library>,
}

impl Cupti {
    /// Looks for the library and its functions, and asks for its version.
    pub(crate) fn open() -> Result<Self, Off> {
        let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        let names = named.map_or_else(|| NAMES.map(OsString::from).to_vec(), |name| vec![name]);
        let open = |flags: i32| {
            names.iter().find_map(|name| {
                // SAFETY: NVIDIA's library, whose initialisers have no precondition; that it is this library is the
                // word of whoever chose the process's environment and image.
                unsafe { Library::open(Some(name), flags) }.ok()
            })
        };
        let library = open(RTLD_LAZY | ONLY_LOADED)
            .or_else(|| open(RTLD_NOW | RTLD_LOCAL))
            .ok_or((Reason::NoCupti, 0))?;
        let functions = Functions::look_up(&library).ok_or((Reason::Symbol, 0))?;
        let mut version = 0;
        // SAFETY: as argued at the head of this module.
        refused(unsafe { (functions.cuptiGetVersion)(&raw mut version) })?;
        if !is_known(version) {
            return Err((Reason::Version, version.into()));
        }
        Ok(Self { functions, subscriber: AtomicPtr::default(), _open: ManuallyDrop::new(library) })
    }

    /// Takes CUPTI for this library, which the process then cannot use otherwise, and names those who lend buffers and
    /// take them back.
    pub(crate) fn subscribe(&self, requested: Requested, completed: Completed) -> Result<(), Off> {
        let mut subscriber = null_mut();
        // SAFETY: as argued at the head of this module; `called` needs no data.
        refused(unsafe { (self.functions.cuptiSubscribe)(&raw mut subscriber, called, null_mut()) })?;
        self.subscriber.store(subscriber, Ordering::Relaxed);
        // SAFETY: as above; both live as long as the process.
        refused(unsafe { (self.functions.cuptiActivityRegisterCallbacks)(requested, completed) })
    }

    /// Begins to ask for records.
    pub(crate) fn enable(&self) -> Result<(), Off> {
        // SAFETY: as argued at the head of this module.
        KINDS.iter().try_for_each(|kind| refused(unsafe { (self.functions.cuptiActivityEnable)(*kind) }))
    }

    /// Asks for no more records.
    pub(crate) fn disable(&self) {
        for kind in KINDS {
            // SAFETY: as argued at the head of this module. One that was not enabled is refused.
            unsafe { (self.functions.cuptiActivityDisable)(kind) };
        }
    }

    /// Gives CUPTI back to the process: asks for no more records, and lets others subscribe.
    pub(crate) fn give_back(&self) {
        self.disable();
        let subscriber = self.subscriber.swap(null_mut(), Ordering::Relaxed);
        if !subscriber.is_null() {
            // SAFETY: as argued at the head of this module; it is CUPTI's own, and was not given back before.
            unsafe { (self.functions.cuptiUnsubscribe)(subscriber) };
        }
    }

    /// Has buffers with finished records handed back.
    pub(crate) fn flush(&self) {
        // SAFETY: as argued at the head of this module; 0: only records that are complete. What cannot be flushed now
        // comes later.
        unsafe { (self.functions.cuptiActivityFlushAll)(0) };
    }

    /// Calls `each` with the records of a buffer; whether they end where the buffer does.
    pub(crate) fn records(&self, memory: NonNull<u8>, valid: usize, mut each: impl FnMut(Record)) -> bool {
        let mut at: *mut u8 = null_mut();
        loop {
            // SAFETY: as argued at the head of this module: it is a buffer that CUPTI filled so far.
            let status =
                unsafe { (self.functions.cuptiActivityGetNextRecord)(memory.as_ptr(), valid, &raw mut at) };
            let Some(record) = NonNull::new(at).filter(|_| status == 0) else { return status == NO_MORE };
            // SAFETY: the library's own word that there is a record, of a version that is known.
            if let Some(record) = unsafe { Record::read(record) } {
                each(record);
            }
        }
    }

    /// Records that were dropped since the last call.
    pub(crate) fn dropped(&self) -> u64 {
        let mut count = 0;
        // SAFETY: as argued at the head of this module; the first two have no meaning any more.
        let status =
            unsafe { (self.functions.cuptiActivityGetNumDroppedRecords)(null_mut(), 0, &raw mut count) };
        if status == 0 { count as u64 } else { 0 }
    }
}

/// What the driver that the process has loaded says of the device with this ordinal.
pub(crate) fn name(ordinal: usize) -> Option<Name> {
    let ordinal = i32::try_from(ordinal).ok()?;
    // SAFETY: loads nothing: a library that is there already has run its initialisers.
    let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | ONLY_LOADED) }.ok()?;
    let driver = Driver::look_up(&library)?;
    let mut device = 0;
    // SAFETY: as argued at the head of this module, here and below.
    succeeded(unsafe { (driver.cuDeviceGet)(&raw mut device, ordinal) })?;
    let (mut uuid, mut mig) = ([0; 16], [0; 16]);
    // SAFETY: as above.
    succeeded(unsafe { (driver.cuDeviceGetUuid)(&raw mut uuid, device) })?;
    // SAFETY: as above.
    succeeded(unsafe { (driver.cuDeviceGetUuid_v2)(&raw mut mig, device) })?;
    let capability = |attribute| {
        let mut value = 0;
        // SAFETY: as above.
        succeeded(unsafe { (driver.cuDeviceGetAttribute)(&raw mut value, attribute, device) })?;
        u32::try_from(value).ok()
    };
    // COMPUTE_CAPABILITY_MAJOR and _MINOR.
    let capability = (capability(75)?, capability(76)?);
    Some(Name { uuid, mig: (mig != uuid).then_some(mig), capability })
}

extern "C" fn called(_data: *mut c_void, _domain: u32, _call: u32, _about: *const c_void) {
    guarded((), || {});
}

fn refused(status: u32) -> Result<(), Off> {
    if status == 0 { Ok(()) } else { Err((Reason::Refused, status.into())) }
}

fn succeeded(status: u32) -> Option<()> {
    (status == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_whose_records_are_known_are_used() {
        assert!([18, 24, 26, 28, 130_001, 130_401].into_iter().all(is_known));
        assert!(![0, 14, 17, 100, 129_999, 140_000, u32::MAX].into_iter().any(is_known));
    }
}
