//! The network side: a feeder that answers waiters, requests to a server, and a client that sends them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::programs::ProgramError;
use crate::stop::End;

/// Answers each request for a number of bytes after a delay, a thread per connection.
pub(crate) fn feed(address: SocketAddr, delay: Duration, seconds: f64) -> Result<(), ProgramError> {
    let end = End::after(seconds);
    let listener = bind(address)?;
    while !end.reached() {
        if let Ok((connection, _)) = listener.accept() {
            // A connection that fails ends alone.
            std::thread::spawn(move || drop(answer_all(connection, delay)));
        } else {
            end.sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

fn bind(address: SocketAddr) -> Result<TcpListener, ProgramError> {
    let fail = |e| ProgramError::Network(address, e);
    let listener = TcpListener::bind(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(listener)
}

fn answer_all(mut connection: TcpStream, delay: Duration) -> std::io::Result<()> {
    connection.set_nonblocking(false)?;
    let mut size = [0; 4];
    let mut data = Vec::new();
    loop {
        connection.read_exact(&mut size)?;
        data.resize(usize::try_from(u32::from_le_bytes(size)).unwrap_or(0), 1);
        std::thread::sleep(delay);
        connection.write_all(&data)?;
    }
}

/// Sends a request of one byte once a period, and waits for its answer.
pub(crate) fn ask_often(address: SocketAddr, period: Duration, seconds: f64) -> Result<(), ProgramError> {
    let end = End::after(seconds);
    let fail = |e| ProgramError::Network(address, e);
    let mut connection = TcpStream::connect(address).map_err(fail)?;
    let mut next = Instant::now();
    while !end.reached() {
        connection.write_all(b"?").map_err(fail)?;
        let answered = connection.read_exact(&mut [0]);
        if end.reached() {
            return Ok(());
        }
        answered.map_err(fail)?;
        next += period;
        end.sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// A server's requests: one client after the other.
pub(crate) struct Requests {
    address: SocketAddr,
    listener: TcpListener,
    connection: Option<TcpStream>,
    waited: Duration,
}

impl Requests {
    /// Takes requests at `address`.
    pub(crate) fn listen(address: SocketAddr) -> Result<Self, ProgramError> {
        Ok(Self { address, listener: bind(address)?, connection: None, waited: Duration::ZERO })
    }

    /// Waits for a request, in a read of the connection; false at the end.
    pub(crate) fn next(&mut self, end: End) -> Result<bool, ProgramError> {
        let start = Instant::now();
        let found = self.wait(end);
        self.waited += start.elapsed();
        found.map_err(|e| ProgramError::Network(self.address, e))
    }

    fn wait(&mut self, end: End) -> std::io::Result<bool> {
        while !end.reached() {
            let Some(connection) = &mut self.connection else {
                if let Ok((connection, _)) = self.listener.accept() {
                    connection.set_nonblocking(false)?;
                    connection.set_read_timeout(Some(Duration::from_millis(200)))?;
                    self.connection = Some(connection);
                } else {
                    end.sleep(Duration::from_millis(10));
                }
                continue;
            };
            match connection.read(&mut [0]) {
                Ok(1) => return Ok(true),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => self.connection = None,
            }
        }
        Ok(false)
    }

    /// Answers the request. A client that left needs no answer.
    pub(crate) fn answer(&mut self) {
        if self.connection.as_mut().is_some_and(|c| c.write_all(b"!").is_err()) {
            self.connection = None;
        }
    }

    /// Time spent waiting for requests.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }
}
