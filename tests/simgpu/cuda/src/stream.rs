//! Streams and synchronisation.

use std::cell::RefCell;

use warpmeter_simgpu::StreamRef;
use warpmeter_simgpu::wait::wait_until;

use crate::abi::{
    Answer, CAPTURE_UNSUPPORTED, CuResult, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY, code, put, refused,
};
use crate::context::{Ctx, current};
use crate::graph;
use crate::runtime::runtime;

/// The handle that means "the calling thread's default stream".
const PER_THREAD: u64 = 2;
/// Marks our stream handles.
const HANDLE: u64 = 1 << 46;
const NON_BLOCKING: u32 = 1;

thread_local! {
    /// This thread's default stream of each context.
    static OWN: RefCell<Vec<(u32, StreamRef)>> = const { RefCell::new(Vec::new()) };
}

const fn handle(stream: StreamRef) -> u64 {
    HANDLE | (stream.generation as u64) << 12 | stream.at as u64
}

/// The meaning of a handle in the `_ptsz` variants.
pub(crate) const fn per_thread(handle: u64) -> u64 {
    if handle == 0 { PER_THREAD } else { handle }
}

/// The stream that a handle names.
pub(crate) fn resolve(ctx: &Ctx, handle: u64) -> Result<StreamRef, CuResult> {
    match handle {
        0 | 1 => Ok(ctx.legacy),
        PER_THREAD => own(ctx),
        _ if handle & HANDLE != 0 => {
            let at = u32::try_from(handle & 0xfff).map_err(|_| INVALID_HANDLE)?;
            let generation = u32::try_from((handle & !HANDLE) >> 12).map_err(|_| INVALID_HANDLE)?;
            Ok(StreamRef { at, generation })
        }
        _ => Err(INVALID_HANDLE),
    }
}

fn own(ctx: &Ctx) -> Result<StreamRef, CuResult> {
    OWN.with_borrow_mut(|own| {
        if let Some(found) = own.iter().find(|o| o.0 == ctx.id) {
            return Ok(found.1);
        }
        let stream = runtime()?.node.lock().open_stream(ctx.client, ctx.id, false, false).map_err(refused)?;
        own.push((ctx.id, stream));
        Ok(stream)
    })
}

pub(crate) extern "C" fn create(out: *mut u64, flags: u32) -> CuResult {
    let made = current().and_then(|ctx| {
        let mut guard = runtime()?.node.lock();
        let stream =
            guard.open_stream(ctx.client, ctx.id, false, flags & NON_BLOCKING != 0).map_err(refused)?;
        put(out, handle(stream))
    });
    code(made)
}

pub(crate) extern "C" fn create_with_priority(out: *mut u64, flags: u32, _priority: i32) -> CuResult {
    create(out, flags)
}

/// Destroying waits for nothing in CUDA: work goes on. Here the stream is drained first, which a program cannot tell
/// apart except by time.
pub(crate) extern "C" fn destroy(handle: u64) -> CuResult {
    code(current().and_then(|ctx| {
        let stream = resolve(&ctx, handle)?;
        wait(&ctx, stream)?;
        let mut guard = runtime()?.node.lock();
        let at = guard.stream_slot(stream).map_err(refused)?;
        guard.close_stream(at);
        Ok(())
    }))
}

/// Waits until all that a stream holds now is done.
pub(crate) fn wait(ctx: &Ctx, stream: StreamRef) -> Answer {
    let node = runtime()?.node;
    let seq = {
        let guard = node.lock();
        let at = guard.stream_slot(stream).map_err(refused)?;
        guard.stream[at].tail
    };
    wait_for(ctx, stream, seq)
}

/// Waits until operation `seq` of a stream is done.
pub(crate) fn wait_for(ctx: &Ctx, stream: StreamRef, seq: u64) -> Answer {
    wait_until(runtime()?.node, ctx.blocking, |s, now| s.due(stream, seq, now));
    Ok(())
}

/// Waits until all streams of a context are drained.
pub(crate) fn drain_context(ctx: &Ctx) -> Answer {
    let node = runtime()?.node;
    let mut left: Vec<(StreamRef, u64)> = {
        let guard = node.lock();
        if guard.client[ctx.client].pid != runtime()?.process.pid {
            return Err(INVALID_CONTEXT);
        }
        let streams = guard.client[ctx.client].listed().iter().map(|&at| (at, &guard.stream[at as usize]));
        streams
            .filter(|(_, s)| s.context == ctx.id && s.head < s.tail)
            .map(|(at, s)| (StreamRef { at, generation: s.generation }, s.tail))
            .collect()
    };
    if left.is_empty() {
        return Ok(());
    }
    wait_until(node, ctx.blocking, |s, now| {
        let mut longest = None;
        left.retain(|&(stream, seq)| {
            let due = s.due(stream, seq, now);
            longest = longest.max(due);
            due.is_some()
        });
        longest
    });
    Ok(())
}

fn sync(handle: u64) -> Answer {
    if graph::capturing(handle) {
        return Err(CAPTURE_UNSUPPORTED);
    }
    let ctx = current()?;
    wait(&ctx, resolve(&ctx, handle)?)
}

pub(crate) extern "C" fn synchronize(handle: u64) -> CuResult {
    code(sync(handle))
}

pub(crate) extern "C" fn synchronize_ptsz(handle: u64) -> CuResult {
    code(sync(per_thread(handle)))
}

pub(crate) extern "C" fn query(handle: u64) -> CuResult {
    code(current().and_then(|ctx| {
        let stream = resolve(&ctx, handle)?;
        let mut guard = runtime()?.node.lock();
        let now = guard.now;
        let at = guard.stream_slot(stream).map_err(refused)?;
        let seq = guard.stream[at].tail;
        if guard.due(stream, seq, now).is_some() { Err(NOT_READY) } else { Ok(()) }
    }))
}

pub(crate) extern "C" fn query_ptsz(handle: u64) -> CuResult {
    query(per_thread(handle))
}

pub(crate) extern "C" fn get_flags(handle: u64, out: *mut u32) -> CuResult {
    code(current().and_then(|ctx| {
        let stream = resolve(&ctx, handle)?;
        let guard = runtime()?.node.lock();
        let at = guard.stream_slot(stream).map_err(refused)?;
        put(out, guard.stream[at].non_blocking)
    }))
}

pub(crate) extern "C" fn priority_range(low: *mut i32, high: *mut i32) -> CuResult {
    code(put(low, 0).and_then(|()| put(high, -5)))
}
