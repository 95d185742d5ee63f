//! Reads a page that anybody may have written.

use crate::{BYTES, DEVICES, MAGIC, Reason, SHAPES, State, VERSION, device, shape, word};

/// A second, in nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// No process lives for so many nanoseconds: a century.
const FOREVER: u64 = 100 * 366 * 86_400 * SECOND;
/// By how much time on a device may exceed that which has passed: the clocks are two, and kernels may have begun
/// before.
const SLACK: u64 = 10 * SECOND;
/// No device has so many kernels at a time: their time is at most so many times that which passed.
const CONCURRENT: u64 = 1024;

/// A page that holds together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The process's id, as it says that it knows itself.
    pub pid: u64,
    /// What the library does.
    pub state: State,
    /// Why it does nothing, if so.
    pub reason: Reason,
    /// The number that goes with that.
    pub detail: u64,
    /// Nanoseconds since the library began.
    pub elapsed: u64,
    /// Those of them in which records were asked for.
    pub sampled: u64,
    /// Records for which there was no room.
    pub dropped: u64,
    /// Records that the library left out because they cannot be.
    pub discarded: u64,
    /// Nanoseconds of a CPU that the library's own thread took.
    pub cpu: u64,
    /// Records summed.
    pub records: u64,
    /// When it was written, in nanoseconds of the monotonic clock.
    pub written: u64,
    /// Devices with records.
    pub devices: Vec<Device>,
}

/// What a process ran on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The GPU's UUID.
    pub uuid: [u8; 16],
    /// The MIG device's, if it is one.
    pub mig: Option<[u8; 16]>,
    /// The compute capability.
    pub capability: (u32, u32),
    /// Nanoseconds in which at least one kernel had begun and not ended.
    pub busy: u64,
    /// The same without the time for which kernels seem to have been interrupted.
    pub ran: u64,
    /// Kernels that seem to have been interrupted.
    pub interrupted: u64,
    /// Kernels.
    pub kernels: u64,
    /// Their nanoseconds, each for itself.
    pub nanos: u64,
    /// Copies to the device, to the host, and others.
    pub copies: [Copied; 3],
    /// Memory that was set.
    pub set: Copied,
    /// Nanoseconds of kernels that came too late to be told from time already summed.
    pub late: u64,
    /// Nanoseconds of kernels whose shapes had no room in the table.
    pub unshaped: u64,
    /// Shapes of launches.
    pub shapes: Vec<Shape>,
}

/// Copies of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// How many.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Nanoseconds, each for itself.
    pub nanos: u64,
}

/// Kernels with the same needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Threads of a block.
    pub block: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Kernels.
    pub kernels: u64,
    /// Their nanoseconds.
    pub nanos: u64,
}

/// Why bytes are no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// They are too few or too many.
    Size,
    /// They do not begin as a page does.
    Magic,
    /// The layout is another version's.
    Version(u64),
    /// They are of a time at which they changed.
    Torn,
    /// A number is none that can stand at its place.
    Number(&'static str),
}

/// The words of a page; those beyond its end are 0.
struct Words(Vec<u64>);

impl Words {
    fn at(&self, place: usize) -> u64 {
        self.0.get(place).copied().unwrap_or_default()
    }

    fn at_most(&self, place: usize, most: u64, what: &'static str) -> Result<u64, Broken> {
        let value = self.at(place);
        if value <= most { Ok(value) } else { Err(Broken::Number(what)) }
    }

    /// The UUID that begins at `first`; none if it is 0.
    fn uuid(&self, first: usize) -> Option<[u8; 16]> {
        let mut bytes = [0; 16];
        for (to, place) in bytes.as_chunks_mut().0.iter_mut().zip(first..) {
            *to = self.at(place).to_le_bytes();
        }
        (bytes != [0; 16]).then_some(bytes)
    }
}

