//! The exported symbols: trampolines with the real library's bytes.
//!
//! ```text
//! +0x00  81 3d <disp32> 00 ba 1c 32   cmpl $0x321cba00, torn_down(%rip)
//! +0x0a  74 0c                        je   +0x18
//! +0x0c  ff 25 <disp32>               jmp  *slot(%rip)
//! +0x12  66 0f 1f 44 00 00            nopw
//! +0x18  b8 04 00 00 00               mov  $4, %eax      CUDA_ERROR_DEINITIALIZED
//! +0x1d  c3                           ret
//! ```

use std::ffi::c_void;

use crate::runtime::TORN_DOWN;
use crate::{context, device, event, graph, host, launch, lookup, memory, stream};

/// The address of a function that a trampoline jumps to.
#[repr(transparent)]
pub(crate) struct Slot(*const c_void);

// SAFETY: a slot holds the address of a function, which every thread may call.
unsafe impl Sync for Slot {}

macro_rules! entries {
    ($($name:ident = $target:path;)*) => {
        $(
            mod $name {
                #[allow(unused_imports, reason = "each entry uses one of them")]
                use super::*;
                pub(super) static SLOT: Slot = Slot($target as *const c_void);
            }

            // SAFETY (naked): the code is a tail jump that touches no register but the flags, so the caller's
            // arguments reach the target as they were.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> u32 {
                core::arch::naked_asm!(
                    "cmp dword ptr [rip + {torn_down}], 0x321cba00",
                    ".byte 0x74, 0x0c",
                    "jmp qword ptr [rip + {slot}]",
                    ".byte 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00",
                    "mov eax, 4",
                    "ret",
                    torn_down = sym TORN_DOWN,
                    slot = sym $name::SLOT,
                )
            }
        )*

        /// The names of all exported symbols.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// The address of an exported symbol, by its place in [`NAMES`].
        pub(crate) fn address(at: usize) -> *const c_void {
            let all: &[extern "C" fn() -> u32] = &[$($name),*];
            all.get(at).map_or(std::ptr::null(), |f| *f as *const c_void)
        }
    };
}

