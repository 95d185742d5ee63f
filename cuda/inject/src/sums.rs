//! What records come to, by device.

use warpmeter_inject_page::{DEVICES, MAGIC, Reason, SHAPES, State, VERSION, WORDS, device, shape, word};

use crate::record::{Launch, Record, What};
use crate::typical::Typical;
use crate::union::Union;

/// Nothing runs on a device for so long without an end: an hour. Some versions of CUPTI give such times.
const LONGEST: u64 = 3_600_000_000_000;

/// Copies of a kind: how many, bytes, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Copied([u64; 3]);

impl Copied {
    fn add(&mut self, bytes: u64, nanos: u64) {
        for (sum, more) in self.0.iter_mut().zip([1, bytes, nanos]) {
            *sum = sum.saturating_add(more);
        }
    }
}

/// A device as the driver names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    /// The GPU's UUID.
    pub(crate) uuid: [u8; 16],
    /// The MIG device's, if it is one.
    pub(crate) mig: Option<[u8; 16]>,
    /// The compute capability.
    pub(crate) capability: (u32, u32),
}

/// The sums of one device.
#[derive(Debug, Default)]
struct Device {
    name: Option<Name>,
    busy: Union,
    ran: Union,
    typical: Typical,
    interrupted: u64,
    kernels: u64,
    nanos: u64,
    copies: [Copied; 3],
    set: Copied,
    /// Shapes in the order in which they came: launch, kernels, nanoseconds.
    shapes: Vec<[u64; 3]>,
    unshaped: u64,
}

/// The sums of a process.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    devices: [Option<Box<Device>>; DEVICES],
    /// Records that cannot be.
    discarded: u64,
    /// Records summed.
    records: u64,
}

/// What else there is to tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    /// The process.
    pub(crate) pid: u32,
    /// What the library does.
    pub(crate) state: State,
    /// Why it does nothing.
    pub(crate) reason: Reason,
    /// The number that goes with that.
    pub(crate) detail: u64,
    /// Nanoseconds since the start.
    pub(crate) elapsed: u64,
    /// Those in which records were wanted.
    pub(crate) sampled: u64,
    /// Records that CUPTI dropped.
    pub(crate) dropped: u64,
    /// Nanoseconds of a CPU.
    pub(crate) cpu: u64,
    /// The time now.
    pub(crate) written: u64,
}

impl Sums {
    /// Adds a record.
    pub(crate) fn add(&mut self, record: &Record) {
        let nanos = record.end.saturating_sub(record.start);
        let place = usize::try_from(record.device).ok().and_then(|at| self.devices.get_mut(at));
        let Some(place) = place.filter(|_| record.start > 0 && record.end >= record.start && nanos < LONGEST)
        else {
            self.discarded += 1;
            return;
        };
        self.records += 1;
        let device = place.get_or_insert_default();
        match record.what {
            What::Kernel(launch) => device.kernel(record, nanos, launch),
            // HTOD and HTOA; DTOH and ATOH.
            What::Copy { kind: 1 | 3, bytes } => device.copies[0].add(bytes, nanos),
            What::Copy { kind: 2 | 4, bytes } => device.copies[1].add(bytes, nanos),
            What::Copy { bytes, .. } => device.copies[2].add(bytes, nanos),
            What::Set { bytes } => device.set.add(bytes, nanos),
        }
    }

    /// The ordinals of devices that have records and no name so far.
    pub(crate) fn nameless(&self) -> impl Iterator<Item = usize> {
        let devices = self.devices.iter().enumerate();
        devices.filter(|(_, device)| device.as_ref().is_some_and(|device| device.name.is_none())).map(|(at, _)| at)
    }

    /// Names a device.
    pub(crate) fn name(&mut self, at: usize, name: Name) {
        if let Some(device) = self.devices.get_mut(at).and_then(Option::as_mut) {
            device.name = Some(name);
        }
    }

    /// All of it as the words of a page, but for the sequence.
    pub(crate) fn write(&self, told: &Told, words: &mut [u64; WORDS]) {
        let mut put = |place: usize, value: u64| {
            if let Some(word) = words.get_mut(place) {
                *word = value;
            }
        };
        for (place, value) in [
            (word::MAGIC, MAGIC),
            (word::VERSION, VERSION),
            (word::PID, told.pid.into()),
            (word::STATE, told.state.number()),
            (word::REASON, told.reason.number()),
            (word::DETAIL, told.detail),
            (word::ELAPSED, told.elapsed),
            (word::SAMPLED, told.sampled.min(told.elapsed)),
            (word::DROPPED, told.dropped),
            (word::DISCARDED, self.discarded),
            (word::CPU, told.cpu),
            (word::RECORDS, self.records),
            (word::WRITTEN, told.written),
        ] {
            put(place, value);
        }
        for (at, device) in self.devices.iter().enumerate() {
            if let Some((device, name)) = device.as_ref().and_then(|device| Some((device, device.name?))) {
                device.write(name, at, &mut put);
            }
        }
    }
}

impl Device {
    fn kernel(&mut self, record: &Record, nanos: u64, launch: Launch) {
        self.kernels += 1;
        self.nanos = self.nanos.saturating_add(nanos);
        self.busy.add(record.start, record.end);
        let key = launch.name.rotate_left(32) ^ launch.grid.rotate_left(16) ^ u64::from(launch.block);
        let ran = self.typical.ran(key, nanos);
        self.interrupted += u64::from(ran < nanos);
        self.ran.add(record.start, record.start + ran);
        let shape = u64::from(launch.block.min(0xffff))
            | u64::from(launch.registers.min(0xffff)) << 16
            | u64::from(launch.shared) << 32;
        if let Some(known) = self.shapes.iter_mut().find(|known| known[0] == shape) {
            *known = [shape, known[1] + 1, known[2].saturating_add(nanos)];
        } else if self.shapes.len() < SHAPES && shape != 0 {
            self.shapes.push([shape, 1, nanos]);
        } else {
            self.unshaped = self.unshaped.saturating_add(nanos);
        }
    }

    fn write(&self, name: Name, at: usize, put: &mut impl FnMut(usize, u64)) {
        let first = device::first(at);
        let mut uuid = |place: usize, bytes: [u8; 16]| {
            for (n, half) in bytes.as_chunks().0.iter().enumerate() {
                put(first + place + n, u64::from_le_bytes(*half));
            }
        };
        uuid(device::UUID, name.uuid);
        uuid(device::MIG, name.mig.unwrap_or_default());
        for (place, value) in [
            (device::CAPABILITY, u64::from(name.capability.0) << 32 | u64::from(name.capability.1)),
            (device::BUSY, self.busy.total),
            (device::RAN, self.ran.total.min(self.busy.total)),
            (device::INTERRUPTED, self.interrupted),
            (device::KERNELS, self.kernels),
            (device::NANOS, self.nanos),
            (device::LATE, self.busy.late),
            (device::UNSHAPED, self.unshaped),
        ] {
            put(first + place, value);
        }
        let places = [device::TO_DEVICE, device::TO_HOST, device::OTHER, device::SET];
        for (place, copied) in places.into_iter().zip(self.copies.iter().chain([&self.set])) {
            copied.0.iter().enumerate().for_each(|(n, value)| put(first + place + n, *value));
        }
        for (n, known) in self.shapes.iter().enumerate() {
            let first = shape::first(at, n);
            put(first + shape::LAUNCH, known[0]);
            put(first + shape::KERNELS, known[1]);
            put(first + shape::NANOS, known[2]);
        }
    }
}
