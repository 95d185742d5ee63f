//! Exporters that answer badly, or not at all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use super::super::fetch::fetch;
use super::*;

/// Asks an exporter that does this with its connection, within two seconds and 100,000 bytes.
fn ask(answer: impl Fn(TcpStream) + Send + 'static) -> Result<Bytes, String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || answer(listener.accept().unwrap().0));
    let url = Endpoint::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let options = DcgmOptions { timeout: Duration::from_secs(2), most: 100_000, ..DcgmOptions::new(url) };
    let began = Instant::now();
    let page = fetch(&options).map_err(|fault| fault.to_string());
    assert!(began.elapsed() < Duration::from_secs(20), "it was waited for");
    page
}

/// The request's head, and then these bytes.
fn with(bytes: &'static [u8]) -> impl Fn(TcpStream) + Send + 'static {
    move |mut stream| {
        read_head(&mut stream);
        // A client that has seen enough may be gone.
        stream.write_all(bytes).ok();
    }
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn forever(mut stream: TcpStream, bytes: &[u8], pause: Duration) {
    while stream.write_all(bytes).is_ok() {
        std::thread::sleep(pause);
    }
}

#[test]
fn a_page_is_read_whole_with_and_without_its_length() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n# xy\n"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n# xy\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n# xy\n",
    ] {
        assert_eq!(ask(with(answer)).unwrap(), "# xy\n");
    }
}

#[test]
fn the_request_names_the_exporter_and_its_page() {
    let page = ask(|mut stream| {
        let head = read_head(&mut stream);
        let body =
            format!("{}{}", head.starts_with("GET /metrics HTTP/1.1\r\n"), head.contains("host: 127.0.0.1:"));
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).unwrap();
    });
    assert_eq!(page.unwrap(), "truetrue");
}

#[test]
fn whatever_an_exporter_does_is_told_in_time_with_what_helps() {
    let told = |result: Result<Bytes, String>, words: &[&str]| {
        let text = result.expect_err("there is no page");
        for word in ["http://127.0.0.1:", "/metrics"].iter().chain(words) {
            assert!(text.contains(word), "{word:?} is not in {text:?}");
        }
    };
    told(ask(silent), &["within 2s", "timeout"]);
    told(
        ask(|mut stream| {
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").unwrap();
            forever(stream, &[b'x'; 4096], Duration::ZERO);
        }),
        &["is a DCGM exporter there?"],
    );
    told(
        ask(|mut stream| {
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            forever(stream, b"# slow\n", Duration::from_millis(50));
        }),
        &["within 2s"],
    );
    told(
        ask(|mut stream| {
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            forever(stream, &[b'x'; 4096], Duration::ZERO);
        }),
        &["larger than 100000 bytes", "max_bytes"],
    );
    told(ask(with(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort")), &["is a DCGM exporter there?"]);
    told(ask(with(b"SSH-2.0-x\r\n")), &["is a DCGM exporter there?"]);
    told(ask(with(b"HTTP/1.1 500 Internal Server Error\r\n\r\n")), &["500", "see its log"]);
    told(ask(with(b"HTTP/1.1 301 Moved\r\nLocation: /x\r\n\r\n")), &["301", "not followed"]);
    told(ask(with(b"HTTP/1.1 401 Unauthorized\r\n\r\n")), &["401", "password"]);
    told(ask(with(b"HTTP/1.1 404 Not Found\r\n\r\n")), &["404", "[dcgm] url"]);
}

/// Answers nothing, as long as the other end is there.
fn silent(mut stream: TcpStream) {
    read_head(&mut stream);
    stream.read_to_end(&mut Vec::new()).ok();
}

#[test]
fn nobody_there_is_down_and_said_until_somebody_is() {
    let mut desk = Desk::new(&[gpu(A100, Some(Counter::Dcgm))], 30 * SECOND, 5 * SECOND);
    assert_says(&desk.health(), HealthState::Down, &["has not been read yet"]);
    let mut facts = Vec::new();
    desk.source.poll(&mut facts);
    assert!(matches!(facts[..], [Fact::Poll { answered: false, .. }]), "{facts:?}");
    assert_says(&desk.health(), HealthState::Down, &["http://127.0.0.1:1/metrics", "[dcgm] url"]);
    facts.clear();
    desk.source.poll(&mut facts);
    assert_eq!(facts, [], "it is tried again later");
    desk.look(PAGE, 1000 * SECOND);
    assert_says(&desk.health(), HealthState::Up, &[]);
}
