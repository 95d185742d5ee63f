//! Reads a page that anybody may have written.

use crate::{BYTES, DEVICES, MAGIC, Reason, SHAPES, State, VERSION, WORDS, device, shape, word};

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

impl Page {
    /// Reads a page. All of its time is bounded by what has passed by its own account.
    ///
    /// # Errors
    ///
    /// What is the matter with the first that is.
    pub fn read(bytes: &[u8]) -> Result<Self, Broken> {
        if bytes.len() != BYTES {
            return Err(Broken::Size);
        }
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let at = |place: usize| words.get(place).copied().unwrap_or_default();
        debug_assert_eq!(words.len(), WORDS);
        if at(word::MAGIC) != MAGIC {
            return Err(Broken::Magic);
        }
        if at(word::VERSION) != VERSION {
            return Err(Broken::Version(at(word::VERSION)));
        }
        if at(word::SEQUENCE) % 2 == 1 {
            return Err(Broken::Torn);
        }
        let elapsed = at_most(at(word::ELAPSED), FOREVER, "elapsed")?;
        let devices = (0..DEVICES).map(|n| Device::read(&|place| at(device::first(n) + place), n, &at, elapsed));
        Ok(Self {
            pid: at_most(at(word::PID), u64::from(u32::MAX), "pid")?,
            state: State::numbered(at(word::STATE)).ok_or(Broken::Number("state"))?,
            reason: Reason::numbered(at(word::REASON)).ok_or(Broken::Number("reason"))?,
            detail: at(word::DETAIL),
            elapsed,
            sampled: at_most(at(word::SAMPLED), elapsed, "sampled")?,
            dropped: at(word::DROPPED),
            discarded: at(word::DISCARDED),
            cpu: at_most(at(word::CPU), elapsed.saturating_add(SLACK), "cpu")?,
            written: at(word::WRITTEN),
            devices: devices.filter_map(Result::transpose).collect::<Result<_, _>>()?,
        })
    }
}

impl Device {
    /// Reads a device by its own words, and its shapes by all; none if it has no name.
    fn read(
        at: &dyn Fn(usize) -> u64,
        number: usize,
        all: &dyn Fn(usize) -> u64,
        elapsed: u64,
    ) -> Result<Option<Self>, Broken> {
        let Some(uuid) = uuid(at, device::UUID) else { return Ok(None) };
        let longest = elapsed.saturating_add(SLACK);
        let sum = longest.saturating_mul(CONCURRENT);
        let copied = |first: usize| {
            let nanos = at_most(at(first + 2), sum, "copies")?;
            Ok(Copied { count: at(first), bytes: at(first + 1), nanos })
        };
        let capability = at(device::CAPABILITY);
        let half = |shift: u32, what| u32::try_from(capability >> shift & 0xffff_ffff).map_err(|_wide| Broken::Number(what));
        let nanos = at_most(at(device::NANOS), sum, "kernels")?;
        let busy = at_most(at(device::BUSY), longest.min(nanos), "busy")?;
        Ok(Some(Self {
            uuid,
            mig: self::uuid(at, device::MIG),
            capability: (half(32, "capability")?, half(0, "capability")?),
            busy,
            ran: at_most(at(device::RAN), busy, "ran")?,
            interrupted: at_most(at(device::INTERRUPTED), at(device::KERNELS), "interrupted")?,
            kernels: at(device::KERNELS),
            nanos,
            copies: [copied(device::TO_DEVICE)?, copied(device::TO_HOST)?, copied(device::OTHER)?],
            set: copied(device::SET)?,
            late: at_most(at(device::LATE), sum, "late")?,
            unshaped: at_most(at(device::UNSHAPED), nanos, "unshaped")?,
            shapes: shapes(number, all, nanos)?,
        }))
    }
}

/// The shapes of device `number`, whose kernels took `nanos` together.
fn shapes(number: usize, all: &dyn Fn(usize) -> u64, nanos: u64) -> Result<Vec<Shape>, Broken> {
    let mut left = nanos;
    let mut shapes = Vec::new();
    for n in 0..SHAPES {
        let at = |place: usize| all(shape::first(number, n) + place);
        let launch = at(shape::LAUNCH);
        if launch == 0 {
            break;
        }
        left = left.checked_sub(at(shape::NANOS)).ok_or(Broken::Number("shapes"))?;
        let bits = |shift: u32, mask: u64| u32::try_from(launch >> shift & mask).unwrap_or(u32::MAX);
        shapes.push(Shape {
            block: bits(0, 0xffff),
            registers: bits(16, 0xffff),
            shared: bits(32, 0xffff_ffff),
            kernels: at(shape::KERNELS),
            nanos: at(shape::NANOS),
        });
    }
    Ok(shapes)
}

fn uuid(at: &dyn Fn(usize) -> u64, first: usize) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    for (to, place) in bytes.as_chunks_mut().0.iter_mut().zip([first, first + 1]) {
        *to = at(place).to_le_bytes();
    }
    (bytes != [0; 16]).then_some(bytes)
}

fn at_most(value: u64, most: u64, what: &'static str) -> Result<u64, Broken> {
    if value <= most { Ok(value) } else { Err(Broken::Number(what)) }
}
