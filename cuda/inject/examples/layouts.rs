//! Where the injected library reads the fields of CUPTI's records, a line each, for `tests/inject/check.sh` to compare.
#![allow(clippy::print_stdout, reason = "lines for another program")]

use std::mem::offset_of;

use cudarc::cupti::sys::{
    CUpti_ActivityKernel9 as Kernel, CUpti_ActivityMemcpy5 as Memcpy, CUpti_ActivityMemset4 as Memset,
};

macro_rules! places {
    ($($name:literal $of:ident: $($field:ident)*;)*) => {
        $($(println!("{} {} {}", $name, stringify!($field), offset_of!($of, $field));)*)*
    };
}

fn main() {
    places! {
        "kernel" Kernel: kind registersPerThread start end deviceId gridX gridY gridZ blockX blockY blockZ
            staticSharedMemory dynamicSharedMemory name;
        "memcpy" Memcpy: kind copyKind bytes start end deviceId;
        "memset" Memset: kind bytes start end deviceId;
    }
}
