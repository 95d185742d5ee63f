//! The page in which an injected library tells what its process ran on GPUs: one layout for both sides, and a reader
//! for the side that believes none of it.
//!
//! A page is [`BYTES`] long: 64-bit words, little-endian, whose places are the constants of [`word`], [`device`] and
//! [`shape`]. Sums only grow while the process lives. [`word::SEQUENCE`] is odd while the others change: whoever reads
//! it even before and after all others has read them of one time.
#![forbid(unsafe_code)]

mod read;

pub use read::{Broken, Copied, Device, Page, Shape};

/// The name of the memory file; `/proc/PID/fd` shows it as [`LINK`].
pub const NAME: &str = "warpmeter-activity";
/// What the link of such a file's descriptor in `/proc/PID/fd` reads.
pub const LINK: &[u8] = b"/memfd:warpmeter-activity (deleted)";

/// The first word: `wmactiv` and a zero.
pub const MAGIC: u64 = u64::from_le_bytes(*b"wmactiv\0");
/// Changes with every change of the layout.
pub const VERSION: u64 = 1;

/// Devices of a process: by their ordinals there.
pub const DEVICES: usize = 16;
/// Shapes of launches that are told apart on a device; those of further shapes are summed as one.
pub const SHAPES: usize = 64;

/// Words of the head.
const HEAD: usize = 16;
/// Words of a device, without its shapes.
const DEVICE: usize = 24;
/// Words of a shape.
const SHAPE: usize = 3;

/// Words of a page.
pub const WORDS: usize = HEAD + DEVICES * (DEVICE + SHAPES * SHAPE);
/// Bytes of a page.
pub const BYTES: usize = WORDS * 8;

/// Places of the head's words.
pub mod word {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// [`VERSION`](super::VERSION).
    pub const VERSION: usize = 1;
    /// Odd while the other words change.
    pub const SEQUENCE: usize = 2;
    /// The process's id, as it knows itself.
    pub const PID: usize = 3;
    /// A [`State`](super::State).
    pub const STATE: usize = 4;
    /// A [`Reason`](super::Reason).
    pub const REASON: usize = 5;
    /// The number that goes with the reason.
    pub const DETAIL: usize = 6;
    /// Nanoseconds since the library began.
    pub const ELAPSED: usize = 7;
    /// Those of them in which records were asked for.
    pub const SAMPLED: usize = 8;
    /// Records for which there was no room.
    pub const DROPPED: usize = 9;
    /// Records that cannot be.
    pub const DISCARDED: usize = 10;
    /// Nanoseconds of a CPU that the library's own thread took.
    pub const CPU: usize = 11;
    /// Records summed.
    pub const RECORDS: usize = 12;
    /// When the page was written, in nanoseconds of `CLOCK_MONOTONIC`.
    pub const WRITTEN: usize = 13;
}

/// Places of a device's words, from its first on.
pub mod device {
    use super::{DEVICE, HEAD, SHAPE, SHAPES};

    /// The first half of the GPU's UUID, as eight bytes in their order; 0 for a device without records.
    pub const UUID: usize = 0;
    /// The first half of the MIG device's UUID; 0 on a whole GPU.
    pub const MIG: usize = 2;
    /// The compute capability: major × 2³² + minor.
    pub const CAPABILITY: usize = 4;
    /// Nanoseconds in which at least one kernel had begun and not ended.
    pub const BUSY: usize = 5;
    /// The same without the time for which kernels seem to have been interrupted.
    pub const RAN: usize = 6;
    /// Kernels that seem to have been interrupted.
    pub const INTERRUPTED: usize = 7;
    /// Kernels.
    pub const KERNELS: usize = 8;
    /// Their nanoseconds, each for itself.
    pub const NANOS: usize = 9;
    /// Copies to the device: how many; then bytes and nanoseconds.
    pub const TO_DEVICE: usize = 10;
    /// Copies to the host.
    pub const TO_HOST: usize = 13;
    /// Other copies.
    pub const OTHER: usize = 16;
    /// Memory that was set.
    pub const SET: usize = 19;
    /// Nanoseconds of kernels that came too late to be told from time already summed.
    pub const LATE: usize = 22;
    /// Nanoseconds of kernels of further shapes.
    pub const UNSHAPED: usize = 23;

    /// The first word of device `at`.
    pub const fn first(at: usize) -> usize {
        HEAD + at * (DEVICE + SHAPES * SHAPE)
    }
}

/// Places of a shape's words, from its first on.
pub mod shape {
    use super::{DEVICE, SHAPE, device};

    /// Threads of a block (bits 0 to 15), registers of a thread (16 to 31), and bytes of shared memory of a block (32
    /// to 63); 0 for none.
    pub const LAUNCH: usize = 0;
    /// Kernels.
    pub const KERNELS: usize = 1;
    /// Their nanoseconds.
    pub const NANOS: usize = 2;

    /// The first word of shape `at` of device `of`.
    pub const fn first(of: usize, at: usize) -> usize {
        device::first(of) + DEVICE + at * SHAPE
    }
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$about])* $variant,)* }

        impl $name {
            /// The number that stands for it in a page.
            pub const fn number(self) -> u64 {
                match self { $(Self::$variant => $number,)* }
            }

            /// The one of this number.
            pub const fn numbered(number: u64) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

numbered! {
    /// What the library does.
    State {
        /// It starts.
        Starting = 0,
        /// It asks for records, always or now and then.
        Sampling = 1,
        /// It does nothing, for the reason that is given.
        Off = 2,
    }
}

numbered! {
    /// Why the library does nothing.
    Reason {
        /// There is none.
        None = 0,
        /// No libcupti was found.
        NoCupti = 1,
        /// A function is missing in it.
        Symbol = 2,
        /// It is of a version whose records are not known; the detail is the version.
        Version = 3,
        /// It refused a call; the detail is its status.
        Refused = 4,
        /// The library itself failed.
        Failed = 5,
        /// Its thread could not be started.
        Thread = 6,
    }
}

impl Reason {
    /// The reason in words, with what helps.
    pub fn words(self, detail: u64) -> String {
        match self {
            Self::None => "the injected library does nothing, and does not say why".to_owned(),
            Self::NoCupti => {
                "no libcupti in the container: add the CUDA toolkit's CUPTI, or name it in WARPMETER_INJECT_CUPTI"
                    .to_owned()
            }
            Self::Symbol => "its libcupti lacks a function: name that of CUDA 12 or 13".to_owned(),
            Self::Version => {
                format!("its libcupti is of interface version {detail}, whose records are not known")
            }
            Self::Refused if detail == 39 => {
                "another profiler has subscribed to CUPTI in the process, which allows for one".to_owned()
            }
            Self::Refused => format!("CUPTI refused with status {detail}"),
            Self::Failed => "the injected library failed and switched itself off".to_owned(),
            Self::Thread => "the injected library's thread could not be started".to_owned(),
        }
    }
}
