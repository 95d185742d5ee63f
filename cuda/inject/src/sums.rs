//! What records come to, by device.

use warpmeter_inject_page::{DEVICES, MAGIC, Reason, SHAPES, State, VERSION, device, shape, word};

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

    /// Counts a record that cannot be read, and hides those behind it.
    pub(crate) fn spoilt(&mut self) {
        self.discarded += 1;
    }

    /// The ordinals of devices that have records and no name so far.
    pub(crate) fn nameless(&self) -> impl Iterator<Item = usize> {
        let devices = self.devices.iter().enumerate();
        devices
            .filter(|(_, device)| device.as_ref().is_some_and(|device| device.name.is_none()))
            .map(|(at, _)| at)
    }

    /// Names a device.
    pub(crate) fn name(&mut self, at: usize, name: Name) {
        if let Some(device) = self.devices.get_mut(at).and_then(Option::as_mut) {
            device.name = Some(name);
        }
    }

    /// All of it as the words of a page, but for the sequence.
    pub(crate) fn write(&self, told: &Told, words: &mut [u64]) {
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
    /// Adds a kernel, which took `nanos`.
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

#[cfg(test)]
mod tests {
    use warpmeter_inject_page::{BYTES, Page, Shape, WORDS};

    use super::*;

    const NAME: Name = Name { uuid: [7; 16], mig: None, capability: (9, 0) };

    fn kernel(start: u64, end: u64, block: u32) -> Record {
        let launch = Launch { name: 1, grid: 4, block, registers: 40, shared: 1024 };
        Record { device: 0, start, end, what: What::Kernel(launch) }
    }

    fn copy(kind: u8, bytes: u64) -> Record {
        Record { device: 0, start: 1, end: 11, what: What::Copy { kind, bytes } }
    }

    /// What a reader makes of the sums of these records.
    fn read(records: impl IntoIterator<Item = Record>, names: &[usize]) -> Page {
        let mut sums = Sums::default();
        for record in records {
            sums.add(&record);
        }
        for at in names {
            sums.name(*at, NAME);
        }
        let told = Told {
            pid: 5,
            state: State::Sampling,
            reason: Reason::None,
            detail: 0,
            elapsed: 1_000_000,
            sampled: 2_000_000,
            dropped: 3,
            cpu: 4,
            written: 5,
        };
        let mut words = vec![0; WORDS];
        sums.write(&told, &mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes.len(), BYTES);
        Page::read(&bytes).unwrap()
    }

    #[test]
    fn what_is_summed_here_is_what_is_read_there() {
        let records = [
            kernel(100, 200, 256),
            kernel(150, 250, 256),
            kernel(300, 310, 64),
            copy(1, 10),
            copy(4, 20),
            copy(8, 30),
            copy(8, 40),
            Record { device: 0, start: 1, end: 6, what: What::Set { bytes: 50 } },
        ];
        let page = read(records, &[0]);
        assert_eq!((page.pid, page.elapsed, page.dropped, page.cpu, page.records), (5, 1_000_000, 3, 4, 8));
        assert_eq!(page.sampled, page.elapsed, "never more than there was");
        let [device] = &page.devices[..] else { panic!("{page:?}") };
        assert_eq!((device.uuid, device.mig, device.capability), ([7; 16], None, (9, 0)));
        assert_eq!((device.busy, device.nanos, device.kernels), (160, 210, 3));
        assert_eq!(device.copies.map(|copied| (copied.count, copied.bytes)), [(1, 10), (1, 20), (2, 70)]);
        assert_eq!((device.set.bytes, device.set.nanos), (50, 5));
        let shape = |block, kernels, nanos| Shape { block, registers: 40, shared: 1024, kernels, nanos };
        assert_eq!(device.shapes, [shape(256, 2, 200), shape(64, 1, 10)]);
    }

    #[test]
    fn records_that_cannot_be_are_counted_and_nothing_else() {
        let odd = [
            kernel(0, 0, 256),
            kernel(0, 10, 256),
            kernel(20, 10, 256),
            kernel(1, 1 + LONGEST, 256),
            Record { device: 16, ..kernel(1, 2, 256) },
            Record { device: u32::MAX, ..kernel(1, 2, 256) },
        ];
        let page = read(odd, &[0]);
        assert_eq!((page.discarded, page.records, page.devices.len()), (6, 0, 0));
    }

    #[test]
    fn shapes_beyond_the_table_are_summed_as_one() {
        let page = read((0..100).map(|at| kernel(1 + at, 11 + at, 1 + u32::try_from(at).unwrap())), &[0]);
        let device = &page.devices[0];
        assert_eq!(device.shapes.len(), SHAPES);
        let shaped: u64 = device.shapes.iter().map(|shape| shape.nanos).sum();
        assert_eq!((shaped, device.unshaped, device.nanos), (640, 360, 1000));
    }

    #[test]
    fn a_device_is_told_once_it_has_a_name() {
        let mut sums = Sums::default();
        sums.add(&Record { device: 3, ..kernel(1, 2, 256) });
        assert_eq!(sums.nameless().collect::<Vec<_>>(), [3]);
        sums.name(3, NAME);
        sums.name(4, NAME);
        assert_eq!(sums.nameless().count(), 0);
        assert!(read([kernel(1, 2, 256)], &[]).devices.is_empty());
    }
}
