//! Entries of the CUDA driver library: which are watched, what they mean, where their arguments are.
//!
//! A probe's cookie says all that a program needs to know about its symbol. A name that a library does not export is
//! normal; names that share an address (none in the libraries known) are to be attached once.

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Call {
    /// `cuInit`.
    Init = 1,
    /// Launches a kernel.
    Launch,
    /// Launches a graph.
    GraphLaunch,
    /// A copy that is enqueued. It may hold its thread up all the same: one of pageable memory does until the driver has
    /// read that, or written it.
    Copy,
    /// A copy that returns when the host's side of it is done.
    BlockingCopy,
    /// Fills memory.
    Memset,
    /// Enqueues a call of a host function.
    HostFunction,
    /// Waits for a stream.
    StreamSync,
    /// Waits for a context.
    ContextSync,
    /// Waits for an event.
    EventSync,
    /// Asks whether a stream is complete.
    StreamQuery,
    /// Asks whether an event is complete.
    EventQuery,
    /// Records an event in a stream.
    EventRecord,
    /// Makes a stream wait for an event.
    StreamWait,
    /// Forgets an event.
    EventDestroy,
    /// Begins to record what is enqueued in a stream, instead of running it.
    CaptureBegin,
    /// Ends that.
    CaptureEnd,
    /// Makes a stream; the second argument is its flags.
    StreamCreate,
    /// Forgets a stream.
    StreamDestroy,
    /// Makes a context, or retains a device's primary one, without making it current.
    ContextRetain,
    /// Makes a context and makes it current.
    ContextCreate,
    /// Makes a context current.
    ContextSet,
    /// Makes a context current on top of the others.
    ContextPush,
    /// Takes the topmost context away.
    ContextPop,
    /// Asks for the current context.
    ContextGet,
    /// Asks for the current context's device.
    ContextDevice,
    /// Destroys a context.
    ContextDestroy,
    /// Asks for a device's identity.
    Uuid,
}

/// Which program handles a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// [`ENQUEUE`](crate::program::ENQUEUE).
    Enqueue,
    /// [`BLOCK`](crate::program::BLOCK).
    Block,
    /// [`STATE`](crate::program::STATE).
    State,
}

/// Places of an argument: 0 to 5 are registers, from 6 on the stack.
pub mod place {
    /// There is none.
    pub const NONE: u8 = 0xff;
    /// Stream: in the launch configuration that the first argument points to.
    pub const LAUNCH_CONFIG: u8 = 0xfe;
    /// Size: in the CUDA_MEMCPY2D that the first argument points to.
    pub const COPY_2D: u8 = 0xfd;
    /// Size: in the CUDA_MEMCPY3D that the first argument points to.
    pub const COPY_3D: u8 = 0xfc;
    /// Size: an array of sizes as third argument, its length as fourth.
    pub const COPY_BATCH: u8 = 0xfb;
}

/// Directions of a copy.
pub mod direction {
    /// To the device.
    pub const TO_DEVICE: u8 = 0;
    /// From the device.
    pub const TO_HOST: u8 = 1;
    /// Within or between devices, or not stated.
    pub const OTHER: u8 = 2;
}

/// Sizes of a batch that are summed.
pub const BATCH: u32 = 64;
/// No copy is larger: what a caller states beyond that counts as this.
pub const LARGEST_COPY: u64 = 1 << 40;

/// A symbol and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub symbol: &'static str,
    /// What it does.
    pub call: Call,
    /// Where its stream is (of calls about events and contexts: the event or context).
    pub handle: u8,
    /// Where the bytes are (of calls that name a device or an event beside a stream: that).
    pub size: u8,
    /// Which way a copy goes.
    pub direction: u8,
    /// Whether the default stream is the thread's own.
    pub per_thread: bool,
}

impl Entry {
    /// The cookie of its probes.
    pub const fn cookie(&self) -> u64 {
        self.call as u64
            | (self.handle as u64) << 8
            | (self.size as u64) << 16
            | (self.direction as u64) << 24
            | (self.per_thread as u64) << 32
    }

    /// The program of its entry.
    pub const fn group(&self) -> Group {
        use Call::{
            BlockingCopy, ContextSync, Copy, EventQuery, EventSync, GraphLaunch, HostFunction, Launch,
            Memset, StreamQuery, StreamSync,
        };
        match self.call {
            Launch | GraphLaunch | Memset | HostFunction => Group::Enqueue,
            Copy | BlockingCopy | StreamSync | ContextSync | EventSync | StreamQuery | EventQuery => {
                Group::Block
            }
            _ => Group::State,
        }
    }

