//! The server over real sockets, with a client that knows nothing of the server's library.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use warpmeter_core::fact::HealthState;
use warpmeter_core::view::View;

use super::{parse, sample};
use crate::catalogue::Level;
use crate::compat::Dcgm;
use crate::encode::Encoder;
use crate::heartbeat::Heartbeat;
use crate::http::{Guard, serve};
use crate::page::Publisher;
use crate::readiness;

pub(super) struct Server {
    pub(super) address: SocketAddr,
    publisher: Publisher,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Server {
    fn start(view: View) -> Self {
        Self::start_with(view, Guard::none(), None)
    }

    pub(super) fn start_with(view: View, guard: Guard, dcgm: Option<Dcgm>) -> Self {
        let (publisher, pages) = Publisher::new(Level::Full, dcgm, vec!["nothing yet".into()]);
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let stopped = async {
                    stopped.await.ok();
                };
                serve(listener, pages, Heartbeat::start(), guard, stopped).await;
            });
        });
        let mut server = Self { address: told.recv().unwrap(), publisher, stop, thread };
        server.publish(view);
        server
    }

    fn publish(&mut self, view: View) {
        let reasons = readiness::reasons(&view);
        self.publisher.publish(Arc::new(view), reasons);
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn get(&self, path: &str) -> Answer {
        exchange(&mut self.connect(), "GET", path, "")
    }

    pub(super) fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// One request and its answer; the connection stays open.
pub(super) fn exchange(stream: &mut (impl Read + Write), method: &str, path: &str, headers: &str) -> Answer {
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut answer = Answer { status, headers, body: Vec::new() };
    let length: usize = answer.header("content-length").unwrap().parse().unwrap();
    if method != "HEAD" {
        answer.body = vec![0; length];
        stream.read_exact(&mut answer.body).unwrap();
    }
    answer
}

#[test]
fn metrics_are_served_as_text_and_as_gzip() {
    let mut server = Server::start(sample::view());
    let plain = server.get("/metrics?name[]=x");
    assert_eq!(plain.status, 200);
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(plain.text(), Encoder::new(Level::Full).encode(&sample::view()));

    let headers = "Accept: application/openmetrics-text;version=1.0.0\r\nAccept-Encoding: gzip\r\n";
    let mut stream = server.connect();
    for window in 0..3 {
        let packed = exchange(&mut stream, "GET", "/metrics", headers);
        assert_eq!(packed.header("content-encoding"), Some("gzip"));
        assert_eq!(packed.header("vary"), Some("Accept-Encoding"));
        assert_eq!(packed.header("content-type"), plain.header("content-type"), "OpenMetrics is not offered");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&*packed.body).read_to_string(&mut text).unwrap();
        assert_eq!(text, plain.text());
        assert!(packed.body.len() < plain.body.len() / 4);
        // Compressed when asked for, not again, and then ahead of the request.
        if window == 1 {
            server.publish(sample::view());
        }
    }
    server.stop();
}

#[test]
fn figures_under_dcgms_names_are_served_where_they_are_switched_on_and_compressed_like_the_others() {
    let server = Server::start(sample::view());
    let missing = server.get("/compat/dcgm");
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("compat_dcgm"), "{}", missing.text());
    server.stop();
    let mut server = Server::start_with(sample::view(), Guard::none(), Some(Dcgm::default()));
    let plain = server.get("/compat/dcgm");
    assert_eq!(plain.status, 200);
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.text().contains("\nDCGM_FI_DEV_GPU_TEMP{"), "{}", plain.text());
    assert!(
        !server.get("/metrics").text().contains("DCGM_FI_DEV"),
        "never in one exposition with the others"
    );
    for _ in 0..2 {
        let packed = exchange(&mut server.connect(), "GET", "/compat/dcgm", "Accept-Encoding: gzip\r\n");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&*packed.body).read_to_string(&mut text).unwrap();
        assert!(text.contains("DCGM_FI_DEV_GPU_TEMP"));
        server.publish(sample::view());
    }
    server.stop();
}

#[test]
fn a_view_without_anything_still_has_a_content_type_and_a_body() {
    let server = Server::start(View::default());
    let answer = server.get("/metrics");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(!parse::exposition(answer.text()).is_empty());
    server.stop();
}

#[test]
fn a_new_page_is_what_the_next_request_on_the_same_connection_gets() {
    let mut server = Server::start(View::default());
    let mut stream = server.connect();
    assert!(!exchange(&mut stream, "GET", "/metrics", "").text().contains("GPU-a"));
    server.publish(sample::view());
    assert!(exchange(&mut stream, "GET", "/metrics", "").text().contains("GPU-a"));
    server.stop();
}

