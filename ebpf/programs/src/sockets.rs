//! Waits for sockets: for the network, for a request, or for a thread at the other end.

use warpmeter_ebpf_common::doing;

use crate::classify::read;
use crate::globals::{
    SOCK_BACKLOG, SOCK_FAMILY, SOCK_OWN, SOCK_OWN6, SOCK_PEER, SOCK_PEER6, SOCK_PROTOCOL, TCP_RECEIVED,
    TCP_SENT, WAKES_SEEN,
};

/// Families, of linux/socket.h.
const UNIX: u16 = 1;
const INET: u16 = 2;
const INET6: u16 = 10;
const VSOCK: u16 = 40;
const SMC: u16 = 43;

/// Of linux/in.h.
const TCP: u16 = 6;

/// A connection that was accepted, has brought more than this many bytes, and was never written to, brings no requests.
const FED: u64 = 65_536;

/// The class of a wait for a socket by the thread that runs, to write to it or to read. If wake-ups are followed, one for a
/// connection that was made to this machine itself is one for a thread, as that for a pipe is.
#[inline(always)]
pub fn class(sock: *const u8, writes: bool) -> u32 {
    if WAKES_SEEN.load() != 0 && is_local(sock) { doing::LOCK } else { far(sock, writes) }
}

/// The same whatever thread is at the other end.
///
/// A socket made by accepting keeps its listener's backlog (the kernel copies the listener); one made by connecting
/// never had any. Listening with a backlog of 0 hides it.
#[inline(always)]
pub fn far(sock: *const u8, writes: bool) -> u32 {
    match read::<u16>(sock, SOCK_FAMILY.load()) {
        UNIX => doing::LOCK,
        INET | INET6 | VSOCK | SMC => {
            // To write is to answer, and not to wait for what asks.
            if writes || !is_accepted(sock) || is_fed(sock) {
                doing::NETWORK
            } else {
                doing::REQUEST
            }
        }
        _ => doing::UNKNOWN,
    }
}

#[inline(always)]
fn is_accepted(sock: *const u8) -> bool {
    read::<u32>(sock, SOCK_BACKLOG.load()) != 0
}

#[inline(always)]
fn is_fed(sock: *const u8) -> bool {
    TCP_SENT.load() != 0
        && read::<u16>(sock, SOCK_PROTOCOL.load()) == TCP
        && read::<u64>(sock, TCP_SENT.load()) == 0
        && read::<u64>(sock, TCP_RECEIVED.load()) > FED
}

/// Whether a connection was made to a loopback address, or to its own. One that was accepted brings requests wherever they
/// come from: a server behind a proxy waits for them, and not for the proxy. A function of its own, for the size of the
/// programs.
#[inline(never)]
pub fn is_local(sock: *const u8) -> bool {
    if is_accepted(sock) {
        return false;
    }
    const LOOPBACK: u32 = 127;
    let first_byte = |address: u32| address & 0xff;
    match read::<u16>(sock, SOCK_FAMILY.load()) {
        INET if SOCK_OWN.load() != 0 => {
            let peer: u32 = read(sock, SOCK_PEER.load());
            first_byte(peer) == LOOPBACK || peer != 0 && peer == read(sock, SOCK_OWN.load())
        }
        INET6 if SOCK_OWN6.load() != 0 => {
            let half = |offset: u32, at: u32| read::<u64>(sock, offset + at);
            let (high, low) = (half(SOCK_PEER6.load(), 0), half(SOCK_PEER6.load(), 8));
            // Bytes are in the order of the network: ::1, and addresses of IPv4 as ::ffff:a.b.c.d.
            let one = high == 0 && low == 1 << 56;
            let mapped = high == 0 && low as u32 == 0xffff_0000 && first_byte((low >> 32) as u32) == LOOPBACK;
            let own = || half(SOCK_OWN6.load(), 0) == high && half(SOCK_OWN6.load(), 8) == low;
            one || mapped || (high | low) != 0 && own()
        }
        _ => false,
    }
}
