//! Connections within this machine, and such as look like those between two.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// The ends of a connection: the one that was made, and the one that was accepted.
pub type Ends = (TcpStream, TcpStream);

/// Of one by way of `address`, one of this machine's own.
pub fn near(address: &str) -> Ends {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let made = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    ends(made, &listener)
}

/// Of one between different addresses, as between machines, in a network of its own. Waits for no thread.
pub fn far() -> Ends {
    const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
    const THERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    let own = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    // SAFETY: no precondition.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "a new network");
    assign("lo", HERE);
    assign("lo:1", THERE);
    let listener = TcpListener::bind((THERE, 0)).unwrap();
    let made = connect(HERE, THERE, listener.local_addr().unwrap().port());
    let ends = ends(made, &listener);
    // SAFETY: a descriptor of a network.
    assert_eq!(unsafe { libc::setns(own.as_raw_fd(), libc::CLONE_NEWNET) }, 0, "back to the own network");
    ends
}

fn ends(made: TcpStream, listener: &TcpListener) -> Ends {
    let accepted = listener.accept().unwrap().0;
    made.set_nodelay(true).unwrap();
    accepted.set_nodelay(true).unwrap();
    (made, accepted)
}

fn socket_address(address: Ipv4Addr, port: u16) -> libc::sockaddr_in {
    // SAFETY: a structure of integers.
    let mut all: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    all.sin_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap();
    all.sin_port = port.to_be();
    all.sin_addr.s_addr = u32::from(address).to_be();
    all
}

/// A connection that does not come from the address that it goes to, which is what the kernel would choose.
fn connect(from: Ipv4Addr, to: Ipv4Addr, port: u16) -> TcpStream {
    let (from, to) = (socket_address(from, 0), socket_address(to, port));
    let length = libc::socklen_t::try_from(size_of_val(&from)).unwrap();
    // SAFETY: valid addresses; the descriptor is fresh and nobody else's.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let owned = OwnedFd::from_raw_fd(socket);
        assert_eq!(libc::bind(socket, (&raw const from).cast(), length), 0);
        assert_eq!(libc::connect(socket, (&raw const to).cast(), length), 0);
        owned.into()
    }
}

/// Gives the loopback interface an address under a name, and takes it up.
fn assign(name: &str, address: Ipv4Addr) {
    // SAFETY: a structure of integers, and the calls' arguments are valid; the descriptor is fresh and nobody else's.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *place = byte.cast_signed();
        }
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let _owned = OwnedFd::from_raw_fd(socket);
        (&raw mut request.ifr_ifru).cast::<libc::sockaddr_in>().write(socket_address(address, 0));
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFADDR, &raw const request), 0, "{name} is {address}");
        request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap();
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request), 0, "{name} is up");
    }
}
