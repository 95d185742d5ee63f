//! The CUDA driver, opened at run time: the few functions that the programs use.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

/// Why a program cannot use its device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// The library, or a function of it, is missing.
    #[error("open {path}")]
    Open {
        /// The library.
        path: PathBuf,
        /// What the loader said.
        #[source]
        source: libloading::Error,
    },
    /// A call failed.
    #[error("{call} gave CUDA error {code}")]
    Call {
        /// The function.
        call: &'static str,
        /// Its result.
        code: u32,
    },
}

/// A stream of the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream(u64);

/// An event of the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event(u64);

/// A kernel of known behaviour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel(u64);

/// A context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context(u64);

type Launch = extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, *mut c_void, *mut c_void) -> u32;

/// The functions, which stay valid as long as the library is open: as long as the process.
pub(crate) struct Driver {
    init: extern "C" fn(u32) -> u32,
    uuid: extern "C" fn(*mut [u8; 16], i32) -> u32,
    retain: extern "C" fn(*mut u64, i32) -> u32,
    set_flags: extern "C" fn(i32, u32) -> u32,
    set_current: extern "C" fn(u64) -> u32,
    load: extern "C" fn(*mut u64, *const c_void) -> u32,
    function: extern "C" fn(*mut u64, u64, *const i8) -> u32,
    stream: extern "C" fn(*mut u64, u32) -> u32,
    launch: Launch,
    sync: extern "C" fn(u64) -> u32,
    event: extern "C" fn(*mut u64, u32) -> u32,
    record: extern "C" fn(u64, u64) -> u32,
    sync_event: extern "C" fn(u64) -> u32,
    alloc: extern "C" fn(*mut u64, usize) -> u32,
    alloc_host: extern "C" fn(*mut u64, usize, u32) -> u32,
    upload: extern "C" fn(u64, u64, usize, u64) -> u32,
    download: extern "C" fn(u64, u64, usize) -> u32,
    _library: Library,
}

impl Driver {
    /// Opens the library at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, DriverError> {
        let fail = |source| DriverError::Open { path: path.to_owned(), source };
        // SAFETY: the driver library's initialisers have no precondition.
        let library = unsafe { Library::new(path) }.map_err(fail)?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the field that this fills has the C type of the function of that name in cuda.h.
                *unsafe { library.get($name) }.map_err(fail)?
            };
        }
        Ok(Self {
            init: symbol!(b"cuInit\0"),
            uuid: symbol!(b"cuDeviceGetUuid\0"),
            retain: symbol!(b"cuDevicePrimaryCtxRetain\0"),
            set_flags: symbol!(b"cuDevicePrimaryCtxSetFlags_v2\0"),
            set_current: symbol!(b"cuCtxSetCurrent\0"),
            load: symbol!(b"cuModuleLoadData\0"),
            function: symbol!(b"cuModuleGetFunction\0"),
            stream: symbol!(b"cuStreamCreate\0"),
            launch: symbol!(b"cuLaunchKernel\0"),
            sync: symbol!(b"cuStreamSynchronize\0"),
            event: symbol!(b"cuEventCreate\0"),
            record: symbol!(b"cuEventRecord\0"),
            sync_event: symbol!(b"cuEventSynchronize\0"),
            alloc: symbol!(b"cuMemAlloc_v2\0"),
            alloc_host: symbol!(b"cuMemHostAlloc\0"),
            upload: symbol!(b"cuMemcpyHtoDAsync_v2\0"),
            download: symbol!(b"cuMemcpyDtoH_v2\0"),
            _library: library,
        })
    }

    /// A device's primary context, made current.
    pub(crate) fn context(&self, ordinal: i32, blocking: bool) -> Result<Context, DriverError> {
        check("cuInit", (self.init)(0))?;
        // As the CUDA runtime does when it fills in a device's properties.
        let mut uuid = [0; 16];
        check("cuDeviceGetUuid", (self.uuid)(&raw mut uuid, ordinal))?;
        if blocking {
            check("cuDevicePrimaryCtxSetFlags", (self.set_flags)(ordinal, 4))?;
        }
        let mut context = 0;
        check("cuDevicePrimaryCtxRetain", (self.retain)(&raw mut context, ordinal))?;
        self.enter(Context(context))?;
        Ok(Context(context))
    }

    /// Makes a context current in this thread.
    pub(crate) fn enter(&self, context: Context) -> Result<(), DriverError> {
        check("cuCtxSetCurrent", (self.set_current)(context.0))
    }

    /// A kernel by its name.
    pub(crate) fn kernel(&self, name: &str) -> Result<Kernel, DriverError> {
        let (mut module, mut function) = (0, 0);
        let image = [0_u8; 8];
        check("cuModuleLoadData", (self.load)(&raw mut module, image.as_ptr().cast()))?;
        let name = CString::new(name).unwrap_or_default();
        check("cuModuleGetFunction", (self.function)(&raw mut function, module, name.as_ptr()))?;
        Ok(Kernel(function))
    }

    /// A new stream.
    pub(crate) fn stream(&self) -> Result<Stream, DriverError> {
        let mut stream = 0;
        check("cuStreamCreate", (self.stream)(&raw mut stream, 1))?;
        Ok(Stream(stream))
    }

    /// Launches a kernel.
    pub(crate) fn launch(
        &self,
        kernel: Kernel,
        block: u32,
        shared: u32,
        stream: Stream,
    ) -> Result<(), DriverError> {
        let none = std::ptr::null_mut();
        check("cuLaunchKernel", (self.launch)(kernel.0, 1, 1, 1, block, 1, 1, shared, stream.0, none, none))
    }

    /// Waits for a stream.
    pub(crate) fn synchronize(&self, stream: Stream) -> Result<(), DriverError> {
        check("cuStreamSynchronize", (self.sync)(stream.0))
    }

    /// A new event.
    pub(crate) fn event(&self) -> Result<Event, DriverError> {
        let mut event = 0;
        check("cuEventCreate", (self.event)(&raw mut event, 2))?;
        Ok(Event(event))
    }

    /// Records an event in a stream.
    pub(crate) fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        check("cuEventRecord", (self.record)(event.0, stream.0))
    }

    /// Waits for an event's last record.
    pub(crate) fn synchronize_event(&self, event: Event) -> Result<(), DriverError> {
        check("cuEventSynchronize", (self.sync_event)(event.0))
    }

    /// Allocates device memory.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, DriverError> {
        let mut address = 0;
        check("cuMemAlloc", (self.alloc)(&raw mut address, bytes))?;
        Ok(address)
    }

    /// Allocates pinned host memory.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<u64, DriverError> {
        let mut address = 0;
        check("cuMemHostAlloc", (self.alloc_host)(&raw mut address, bytes, 0))?;
        Ok(address)
    }

    /// Copies to the device, in the stream's order.
    pub(crate) fn upload(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<(), DriverError> {
        check("cuMemcpyHtoDAsync", (self.upload)(to, from, bytes, stream.0))
    }

    /// Copies from the device, and waits.
    pub(crate) fn download(&self, to: u64, from: u64, bytes: usize) -> Result<(), DriverError> {
        check("cuMemcpyDtoH", (self.download)(to, from, bytes))
    }
}

fn check(call: &'static str, code: u32) -> Result<(), DriverError> {
    if code == 0 { Ok(()) } else { Err(DriverError::Call { call, code }) }
}
