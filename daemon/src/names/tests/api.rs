//! An API server of few words: each request is answered by a closure.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

/// What a request is met with.
pub(super) enum Reply {
    /// An answer with a body.
    Answer(u16, Vec<u8>),
    /// An answer with more lines in its head.
    With(u16, &'static str, Vec<u8>),
    /// Nothing at all.
    Silence,
    /// The beginning of a list, and then nothing.
    Stall,
    /// A list that never ends, of pods that are never used.
    Endless,
    /// The end of the connection, in the middle of a list.
    Break,
}

/// The head of a request.
#[derive(Debug, Clone)]
pub(super) struct Asking {
    pub target: String,
    pub head: String,
    /// Whether its connection took up an earlier one's TLS session.
    pub resumed: bool,
}

impl Asking {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

pub(super) struct Api {
    scheme: &'static str,
    pub address: SocketAddr,
    /// The certificate of the authority that the server's descends from.
    pub ca: String,
    asked: Arc<Mutex<Vec<Asking>>>,
}

type Answer = dyn FnMut(&Asking) -> Reply + Send;

impl Api {
    /// A server in TLS whose certificate names 127.0.0.1.
    pub(super) fn start(answer: impl FnMut(&Asking) -> Reply + Send + 'static) -> Self {
        Self::named("127.0.0.1", answer)
    }

    /// A server in TLS whose certificate names `name`.
    pub(super) fn named(name: &str, answer: impl FnMut(&Asking) -> Reply + Send + 'static) -> Self {
        let (ca, config) = certified(name);
        Self::listen("https", ca, Some(Arc::new(config)), Box::new(answer))
    }

    /// A server without TLS.
    pub(super) fn plain(answer: impl FnMut(&Asking) -> Reply + Send + 'static) -> Self {
        Self::listen("http", String::new(), None, Box::new(answer))
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// All requests up to now.
    pub(super) fn asked(&self) -> Vec<Asking> {
        self.asked.lock().unwrap().clone()
    }

    fn listen(scheme: &'static str, ca: String, tls: Option<Arc<ServerConfig>>, answer: Box<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&asked), Arc::new(Mutex::new(answer)));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, answer, tls) = (Arc::clone(&seen), Arc::clone(&answer), tls.clone());
                std::thread::spawn(move || match tls {
                    None => serve(stream, |_| false, &seen, &answer),
                    Some(config) => {
                        let connection = ServerConnection::new(config).unwrap();
                        let resumed = |stream: &StreamOwned<ServerConnection, TcpStream>| {
                            stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)
                        };
                        serve(StreamOwned::new(connection, stream), resumed, &seen, &answer);
                    }
                });
            }
        });
        Self { scheme, address, ca, asked }
    }
}

/// A new authority, and a server that it vouches for.
fn certified(name: &str) -> (String, ServerConfig) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    (ca.pem(), config)
}

/// Answers until the client or a reply ends the connection.
fn serve<S: Read + Write>(
    mut stream: S,
    resumed: impl Fn(&S) -> bool,
    seen: &Mutex<Vec<Asking>>,
    answer: &Mutex<Box<Answer>>,
) {
    while let Some((target, head)) = head(&mut stream) {
        let asking = Asking { target, head, resumed: resumed(&stream) };
        seen.lock().unwrap().push(asking.clone());
        let reply = (answer.lock().unwrap())(&asking);
        if respond(&mut stream, reply).is_none() {
            return;
        }
    }
}

/// The target and the head of the next request.
fn head(stream: &mut impl Read) -> Option<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split(' ').nth(1).unwrap().to_owned();
    Some((target, head))
}

fn respond(stream: &mut (impl Read + Write), reply: Reply) -> Option<()> {
    let begin = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n15\r\n{\"kind\": \"PodList\",\"a\r\n";
    match reply {
        Reply::Answer(status, body) => respond(stream, Reply::With(status, "", body)),
        Reply::With(status, lines, body) => {
            let head = format!("HTTP/1.1 {status} x\r\n{lines}content-length: {}\r\n\r\n", body.len());
            stream.write_all(&[head.as_bytes(), &body].concat()).ok()?;
            stream.flush().ok()
        }
        Reply::Silence | Reply::Stall => {
            if matches!(reply, Reply::Stall) {
                stream.write_all(begin).ok()?;
                stream.flush().ok()?;
            }
            // Until the client gives up.
            stream.read(&mut [0]).ok().filter(|length| *length > 0).map(|_| ())
        }
        Reply::Endless => {
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"kind\": \"PodList\",\"items\":[{}";
            stream.write_all(head.as_bytes()).ok()?;
            let skipped = "x".repeat(32 << 10);
            let pod = format!(",{{\"metadata\":{{\"uid\":\"\",\"managedFields\":\"{skipped}\"}}}}");
            loop {
                stream.write_all(pod.as_bytes()).ok()?;
            }
        }
        Reply::Break => {
            stream.write_all(begin).ok()?;
            stream.flush().ok()?;
            None
        }
    }
}

/// A port at which nobody listens.
pub(super) fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A server that accepts and says nothing, not even TLS.
pub(super) fn mute() -> (SocketAddr, std::thread::JoinHandle<Option<TcpStream>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (address, std::thread::spawn(move || listener.accept().ok().map(|(stream, _)| stream)))
}