entries! {
    cuInit = device::cu_init;
    cuDriverGetVersion = device::driver_version;
    cuDeviceGetCount = device::count;
    cuDeviceGet = device::get;
    cuDeviceGetName = device::name;
    cuDeviceGetUuid = device::uuid;
    cuDeviceGetUuid_v2 = device::uuid_v2;
    cuDeviceGetAttribute = device::attribute;
    cuDeviceTotalMem = device::total_mem;
    cuDeviceTotalMem_v2 = device::total_mem;
    cuDeviceComputeCapability = device::compute_capability;
    cuDeviceGetPCIBusId = device::pci_bus_id;
    cuGetErrorName = lookup::error_name;
    cuGetErrorString = lookup::error_string;
    cuGetProcAddress = lookup::get_proc_address;
    cuGetProcAddress_v2 = lookup::get_proc_address_v2;

    cuDevicePrimaryCtxRetain = context::primary_retain;
    cuDevicePrimaryCtxRelease = context::primary_release;
    cuDevicePrimaryCtxRelease_v2 = context::primary_release;
    cuDevicePrimaryCtxReset = context::primary_reset;
    cuDevicePrimaryCtxReset_v2 = context::primary_reset;
    cuDevicePrimaryCtxSetFlags = context::primary_set_flags;
    cuDevicePrimaryCtxSetFlags_v2 = context::primary_set_flags;
    cuDevicePrimaryCtxGetState = context::primary_get_state;
    cuCtxCreate = context::create_v2;
    cuCtxCreate_v2 = context::create_v2;
    cuCtxCreate_v3 = context::create_v3;
    cuCtxCreate_v4 = context::create_v4;
    cuCtxDestroy = context::ctx_destroy;
    cuCtxDestroy_v2 = context::ctx_destroy;
    cuCtxSetCurrent = context::set_current;
    cuCtxGetCurrent = context::get_current;
    cuCtxPushCurrent = context::push_current;
    cuCtxPushCurrent_v2 = context::push_current;
    cuCtxPopCurrent = context::pop_current;
    cuCtxPopCurrent_v2 = context::pop_current;
    cuCtxGetDevice = context::get_device;
    cuCtxGetFlags = context::get_flags;
    cuCtxGetApiVersion = context::get_api_version;
    cuCtxGetStreamPriorityRange = stream::priority_range;
    cuCtxSynchronize = context::synchronize;
    cuCtxSynchronize_v2 = context::synchronize_v2;

    cuModuleLoad = launch::module_load;
    cuModuleLoadData = launch::module_load;
    cuModuleLoadDataEx = launch::module_load_ex;
    cuModuleLoadFatBinary = launch::module_load;
    cuModuleUnload = launch::module_unload;
    cuModuleGetFunction = launch::get_function;
    cuLibraryLoadData = launch::library_load;
    cuLibraryUnload = launch::nothing;
    cuLibraryGetKernel = launch::get_function;
    cuLibraryGetModule = launch::same_function;
    cuKernelGetFunction = launch::same_function;
    cuFuncGetAttribute = launch::function_attribute;
    cuFuncSetAttribute = launch::set_attribute;
    cuLaunchKernel = launch::kernel;
    cuLaunchKernel_ptsz = launch::kernel_ptsz;
    cuLaunchKernelEx = launch::kernel_ex;
    cuLaunchKernelEx_ptsz = launch::kernel_ex_ptsz;
    cuLaunchCooperativeKernel = launch::cooperative;
    cuLaunchHostFunc = host::launch_host;
    cuLaunchHostFunc_ptsz = host::launch_host_ptsz;

    cuStreamBeginCapture = graph::begin_capture;
    cuStreamBeginCapture_v2 = graph::begin_capture;
    cuStreamEndCapture = graph::end_capture;
    cuStreamIsCapturing = graph::is_capturing;
    cuGraphCreate = graph::create;
    cuGraphInstantiate = graph::instantiate_v2;
    cuGraphInstantiate_v2 = graph::instantiate_v2;
    cuGraphInstantiateWithFlags = graph::instantiate_with_flags;
    cuGraphInstantiateWithParams = graph::instantiate_with_params;
    cuGraphGetNodes = graph::nodes;
    cuGraphUpload = graph::upload;
    cuGraphLaunch = graph::launch;
    cuGraphLaunch_ptsz = graph::launch_ptsz;
    cuGraphExecDestroy = graph::destroy;
    cuGraphDestroy = graph::destroy;

    cuMemAlloc = memory::alloc;
    cuMemAlloc_v2 = memory::alloc;
    cuMemAllocManaged = memory::alloc_managed;
    cuMemAllocPitch_v2 = memory::alloc_pitch;
    cuMemAllocAsync = memory::alloc_async;
    cuMemAllocAsync_ptsz = memory::alloc_async;
    cuMemFree = memory::free;
    cuMemFree_v2 = memory::free;
    cuMemFreeAsync = memory::free_async;
    cuMemFreeAsync_ptsz = memory::free_async;
    cuMemGetInfo = memory::info;
    cuMemGetInfo_v2 = memory::info;
    cuMemHostAlloc = memory::host_alloc;
    cuMemAllocHost = memory::alloc_host;
    cuMemAllocHost_v2 = memory::alloc_host;
    cuMemFreeHost = memory::free_host;
    cuMemcpy = memory::memcpy;
    cuMemcpy_ptds = memory::memcpy;
    cuMemcpyAsync = memory::memcpy_async;
    cuMemcpyAsync_ptsz = memory::memcpy_async_ptsz;
    cuMemcpyHtoD_v2 = memory::htod;
    cuMemcpyHtoD_v2_ptds = memory::htod;
    cuMemcpyDtoH_v2 = memory::dtoh;
    cuMemcpyDtoH_v2_ptds = memory::dtoh;
    cuMemcpyDtoD_v2 = memory::dtod;
    cuMemcpyHtoDAsync_v2 = memory::htod_async;
    cuMemcpyHtoDAsync_v2_ptsz = memory::htod_async_ptsz;
    cuMemcpyDtoHAsync_v2 = memory::dtoh_async;
    cuMemcpyDtoHAsync_v2_ptsz = memory::dtoh_async_ptsz;
    cuMemcpyDtoDAsync_v2 = memory::dtod_async;
    cuMemsetD8 = memory::fill8;
    cuMemsetD8_v2 = memory::fill8;
    cuMemsetD32 = memory::fill32;
    cuMemsetD32_v2 = memory::fill32;
    cuMemsetD8Async = memory::fill8_async;
    cuMemsetD32Async = memory::fill32_async;

    cuStreamCreate = stream::create;
    cuStreamCreateWithPriority = stream::create_with_priority;
    cuStreamDestroy = stream::destroy;
    cuStreamDestroy_v2 = stream::destroy;
    cuStreamSynchronize = stream::synchronize;
    cuStreamSynchronize_ptsz = stream::synchronize_ptsz;
    cuStreamQuery = stream::query;
    cuStreamQuery_ptsz = stream::query_ptsz;
    cuStreamGetFlags = stream::get_flags;
    cuStreamWaitEvent = event::wait;
    cuStreamWaitEvent_ptsz = event::wait_ptsz;
    cuEventCreate = event::create;
    cuEventDestroy = event::destroy;
    cuEventDestroy_v2 = event::destroy;
    cuEventRecord = event::record;
    cuEventRecord_ptsz = event::record_ptsz;
    cuEventRecordWithFlags = event::record_with_flags;
    cuEventQuery = event::query;
    cuEventSynchronize = event::synchronize;
    cuEventElapsedTime = event::elapsed;
    cuEventElapsedTime_v2 = event::elapsed;
}
