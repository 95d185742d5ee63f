//! Whether a page fault waits for swap: the kernel is then within a function that brings a page back from there. It
//! shows this neither in the task nor in a tracepoint, but on its stack.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_snprintf};

use crate::globals::HAS_NAMES;
use crate::maps::{FRAMES, PLACES, forget};

/// Frames that are looked at. Between the scheduler's and the function's there are eight or so.
pub const DEPTH: usize = 20;

/// How names begin, in two parts: `do_swap_page`, and for shared memory `shmem_swapin_folio`, `shmem_swapin_page` before
/// 5.18.
const PRIVATE: [u64; 2] = [u64::from_le_bytes(*b"do_swap_"), u32::from_le_bytes(*b"page") as u64];
const SHARED: [u64; 2] = [u64::from_le_bytes(*b"shmem_sw"), u32::from_le_bytes(*b"apin") as u64];

static FORMAT: [u8; 4] = *b"%ps\0";

/// Whether the task that runs, which leaves its CPU within a page fault, waits for a page that was swapped out. `false` if
/// the kernel does not name its functions (before 5.13).
#[inline(always)]
pub fn is_awaited(ctx: &impl EbpfContext) -> bool {
    HAS_NAMES.load() != 0 && on_stack(ctx)
}

/// A function of its own, for the size of the programs.
#[inline(never)]
fn on_stack(ctx: &impl EbpfContext) -> bool {
    let Some(frames) = FRAMES.get_ptr_mut(0) else { return false };
    // SAFETY: the helper writes no more than the value's size; it is this CPU's.
    let bytes = unsafe { bpf_get_stack(ctx.as_ptr(), frames.cast(), (DEPTH * 8) as u32, 0) };
    for at in 0..DEPTH {
        if bytes < (at as i64 + 1) * 8 {
            return false;
        }
        // SAFETY: within the value.
        if is_within(unsafe { (*frames)[at] }) {
            return true;
        }
    }
    false
}

/// Whether a place in the kernel's code is in one of those functions. Names take the kernel a search, so that each place is
/// asked for once.
#[inline(always)]
fn is_within(place: u64) -> bool {
    if let Some(known) = PLACES.get_ptr(&place) {
        // SAFETY: a value of the map.
        return unsafe { *known } != 0;
    }
    let mut name = [0_u64; PRIVATE.len()];
    let mut values = [place];
    // SAFETY: sizes are those of the arrays; the format's one value is there.
    unsafe {
        bpf_snprintf(name.as_mut_ptr().cast(), 16, FORMAT.as_ptr().cast(), values.as_mut_ptr(), 8);
    }
    // A number without a branch: the verifier follows each of them.
    let differs =
        |other: [u64; 2]| forget((name[0] ^ other[0]) | ((name[1] ^ other[1]) & u64::from(u32::MAX)));
    let is = u8::from(differs(PRIVATE) == 0 || differs(SHARED) == 0);
    let _ = PLACES.insert(&place, &is, 0);
    is != 0
}
