//! A call of the CUDA driver as its entry probe sees it: cookie, registers, memory.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::helpers::{self, bpf_get_attach_cookie, bpf_get_current_pid_tgid};
use aya_ebpf::programs::ProbeContext;
use core::ffi::c_void;
use core::hint::black_box;
use core::ptr::read_volatile;
use warpmeter_ebpf_common::calls::{BATCH, Call, LARGEST_COPY, direction, place};
use warpmeter_ebpf_common::{
    Handle, PER_THREAD, SLOTS, StreamKey, Task, UNKNOWN_SLOT, drop, opaque, process,
};

use crate::maps::{CONTEXTS, PROCESSES, dropped, forget};

/// The entry of a call.
pub struct Entry {
    /// Process and thread.
    pub id: u64,
    /// Everything that the symbol's name says.
    pub cookie: u64,
    registers: [u64; 6],
    stack: u64,
}

/// A value in the memory of the process; zero if it is not to be had.
#[inline(always)]
pub fn user<T: Default>(address: u64) -> T {
    // SAFETY: the helper checks the address.
    unsafe { helpers::bpf_probe_read_user(address as *const T) }.unwrap_or_default()
}

/// The class in a cookie.
#[inline(always)]
pub fn class(cookie: u64) -> u32 {
    cookie as u32 & 0xff
}

/// Whether a class is this call.
#[inline(always)]
pub fn is(class: u32, call: Call) -> bool {
    class == call as u32
}

impl Entry {
    #[inline(always)]
    pub fn of(ctx: &ProbeContext) -> Self {
        let regs = ctx.regs;
        // SAFETY: registers of the context. Each is loaded by itself, at a constant offset: the verifier wants that.
        let (registers, stack, cookie) = unsafe {
            (
                [
                    read_volatile(&raw const (*regs).rdi),
                    read_volatile(&raw const (*regs).rsi),
                    read_volatile(&raw const (*regs).rdx),
                    read_volatile(&raw const (*regs).rcx),
                    read_volatile(&raw const (*regs).r8),
                    read_volatile(&raw const (*regs).r9),
                ],
                read_volatile(&raw const (*regs).rsp),
                bpf_get_attach_cookie(ctx.as_ptr()),
            )
        };
        Self { id: bpf_get_current_pid_tgid(), cookie, registers, stack }
    }

    /// The process.
    #[inline(always)]
    pub fn tgid(&self) -> u32 {
        (self.id >> 32) as u32
    }

    /// An argument by its place. Registers hold rubbish above the width of narrow ones.
    #[inline(always)]
    pub fn argument(&self, place: u8) -> u64 {
        match place {
            0 => self.registers[0],
            1 => self.registers[1],
            2 => self.registers[2],
            3 => self.registers[3],
            4 => self.registers[4],
            5 => self.registers[5],
            // Above the return address.
            6..=31 => user(self.stack.wrapping_add(8 + (u64::from(place) - 6) * 8)),
            _ => 0,
        }
    }

    /// The argument that names a stream, event or context.
    #[inline(always)]
    pub fn handle(&self) -> u64 {
        let place = (self.cookie >> 8) as u8;
        match place {
            place::LAUNCH_CONFIG => user(self.registers[0].wrapping_add(32)),
            _ => self.argument(place),
        }
    }

    /// The argument that is a size, or the second one that is named.
    #[inline(always)]
    pub fn second(&self) -> u64 {
        self.argument((self.cookie >> 16) as u8)
    }

    /// The stream that the call is about.
    #[inline(always)]
    pub fn stream(&self, task: &Task) -> StreamKey {
        const LEGACY: u64 = 1;
        const OWN: u64 = 2;
        let own = self.cookie >> 32 & 1 != 0;
        let handle = self.handle();
        let stream = match handle {
            0 if own => PER_THREAD | (self.id & 0xffff_ffff),
            0 | LEGACY => 0,
            OWN => PER_THREAD | (self.id & 0xffff_ffff),
            _ => handle & !PER_THREAD,
        };
        let context = if stream == 0 || stream & PER_THREAD != 0 { context(task) } else { 0 };
        StreamKey { context, stream, tgid: self.tgid(), reserved: 0 }
    }

