//! Latency of scrapes over loopback: `cargo run --release -p warpmeter-exporter --example scrape [seconds]`.
//!
//! The node is that of `benches/encode.rs`, with a new page every second, as the daemon makes it. Scrapers keep
//! their connections open. *Busy* scrapers ask again at once: what the server can bear. *Paced* ones ask once a
//! second, spread evenly over it: fifteen times what Prometheus usually does.
#![allow(clippy::print_stdout, reason = "the table is what it is for")]

#[path = "../benches/load/mod.rs"]
mod load;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpmeter_exporter::catalogue::Level;
use warpmeter_exporter::heartbeat::Heartbeat;
use warpmeter_exporter::http::{Guard, serve};
use warpmeter_exporter::page::Publisher;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |seconds| seconds.parse::<u64>())?.clamp(1, 60);
    let (address, stop) = start()?;
    println!("| scrapers | pace | encoding | bytes | scrapes | p50 ms | p99 ms | max ms |");
    println!("|---:|---|---|---:|---:|---:|---:|---:|");
    for (scrapers, pace) in [(1, None), (100, None), (1, Some(50)), (100, Some(1000))] {
        for encoding in ["identity", "gzip"] {
            let pace = pace.map(Duration::from_millis);
            let (bytes, mut times) =
                load_with(address, scrapers, pace, encoding, Duration::from_secs(seconds))?;
            times.sort_unstable();
            let at = |per_mille: usize| millis(times[(times.len() - 1) * per_mille / 1000]);
            let pace = pace.map_or("busy".to_owned(), |pace| format!("every {} ms", pace.as_millis()));
            let (p50, p99, max) = (at(500), at(990), at(1000));
            println!(
                "| {scrapers} | {pace} | {encoding} | {bytes} | {} | {p50} | {p99} | {max} |",
                times.len()
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    Ok(())
}

fn millis(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

/// The server on one thread and the maker of pages on another.
fn start() -> Result<(SocketAddr, Arc<AtomicBool>), Error> {
    let (mut publisher, pages) = Publisher::new(Level::Standard, None, Vec::new());
    publisher.publish(Arc::new(load::view(0)), Vec::new());
    let (heartbeat, stop) = (Heartbeat::start(), Arc::new(AtomicBool::new(false)));
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let beat = heartbeat.clone();
    let stopped = Arc::clone(&stop);
    std::thread::spawn(move || {
        for window in 1.. {
            std::thread::sleep(Duration::from_secs(1));
            publisher.publish(Arc::new(load::view(window)), Vec::new());
            beat.beat();
            if stopped.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    std::thread::spawn(move || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            serve(listener, pages, heartbeat, Guard::none(), std::future::pending()).await;
            Ok(())
        })
    });
    Ok((address, stop))
}

/// Scrapes for `time`; gives the size of an answer and the latencies.
fn load_with(
    address: SocketAddr,
    scrapers: u32,
    pace: Option<Duration>,
    encoding: &str,
    time: Duration,
) -> Result<(usize, Vec<Duration>), Error> {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: bench\r\nAccept-Encoding: {encoding}\r\n\r\n");
    let start = Instant::now() + Duration::from_millis(50);
    let threads: Vec<_> = (0..scrapers)
        .map(|number| {
            let request = request.clone();
            let offset = pace.map_or(Duration::ZERO, |pace| pace * number / scrapers);
            std::thread::spawn(move || scrape(address, &request, start + offset, pace, start + time))
        })
        .collect();
    let (mut bytes, mut times) = (0, Vec::new());
    for thread in threads {
        let (size, taken) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        bytes = size;
        times.extend(taken);
    }
    Ok((bytes, times))
}

fn scrape(
    address: SocketAddr,
    request: &str,
    start: Instant,
    pace: Option<Duration>,
    end: Instant,
) -> io::Result<(usize, Vec<Duration>)> {
    let mut stream = BufReader::with_capacity(64 << 10, TcpStream::connect(address)?);
    let (mut due, mut times, mut body) = (start, Vec::new(), Vec::new());
    while due < end {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let asked = Instant::now();
        stream.get_mut().write_all(request.as_bytes())?;
        let length = head(&mut stream)?;
        body.resize(length, 0);
        stream.read_exact(&mut body)?;
        times.push(asked.elapsed());
        due = pace.map_or_else(Instant::now, |pace| due + pace);
    }
    Ok((body.len(), times))
}

/// Reads an answer's head; gives the length of its body.
fn head(stream: &mut impl BufRead) -> io::Result<usize> {
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().map_err(io::Error::other)?;
            }
            Some(_) => {}
            None if line.starts_with("HTTP/1.1 200") => {}
            None if line == "\r\n" => return Ok(length),
            None => return Err(io::Error::other(format!("unexpected answer: {line}"))),
        }
    }
}
