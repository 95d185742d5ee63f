//! Contexts: primary and created, and which one is current in a thread.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use warpmeter_simgpu::StreamRef;

use crate::abi::{Answer, CuResult, INVALID_CONTEXT, INVALID_DEVICE, code, put, refused};
use crate::runtime::runtime;
use crate::stream;

/// Marks our context handles.
const HANDLE: u64 = 0x5600_0000_0000;
const BLOCKING_SYNC: u32 = 4;

/// A context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ctx {
    /// Number in this process, from 1.
    pub(crate) id: u32,
    pub(crate) ordinal: i32,
    pub(crate) device: usize,
    pub(crate) engine: usize,
    pub(crate) client: usize,
    /// The legacy default stream.
    pub(crate) legacy: StreamRef,
    /// Synchronisation sleeps.
    pub(crate) blocking: bool,
}

impl Ctx {
    const fn handle(&self) -> u64 {
        HANDLE | (self.id as u64) << 8
    }
}

/// A device's primary context.
#[derive(Clone, Copy, Default)]
struct Primary {
    ctx: Option<Ctx>,
    retained: u32,
    flags: u32,
}

#[derive(Default)]
struct Table {
    live: Vec<Ctx>,
    primary: Vec<Primary>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { live: Vec::new(), primary: Vec::new() });
static LAST: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static CURRENT: Cell<Option<Ctx>> = const { Cell::new(None) };
    static BELOW: RefCell<Vec<Option<Ctx>>> = const { RefCell::new(Vec::new()) };
}

fn table() -> std::sync::MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's current context.
pub(crate) fn current() -> Result<Ctx, CuResult> {
    CURRENT.get().ok_or(INVALID_CONTEXT)
}

fn by_handle(handle: u64) -> Result<Option<Ctx>, CuResult> {
    if handle == 0 {
        return Ok(None);
    }
    table().live.iter().find(|c| c.handle() == handle).copied().map(Some).ok_or(INVALID_CONTEXT)
}

fn create(ordinal: i32, flags: u32) -> Result<Ctx, CuResult> {
    let rt = runtime()?;
    let at = usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?;
    let seen = *rt.visible.get(at).ok_or(INVALID_DEVICE)?;
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let mut guard = rt.node.lock();
    let now = guard.now;
    let client = guard.attach(seen.engine, rt.process, now).map_err(refused)?;
    let legacy = match guard.open_stream(client, id, true, false) {
        Ok(legacy) => legacy,
        Err(why) => {
            guard.detach(client, now);
            return Err(refused(why));
        }
    };
    let minor = guard.device[seen.device].minor;
    drop(guard);
    rt.hold_open(minor);
    let blocking = flags & BLOCKING_SYNC != 0;
    Ok(Ctx { id, ordinal, device: seen.device, engine: seen.engine, client, legacy, blocking })
}

fn destroy(ctx: &Ctx) -> Answer {
    let rt = runtime()?;
    let mut guard = rt.node.lock();
    let now = guard.now;
    let mine: Vec<u32> = guard.client[ctx.client].listed().to_vec();
    for stream in mine {
        if guard.stream[stream as usize].context == ctx.id {
            guard.close_stream(stream as usize);
        }
    }
    guard.detach(ctx.client, now);
    if CURRENT.get().is_some_and(|c| c.id == ctx.id) {
        CURRENT.set(None);
    }
    Ok(())
}

/// Runs `change` on a device's primary context.
fn with_primary<T>(
    ordinal: i32,
    change: impl FnOnce(&mut Table, usize) -> Result<T, CuResult>,
) -> Result<T, CuResult> {
    let rt = runtime()?;
    let at = usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?;
    if at >= rt.visible.len() {
        return Err(INVALID_DEVICE);
    }
    let mut table = table();
    table.primary.resize(rt.visible.len(), Primary::default());
    change(&mut table, at)
}

pub(crate) extern "C" fn primary_retain(out: *mut u64, ordinal: i32) -> CuResult {
    code(with_primary(ordinal, |t, at| {
        let ctx = if let Some(ctx) = t.primary[at].ctx {
            ctx
        } else {
            let ctx = create(ordinal, t.primary[at].flags)?;
            t.live.push(ctx);
            t.primary[at].ctx = Some(ctx);
            ctx
        };
        t.primary[at].retained += 1;
        put(out, ctx.handle())
    }))
}

pub(crate) extern "C" fn primary_release(ordinal: i32) -> CuResult {
    code(with_primary(ordinal, |t, at| {
        let p = &mut t.primary[at];
        p.retained = p.retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if p.retained == 0 { end_primary(t, at) } else { Ok(()) }
    }))
}

