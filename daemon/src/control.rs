//! The local socket on which a running daemon is told to let go of the driver, and asked where a pod's figures come from.
//!
//! One line in: `release [DURATION]`, `resume` or `explain POD`. What comes back begins with `ok: ` or `error: `; only an
//! explanation has several lines. Only the socket's owner may connect.

mod socket;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::pause;
use crate::nvidia::Gate;

use socket::Socket;

/// Where the socket is unless the configuration says otherwise.
pub const SOCKET: &str = "/run/warpmeter/control.sock";

/// How often a daemon that has no socket tries again.
const RETRY: Duration = Duration::from_secs(2);

/// The shortest time that a release may be for.
const SHORTEST: Duration = Duration::from_millis(1);

/// How long a release waits for the driver to be let go of.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest line that is read, in bytes: `explain` with a namespace and a pod's name, 63 and 253 at most.
const LONGEST_LINE: u64 = 512;

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: u64 = 1 << 16;

/// Explains a pod: the words, or why there are none.
pub type Explain<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Why the daemon could not be told, or did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens there.
    #[error("talk to the daemon at {path}: {source}; is it running, and with this [control] socket?")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It answered that it could not.
    #[error("the daemon says: {0}")]
    Refused(String),
}

/// Listens on `path` and obeys until `stop` is set. While another daemon has the socket, or it cannot be had, it is
/// tried again; a socket that somebody removed is made anew.
pub fn keep(path: &Path, gate: &Gate, explain: Explain<'_>, stop: &AtomicBool) {
    keep_trying(path, gate, explain, stop, RETRY);
}

fn keep_trying(path: &Path, gate: &Gate, explain: Explain<'_>, stop: &AtomicBool, retry: Duration) {
    let mut told: Option<String> = None;
    while !stop.load(Ordering::Relaxed) {
        match Socket::listen(path) {
            Ok(socket) => {
                if told.take().is_some() {
                    tracing::info!(path = %path.display(), "the control socket is taken up");
                }
                serve(&socket, gate, explain, stop);
                drop(socket);
                pause(retry, stop);
            }
            Err(error) => {
                let error = error.to_string();
                if told.as_ref() != Some(&error) {
                    tracing::warn!(
                        path = %path.display(), %error,
                        "no control socket, which is tried again: until then SIGUSR1 releases the driver, SIGUSR2 \
                         resumes"
                    );
                    told = Some(error);
                }
                pause(retry, stop);
            }
        }
    }
}

/// Serves until `stop` is set, or until the socket's file is no longer this one.
fn serve(socket: &Socket, gate: &Gate, explain: Explain<'_>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) && socket.is_there() {
        match socket.accept() {
            Some(stream) => {
                if let Err(error) = answer(stream, gate, explain) {
                    tracing::debug!(%error, "a control connection");
                }
            }
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: UnixStream, gate: &Gate, explain: Explain<'_>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let mut line = String::new();
    BufReader::new(Read::take(&stream, LONGEST_LINE)).read_line(&mut line)?;
    let reply = obey(line.trim(), gate, explain);
    stream.write_all(format!("{reply}\n").as_bytes())
}

fn obey(line: &str, gate: &Gate, explain: Explain<'_>) -> String {
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("resume"), None, None) => {
            gate.resume();
            tracing::info!("resumed: the driver is taken up again");
            "ok: the driver is taken up again".into()
        }
        (Some("release"), duration, None) => {
            let duration = match duration.map(span).transpose() {
                Ok(duration) => duration,
                Err(problem) => return format!("error: release: {problem}"),
            };
            tracing::info!(?duration, "released: the driver is let go of");
            if gate.release(duration, PATIENCE) {
                "ok: no process of the daemon has the driver open".into()
            } else {
                "error: a call to the driver does not return; its process cannot be ended before it does"
                    .into()
            }
        }
        (Some("explain"), Some(pod), None) => match explain(pod) {
            Ok(words) => format!("ok: {words}"),
            Err(why) => format!("error: {why}"),
        },
        _ => format!("error: {line:?} is none of `release [DURATION]`, `resume`, `explain POD`"),
    }
}

/// The time that a release is for, such as `90s`. Less than a millisecond would be none.
pub fn span(text: &str) -> Result<Duration, String> {
    let wanted = "wants a duration of 1ms or more such as 90s";
    let span =
        humantime::parse_duration(text).map_err(|error| format!("{wanted}, got {text:?} ({error})"))?;
    if span < SHORTEST { Err(format!("{wanted}, got {text:?}")) } else { Ok(span) }
}

/// The command that lets go of the driver: for good, or for a while.
pub fn release(span: Option<Duration>) -> String {
    // Without a space, and exact.
    span.map_or_else(
        || "release".into(),
        |span| format!("release {}s{}ns", span.as_secs(), span.subsec_nanos()),
    )
}

/// Tells the daemon at `path` one command, and gives its answer.
pub fn tell(path: &Path, command: &str) -> Result<String, ControlError> {
    let failed = |source| ControlError::Connect { path: path.to_owned(), source };
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE + Duration::from_secs(2))).map_err(failed)?;
    stream.write_all(format!("{command}\n").as_bytes()).map_err(failed)?;
    let mut reply = Vec::new();
    match Read::take(&stream, LONGEST_ANSWER).read_to_end(&mut reply) {
        // A daemon that did not read all of a long line resets the connection behind its answer.
        Err(error) if reply.is_empty() => return Err(failed(error)),
        _ => {}
    }
    let reply = String::from_utf8_lossy(&reply);
    match reply.trim().strip_prefix("ok: ") {
        Some(done) => Ok(done.to_owned()),
        None => Err(ControlError::Refused(reply.trim().trim_start_matches("error: ").to_owned())),
    }
}

#[cfg(test)]
mod tests;
