//! Threads of known behaviour. When time is up, a line says of each its id, its name and when it was made.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{now, tcp, tid};

static STOP: AtomicBool = AtomicBool::new(false);

fn goes_on() -> bool {
    !STOP.load(Ordering::Relaxed)
}

const MIB: usize = 1 << 20;
/// Size of the file that is read.
const FILE: usize = 64 * MIB;
/// Time between two bytes for those that wait for some.
const PERIOD: Duration = Duration::from_millis(4);

/// A page-aligned buffer.
fn buffer(size: usize) -> (Vec<u8>, usize) {
    let buffer = vec![7; size + 4096];
    let at = buffer.as_ptr().align_offset(4096);
    (buffer, at)
}

fn disk_read(path: &Path) {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let (mut buffer, at) = buffer(MIB);
    let mut offset = 0;
    while goes_on() {
        file.read_exact_at(&mut buffer[at..at + MIB], offset as u64).unwrap();
        offset = (offset + MIB) % FILE;
    }
}

/// Page faults on a file that is not in memory.
fn disk_fault(path: &Path) {
    let file = File::open(path).unwrap();
    while goes_on() {
        // SAFETY: a new mapping of a file that keeps its length; one byte of each page is read.
        unsafe {
            let null = std::ptr::null_mut();
            libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
            let all = libc::mmap(null, FILE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
            libc::madvise(all, FILE, libc::MADV_RANDOM);
            for page in (0..FILE).step_by(4096 * 37) {
                std::ptr::read_volatile(all.cast::<u8>().add(page));
            }
            libc::munmap(all, FILE);
        }
    }
}

fn disk_write(path: &Path) {
    let file = File::create(path).unwrap();
    let block = vec![7; 64 << 10];
    while goes_on() {
        file.write_all_at(&block, 0).unwrap();
        file.sync_all().unwrap();
    }
}

fn receive(mut from: impl std::io::Read) {
    let mut byte = [0];
    while goes_on() && from.read(&mut byte).is_ok_and(|n| n > 0) {}
}

fn poll(files: &mut [libc::pollfd], timeout: i32) {
    // SAFETY: the slice is valid.
    unsafe { libc::poll(files.as_mut_ptr(), libc::nfds_t::try_from(files.len()).unwrap(), timeout) };
}

fn epoll() {
    // SAFETY: no precondition.
    let set = unsafe { libc::epoll_create1(0) };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    while goes_on() {
        // SAFETY: one event fits.
        unsafe { libc::epoll_wait(set, &raw mut event, 1, 5) };
    }
}

fn spin() {
    let mut x = 1_u64;
    while goes_on() {
        for _ in 0..100_000 {
            x = std::hint::black_box(x.wrapping_mul(31));
        }
    }
}

/// Waits for a child of its own.
fn children() {
    while goes_on() {
        std::process::Command::new("/bin/sleep").arg("0.05").status().unwrap();
    }
}

/// Waits for a child of its own by a file that stands for it.
fn pidfd() {
    while goes_on() {
        let mut child = std::process::Command::new("/bin/sleep").arg("0.05").spawn().unwrap();
        // SAFETY: no precondition.
        let file = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        // SAFETY: a fresh descriptor, owned by nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(i32::try_from(file).unwrap()) };
        poll(&mut [libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 }], -1);
        child.wait().unwrap();
    }
}

/// A file that counts events, for whoever writes to it and whoever reads from it.
fn eventfd() -> File {
    // SAFETY: no precondition.
    let file = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    // SAFETY: a fresh descriptor, owned by nobody else.
    unsafe { File::from_raw_fd(file) }
}

/// A file that can be read once in a period.
fn timerfd() -> File {
    let period = libc::timespec { tv_sec: 0, tv_nsec: PERIOD.subsec_nanos().into() };
    let often = libc::itimerspec { it_interval: period, it_value: period };
    // SAFETY: no precondition.
    let file = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    // SAFETY: valid values; the old ones are not wanted.
    assert_eq!(unsafe { libc::timerfd_settime(file, 0, &raw const often, std::ptr::null_mut()) }, 0);
    // SAFETY: a fresh descriptor, owned by nobody else.
    unsafe { File::from_raw_fd(file) }
}

/// Reads the number of events, or of periods, since it was read last.
fn count(mut from: File) {
    let mut number = [0; 8];
    while goes_on() {
        from.read_exact(&mut number).unwrap();
    }
}

