//! Keys and values of maps.

use crate::{Doings, doing, gap, kind};

/// No device is known: [`Task::slot`], [`UseKey::slot`]; in [`GapKey::slot`] its low byte.
pub const UNKNOWN_SLOT: u32 = u32::MAX;
/// Device ordinals of a process are below this, [`UNKNOWN_SLOT`] apart.
pub const SLOTS: u32 = 255;
/// How many nested contexts of a thread are followed.
pub const NESTED: usize = 4;

/// Bits of [`Task::flags`].
pub mod task {
    /// Has called the CUDA driver.
    pub const CALLER: u32 = 1;
    /// Between a synchronising call's entry and its return, counted in `Use::waiting`.
    pub const WAITING: u32 = 2;
    /// Ends: what it did is part of its process's sums. What it still does counts for nobody but those whom it wakes.
    pub const ENDED: u32 = 4;
}

/// Bits of [`Process::flags`].
pub mod process {
    /// Nothing of it is looked at (set by the loader).
    pub const IGNORED: u32 = 1;
    /// It had mapped the library before the probes were there (set by the loader, before it attaches).
    pub const LATE: u32 = 2;
    /// Its first call was `cuInit`, and it is not `LATE`.
    pub const FROM_START: u32 = 4;
    /// Has called the CUDA driver.
    pub const CALLER: u32 = 8;
    /// Its workload has more threads than its share: no more are followed but those that call the driver (set by the
    /// loader, taken over by children).
    pub const CROWDED: u32 = 16;
}

/// Bits of [`Use::flags`].
pub mod uses {
    /// Everything that the process has outstanding on the device is known.
    pub const KNOWN: u32 = 1;
}

/// A thread. Written by itself and, when it is switched, by the CPU that does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Task {
    /// Its process.
    pub tgid: u32,
    /// Bits of [`task`].
    pub flags: u32,
    /// When what it does now began; ns of CLOCK_MONOTONIC, as all times here.
    pub since: u64,
    /// What it does now, a [`doing`]; time in a call of the CUDA driver is none of these, see `call`.
    pub doing: u32,
    /// The class of the CUDA call that it is in, a [`crate::calls::Call`]; 0 if none.
    pub call: u32,
    /// Nanoseconds of its last wait, not in `sums` yet: how much of it was waiting for a CPU shows at the next switch.
    pub waited: u64,
    /// What that wait was.
    pub waited_doing: u32,
    /// Ordinal of the device of its current context, or [`UNKNOWN_SLOT`].
    pub slot: u32,
    /// The kernel's count of its time without a CPU, when it last left one.
    pub run_delay: u64,
    /// What it did, ended intervals only.
    pub sums: Doings,
    /// Nanoseconds in calls of the CUDA driver that are watched to their end, ended intervals only.
    pub in_driver: u64,
    /// When its last enqueue or synchronising call ended.
    pub mark: u64,
    /// What it had done then, the interval up to then included.
    pub at_mark: Doings,
    /// When the call that it is in began.
    pub call_began: u64,
    /// For calls that write a handle: where. For copies: how many bytes.
    pub argument: u64,
    /// For calls that wait: the stream. For others: the context or the event.
    pub handle: u64,
    /// The context that `stream` is of.
    pub context: u64,
    /// The stream's sequence number when the call began.
    pub stream_seq: u64,
    /// The device's sequence number when the call began.
    pub device_seq: u64,
    /// What the call's success proves complete, a [`scope`].
    pub scope: u32,
    /// For calls that name a device: its ordinal.
    pub ordinal: u32,
    /// The cookie of the call that it is in.
    pub cookie: u64,
    /// Its current contexts, the innermost last.
    pub contexts: [u64; NESTED],
    /// How many.
    pub depth: u32,
    /// What the interval was that ended last; [`doing::COUNT`]: a call of the driver.
    pub ended_doing: u32,
    /// How long it was.
    pub ended: u64,
    /// Without return probes: when it was seen to do something else after its last waiting call; else 0.
    pub returned: u64,
    /// Nanoseconds of waits for a lock that a timeout ended, since its last wake-up by a thread or CUDA call: the wait
    /// goes on, and who ends it says for what it was. In `sums` they are [`doing::POLL`].
    pub owed: u64,
    /// When the first of them began.
    pub owed_since: u64,
    /// When its history was last added to.
    pub noted: u64,
    /// Since when it is at what it hands over next to a thread that waits for it: since it is followed, last did so, or
    /// was given something to do by another thread.
    pub begun: u64,
    /// When the record was made.
    pub made: u64,
    /// Nanoseconds of waits for the files of one set that a timeout ended, since another end of such a wait or a CUDA call:
    /// the wait goes on, and who ends it says for what it was. In `sums` they are `timed_out_as`.
    pub timed_out: u64,
    /// When the first of them began.
    pub timed_out_since: u64,
    /// The set: the number of the `epoll` file, and one.
    pub timed_out_in: u32,
    /// [`doing::POLL`] if the last wait of such turned out to be for a thread or the network, else [`doing::TIMER`].
    pub timed_out_as: u32,
    /// How many probed calls it made, by [`crate::kind`].
    pub calls: [u64; kind::COUNT],
}

