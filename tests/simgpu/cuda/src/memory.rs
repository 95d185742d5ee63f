//! Device memory without backing, pinned host memory, copies and fills.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use warpmeter_simgpu::layout::{Load, Op, kind, work};
use warpmeter_simgpu::queue::{PAGEABLE_BANDWIDTH, pinned_bandwidth};

use crate::abi::{Answer, CuResult, INVALID_VALUE, OUT_OF_MEMORY, code, put, refused};
use crate::context::current;
use crate::launch::{enqueue, submit};
use crate::runtime::runtime;
use crate::{graph, stream};

/// Start of the range from which device addresses are given; no host mapping lies there.
const BASE: u64 = 0x0a00_0000_0000;
const GRAIN: u64 = 512;

/// Live allocations: device ranges by address with size and client, host ranges by address with size.
struct Ranges {
    next: u64,
    device: BTreeMap<u64, (u64, usize)>,
    host: BTreeMap<usize, usize>,
}

static RANGES: Mutex<Ranges> =
    Mutex::new(Ranges { next: BASE, device: BTreeMap::new(), host: BTreeMap::new() });

fn ranges() -> std::sync::MutexGuard<'static, Ranges> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn on_device(address: u64) -> bool {
    address >= BASE && address < BASE << 1
}

fn pinned(address: u64) -> bool {
    let Ok(address) = usize::try_from(address) else { return false };
    ranges().host.range(..=address).next_back().is_some_and(|(start, size)| address < start + size)
}

fn allocate(out: *mut u64, bytes: usize) -> Answer {
    let ctx = current()?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let size = (bytes as u64).next_multiple_of(GRAIN);
    runtime()?.node.lock().take_memory(ctx.client, size).map_err(refused)?;
    let mut ranges = ranges();
    let address = ranges.next;
    ranges.next += size.next_multiple_of(1 << 21);
    ranges.device.insert(address, (size, ctx.client));
    put(out, address)
}

fn release(address: u64) -> Answer {
    if address == 0 {
        return Ok(());
    }
    let (size, client) = ranges().device.remove(&address).ok_or(INVALID_VALUE)?;
    runtime()?.node.lock().return_memory(client, size);
    Ok(())
}

pub(crate) extern "C" fn alloc(out: *mut u64, bytes: usize) -> CuResult {
    code(allocate(out, bytes))
}

pub(crate) extern "C" fn alloc_managed(out: *mut u64, bytes: usize, _flags: u32) -> CuResult {
    code(allocate(out, bytes))
}

pub(crate) extern "C" fn alloc_pitch(
    out: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    _size: u32,
) -> CuResult {
    let row = width.next_multiple_of(512);
    code(put(pitch, row).and_then(|()| allocate(out, row.saturating_mul(height))))
}

pub(crate) extern "C" fn alloc_async(out: *mut u64, bytes: usize, _stream: u64) -> CuResult {
    code(allocate(out, bytes))
}

pub(crate) extern "C" fn free(address: u64) -> CuResult {
    code(current().and_then(|ctx| stream::drain_context(&ctx)).and_then(|()| release(address)))
}

pub(crate) extern "C" fn free_async(address: u64, _stream: u64) -> CuResult {
    code(current().and_then(|_| release(address)))
}

pub(crate) extern "C" fn info(free: *mut usize, total: *mut usize) -> CuResult {
    code(current().and_then(|ctx| {
        let guard = runtime()?.node.lock();
        let e = &guard.engine[ctx.engine];
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        put(free, size(e.memory.saturating_sub(e.memory_used)))?;
        put(total, size(e.memory))
    }))
}

fn host_layout(bytes: usize) -> Result<Layout, CuResult> {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    Layout::from_size_align(bytes, 4096).map_err(|_| INVALID_VALUE)
}

pub(crate) extern "C" fn host_alloc(out: *mut usize, bytes: usize, _flags: u32) -> CuResult {
    let made = current().and_then(|_| {
        let layout = host_layout(bytes)?;
        // SAFETY: the layout's size is not 0.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        ranges().host.insert(at.expose_provenance(), bytes);
        put(out, at.addr())
    });
    code(made)
}

pub(crate) extern "C" fn alloc_host(out: *mut usize, bytes: usize) -> CuResult {
    host_alloc(out, bytes, 0)
}

pub(crate) extern "C" fn free_host(address: usize) -> CuResult {
    let freed = current().and_then(|ctx| {
        stream::drain_context(&ctx)?;
        let bytes = ranges().host.remove(&address).ok_or(INVALID_VALUE)?;
        let layout = host_layout(bytes)?;
        // SAFETY: the range came from `alloc_zeroed` with this layout in `host_alloc`, and left the table just now.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(address), layout) };
        Ok(())
    });
    code(freed)
}