pub(crate) extern "C" fn primary_reset(ordinal: i32) -> CuResult {
    code(with_primary(ordinal, end_primary))
}

fn end_primary(t: &mut Table, at: usize) -> Answer {
    let Some(ctx) = t.primary[at].ctx.take() else { return Ok(()) };
    t.live.retain(|c| c.id != ctx.id);
    destroy(&ctx)
}

pub(crate) extern "C" fn primary_set_flags(ordinal: i32, flags: u32) -> CuResult {
    code(with_primary(ordinal, |t, at| {
        t.primary[at].flags = flags;
        if let Some(ctx) = &mut t.primary[at].ctx {
            ctx.blocking = flags & BLOCKING_SYNC != 0;
            let ctx = *ctx;
            t.live.iter_mut().filter(|c| c.id == ctx.id).for_each(|c| *c = ctx);
            if CURRENT.get().is_some_and(|c| c.id == ctx.id) {
                CURRENT.set(Some(ctx));
            }
        }
        Ok(())
    }))
}

pub(crate) extern "C" fn primary_get_state(ordinal: i32, flags: *mut u32, active: *mut i32) -> CuResult {
    code(with_primary(ordinal, |t, at| {
        put(flags, t.primary[at].flags)?;
        put(active, i32::from(t.primary[at].ctx.is_some()))
    }))
}

pub(crate) extern "C" fn create_v2(out: *mut u64, flags: u32, ordinal: i32) -> CuResult {
    let made = create(ordinal, flags).and_then(|ctx| {
        table().live.push(ctx);
        BELOW.with_borrow_mut(|below| below.push(CURRENT.replace(Some(ctx))));
        put(out, ctx.handle())
    });
    code(made)
}

pub(crate) extern "C" fn create_v3(
    out: *mut u64,
    _params: u64,
    _count: i32,
    flags: u32,
    ordinal: i32,
) -> CuResult {
    create_v2(out, flags, ordinal)
}

pub(crate) extern "C" fn create_v4(out: *mut u64, _params: u64, flags: u32, ordinal: i32) -> CuResult {
    create_v2(out, flags, ordinal)
}

pub(crate) extern "C" fn ctx_destroy(handle: u64) -> CuResult {
    code(by_handle(handle).and_then(|ctx| {
        let ctx = ctx.ok_or(INVALID_CONTEXT)?;
        table().live.retain(|c| c.id != ctx.id);
        destroy(&ctx)
    }))
}

pub(crate) extern "C" fn set_current(handle: u64) -> CuResult {
    code(runtime().and_then(|_| by_handle(handle)).map(|ctx| CURRENT.set(ctx)))
}

pub(crate) extern "C" fn get_current(out: *mut u64) -> CuResult {
    code(runtime().and_then(|_| put(out, CURRENT.get().map_or(0, |c| c.handle()))))
}

pub(crate) extern "C" fn push_current(handle: u64) -> CuResult {
    code(by_handle(handle).and_then(|ctx| {
        let ctx = ctx.ok_or(INVALID_CONTEXT)?;
        BELOW.with_borrow_mut(|below| below.push(CURRENT.replace(Some(ctx))));
        Ok(())
    }))
}

pub(crate) extern "C" fn pop_current(out: *mut u64) -> CuResult {
    code(current().and_then(|ctx| {
        CURRENT.set(BELOW.with_borrow_mut(Vec::pop).flatten());
        if out.is_null() { Ok(()) } else { put(out, ctx.handle()) }
    }))
}

pub(crate) extern "C" fn get_device(out: *mut i32) -> CuResult {
    code(current().and_then(|ctx| put(out, ctx.ordinal)))
}

pub(crate) extern "C" fn get_flags(out: *mut u32) -> CuResult {
    code(current().and_then(|ctx| put(out, if ctx.blocking { BLOCKING_SYNC } else { 0 })))
}

pub(crate) extern "C" fn get_api_version(_ctx: u64, out: *mut u32) -> CuResult {
    code(put(out, 3020))
}

pub(crate) extern "C" fn synchronize() -> CuResult {
    code(current().and_then(|ctx| stream::drain_context(&ctx)))
}

/// A context by its handle, for `cuCtxSynchronize_v2`.
pub(crate) extern "C" fn synchronize_v2(handle: u64) -> CuResult {
    code(by_handle(handle).and_then(|ctx| stream::drain_context(&ctx.ok_or(INVALID_CONTEXT)?)))
}