/// What success of a call proves complete.
pub mod scope {
    /// Nothing.
    pub const NONE: u32 = 0;
    /// One stream.
    pub const STREAM: u32 = 1;
    /// The legacy default stream, and with it all blocking streams.
    pub const BLOCKING: u32 = 2;
    /// All streams of the context.
    pub const CONTEXT: u32 = 3;
}

impl Task {
    /// Whether what it did is part of its process's sums.
    #[inline(always)]
    pub const fn has_ended(&self) -> bool {
        self.flags & task::ENDED != 0
    }

    /// What the thread had done by `now`, the running interval included, and how long it had been in the driver.
    /// A wait that has just ended counts as what it was, although some of it may later turn out to be `CPU_WAIT`:
    /// between two snapshots one class can fall by what `CPU_WAIT` rises. `wakes`: whether wake-ups are followed, see
    /// [`open_wait`].
    #[inline(always)]
    pub fn at(&self, now: u64, wakes: bool) -> (Doings, u64) {
        let mut sums = self.sums;
        let mut in_driver = self.in_driver;
        add(&mut sums, self.waited_doing, self.waited);
        let open = now.saturating_sub(self.since);
        if self.call == 0 {
            add(&mut sums, open_wait(self.doing, wakes), open);
        } else {
            in_driver = in_driver.wrapping_add(open);
        }
        (sums, in_driver)
    }
}

/// What an interval counts as that goes on at a snapshot: whom a thread waits for shows when it is woken.
#[inline(always)]
pub fn open_wait(doing: u32, wakes: bool) -> u32 {
    if wakes && doing == doing::LOCK { doing::POLL } else { doing }
}

/// Points that a [`History`] keeps of each of its levels.
pub const POINTS: usize = 8;
/// Its levels: points of the first are at least 2¹⁸ ns apart (262 µs), those of each further one four times as far, so
/// that the last reach back half a second.
pub const LEVELS: usize = 5;
/// log₂ of the distance between points of the first level, in units of a [`Point`].
pub const FINEST: u32 = 8;

/// What a thread had done at one time. Units of 1024 ns that wrap after an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Point {
    /// The time.
    pub at: u32,
    /// By [`doing`], and last its time in the driver.
    pub done: [u32; doing::COUNT + 1],
}

/// What a thread did of late, so that those that waited for it can be told what that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct History {
    /// Levels of rings.
    pub points: [Point; POINTS * LEVELS],
    /// How many points each level ever had.
    pub counts: [u32; LEVELS],
}

/// Who woke whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct WakeKey {
    /// The process of the thread that waited.
    pub sleeper: u32,
    /// The process of the thread that ended the wait.
    pub waker: u32,
}