#[test]
fn other_methods_and_addresses_are_refused_with_help() {
    let server = Server::start(sample::view());
    let missing = server.get("/metric");
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("/metrics") && missing.text().contains("/readyz"));
    let post = exchange(&mut server.connect(), "POST", "/metrics", "Content-Length: 100000\r\n");
    assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(post.header("connection"), Some("close"), "the body is not read");
    let index = server.get("/");
    assert_eq!(index.status, 200);
    assert!(["/metrics", "/status", "/readyz", "/livez"].iter().all(|path| index.text().contains(path)));
    server.stop();
}

#[test]
fn head_tells_the_length_and_sends_nothing() {
    let server = Server::start(sample::view());
    let mut stream = server.connect();
    let head = exchange(&mut stream, "HEAD", "/metrics", "");
    let get = exchange(&mut stream, "GET", "/metrics", "");
    assert_eq!((head.status, get.status), (200, 200));
    assert_eq!(head.header("content-length"), get.header("content-length"));
    assert_eq!(head.header("content-type"), get.header("content-type"));
    server.stop();
}

#[test]
fn readiness_gives_its_reasons_and_liveness_does_not_care() {
    let mut server = Server::start(sample::view());
    assert_eq!(server.get("/readyz").status, 200);
    let mut view = sample::view();
    view.windows = 0;
    view.sources[1].state = Some(HealthState::Down);
    server.publish(view);
    let answer = server.get("/readyz");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.text(), "source host is down: cannot read /proc/1/fd\nno window has closed yet\n");
    assert_eq!(server.get("/livez").status, 200);
    server.stop();
}

#[test]
fn the_status_is_json_with_what_a_person_asks_first() {
    let server = Server::start(sample::view());
    let answer = server.get("/status");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let status: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(status["node"], "node-1");
    assert_eq!(status["ready"], true);
    assert_eq!(status["sources"][1]["health"], "degraded");
    assert_eq!(status["sources"][1]["reason"], "cannot read /proc/1/fd");
    assert_eq!(status["sources"][1]["last_fact_seconds_ago"], 1.0);
    assert_eq!(status["sources"][1]["last_answer_seconds_ago"], 3.0);
    assert_eq!(status["gpus"][0]["authority"]["sm"], "gpm_cycles");
    assert_eq!(status["gpus"][1]["instances"][0]["profile"], "3g.40gb");
    assert_eq!(status["gpus"][3]["down_because"], "fell off the bus");
    assert_eq!(status["pods"][0]["devices"][0]["seconds"]["stalled"], 20.0);
    assert_eq!(status["others"][1]["owner"][1], "4711");
    assert_eq!(status["conservation_error_nanoseconds"], 0);
    server.stop();
}

#[test]
fn clients_that_do_not_read_or_do_not_finish_hold_nobody_up() {
    let server = Server::start(sample::view());
    let mut lazy: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for (number, stream) in lazy.iter_mut().enumerate() {
        if number % 2 == 0 {
            // Far more answers than a socket buffer takes, none of them read.
            let many = "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n".repeat(100);
            stream.write_all(many.as_bytes()).unwrap();
        } else {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap();
        }
    }
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(server.get("/metrics").status, 200);
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    server.stop();
}

#[test]
fn more_connections_than_there_are_places_for_are_told_so() {
    let server = Server::start(View::default());
    let mut places: Vec<_> = (0..256).map(|_| server.connect()).collect();
    for stream in &mut places {
        assert_eq!(exchange(stream, "GET", "/livez", "").status, 200);
    }
    let mut answer = String::new();
    server.connect().read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("\r\n\r\ntoo many connections\n"),
        "{answer}"
    );
    places.clear();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !served(&server) {
        assert!(Instant::now() < deadline, "places are given back");
    }
    server.stop();
}

/// Whether a new connection gets a place; one that is refused may be reset before its request is written.
fn served(server: &Server) -> bool {
    let mut stream = server.connect();
    let mut answer = [0; 12];
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: test\r\n\r\n").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && &answer == b"HTTP/1.1 200"
}

#[test]
fn a_shutdown_ends_idle_connections_and_the_server() {
    let server = Server::start(View::default());
    let mut idle = server.connect();
    assert_eq!(exchange(&mut idle, "GET", "/livez", "").status, 200);
    let address = server.address;
    server.stop();
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0);
    assert!(TcpStream::connect(address).is_err());
}
