//! One record of CUPTI's.
//!
//! Records of a kind have grown at their ends only, from CUDA 11.8 (`CUpti_ActivityKernel8`, `CUpti_ActivityMemcpy5`,
//! `CUpti_ActivityMemset4`) to CUDA 13.4: of the head that they share, fields are read by their offsets. Numbers are
//! read as numbers, since a newer library may give kinds that have no name here.
#![allow(unsafe_code, reason = "reads another library's memory")]

use std::mem::offset_of;
use std::ptr::NonNull;

use cudarc::cupti::sys::{
    CUpti_ActivityKernel9 as Kernel9, CUpti_ActivityMemcpy5 as Memcpy5, CUpti_ActivityMemset4 as Memset4,
};

/// `CUPTI_ACTIVITY_KIND_MEMCPY`.
pub(crate) const MEMCPY: u32 = 1;
/// `CUPTI_ACTIVITY_KIND_MEMSET`.
pub(crate) const MEMSET: u32 = 2;
/// `CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`.
pub(crate) const KERNEL: u32 = 10;

/// What was recorded, when, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// The device's ordinal in the process.
    pub(crate) device: u32,
    /// When it began, in nanoseconds; 0 if that is not known.
    pub(crate) start: u64,
    /// When it ended.
    pub(crate) end: u64,
    /// What it was.
    pub(crate) what: What,
}

/// What ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A kernel.
    Kernel(Launch),
    /// A copy.
    Copy {
        /// A `CUpti_ActivityMemcpyKind`.
        kind: u8,
        /// How much.
        bytes: u64,
    },
    /// Memory was set.
    Set {
        /// How much.
        bytes: u64,
    },
}

/// How a kernel was launched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The address of its name: the same for all launches of a kernel.
    pub(crate) name: u64,
    /// Blocks.
    pub(crate) grid: u64,
    /// Threads of a block.
    pub(crate) block: u32,
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Bytes of shared memory of a block, static and dynamic.
    pub(crate) shared: u32,
}

/// A field of a record, by its type.
macro_rules! field {
    ($record:expr, $of:ident, $field:ident, $type:ty) => {{
        const { assert!(offset_of!($of, $field) + size_of::<$type>() <= size_of::<$of>()) };
        // SAFETY: the caller's word, that there is such a record here; the assertion, that the field is within it.
        unsafe { $record.as_ptr().wrapping_byte_add(offset_of!($of, $field)).cast::<$type>().read_unaligned() }
    }};
}

impl Record {
    /// Reads a record; none if it is of another kind.
    ///
    /// # Safety
    ///
    /// At `at` there is a record that CUPTI made, of an interface version from that of CUDA 11.8 on.
    pub(crate) unsafe fn read(at: NonNull<u8>) -> Option<Self> {
        let kind = field!(at, Kernel9, kind, u32);
        match kind {
            KERNEL => Some(Self {
                device: field!(at, Kernel9, deviceId, u32),
                start: field!(at, Kernel9, start, u64),
                end: field!(at, Kernel9, end, u64),
                what: What::Kernel(Launch {
                    name: field!(at, Kernel9, name, u64),
                    grid: product([
                        field!(at, Kernel9, gridX, i32),
                        field!(at, Kernel9, gridY, i32),
                        field!(at, Kernel9, gridZ, i32),
                    ]),
                    block: u32::try_from(product([
                        field!(at, Kernel9, blockX, i32),
                        field!(at, Kernel9, blockY, i32),
                        field!(at, Kernel9, blockZ, i32),
                    ]))
                    .unwrap_or(u32::MAX),
                    registers: field!(at, Kernel9, registersPerThread, u16).into(),
                    shared: u32::try_from(
                        i64::from(field!(at, Kernel9, staticSharedMemory, i32))
                            + i64::from(field!(at, Kernel9, dynamicSharedMemory, i32)),
                    )
                    .unwrap_or(0),
                }),
            }),
            MEMCPY => Some(Self {
                device: field!(at, Memcpy5, deviceId, u32),
                start: field!(at, Memcpy5, start, u64),
                end: field!(at, Memcpy5, end, u64),
                what: What::Copy {
                    kind: field!(at, Memcpy5, copyKind, u8),
                    bytes: field!(at, Memcpy5, bytes, u64),
                },
            }),
            MEMSET => Some(Self {
                device: field!(at, Memset4, deviceId, u32),
                start: field!(at, Memset4, start, u64),
                end: field!(at, Memset4, end, u64),
                what: What::Set { bytes: field!(at, Memset4, bytes, u64) },
            }),
            _ => None,
        }
    }
}

fn product(sizes: [i32; 3]) -> u64 {
    sizes.iter().map(|size| u64::try_from(*size).unwrap_or(0)).product()
}