/// Waits of the threads of one process for those of another, or for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct WakeSum {
    /// How many.
    pub count: u64,
    /// What the wakers did meanwhile: nanoseconds of the sleepers.
    pub doings: Doings,
}

/// A number as an index that the compiler knows nothing of. Otherwise it compares the narrow number with a bound and
/// indexes with a wide copy, of which older kernels do not know the bound.
#[inline(always)]
pub fn opaque(number: u32) -> usize {
    core::hint::black_box(number as usize)
}

/// Adds to a class; one that is none of [`doing`] is `UNKNOWN`.
#[inline(always)]
pub fn add(doings: &mut Doings, doing: u32, nanoseconds: u64) {
    let at = opaque(doing);
    let at = if at < doing::COUNT { at } else { doing::UNKNOWN as usize };
    if let Some(sum) = doings.get_mut(at) {
        *sum = sum.wrapping_add(nanoseconds);
    }
}

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Process {
    /// Bits of [`process`].
    pub flags: u32,
    /// How many contexts it was seen to make, less those destroyed.
    pub contexts: u32,
    /// The id of its cgroup (of the unified hierarchy) when first seen; 0 if the loader made the record.
    pub cgroup: u64,
    /// The last context that it was seen to make.
    pub context: u64,
    /// When it was first seen.
    pub seen: u64,
    /// When the last of its threads ended; 0 before that.
    pub ended: u64,
    /// What its threads that have ended and had called the driver did.
    pub callers: Doings,
    /// What its other threads that have ended did.
    pub others: Doings,
    /// How many probed calls threads that have ended made, by [`crate::kind`].
    pub calls: [u64; kind::COUNT],
}

/// A process and one of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct UseKey {
    /// The process.
    pub tgid: u32,
    /// The device's ordinal in that process, or [`UNKNOWN_SLOT`].
    pub slot: u32,
}

/// What a process asks of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Use {
    /// Enqueues of every kind.
    pub enqueued: u64,
    /// Launches of kernels, captured ones not counted.
    pub launches: u64,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// Bytes copied to the device.
    pub bytes_to_device: u64,
    /// Bytes copied from the device.
    pub bytes_to_host: u64,
    /// Bytes copied otherwise.
    pub bytes_other: u64,
    /// Nanoseconds of threads in copies that held them up and have ended.
    pub copy_wait: u64,
    /// The most of them that the copies themselves can have taken: [`copies::most`](crate::copies::most) of each.
    pub copies_most: u64,
    /// What they took in any case: [`copies::least`](crate::copies::least) of each.
    pub copies_least: u64,
    /// Nanoseconds of threads in synchronising calls that have ended.
    pub sync_wait: u64,
    /// When the last call of any kind ended (of those without return probe: began).
    pub last_call: u64,
    /// The open gap: since when (or since the last snapshot) and what kind, packed as in [`gap`]; 0 before the first
    /// enqueue.
    pub open: u64,
    /// When the open gap began.
    pub began: u64,
    /// What is outstanding: sequence number of the last enqueue << 24 | busy streams that do not wait for the legacy
    /// default stream << 12 | busy streams that do.
    pub outstanding: u64,
    /// All streams are complete up to this sequence number.
    pub complete: u64,
    /// All blocking streams are complete up to this sequence number.
    pub complete_blocking: u64,
    /// The thread that made the last enqueue or synchronising call.
    pub tid: u32,
    /// Threads that wait for outstanding work.
    pub waiting: u32,
    /// Bits of [`uses`].
    pub flags: u32,
    /// How many contexts of the process are on the device.
    pub contexts: u32,
    /// When the thread `tid` made its last enqueue or synchronising call here, or the last snapshot after that.
    pub mark: u64,
    /// What that thread had done then.
    pub at_mark: Doings,
}