    /// Bytes of a copy as the caller states them, and which way they go.
    #[inline(always)]
    pub fn bytes(&self) -> (u64, u8) {
        let stated = (self.cookie >> 24) as u8;
        let from = self.registers[0];
        let (bytes, way) = match (self.cookie >> 16) as u8 {
            place::COPY_2D => {
                let size = capped(user(from.wrapping_add(112)))
                    .wrapping_mul(capped_count(user(from.wrapping_add(120))));
                (size, between(user(from.wrapping_add(16)), user(from.wrapping_add(72))))
            }
            place::COPY_3D => {
                let row = capped(user(from.wrapping_add(176)));
                let plane = capped(row.wrapping_mul(capped_count(user(from.wrapping_add(184)))));
                let size = plane.wrapping_mul(capped_count(user(from.wrapping_add(192))));
                (size, between(user(from.wrapping_add(32)), user(from.wrapping_add(120))))
            }
            place::COPY_BATCH => (batch(self.registers[2], self.registers[3]), stated),
            _ => (self.second(), stated),
        };
        (capped(bytes), way)
    }
}

/// The sum of so many sizes in the memory of the process. A function of its own, and without a branch but for the loop's
/// end: verifiers up to 6.12 follow each of them as often as there are ways to it.
#[inline(never)]
fn batch(sizes: u64, count: u64) -> u64 {
    if count > u64::from(BATCH) {
        dropped(drop::BATCH);
    }
    let mut sum = 0;
    for at in 0..u64::from(BATCH) {
        if at >= count {
            break;
        }
        let mut size = 0_u64;
        // SAFETY: room for eight bytes; the helper checks the address, and clears the room where it cannot read.
        unsafe {
            bpf_probe_read_user((&raw mut size).cast(), 8, sizes.wrapping_add(at * 8) as *const c_void)
        };
        let rest = size / LARGEST_COPY;
        // All ones if it is too large.
        let over = (rest | rest.wrapping_neg()).cast_signed() >> 63;
        let over = black_box(over.cast_unsigned());
        sum += (size & !over) | (LARGEST_COPY & over);
    }
    forget(sum)
}

#[inline(always)]
fn capped(bytes: u64) -> u64 {
    if bytes > LARGEST_COPY { LARGEST_COPY } else { bytes }
}

/// Rows and planes: with a row's cap their product stays below 2⁶⁴.
#[inline(always)]
fn capped_count(count: u64) -> u64 {
    if count > 1 << 20 { 1 << 20 } else { count }
}

/// The direction between two memory types of cuda.h.
#[inline(always)]
fn between(from: u32, to: u32) -> u8 {
    const HOST: u32 = 1;
    const DEVICE: u32 = 2;
    match (from, to) {
        (HOST, DEVICE) => direction::TO_DEVICE,
        (DEVICE, HOST) => direction::TO_HOST,
        _ => direction::OTHER,
    }
}

/// The thread's current context; 0 if not known.
#[inline(always)]
pub fn context(task: &Task) -> u64 {
    task.contexts.get(opaque(task.depth.wrapping_sub(1))).copied().unwrap_or(0)
}

/// Replaces the thread's current context.
#[inline(always)]
pub fn set_context(task: &mut Task, context: u64) {
    if task.depth == 0 {
        task.depth = 1;
    }
    if let Some(top) = task.contexts.get_mut(opaque(task.depth.wrapping_sub(1))) {
        *top = context;
    }
    find_slot(task);
}

/// Puts a context on top of the thread's others; beyond `NESTED` only their number is known.
#[inline(always)]
pub fn push_context(task: &mut Task, context: u64) {
    if let Some(top) = task.contexts.get_mut(opaque(task.depth)) {
        *top = context;
    }
    task.depth = task.depth.saturating_add(1);
    find_slot(task);
}

/// Takes the topmost context away.
#[inline(always)]
pub fn pop_context(task: &mut Task) {
    task.depth = task.depth.saturating_sub(1);
    find_slot(task);
}

/// Looks up the device of the thread's context.
#[inline(always)]
pub fn find_slot(task: &mut Task) {
    task.slot = UNKNOWN_SLOT;
    let context = context(task);
    if context == 0 {
        return;
    }
    let key = Handle { handle: context, tgid: task.tgid, reserved: 0 };
    if let Some(ordinal) = CONTEXTS.get_ptr(&key) {
        // SAFETY: a value of the map.
        let ordinal = unsafe { *ordinal };
        if ordinal < SLOTS {
            task.slot = ordinal;
        }
    }
}

/// A thread that was never seen to take a context has its process's only one, if all that the process did is known.
#[inline(always)]
pub fn adopt_context(task: &mut Task) {
    if task.depth != 0 {
        return;
    }
    let Some(owner) = PROCESSES.get_ptr(&task.tgid) else { return };
    // SAFETY: a value of the map.
    let owner = unsafe { &*owner };
    if owner.flags & process::FROM_START != 0 && owner.contexts == 1 {
        set_context(task, owner.context);
    }
}