type Body = Box<dyn FnOnce() + Send>;

/// Runs all of them for so many seconds; `spinners` of them compete for CPUs.
pub fn run(seconds: f64, directory: &Path, spinners: u32) {
    let data = directory.join("data");
    let mut file = File::create(&data).unwrap();
    for _ in 0..FILE / MIB {
        file.write_all(&vec![7; MIB]).unwrap();
    }
    file.sync_all().unwrap();
    let written = directory.join("written");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (outbound, inbound) = tcp::far();
    let (mut feed_in, mut feed_out) = (outbound.try_clone().unwrap(), inbound.try_clone().unwrap());
    let (mut pipe_feed, pipe) = new_pipe();
    let (local, mut local_feed) = UnixStream::pair().unwrap();
    let events = eventfd();
    let mut event_feed = events.try_clone().unwrap();
    let lock = Arc::new(Mutex::new(()));
    let held = Arc::clone(&lock);

    let feeder = std::thread::spawn(move || {
        let quiet = |result: std::io::Result<()>| drop(result);
        while goes_on() {
            std::thread::sleep(PERIOD);
            quiet(feed_in.write_all(b"x"));
            quiet(feed_out.write_all(b"x"));
            quiet(pipe_feed.write_all(b"x"));
            quiet(local_feed.write_all(b"x"));
            quiet(event_feed.write_all(&1_u64.to_ne_bytes()));
            quiet(TcpStream::connect(address).map(drop));
        }
        let both = std::net::Shutdown::Both;
        drop(TcpStream::connect(address));
        quiet(feed_in.shutdown(both));
        quiet(feed_out.shutdown(both));
        quiet(local_feed.shutdown(both));
        quiet(event_feed.write_all(&1_u64.to_ne_bytes()));
    });
    let read_from = data.clone();
    let mut plan: Vec<(&str, Body)> = vec![
        ("disk_read", Box::new(move || disk_read(&read_from))),
        ("disk_fault", Box::new(move || disk_fault(&data))),
        ("disk_write", Box::new(move || disk_write(&written))),
        ("network", Box::new(move || receive(outbound))),
        ("request", Box::new(move || receive(inbound))),
        (
            "accept",
            Box::new(move || {
                while goes_on() {
                    drop(listener.accept());
                }
            }),
        ),
        ("pipe", Box::new(move || receive(pipe))),
        ("local", Box::new(move || receive(local))),
        (
            "holder",
            Box::new(move || {
                while goes_on() {
                    let guard = held.lock().unwrap();
                    std::thread::sleep(Duration::from_millis(8));
                    drop(guard);
                    std::thread::sleep(Duration::from_micros(300));
                }
            }),
        ),
        (
            "lock",
            Box::new(move || {
                while goes_on() {
                    drop(lock.lock().unwrap());
                }
            }),
        ),
        ("children", Box::new(children)),
        ("pidfd", Box::new(pidfd)),
        ("eventfd", Box::new(move || count(events))),
        ("timerfd", Box::new(|| count(timerfd()))),
        ("epoll", Box::new(epoll)),
        (
            "poll",
            Box::new(|| {
                let ends = new_pipe();
                let mut file = [libc::pollfd { fd: ends.1.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
                while goes_on() {
                    poll(&mut file, 5);
                }
            }),
        ),
        (
            "poll_nothing",
            Box::new(|| {
                while goes_on() {
                    poll(&mut [], 5);
                }
            }),
        ),
        (
            "sleep",
            Box::new(|| {
                while goes_on() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }),
        ),
    ];
    for _ in 0..spinners {
        plan.push(("spin", Box::new(spin)));
    }
    let threads: Vec<_> = plan
        .into_iter()
        .map(|(name, body)| {
            let made = now();
            std::thread::spawn(move || {
                body();
                (tid(), name, made)
            })
        })
        .collect();
    // The parent looks at the threads while they live.
    println!("running {}", threads.len());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    STOP.store(true, Ordering::Relaxed);
    feeder.join().unwrap();
    let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for (tid, name, made) in ended {
        println!("{tid} {name} {made}");
    }
}

/// A pipe: the end to write to, and the end to read from.
pub(crate) fn new_pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: fresh descriptors, owned by nobody else.
    unsafe { (File::from_raw_fd(ends[1]), File::from_raw_fd(ends[0])) }
}