/// Bits of [`Use::outstanding`] below the sequence number.
pub const BUSY_BITS: u32 = 24;
/// One busy stream that does not wait for the legacy default stream.
pub const BUSY_OTHER: u64 = 1 << 12;
/// One busy stream that does.
pub const BUSY_BLOCKING: u64 = 1;

impl Use {
    /// The open gap's kind, a [`gap`], and since when; none before the first enqueue.
    pub fn open_gap(&self) -> Option<(u64, u64)> {
        (self.open != 0).then_some((self.open & 3, self.open >> gap::SHIFT))
    }
}

/// Gaps of about one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct GapKey {
    /// The process.
    pub tgid: u32,
    /// The device's ordinal, or 255.
    pub slot: u8,
    /// A [`gap`].
    pub kind: u8,
    /// ⌊log₂⌋ of nanoseconds, of the gap so far when a snapshot cuts it.
    pub log2: u8,
    /// 0.
    pub reserved: u8,
}

/// Their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct GapSum {
    /// How many; one that a snapshot cut counts in its first part.
    pub count: u64,
    /// Nanoseconds.
    pub total: u64,
    /// How many ended: each once, by its whole length.
    pub ended: u64,
    /// Nanoseconds of those from their beginnings.
    pub lasted: u64,
    /// What the threads that ended them did meanwhile. Sums to `total`.
    pub doings: Doings,
}

/// A handle that a process got from the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Handle {
    /// The handle.
    pub handle: u64,
    /// The process.
    pub tgid: u32,
    /// 0.
    pub reserved: u32,
}

/// A stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct StreamKey {
    /// For default streams: the context; for others 0, since handles are unique in a process.
    pub context: u64,
    /// Its handle; 0 for the legacy default stream, [`PER_THREAD`] | thread id for a thread's default stream.
    pub stream: u64,
    /// The process.
    pub tgid: u32,
    /// 0.
    pub reserved: u32,
}

/// Marks a thread's default stream.
pub const PER_THREAD: u64 = 1 << 63;

/// What is known of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Stream {
    /// Sequence number (of the device's) of its last enqueue << 1 | whether that may be outstanding.
    pub state: u64,
    /// The capture that it belongs to; 0 if none.
    pub capture: u64,
    /// The stream whose capture that is.
    pub origin: u64,
    /// The last event's work that it was made to wait for: the stream and its sequence number.
    pub waits_stream: u64,
    /// See `waits_stream`.
    pub waits_seq: u64,
    /// 1 if it waits for the legacy default stream and that for it.
    pub blocking: u32,
    /// 0.
    pub reserved: u32,
}

/// An event's last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// The context.
    pub context: u64,
    /// The stream.
    pub stream: u64,
    /// The stream's sequence number then.
    pub stream_seq: u64,
    /// The device's sequence number then.
    pub device_seq: u64,
    /// The capture that recorded it; 0 if none.
    pub capture: u64,
    /// The stream whose capture that is.
    pub origin: u64,
    /// Slot of its device.
    pub slot: u32,
    /// What its completion proves, a [`scope`].
    pub scope: u32,
}

/// A device as a process numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct UuidKey {
    /// The process.
    pub tgid: u32,
    /// The device's ordinal.
    pub ordinal: u32,
}

macro_rules! sizes {
    ($($record:ty = $size:literal;)*) => {
        $(const _: () = assert!(size_of::<$record>() == $size && align_of::<$record>() <= 8);)*
        $(
            // SAFETY: `repr(C)`, integers only, and the size is that of all members: there is no padding.
            #[cfg(feature = "user")]
            unsafe impl aya::Pod for $record {}
        )*
    };
}

sizes! {
    Task = 456;
    Point = 52;
    History = 2100;
    WakeKey = 8;
    WakeSum = 96;
    Process = 248;
    UseKey = 8;
    Use = 240;
    GapKey = 8;
    GapSum = 120;
    Handle = 16;
    StreamKey = 24;
    Stream = 48;
    Event = 56;
    UuidKey = 8;
}
