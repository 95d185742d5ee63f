//! Threads that receive a byte at a time: one does nothing with it, one works on it, and one does so for a short while, but
//! waits longer for a CPU than for the byte.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::behave::new_pipe;
use crate::bench::{pin, pin_to};
use crate::{tcp, tid};

/// How long the second works on each byte.
const WORK: Duration = Duration::from_micros(300);

/// Receives for as long as standard input stays open; prints the threads first.
pub fn run() {
    let mut senders = Vec::new();
    for (name, work) in [("takes", Duration::ZERO), ("works", WORK)] {
        let (mut receiver, sender) = tcp::far();
        senders.push(sender);
        std::thread::spawn(move || {
            println!("{name} {}", tid());
            let mut byte = [0];
            while receiver.read(&mut byte).is_ok_and(|count| count > 0) {
                let begun = Instant::now();
                while begun.elapsed() < work {}
            }
        });
    }
    let open = std::thread::spawn(|| std::io::stdin().read(&mut [0]));
    while !open.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
        for sender in &mut senders {
            sender.write_all(b"x").unwrap();
        }
    }
}

/// How long the one works on each byte that waits for a CPU.
const SHORT: Duration = Duration::from_micros(40);

/// The same for a thread that gets the CPU late which it shares with one that computes.
pub fn run_crowded() {
    let (mut receiver, mut sender) = tcp::far();
    let (mut order, mut orders) = new_pipe();
    // Whoever runs the test may run it when nothing else has to.
    be(libc::SCHED_OTHER, 0);
    std::thread::spawn(compete);
    std::thread::spawn(move || {
        // It answers at once, whatever else there is to do.
        pin_to(0);
        be(libc::SCHED_FIFO, 1);
        let mut byte = [0];
        while orders.read_exact(&mut byte).is_ok() && sender.write_all(&byte).is_ok() {}
    });
    std::thread::spawn(move || {
        pin();
        // It is not to take the CPU away from the other when its byte comes.
        be(libc::SCHED_BATCH, 0);
        println!("works {}", tid());
        let mut byte = [0];
        while order.write_all(&byte).is_ok() && receiver.read_exact(&mut byte).is_ok() {
            let begun = Instant::now();
            while begun.elapsed() < SHORT {}
        }
    });
    drop(std::io::stdin().read(&mut [0]));
}

/// Has this thread scheduled so.
fn be(policy: i32, priority: i32) {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: valid values, of this thread.
    assert_eq!(unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) }, 0);
}

fn compete() {
    pin();
    loop {
        std::hint::black_box(0);
    }
}
