//! Events.

use warpmeter_simgpu::layout::NONE;

use crate::abi::{Answer, CuResult, INVALID_HANDLE, INVALID_VALUE, NOT_READY, code, put, refused};
use crate::context::current;
use crate::runtime::runtime;
use crate::{graph, launch, stream};

/// Marks our event handles.
const HANDLE: u64 = 0x5800_0000_0000;

fn slot(handle: u64) -> Result<u32, CuResult> {
    if handle & !0xffff_0000 != HANDLE {
        return Err(INVALID_HANDLE);
    }
    u32::try_from((handle >> 16) & 0xffff).map_err(|_| INVALID_HANDLE)
}

pub(crate) extern "C" fn create(out: *mut u64, _flags: u32) -> CuResult {
    let made = current().and_then(|_| {
        let rt = runtime()?;
        let event = rt.node.lock().new_event(rt.process.pid).map_err(refused)?;
        put(out, HANDLE | u64::from(event) << 16)
    });
    code(made)
}

pub(crate) extern "C" fn destroy(handle: u64) -> CuResult {
    code(slot(handle).and_then(|at| {
        runtime()?.node.lock().event[at as usize].used = 0;
        Ok(())
    }))
}

fn do_record(event: u64, stream_handle: u64) -> Answer {
    let at = slot(event)?;
    if graph::event_recorded(stream_handle, at) {
        return Ok(());
    }
    let ctx = current()?;
    let stream = stream::resolve(&ctx, stream_handle)?;
    let node = runtime()?.node;
    loop {
        let mut guard = node.lock();
        let now = guard.now;
        match guard.record_event(at, stream, now) {
            Err(warpmeter_simgpu::Refused::QueueFull) => {}
            other => return other.map_err(refused),
        }
        drop(guard);
        std::thread::yield_now();
    }
}

pub(crate) extern "C" fn record(event: u64, stream: u64) -> CuResult {
    code(do_record(event, stream))
}

pub(crate) extern "C" fn record_ptsz(event: u64, stream: u64) -> CuResult {
    code(do_record(event, stream::per_thread(stream)))
}

pub(crate) extern "C" fn record_with_flags(event: u64, stream: u64, _flags: u32) -> CuResult {
    code(do_record(event, stream))
}

pub(crate) extern "C" fn query(event: u64) -> CuResult {
    code(slot(event).and_then(|at| {
        let mut guard = runtime()?.node.lock();
        let now = guard.now;
        let Some((stream, seq)) = guard.event_target(at) else { return Ok(()) };
        if guard.due(stream, seq, now).is_some() { Err(NOT_READY) } else { Ok(()) }
    }))
}

pub(crate) extern "C" fn synchronize(event: u64) -> CuResult {
    code(slot(event).and_then(|at| {
        let target = runtime()?.node.lock().event_target(at);
        match target {
            Some((stream, seq)) => stream::wait_for(&current()?, stream, seq),
            None => Ok(()),
        }
    }))
}

pub(crate) extern "C" fn elapsed(ms: *mut f32, from: u64, to: u64) -> CuResult {
    let answer = slot(from).and_then(|from| {
        let to = slot(to)?;
        let guard = runtime()?.node.lock();
        let time = |at: u32| {
            let e = &guard.event[at as usize];
            match (e.used, e.stream, e.at) {
                (0, ..) => Err(INVALID_HANDLE),
                (_, NONE, _) => Err(INVALID_VALUE),
                (.., 0) => Err(NOT_READY),
                (.., at) => Ok(at),
            }
        };
        let (a, b) = (time(from)?, time(to)?);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds as a float are the interface")]
        let value = if b >= a { (b - a) as f32 / 1e6 } else { -((a - b) as f32 / 1e6) };
        put(ms, value)
    });
    code(answer)
}

fn do_wait(stream_handle: u64, event: u64) -> Answer {
    let at = slot(event)?;
    if graph::event_joins(stream_handle, at) {
        return Ok(());
    }
    let ctx = current()?;
    let stream = stream::resolve(&ctx, stream_handle)?;
    let node = runtime()?.node;
    let op = {
        let guard = node.lock();
        guard.wait_op(at)
    };
    op.map_or(Ok(()), |op| launch::enqueue(&ctx, stream, op).map(drop))
}

pub(crate) extern "C" fn wait(stream: u64, event: u64, _flags: u32) -> CuResult {
    code(do_wait(stream, event))
}

pub(crate) extern "C" fn wait_ptsz(stream: u64, event: u64, _flags: u32) -> CuResult {
    code(do_wait(stream::per_thread(stream), event))
}
