//! A thread that waits for others, by each means that they have to wake it, and what those do meanwhile.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use crate::behave::new_pipe;
use crate::{cpu_time, now, tcp, tid};

/// How often each thing is waited for, where the machine is not emulated.
const ROUNDS: u64 = 40;

/// How much longer everything is done, and how much less often, where system calls take as long as work does.
fn slowness() -> u64 {
    std::env::var("SLOWNESS").map_or(1, |text| text.parse::<u64>().unwrap().clamp(1, 10))
}

/// How often each thing is waited for.
pub fn rounds() -> u64 {
    ROUNDS / slowness()
}

/// So many milliseconds, as long as the machine needs for them.
pub fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count * slowness())
}

/// What workers did, in nanoseconds: computing, and waiting for the far end. Shared with processes that are forked.
struct Account([AtomicU64; 2]);

impl Account {
    fn shared() -> &'static Self {
        static SHARED: OnceLock<&'static Account> = OnceLock::new();
        SHARED.get_or_init(|| {
            let (all, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            // SAFETY: new zeroed memory, larger than the account, that is never unmapped.
            unsafe {
                &*libc::mmap(std::ptr::null_mut(), size_of::<Self>(), all, shared, -1, 0).cast::<Self>()
            }
        })
    }
}

/// Computes for so many milliseconds of this thread's own time.
pub fn compute(milliseconds: u64) {
    let began = cpu_time();
    let until = began + u64::try_from(self::milliseconds(milliseconds).as_nanos()).unwrap();
    while cpu_time() < until {
        std::hint::black_box(0);
    }
    Account::shared().0[0].fetch_add(cpu_time() - began, Ordering::Relaxed);
}

/// A peer that answers after a while. Waiting for it is waiting for the network.
struct Far {
    near: TcpStream,
}

impl Far {
    fn new(milliseconds: u64) -> Self {
        let (near, mut far) = tcp::far();
        std::thread::spawn(move || {
            let mut byte = [0];
            while far.read_exact(&mut byte).is_ok() {
                std::thread::sleep(self::milliseconds(milliseconds));
                if far.write_all(&byte).is_err() {
                    return;
                }
            }
        });
        Self { near }
    }

    fn ask(&mut self) {
        let mut byte = [0];
        let began = now();
        self.near.write_all(&byte).unwrap();
        self.near.read_exact(&mut byte).unwrap();
        Account::shared().0[1].fetch_add(now() - began, Ordering::Relaxed);
    }
}

/// A worker in a process of its own that does `work` for each byte and answers with one.
fn process(mut work: impl FnMut()) -> (File, File) {
    let ((to, mut orders), (mut answers, from)) = (new_pipe(), new_pipe());
    // SAFETY: the child uses only what it has made itself and what it was given; it ends without unwinding.
    if unsafe { libc::fork() } == 0 {
        drop((to, from));
        let mut byte = [0];
        while orders.read_exact(&mut byte).is_ok() {
            work();
            if answers.write_all(&byte).is_err() {
                break;
            }
        }
        // SAFETY: no precondition.
        unsafe { libc::_exit(0) };
    }
    (to, from)
}

/// A process that does `work` and ends.
fn ending(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child uses only what it has made itself and what it was given; it ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        work();
        // SAFETY: no precondition.
        unsafe { libc::_exit(0) };
    }
    child
}

/// Waits for a process to end.
fn reap(child: libc::pid_t) {
    // SAFETY: no status is wanted.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
}

/// This program, as one that computes for so many milliseconds and ends.
fn computing(milliseconds: u64) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["compute", &milliseconds.to_string()]);
    program
}

/// Adds the time on a CPU of programs that have ended.
fn account_for_programs() {
    // SAFETY: a structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    for time in [usage.ru_utime, usage.ru_stime] {
        let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_usec * 1000;
        Account::shared().0[0].fetch_add(u64::try_from(nanoseconds).unwrap(), Ordering::Relaxed);
    }
}

/// A worker thread that does `work` for each message and answers with one.
fn thread(mut work: impl FnMut() + Send + 'static) -> (Sender<()>, Receiver<()>) {
    let ((to, orders), (answers, from)) = (channel(), channel());
    std::thread::spawn(move || {
        while orders.recv().is_ok() {
            work();
            if answers.send(()).is_err() {
                return;
            }
        }
    });
    (to, from)
}

/// Waits so often for a file, if it is one, or for so many milliseconds, if they are not negative.
fn epoll_wait(file: i32, timeout: i32, rounds: u64, mut between: impl FnMut()) {
    // SAFETY: descriptors that live, and events that fit.
    unsafe {
        let set = libc::epoll_create1(0);
        let mut event = libc::epoll_event { events: 1, u64: 0 };
        if file >= 0 {
            libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, file, &raw mut event);
        }
        for _ in 0..rounds {
            libc::epoll_wait(set, &raw mut event, 1, timeout);
            between();
        }
        libc::close(set);
    }
}

