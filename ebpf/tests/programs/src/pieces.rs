//! Threads that receive a byte at a time: one does nothing with it, one works on it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::tid;

/// How long the second works on each byte.
const WORK: Duration = Duration::from_micros(300);

/// Receives for as long as standard input stays open; prints the threads first.
pub fn run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut senders = Vec::new();
    for (name, work) in [("takes", Duration::ZERO), ("works", WORK)] {
        let mut receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sender = listener.accept().unwrap().0;
        sender.set_nodelay(true).unwrap();
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