/// Copies between host and device; a blocking one, and one from or to pageable memory, waits until it is done.
fn copy(kind: u32, host: u64, bytes: usize, stream: u64, blocking: bool) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    let pinned = pinned(host);
    let ctx = current()?;
    let generation = runtime()?.node.lock().device[ctx.device].preset().pcie_gen;
    let bandwidth = if pinned { pinned_bandwidth(generation) } else { PAGEABLE_BANDWIDTH };
    let op = Op::copy(kind, bytes as u64, bandwidth);
    if graph::captured(stream, op)? {
        return Ok(());
    }
    let target = stream::resolve(&ctx, stream)?;
    let seq = enqueue(&ctx, target, op)?;
    if blocking || !pinned { stream::wait_for(&ctx, target, seq) } else { Ok(()) }
}

pub(crate) extern "C" fn htod(_dst: u64, src: u64, bytes: usize) -> CuResult {
    code(copy(kind::H2D, src, bytes, 0, true))
}

pub(crate) extern "C" fn dtoh(dst: u64, _src: u64, bytes: usize) -> CuResult {
    code(copy(kind::D2H, dst, bytes, 0, true))
}

pub(crate) extern "C" fn htod_async(_dst: u64, src: u64, bytes: usize, stream: u64) -> CuResult {
    code(copy(kind::H2D, src, bytes, stream, false))
}

pub(crate) extern "C" fn dtoh_async(dst: u64, _src: u64, bytes: usize, stream: u64) -> CuResult {
    code(copy(kind::D2H, dst, bytes, stream, false))
}

pub(crate) extern "C" fn htod_async_ptsz(_dst: u64, src: u64, bytes: usize, stream: u64) -> CuResult {
    code(copy(kind::H2D, src, bytes, stream::per_thread(stream), false))
}

pub(crate) extern "C" fn dtoh_async_ptsz(dst: u64, _src: u64, bytes: usize, stream: u64) -> CuResult {
    code(copy(kind::D2H, dst, bytes, stream::per_thread(stream), false))
}

pub(crate) extern "C" fn dtod(_dst: u64, _src: u64, bytes: usize) -> CuResult {
    code(submit(0, within(bytes)))
}

pub(crate) extern "C" fn dtod_async(_dst: u64, _src: u64, bytes: usize, stream: u64) -> CuResult {
    code(submit(stream, within(bytes)))
}

/// A copy within the device: a kernel bound by memory bandwidth.
fn within(bytes: usize) -> Op {
    let load = Load { sm: 150, occupancy: 1000, dram: 900, tensor: 0 };
    Op { work: work::COPY, bytes: bytes as u64, ..Op::kernel(2_000 + bytes as u64 / 1_200, load) }
}

fn any(dst: u64, src: u64, bytes: usize, stream: u64, blocking: bool) -> Answer {
    match (on_device(dst), on_device(src)) {
        (true, true) => submit(stream, within(bytes)),
        (true, false) => copy(kind::H2D, src, bytes, stream, blocking),
        (false, true) => copy(kind::D2H, dst, bytes, stream, blocking),
        (false, false) => Err(INVALID_VALUE),
    }
}

pub(crate) extern "C" fn memcpy(dst: u64, src: u64, bytes: usize) -> CuResult {
    code(any(dst, src, bytes, 0, true))
}

pub(crate) extern "C" fn memcpy_async(dst: u64, src: u64, bytes: usize, stream: u64) -> CuResult {
    code(any(dst, src, bytes, stream, false))
}

pub(crate) extern "C" fn memcpy_async_ptsz(dst: u64, src: u64, bytes: usize, stream: u64) -> CuResult {
    code(any(dst, src, bytes, stream::per_thread(stream), false))
}

/// A fill: a kernel that writes at memory bandwidth.
fn fill(bytes: usize) -> Op {
    let load = Load { sm: 500, occupancy: 1000, dram: 800, tensor: 0 };
    Op { work: work::SET, bytes: bytes as u64, ..Op::kernel(2_000 + bytes as u64 / 2_000, load) }
}

pub(crate) extern "C" fn fill8(_dst: u64, _value: u8, count: usize) -> CuResult {
    code(submit(0, fill(count)))
}

pub(crate) extern "C" fn fill32(_dst: u64, _value: u32, count: usize) -> CuResult {
    code(submit(0, fill(count * 4)))
}

pub(crate) extern "C" fn fill8_async(_dst: u64, _value: u8, count: usize, stream: u64) -> CuResult {
    code(submit(stream, fill(count)))
}

pub(crate) extern "C" fn fill32_async(_dst: u64, _value: u32, count: usize, stream: u64) -> CuResult {
    code(submit(stream, fill(count * 4)))
}
