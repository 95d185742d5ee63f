//! The local socket on which a running daemon is told to let go of the driver.
//!
//! One line in, one line out: `release [DURATION]` or `resume`, answered by `ok …` or `error: …`. Only the
//! socket's owner may connect.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::nvidia::Gate;

/// Where the socket is unless the configuration says otherwise.
pub const SOCKET: &str = "/run/warpmeter/control.sock";

/// How long a release waits for the driver to be let go of.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest line that is read, in bytes.
const LONGEST_LINE: u64 = 64;

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

/// The listening end. Dropped, the socket is removed.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    listener: UnixListener,
}

impl Control {
    /// Listens on `path`, whose directory is made if need be. A socket that a dead daemon left is replaced.
    pub fn listen(path: &Path) -> std::io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(std::io::Error::other("a file that is no socket is there"));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(std::io::Error::other("another daemon listens there"));
            }
            _ => {}
        }
        // Nobody but the owner may connect at any moment, so it gets its name only after its mode.
        let unnamed = path.with_extension(format!("{}.new", std::process::id()));
        let listener = UnixListener::bind(&unnamed)?;
        let named = fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(&unnamed, path));
        if let Err(error) = named {
            fs::remove_file(&unnamed)?;
            return Err(error);
        }
        listener.set_nonblocking(true)?;
        Ok(Self { path: path.to_owned(), listener })
    }

    /// Serves until `stop` is set.
    pub fn serve(self, gate: &Gate, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = answer(stream, gate) {
                        tracing::debug!(%error, "a control connection");
                    }
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "remove the control socket");
        }
    }
}

fn answer(mut stream: UnixStream, gate: &Gate) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let mut line = String::new();
    BufReader::new(Read::take(&stream, LONGEST_LINE)).read_line(&mut line)?;
    let reply = obey(line.trim(), gate);
    stream.write_all(format!("{reply}\n").as_bytes())
}

fn obey(line: &str, gate: &Gate) -> String {
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("resume"), None, None) => {
            gate.resume();
            tracing::info!("resumed: the driver is taken up again");
            "ok: the driver is taken up again".into()
        }
        (Some("release"), duration, None) => {
            let Ok(duration) = duration.map(humantime::parse_duration).transpose() else {
                return "error: release takes a duration such as 90s".into();
            };
            tracing::info!(?duration, "released: the driver is let go of");
            if gate.release(duration, PATIENCE) {
                "ok: no process of the daemon has the driver open".into()
            } else {
                "error: a call to the driver does not return; its process cannot be ended before it does"
                    .into()
            }
        }
        _ => format!("error: {line:?} is neither `release [DURATION]` nor `resume`"),
    }
}

/// Tells the daemon at `path` one command, and gives its answer.
pub fn tell(path: &Path, command: &str) -> Result<String, ControlError> {
    let failed = |source| ControlError::Connect { path: path.to_owned(), source };
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE + Duration::from_secs(2))).map_err(failed)?;
    stream.write_all(format!("{command}\n").as_bytes()).map_err(failed)?;
    let mut reply = String::new();
    BufReader::new(Read::take(&stream, 4096)).read_line(&mut reply).map_err(failed)?;
    match reply.trim().strip_prefix("ok: ") {
        Some(done) => Ok(done.to_owned()),
        None => Err(ControlError::Refused(reply.trim().trim_start_matches("error: ").to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_told_and_answers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/control.sock");
        let stop = AtomicBool::new(false);
        let gate = Gate::default();
        let control = Control::listen(&path).unwrap();
        assert!(Control::listen(&path).is_err(), "one daemon a socket");
        std::thread::scope(|scope| {
            scope.spawn(|| control.serve(&gate, &stop));
            assert!(tell(&path, "release").is_ok() && !gate.open());
            assert!(tell(&path, "resume").is_ok() && gate.open());
            assert!(tell(&path, "release 0s").is_ok() && gate.open());
            for wrong in ["", "release x", "release 1 2", "stop", &"x".repeat(1000)] {
                assert!(matches!(tell(&path, wrong), Err(ControlError::Refused(_))), "{wrong}");
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        assert!(Control::listen(&path).is_err(), "what is no socket is not replaced");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(tell(&path, "resume"), Err(ControlError::Connect { .. })));
    }
}
