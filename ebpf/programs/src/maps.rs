//! The maps. Sizes bound memory: about 30 MiB in all, of which a node with few processes touches little.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray};
use core::ptr::{read_volatile, write_volatile};
use warpmeter_ebpf_common::{
    Event, GapKey, GapSum, Handle, History, PAGE, PAGES, Process, Stream, StreamKey, Task, Use, UseKey,
    UuidKey, WakeKey, WakeSum, drop, run,
};

use crate::history::Mix;
use crate::swap::DEPTH;

/// The loader writes single bytes of it, as programs do: a page that is read and written back would undo theirs.
#[map]
pub static TRACKED: Array<[u8; PAGE]> = Array::with_max_entries(PAGES, BPF_F_MMAPABLE);
#[map]
pub static TASKS: HashMap<u32, Task> = HashMap::with_max_entries(16_384, 0);
#[map]
pub static PROCESSES: HashMap<u32, Process> = HashMap::with_max_entries(8_192, 0);
#[map]
pub static USES: HashMap<UseKey, Use> = HashMap::with_max_entries(4_096, 0);
#[map]
pub static GAPS: HashMap<GapKey, GapSum> = HashMap::with_max_entries(32_768, 0);
#[map]
pub static STREAMS: LruHashMap<StreamKey, Stream> = LruHashMap::with_max_entries(16_384, 0);
#[map]
pub static EVENTS: LruHashMap<Handle, Event> = LruHashMap::with_max_entries(32_768, 0);
#[map]
pub static CONTEXTS: HashMap<Handle, u32> = HashMap::with_max_entries(4_096, 0);
#[map]
pub static UUIDS: HashMap<UuidKey, [u8; 16]> = HashMap::with_max_entries(8_192, 0);
#[map]
pub static HISTORIES: LruHashMap<u32, History> = LruHashMap::with_max_entries(4_096, 0);
#[map]
pub static WAKES: LruHashMap<WakeKey, WakeSum> = LruHashMap::with_max_entries(8_192, 0);
#[map]
pub static MOMENT: Array<u64> = Array::with_max_entries(1, 0);
#[map]
pub static DROPS: PerCpuArray<u64> = PerCpuArray::with_max_entries(drop::COUNT, 0);
#[map]
pub static RUNS: PerCpuArray<u64> = PerCpuArray::with_max_entries(run::COUNT, 0);
/// A thread as `flush` sees it.
#[map]
pub static SCRATCH: PerCpuArray<Task> = PerCpuArray::with_max_entries(1, 0);
/// The mix of a wake-up.
#[map]
pub static MIX: PerCpuArray<Mix> = PerCpuArray::with_max_entries(1, 0);
/// The kernel's stack of a task that waits.
#[map]
pub static FRAMES: PerCpuArray<[u64; DEPTH]> = PerCpuArray::with_max_entries(1, 0);
/// Places in the kernel's code, and whether they are in a function that brings pages back from swap.
#[map]
pub static PLACES: LruHashMap<u64, u8> = LruHashMap::with_max_entries(256, 0);
#[map]
static FORGOTTEN: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Counts something that was left out.
#[inline(always)]
pub fn dropped(what: u32) {
    bump(&DROPS, what);
}

/// Counts a run.
#[inline(always)]
pub fn ran(what: u32) {
    bump(&RUNS, what);
}

#[inline(always)]
fn bump(counters: &PerCpuArray<u64>, at: u32) {
    if let Some(counter) = counters.get_ptr_mut(at) {
        // SAFETY: a slot of this CPU; a program that interrupts may lose one count.
        unsafe { *counter = (*counter).wrapping_add(1) };
    }
}

/// Whether a thread's switches count.
#[inline(always)]
pub fn tracked(tid: u32) -> bool {
    TRACKED.get_ptr(tid >> 12).is_some_and(|page| {
        // SAFETY: within the page.
        unsafe { *page.cast::<u8>().add((tid & 4095) as usize) != 0 }
    })
}

/// Says whether a thread's switches count.
#[inline(always)]
pub fn track(tid: u32, value: u8) {
    if let Some(page) = TRACKED.get_ptr_mut(tid >> 12) {
        // SAFETY: within the page.
        unsafe { *page.cast::<u8>().add((tid & 4095) as usize) = value };
    }
}

/// A number of which the verifier knows nothing any more, not even that it was a pointer, or by which of many branches it
/// came about.
#[inline(always)]
pub fn forget(number: u64) -> u64 {
    let Some(slot) = FORGOTTEN.get_ptr_mut(0) else { return 0 };
    // SAFETY: a value of the map, this CPU's.
    unsafe {
        write_volatile(slot, number);
        read_volatile(slot)
    }
}