    /// Whether its return needs a probe too: with the program of the group's name and `_return`, the same cookie.
    pub const fn returns(&self) -> bool {
        use Call::{
            CaptureBegin, ContextCreate, ContextDevice, ContextGet, ContextRetain, StreamCreate, Uuid,
        };
        match self.group() {
            Group::Block => true,
            Group::Enqueue => false,
            Group::State => matches!(
                self.call,
                CaptureBegin
                    | ContextCreate
                    | ContextDevice
                    | ContextGet
                    | ContextRetain
                    | StreamCreate
                    | Uuid
            ),
        }
    }
}

const NONE: u8 = place::NONE;

/// One entry of each listed name; the names from the semicolon on are of the thread's own default stream.
macro_rules! entries {
    ($($call:ident($handle:expr, $size:expr, $direction:ident): $($symbol:literal)* ; $($own:literal)* ,)*) => {
        &[$(
            $(Entry { symbol: $symbol, call: Call::$call, handle: $handle, size: $size,
                direction: direction::$direction, per_thread: false },)*
            $(Entry { symbol: $own, call: Call::$call, handle: $handle, size: $size,
                direction: direction::$direction, per_thread: true },)*
        )*]
    };
}

/// All entries that are watched. Names and argument orders of cuda.h up to CUDA 13.
pub const ENTRIES: &[Entry] = entries! {
    Init(NONE, NONE, OTHER): "cuInit" ; ,
    Launch(8, NONE, OTHER): "cuLaunchKernel" ; "cuLaunchKernel_ptsz",
    Launch(place::LAUNCH_CONFIG, NONE, OTHER): "cuLaunchKernelEx" ; "cuLaunchKernelEx_ptsz",
    Launch(8, NONE, OTHER): "cuLaunchCooperativeKernel" ; "cuLaunchCooperativeKernel_ptsz",
    Launch(NONE, NONE, OTHER): "cuLaunch" "cuLaunchGrid" ; ,
    Launch(3, NONE, OTHER): "cuLaunchGridAsync" ; ,
    GraphLaunch(1, NONE, OTHER): "cuGraphLaunch" ; "cuGraphLaunch_ptsz",
    HostFunction(0, NONE, OTHER): "cuLaunchHostFunc" "cuLaunchHostFunc_v2" "cuStreamAddCallback" ;
        "cuLaunchHostFunc_ptsz" "cuLaunchHostFunc_v2_ptsz" "cuStreamAddCallback_ptsz",

    BlockingCopy(NONE, 2, OTHER): "cuMemcpy" "cuMemcpyDtoD_v2" ; "cuMemcpy_ptds" "cuMemcpyDtoD_v2_ptds",
    BlockingCopy(NONE, 2, TO_DEVICE): "cuMemcpyHtoD_v2" ; "cuMemcpyHtoD_v2_ptds",
    BlockingCopy(NONE, 2, TO_HOST): "cuMemcpyDtoH_v2" ; "cuMemcpyDtoH_v2_ptds",
    BlockingCopy(NONE, 4, OTHER): "cuMemcpyPeer" ; "cuMemcpyPeer_ptds",
    BlockingCopy(NONE, place::COPY_2D, OTHER): "cuMemcpy2D_v2" "cuMemcpy2DUnaligned_v2" ;
        "cuMemcpy2D_v2_ptds" "cuMemcpy2DUnaligned_v2_ptds",
    BlockingCopy(NONE, place::COPY_3D, OTHER): "cuMemcpy3D_v2" "cuMemcpy3DPeer" ;
        "cuMemcpy3D_v2_ptds" "cuMemcpy3DPeer_ptds",
    Copy(3, 2, OTHER): "cuMemcpyAsync" "cuMemcpyDtoDAsync_v2" ; "cuMemcpyAsync_ptsz" "cuMemcpyDtoDAsync_v2_ptsz",
    Copy(3, 2, TO_DEVICE): "cuMemcpyHtoDAsync_v2" ; "cuMemcpyHtoDAsync_v2_ptsz",
    Copy(3, 2, TO_HOST): "cuMemcpyDtoHAsync_v2" ; "cuMemcpyDtoHAsync_v2_ptsz",
    Copy(5, 4, OTHER): "cuMemcpyPeerAsync" ; "cuMemcpyPeerAsync_ptsz",
    Copy(1, place::COPY_2D, OTHER): "cuMemcpy2DAsync_v2" ; "cuMemcpy2DAsync_v2_ptsz",
    Copy(1, place::COPY_3D, OTHER): "cuMemcpy3DAsync_v2" "cuMemcpy3DPeerAsync" ;
        "cuMemcpy3DAsync_v2_ptsz" "cuMemcpy3DPeerAsync_ptsz",
    Copy(8, place::COPY_BATCH, OTHER): "cuMemcpyBatchAsync" ; "cuMemcpyBatchAsync_ptsz",
    Copy(7, place::COPY_BATCH, OTHER): "cuMemcpyBatchAsync_v2" ; "cuMemcpyBatchAsync_v2_ptsz",
    Copy(3, 1, OTHER): "cuMemPrefetchAsync" ; "cuMemPrefetchAsync_ptsz",
    Copy(4, 1, OTHER): "cuMemPrefetchAsync_v2" ; "cuMemPrefetchAsync_v2_ptsz",

    Memset(NONE, NONE, OTHER): "cuMemsetD8_v2" "cuMemsetD16_v2" "cuMemsetD32_v2" "cuMemsetD2D8_v2" "cuMemsetD2D16_v2"
        "cuMemsetD2D32_v2" ; "cuMemsetD8_v2_ptds" "cuMemsetD16_v2_ptds" "cuMemsetD32_v2_ptds" "cuMemsetD2D8_v2_ptds"
        "cuMemsetD2D16_v2_ptds" "cuMemsetD2D32_v2_ptds",
    Memset(3, NONE, OTHER): "cuMemsetD8Async" "cuMemsetD16Async" "cuMemsetD32Async" ;
        "cuMemsetD8Async_ptsz" "cuMemsetD16Async_ptsz" "cuMemsetD32Async_ptsz",
    Memset(5, NONE, OTHER): "cuMemsetD2D8Async" "cuMemsetD2D16Async" "cuMemsetD2D32Async" ;
        "cuMemsetD2D8Async_ptsz" "cuMemsetD2D16Async_ptsz" "cuMemsetD2D32Async_ptsz",

    StreamSync(0, NONE, OTHER): "cuStreamSynchronize" ; "cuStreamSynchronize_ptsz",
    ContextSync(NONE, NONE, OTHER): "cuCtxSynchronize" ; ,
    ContextSync(0, NONE, OTHER): "cuCtxSynchronize_v2" ; ,
    EventSync(0, NONE, OTHER): "cuEventSynchronize" ; ,
    StreamQuery(0, NONE, OTHER): "cuStreamQuery" ; "cuStreamQuery_ptsz",
    EventQuery(0, NONE, OTHER): "cuEventQuery" ; ,

    EventRecord(1, 0, OTHER): "cuEventRecord" "cuEventRecordWithFlags" ;
        "cuEventRecord_ptsz" "cuEventRecordWithFlags_ptsz",
    StreamWait(0, 1, OTHER): "cuStreamWaitEvent" ; "cuStreamWaitEvent_ptsz",
    EventDestroy(0, NONE, OTHER): "cuEventDestroy_v2" "cuEventDestroy" ; ,
    CaptureBegin(0, NONE, OTHER): "cuStreamBeginCapture" "cuStreamBeginCapture_v2" "cuStreamBeginCaptureToGraph" ;
        "cuStreamBeginCapture_ptsz" "cuStreamBeginCapture_v2_ptsz" "cuStreamBeginCaptureToGraph_ptsz",
    CaptureEnd(0, NONE, OTHER): "cuStreamEndCapture" ; "cuStreamEndCapture_ptsz",
    StreamCreate(0, 1, OTHER): "cuStreamCreate" "cuStreamCreateWithPriority" ; ,
    StreamDestroy(0, NONE, OTHER): "cuStreamDestroy_v2" "cuStreamDestroy" ; ,

    ContextRetain(0, 1, OTHER): "cuDevicePrimaryCtxRetain" ; ,
    ContextCreate(0, 2, OTHER): "cuCtxCreate" "cuCtxCreate_v2" ; ,
    ContextCreate(0, 4, OTHER): "cuCtxCreate_v3" ; ,
    ContextCreate(0, 3, OTHER): "cuCtxCreate_v4" ; ,
    ContextSet(0, NONE, OTHER): "cuCtxSetCurrent" ; ,
    ContextPush(0, NONE, OTHER): "cuCtxPushCurrent" "cuCtxPushCurrent_v2" ; ,
    ContextPop(0, NONE, OTHER): "cuCtxPopCurrent" "cuCtxPopCurrent_v2" ; ,
    ContextGet(0, NONE, OTHER): "cuCtxGetCurrent" ; ,
    ContextDevice(0, NONE, OTHER): "cuCtxGetDevice" ; ,
    ContextDestroy(0, NONE, OTHER): "cuCtxDestroy" "cuCtxDestroy_v2" ; ,
    // The second form gives a MIG instance its own identity, the first its GPU's: where a library has it, only it
    // is to be attached.
    Uuid(0, 1, OTHER): "cuDeviceGetUuid_v2" "cuDeviceGetUuid" ; ,
};
