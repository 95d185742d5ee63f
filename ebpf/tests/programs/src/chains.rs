//! A thread that waits for others, by each means that they have to wake it, and what those do meanwhile.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::behave::new_pipe;
use crate::{cpu_time, now, tid};

/// How often each thing is waited for.
const ROUNDS: u32 = 40;

/// Computes for so many milliseconds of this thread's own time.
fn compute(milliseconds: u64) {
    let until = cpu_time() + milliseconds * 1_000_000;
    while cpu_time() < until {
        std::hint::black_box(0);
    }
}

/// A peer that answers after a while. Waiting for it is waiting for the network.
struct Far {
    near: TcpStream,
}

impl Far {
    fn new(milliseconds: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nodelay(true).unwrap();
        std::thread::spawn(move || {
            let (mut far, _) = listener.accept().unwrap();
            far.set_nodelay(true).unwrap();
            let mut byte = [0];
            while far.read_exact(&mut byte).is_ok() {
                std::thread::sleep(Duration::from_millis(milliseconds));
                if far.write_all(&byte).is_err() {
                    return;
                }
            }
        });
        Self { near }
    }

    fn ask(&mut self) {
        let mut byte = [0];
        self.near.write_all(&byte).unwrap();
        self.near.read_exact(&mut byte).unwrap();
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

fn epoll_wait(file: i32, timeout: i32, rounds: u32, mut between: impl FnMut()) {
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
    }
}

/// Does what `name` says, tells how long that took, and stays.
pub fn run(name: &str) {
    println!("sleeper {}", tid());
    let began = now();
    let mut byte = [0];
    match name {
        "computing-process" => {
            let (mut to, mut from) = process(|| compute(8));
            for _ in 0..ROUNDS {
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
            for _ in 0..ROUNDS {
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
            for _ in 0..ROUNDS {
                ask.send(()).unwrap();
                got.recv().unwrap();
            }
        }
        "two-kinds-in-turn" => {
            let mut far = Far::new(12);
            let (to_far, from_far) = thread(move || far.ask());
            let (to_near, from_near) = thread(|| compute(6));
            for _ in 0..ROUNDS {
                to_far.send(()).unwrap();
                from_far.recv().unwrap();
                to_near.send(()).unwrap();
                from_near.recv().unwrap();
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
            for _ in 0..ROUNDS {
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
            for _ in 0..ROUNDS {
                near.write_all(&byte).unwrap();
                epoll_wait(near.as_raw_fd(), -1, 1, || near.read_exact(&mut byte).unwrap());
            }
        }
        "socket-made" | "socket-accepted" => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let made = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let accepted = listener.accept().unwrap().0;
            let (mut near, mut far) = if name == "socket-made" { (made, accepted) } else { (accepted, made) };
            far.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(Duration::from_millis(8));
                    if far.write_all(&[0]).is_err() {
                        return;
                    }
                }
            });
            epoll_wait(near.as_raw_fd(), -1, ROUNDS, || near.read_exact(&mut byte).unwrap());
        }
        "nothing" => epoll_wait(-1, 8, ROUNDS, || {}),
        // Bytes come from a process that nobody follows.
        "stranger" => {
            for _ in 0..ROUNDS {
                std::io::stdin().read_exact(&mut byte).unwrap();
            }
        }
        other => panic!("no chain is called {other}"),
    }
    println!("took {}", now() - began);
    // Until the parent has looked.
    drop(std::io::stdin().read_exact(&mut byte));
}
