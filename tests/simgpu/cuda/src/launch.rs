//! Kernels, and the way of any operation into a stream.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use warpmeter_simgpu::kernel::{Kernel, REGISTERS};
use warpmeter_simgpu::layout::Op;
use warpmeter_simgpu::wait::wait_until;
use warpmeter_simgpu::{FaultKind, Refused, StreamRef};

use crate::abi::{Answer, CuResult, INVALID_HANDLE, LAUNCH_FAILED, code, get, put, refused, text};
use crate::context::{Ctx, current};
use crate::runtime::runtime;
use crate::{graph, stream};

/// Puts an operation into the stream that a handle names, or into the graph that captures it.
pub(crate) fn submit(handle: u64, op: Op) -> Answer {
    if graph::captured(handle, op)? {
        return Ok(());
    }
    let ctx = current()?;
    enqueue(&ctx, stream::resolve(&ctx, handle)?, op).map(drop)
}

/// Puts an operation into a stream, waiting while its queue is full; returns its sequence number.
pub(crate) fn enqueue(ctx: &Ctx, stream: StreamRef, op: Op) -> Result<u64, CuResult> {
    let node = runtime()?.node;
    loop {
        let mut guard = node.lock();
        let now = guard.now;
        if guard.faults > 0 && guard.faulty(FaultKind::Lost, Some(ctx.device), now).is_some() {
            return Err(LAUNCH_FAILED);
        }
        match guard.enqueue(stream, op, now) {
            Ok(seq) => return Ok(seq),
            Err(Refused::QueueFull) => {}
            Err(why) => return Err(refused(why)),
        }
        drop(guard);
        wait_until(node, ctx.blocking, |s, now| {
            let at = s.stream_slot(stream).ok()?;
            s.advance(ctx.engine, now);
            if s.stream[at].room() > 64 {
                return None;
            }
            Some(s.stream[at].first().map_or(0, |op| op.remaining))
        });
    }
}

pub(crate) extern "C" fn kernel(
    function: u64,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: u64,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> CuResult {
    code(run(function, stream, [gx, gy, gz], [bx, by, bz], shared))
}

pub(crate) extern "C" fn kernel_ptsz(
    function: u64,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: u64,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> CuResult {
    code(run(function, stream::per_thread(stream), [gx, gy, gz], [bx, by, bz], shared))
}

fn run(function: u64, stream: u64, grid: [u32; 3], block: [u32; 3], shared: u32) -> Answer {
    let product = |sizes: [u32; 3]| sizes.into_iter().fold(1, u32::saturating_mul);
    let kernel = Kernel::of_handle(function).ok_or(INVALID_HANDLE)?;
    submit(stream, Op { function, grid: product(grid), block: product(block), shared, ..kernel.op() })
}

/// The head of `CUlaunchConfig`: grid, block, shared memory, stream.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: u64,
}

pub(crate) extern "C" fn kernel_ex(
    config: *const Config,
    function: u64,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> CuResult {
    code(get(config).and_then(|c| run(function, c.stream, c.grid, c.block, c.shared)))
}

pub(crate) extern "C" fn kernel_ex_ptsz(
    config: *const Config,
    function: u64,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> CuResult {
    code(get(config).and_then(|c| run(function, stream::per_thread(c.stream), c.grid, c.block, c.shared)))
}

pub(crate) extern "C" fn cooperative(
    function: u64,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: u64,
    _params: *mut *mut c_void,
) -> CuResult {
    code(run(function, stream, [gx, gy, gz], [bx, by, bz], shared))
}

/// Modules hold nothing here: a function's name says it all.
static MODULES: AtomicU64 = AtomicU64::new(0);

pub(crate) extern "C" fn module_load(out: *mut u64, _image: *const c_void) -> CuResult {
    let number = MODULES.fetch_add(1, Ordering::Relaxed) + 1;
    code(current().and_then(|_| put(out, 0x5700_0000_0000 | number << 4)))
}

pub(crate) extern "C" fn module_load_ex(
    out: *mut u64,
    image: *const c_void,
    _count: u32,
    _options: *mut c_void,
    _values: *mut *mut c_void,
) -> CuResult {
    module_load(out, image)
}

pub(crate) extern "C" fn library_load(
    out: *mut u64,
    image: *const c_void,
    _jit: *mut c_void,
    _jit_values: *mut *mut c_void,
    _jit_count: u32,
    _options: *mut c_void,
    _values: *mut *mut c_void,
    _count: u32,
) -> CuResult {
    let number = MODULES.fetch_add(1, Ordering::Relaxed) + 1;
    code(
        runtime()
            .and_then(|_| if image.is_null() { Err(1) } else { put(out, 0x5700_0000_0000 | number << 4) }),
    )
}

pub(crate) extern "C" fn get_function(out: *mut u64, _module: u64, name: *const c_char) -> CuResult {
    code(text(name).and_then(|name| put(out, Kernel::named(name).handle())))
}

pub(crate) extern "C" fn same_function(out: *mut u64, kernel: u64) -> CuResult {
    code(put(out, kernel))
}

pub(crate) extern "C" fn nothing(_handle: u64) -> CuResult {
    0
}

pub(crate) extern "C" fn module_unload(_module: u64) -> CuResult {
    code(current().and_then(|ctx| stream::drain_context(&ctx)))
}

pub(crate) extern "C" fn function_attribute(out: *mut i32, attribute: i32, _function: u64) -> CuResult {
    let value = match attribute {
        0 => 1024,
        4 => REGISTERS.cast_signed(),
        _ => 0,
    };
    code(put(out, value))
}

pub(crate) extern "C" fn set_attribute(_function: u64, _attribute: i32, _value: i32) -> CuResult {
    0
}