impl Page {
    /// Reads a page. All of its times are bounded by what has passed by its own account.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, Broken> {
        if bytes.len() != BYTES {
            return Err(Broken::Size);
        }
        let words = Words(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect());
        if words.at(word::MAGIC) != MAGIC {
            return Err(Broken::Magic);
        }
        if words.at(word::VERSION) != VERSION {
            return Err(Broken::Version(words.at(word::VERSION)));
        }
        if words.at(word::SEQUENCE) % 2 == 1 {
            return Err(Broken::Torn);
        }
        let elapsed = words.at_most(word::ELAPSED, FOREVER, "elapsed")?;
        let devices = (0..DEVICES).map(|number| Device::read(&words, number, elapsed));
        Ok(Self {
            pid: words.at_most(word::PID, u32::MAX.into(), "pid")?,
            state: State::numbered(words.at(word::STATE)).ok_or(Broken::Number("state"))?,
            reason: Reason::numbered(words.at(word::REASON)).ok_or(Broken::Number("reason"))?,
            detail: words.at(word::DETAIL),
            elapsed,
            sampled: words.at_most(word::SAMPLED, elapsed, "sampled")?,
            dropped: words.at(word::DROPPED),
            discarded: words.at(word::DISCARDED),
            cpu: words.at_most(word::CPU, elapsed + SLACK, "cpu")?,
            records: words.at(word::RECORDS),
            written: words.at(word::WRITTEN),
            devices: devices.filter_map(Result::transpose).collect::<Result<_, _>>()?,
        })
    }
}

impl Device {
    /// Reads a device of a library that has been there for `elapsed`; none if it has no name.
    fn read(words: &Words, number: usize, elapsed: u64) -> Result<Option<Self>, Broken> {
        let first = device::first(number);
        let Some(uuid) = words.uuid(first + device::UUID) else { return Ok(None) };
        let longest = elapsed + SLACK;
        let all = longest.saturating_mul(CONCURRENT);
        let copied = |place: usize| {
            let nanos = words.at_most(first + place + 2, all, "copies")?;
            Ok(Copied { count: words.at(first + place), bytes: words.at(first + place + 1), nanos })
        };
        let capability = words.at(first + device::CAPABILITY);
        let kernels = words.at(first + device::KERNELS);
        let nanos = words.at_most(first + device::NANOS, all, "kernels")?;
        let busy = words.at_most(first + device::BUSY, longest.min(nanos), "busy")?;
        Ok(Some(Self {
            uuid,
            mig: words.uuid(first + device::MIG),
            capability: (half(capability >> 32), half(capability)),
            busy,
            ran: words.at_most(first + device::RAN, busy, "ran")?,
            interrupted: words.at_most(first + device::INTERRUPTED, kernels, "interrupted")?,
            kernels,
            nanos,
            copies: [copied(device::TO_DEVICE)?, copied(device::TO_HOST)?, copied(device::OTHER)?],
            set: copied(device::SET)?,
            late: words.at_most(first + device::LATE, all, "late")?,
            unshaped: words.at_most(first + device::UNSHAPED, nanos, "unshaped")?,
            shapes: shapes(words, number, nanos)?,
        }))
    }
}

/// The shapes of a device, whose kernels took `nanos` together.
fn shapes(words: &Words, number: usize, nanos: u64) -> Result<Vec<Shape>, Broken> {
    let mut left = nanos;
    let mut shapes = Vec::new();
    for first in (0..SHAPES).map(|at| shape::first(number, at)) {
        let launch = words.at(first + shape::LAUNCH);
        if launch == 0 {
            break;
        }
        let nanos = words.at_most(first + shape::NANOS, left, "shapes")?;
        left -= nanos;
        shapes.push(Shape {
            block: half(launch & 0xffff),
            registers: half(launch >> 16 & 0xffff),
            shared: half(launch >> 32),
            kernels: words.at(first + shape::KERNELS),
            nanos,
        });
    }
    Ok(shapes)
}

/// The lower half of a word.
const fn half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests;
