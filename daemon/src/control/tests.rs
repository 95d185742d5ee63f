use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use super::*;

fn nobody(name: &str) -> Result<String, String> {
    if name == "known" { Ok("first line\nsecond".into()) } else { Err(format!("no pod {name}")) }
}

#[test]
fn a_daemon_is_told_and_answers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/control.sock");
    let stop = AtomicBool::new(false);
    let gate = Gate::default();
    let socket = Socket::listen(&path).unwrap();
    assert!(Socket::listen(&path).is_err(), "one daemon a socket");
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&socket, &gate, &nobody, &stop));
        assert!(tell(&path, "release").is_ok() && !gate.open());
        assert!(tell(&path, "resume").is_ok() && gate.open());
        assert!(tell(&path, &release(Some(SHORTEST))).is_ok());
        std::thread::sleep(SHORTEST);
        assert!(gate.open());
        assert_eq!(tell(&path, "explain known").unwrap(), "first line\nsecond");
        for wrong in [
            "",
            "release x",
            "release 0s",
            "release 999us",
            "release 0s999999ns",
            "release 1 2",
            "stop",
            "explain",
            "explain a b",
            "explain unknown",
            &"x".repeat(1000),
        ] {
            assert!(matches!(tell(&path, wrong), Err(ControlError::Refused(_))), "{wrong}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(socket);
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    assert!(Socket::listen(&path).is_err(), "what is no socket is not replaced");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(tell(&path, "resume"), Err(ControlError::Connect { .. })));
}

#[test]
fn a_release_is_told_for_exactly_as_long_as_was_asked_and_for_no_less_than_a_millisecond() {
    for text in ["1ms", "1500us", "1s 1ns", "90s", "5m", "1000years", "18446744073709551615s"] {
        let asked = span(text).unwrap();
        let command = release(Some(asked));
        assert!(u64::try_from(command.len()).unwrap() < LONGEST_LINE, "{command}");
        let told = command.strip_prefix("release ").unwrap();
        assert_eq!(span(told).unwrap(), asked, "{text} is told as {command}");
    }
    for text in ["0s", "0ns", "1ns", "1us", "999us", "999999ns", "", "x", "-1s"] {
        assert!(span(text).unwrap_err().contains("1ms or more"), "{text}");
    }
}

#[test]
fn whatever_a_dead_daemon_left_does_not_keep_the_next_from_listening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    // Dropped as by a kill: the files stay.
    for name in ["control.sock", "control.sock.new"] {
        drop(UnixListener::bind(directory.path().join(name)).unwrap());
    }
    fs::write(directory.path().join("control.sock.lock"), "").unwrap();
    let socket = Socket::listen(&path).unwrap();
    assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(socket.is_there() && !directory.path().join("control.sock.new").exists());
}

/// Runs `keep` on `path` while `during` runs.
fn kept(path: &Path, gate: &Gate, during: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_trying(path, gate, &nobody, &stop, Duration::from_millis(10)));
        // Also if it panics, so that it is the panic that is seen.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

fn soon(so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited in vain");
}

#[test]
fn a_daemon_takes_the_socket_up_when_the_one_before_it_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let [before, after] = [Gate::default(), Gate::default()];
    let first = Socket::listen(&path).unwrap();
    let over = AtomicBool::new(false);
    kept(&path, &after, || {
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&first, &before, &nobody, &over));
            assert!(tell(&path, "release").is_ok());
            assert!(!before.open() && after.open(), "it is still the first one's");
            over.store(true, Ordering::Relaxed);
        });
        drop(first);
        soon(|| tell(&path, "release").is_ok());
        assert!(!after.open());
    });
    assert!(!path.exists());
}

#[test]
fn a_socket_that_was_removed_or_replaced_by_another_is_made_anew_and_the_others_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let gate = Gate::default();
    kept(&path, &gate, || {
        soon(|| tell(&path, "resume").is_ok());
        fs::remove_file(&path).unwrap();
        soon(|| tell(&path, "resume").is_ok());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        soon(|| tell(&path, "resume").is_ok());
    });
}

#[test]
fn a_foreign_listener_that_takes_no_connections_holds_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // Its queue is full when no further connection is taken without waiting.
    let mut waiting = Vec::new();
    for _ in 0..10_000 {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        if connect(&socket, &SocketAddrUnix::new(&path).unwrap()).is_err() {
            break;
        }
        waiting.push(socket);
    }
    let error = Socket::listen(&path).unwrap_err();
    assert_eq!(error.to_string(), "another daemon listens there");
}
