//! Warpmeter's kernel programs: what processes ask of GPUs, and what their threads do meanwhile.
//!
//! They sum in maps; nothing is sent. What the maps and records mean is in `warpmeter-ebpf-common`. Everything that
//! comes from a process (arguments, memory, handles) may be forged by it: that spoils its own figures only.
#![no_std]
#![no_main]
// Atomic operations that give the old value: the BPF target has them, but says that it has not.
#![feature(core_intrinsics)]
#![allow(internal_features)]

mod atomic;
mod block;
mod call;
mod classify;
mod drained;
mod enqueue;
mod flush;
mod gaps;
mod globals;
mod history;
mod maps;
mod sockets;
mod state;
mod swap;
mod switch;
mod tasks;
mod timeouts;
mod told;
mod wake;

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // No path leads here: the verifier would refuse the loop.
    loop {}
}