/// The same until the file is ready, with a timeout of so many milliseconds.
fn epoll_wait_with_timeouts(file: i32, milliseconds: u64) {
    let timeout = i32::try_from(self::milliseconds(milliseconds).as_millis()).unwrap();
    // SAFETY: descriptors that live, and events that fit.
    unsafe {
        let set = libc::epoll_create1(0);
        let mut event = libc::epoll_event { events: 1, u64: 0 };
        libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, file, &raw mut event);
        while libc::epoll_wait(set, &raw mut event, 1, timeout) == 0 {}
        libc::close(set);
    }
}

/// Does what `name` says, tells how long that took, and stays.
pub fn run(name: &str) {
    let account = Account::shared();
    println!("sleeper {}", tid());
    let (began, on_cpu) = (now(), cpu_time());
    let mut byte = [0];
    let wait = i32::try_from(milliseconds(4).as_millis()).unwrap();
    match name {
        "computing-process" => {
            let (mut to, mut from) = process(|| compute(8));
            for _ in 0..rounds() {
                to.write_all(&byte).unwrap();
                from.read_exact(&mut byte).unwrap();
            }
        }
        "reading-then-computing-thread" => {
            let mut far = Far::new(12);
            let (to, from) = thread(move || {
                far.ask();
                compute(6);
            });
            for _ in 0..rounds() {
                to.send(()).unwrap();
                from.recv().unwrap();
            }
        }
        // As a data loader does: a process reads, a thread of ours takes it, we wait for that thread.
        "process-behind-thread" => {
            let (mut to, mut from) = process({
                let mut far = None;
                move || far.get_or_insert_with(|| Far::new(15)).ask()
            });
            let (ask, got) = thread(move || {
                let mut byte = [0];
                to.write_all(&byte).unwrap();
                from.read_exact(&mut byte).unwrap();
            });
            for _ in 0..rounds() {
                ask.send(()).unwrap();
                got.recv().unwrap();
            }
        }
        // What we wait for was begun long before: the end of it is not like the whole.
        "reading-ahead" => {
            let mut far = Far::new(12);
            let (mut from, mut orders) = new_pipe();
            std::thread::spawn(move || {
                for _ in 0..rounds() {
                    far.ask();
                    compute(6);
                    Account::shared().0[0].store(cpu_time(), Ordering::Relaxed);
                    from.write_all(&[0]).unwrap();
                }
            });
            for _ in 0..rounds() {
                std::thread::sleep(milliseconds(9));
                orders.read_exact(&mut byte).unwrap();
            }
        }
        // What the holder did before it had the lock held nobody up.
        "lock-held-while-asking" => {
            let pair = Arc::new((Mutex::new(()), AtomicBool::new(false)));
            let other = Arc::clone(&pair);
            let mut far = Far::new(12);
            std::thread::spawn(move || {
                loop {
                    compute(18);
                    let held = other.0.lock().unwrap();
                    other.1.store(true, Ordering::SeqCst);
                    far.ask();
                    drop(held);
                }
            });
            for _ in 0..rounds() {
                while !pair.1.swap(false, Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_micros(200));
                }
                drop(pair.0.lock().unwrap());
            }
        }
        // Who ends wakes those that wait for its end.
        "process-until-it-ends" => {
            let mut far = Far::new(12);
            for _ in 0..rounds() {
                reap(ending(|| {
                    far.ask();
                    compute(6);
                }));
            }
        }
        // It takes longer than points in time reach back.
        "long-process-until-it-ends" => {
            let mut far = Far::new(600);
            reap(ending(|| {
                far.ask();
                compute(500);
            }));
        }
        "thread-until-it-ends" => {
            for _ in 0..rounds() {
                std::thread::spawn(|| compute(8)).join().unwrap();
            }
        }
        // Its files are closed when it ends, and not before.
        "output-until-its-end" => {
            let mut far = Far::new(12);
            for _ in 0..rounds() {
                let (to, mut from) = new_pipe();
                let child = ending(|| {
                    far.ask();
                    compute(6);
                });
                drop(to);
                assert_eq!(from.read(&mut byte).unwrap(), 0);
                reap(child);
            }
        }
        "program-per-batch" => {
            for _ in 0..rounds() {
                assert!(computing(8).status().unwrap().success());
            }
            account_for_programs();
        }
        // What it did as another program is not what it does as this one.
        "program-after-another" => {
            for _ in 0..rounds() {
                let mut program = computing(8);
                // SAFETY: the child computes, and sleeps a moment, so that its past is kept.
                unsafe {
                    program.pre_exec(|| {
                        compute(12);
                        std::thread::sleep(milliseconds(1));
                        Ok(())
                    });
                }
                assert!(program.status().unwrap().success());
            }
            account_for_programs();
        }
        "two-kinds-in-turn" => {
            let mut far = Far::new(12);
            let (to_far, from_far) = thread(move || far.ask());
            let (to_near, from_near) = thread(|| compute(6));
            for _ in 0..rounds() {
                to_far.send(()).unwrap();
                from_far.recv().unwrap();
                to_near.send(()).unwrap();
                from_near.recv().unwrap();
            }
        }
        "behind-a-sleeper" => {
            let (to, from) = thread(|| std::thread::sleep(milliseconds(8)));
            for _ in 0..rounds() {
                to.send(()).unwrap();
                from.recv().unwrap();
            }
        }
        // A wait that is cut by timeouts goes on.
        "lock-with-timeouts" => {
            let pair = Arc::new((Mutex::new(false), Condvar::new()));
            let other = Arc::clone(&pair);
            let (to, _from) = thread(move || {
                compute(18);
                *other.0.lock().unwrap() = true;
                other.1.notify_one();
            });
            for _ in 0..rounds() {
                to.send(()).unwrap();
                let mut done = pair.0.lock().unwrap();
                while !*done {
                    done = pair.1.wait_timeout(done, Duration::from_millis(5)).unwrap().0;
                }
                *done = false;
            }
        }
        "local-socket" => {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            std::thread::spawn(move || {
                let mut byte = [0];
                while far.read_exact(&mut byte).is_ok() {
                    compute(8);
                    far.write_all(&byte).unwrap();
                }
            });
            for _ in 0..rounds() {
                near.write_all(&byte).unwrap();
                epoll_wait(near.as_raw_fd(), -1, 1, || near.read_exact(&mut byte).unwrap());
            }
        }
        "socket-made" | "socket-accepted" | "socket-made-with-timeouts" | "socket-accepted-with-timeouts" => {
            let (made, accepted) = tcp::far();
            let (mut near, mut far) =
                if name.starts_with("socket-made") { (made, accepted) } else { (accepted, made) };
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(milliseconds(8));
                    if far.write_all(&[0]).is_err() {
                        return;
                    }
                }
            });
            if name.ends_with("timeouts") {
                for _ in 0..rounds() {
                    epoll_wait_with_timeouts(near.as_raw_fd(), 5);
                    near.read_exact(&mut byte).unwrap();
                }
            } else {
                epoll_wait(near.as_raw_fd(), -1, rounds(), || near.read_exact(&mut byte).unwrap());
            }
        }
        // What is accepted and never answered brings data, and no requests.
        "fed" => {
            let (mut made, mut accepted) = tcp::far();
            let mut piece = vec![0; 1 << 17];
            let sent = piece.clone();
            std::thread::spawn(move || {
                // The first comes at once: until it is there, nobody can tell what this is.
                while made.write_all(&sent).is_ok() {
                    std::thread::sleep(milliseconds(8));
                }
            });
            for _ in 0..rounds() {
                accepted.read_exact(&mut piece).unwrap();
            }
        }
        // A timeout that fires while some other thread moves data is nobody's doing.
        "polled-beside-movers" => {
            let (mut to, mut from) = process(|| std::thread::sleep(milliseconds(16)));
            for _ in 0..3 {
                std::thread::spawn(|| {
                    let mut zeroes = File::open("/dev/zero").unwrap();
                    let mut buffer = vec![0; 1 << 16];
                    while zeroes.read_exact(&mut buffer).is_ok() {}
                });
            }
            for _ in 0..rounds() {
                to.write_all(&byte).unwrap();
                let mut file = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one structure.
                while unsafe { libc::poll(&raw mut file, 1, wait) } == 0 {}
                from.read_exact(&mut byte).unwrap();
            }
        }
        // Who asks a server within the machine is asked by nobody else: it waits for requests, rare ones too.
        "asked-within" | "asked-within-rarely" => {
            let (made, mut accepted) = tcp::near("127.0.0.1");
            let (mut made, pause) = (made, if name.ends_with("rarely") { 300 } else { 8 });
            let asked = if pause > 8 { 3 } else { rounds() };
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(milliseconds(pause));
                    if made.write_all(&[0]).is_err() {
                        return;
                    }
                }
            });
            for _ in 0..asked {
                accepted.read_exact(&mut byte).unwrap();
            }
        }
        // An answer that nobody takes in: who writes it waits for the network, by itself or by `poll`.
        "answer-not-taken" | "answer-not-taken-polled" => {
            let (mut made, mut accepted) = tcp::far();
            std::thread::spawn(move || {
                let mut piece = vec![0; 1 << 18];
                loop {
                    std::thread::sleep(milliseconds(8));
                    made.read_exact(&mut piece).unwrap();
                }
            });
            accepted.set_nonblocking(name.ends_with("polled")).unwrap();
            let piece = vec![0; 1 << 20];
            for _ in 0..rounds() / 4 + 8 {
                let mut sent = 0;
                while sent < piece.len() {
                    if let Ok(count) = accepted.write(&piece[sent..]) {
                        sent += count;
                    } else {
                        let fd = accepted.as_raw_fd();
                        let mut file = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
                        // SAFETY: one structure.
                        unsafe { libc::poll(&raw mut file, 1, -1) };
                    }
                }
            }
        }
        // Connections that are made within the machine are like pipes.
        "connection-made" | "connection-ipv6" | "connection-polled" => {
            let (mut near, mut other) = tcp::near(if name.ends_with("ipv6") { "::1" } else { "127.0.0.1" });
            // SAFETY: the child uses only what it has made itself and what it was given; it ends without unwinding.
            if unsafe { libc::fork() } == 0 {
                drop(near);
                let mut far = Far::new(12);
                while other.read_exact(&mut byte).is_ok() {
                    far.ask();
                    compute(6);
                    if other.write_all(&byte).is_err() {
                        break;
                    }
                }
                // SAFETY: no precondition.
                unsafe { libc::_exit(0) };
            }
            drop(other);
            for _ in 0..rounds() {
                near.write_all(&byte).unwrap();
                if name == "connection-polled" {
                    epoll_wait(near.as_raw_fd(), -1, 1, || {});
                }
                near.read_exact(&mut byte).unwrap();
            }
        }
        // A loop with something to do now and then waits for one that works.
        "loop-with-timeouts" => {
            let mut far = Far::new(12);
            let (mut to, mut from) = process(move || {
                far.ask();
                compute(6);
            });
            for _ in 0..rounds() {
                to.write_all(&byte).unwrap();
                epoll_wait_with_timeouts(from.as_raw_fd(), 7);
                from.read_exact(&mut byte).unwrap();
            }
        }
        // One that has nothing to do until its timer says so, and then waits for one that works.
        "timer-then-loop-with-timeouts" => {
            let (mut to, mut from) = process(|| compute(12));
            for _ in 0..rounds() {
                epoll_wait(from.as_raw_fd(), wait, 4, || {});
                let slept = u64::try_from(milliseconds(4 * 4).as_nanos()).unwrap();
                account.0[1].fetch_add(slept, Ordering::Relaxed);
                to.write_all(&byte).unwrap();
                epoll_wait_with_timeouts(from.as_raw_fd(), 7);
                from.read_exact(&mut byte).unwrap();
            }
        }
        // One that has waited for work so far: what it waits for now is not known yet.
        "loop-that-goes-on" => {
            let (mut to, mut from) = process(|| compute(12));
            for _ in 0..rounds() {
                to.write_all(&byte).unwrap();
                epoll_wait_with_timeouts(from.as_raw_fd(), 7);
                from.read_exact(&mut byte).unwrap();
            }
            epoll_wait(from.as_raw_fd(), wait, 3 * rounds(), || {});
            let waited = u64::try_from(milliseconds(4 * 3 * rounds()).as_nanos()).unwrap();
            account.0[1].fetch_add(waited, Ordering::Relaxed);
        }
        "timeouts-alone" => epoll_wait(new_pipe().1.as_raw_fd(), wait, rounds(), || {}),
        "nothing" => epoll_wait(-1, wait, rounds(), || {}),
        // Bytes come from a process that nobody follows.
        "stranger" => {
            for _ in 0..rounds() {
                std::io::stdin().read_exact(&mut byte).unwrap();
            }
        }
        // The same with timeouts, and after each byte a short wait for one who had nothing to do with it.
        "stranger-after-timeouts" => {
            let (to, from) = thread(|| compute(1));
            let timeout = i32::try_from(milliseconds(11).as_millis()).unwrap();
            for _ in 0..rounds() {
                let mut file = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
                // SAFETY: one structure.
                while unsafe { libc::poll(&raw mut file, 1, timeout) } == 0 {}
                // SAFETY: room for the byte.
                unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
                to.send(()).unwrap();
                from.recv().unwrap();
            }
        }
        other => panic!("no chain is called {other}"),
    }
    println!("own {}", cpu_time() - on_cpu);
    println!("computed {}", account.0[0].load(Ordering::Relaxed));
    println!("asked {}", account.0[1].load(Ordering::Relaxed));
    println!("took {}", now() - began);
    // Until the parent has looked.
    drop(std::io::stdin().read_exact(&mut byte));
}
