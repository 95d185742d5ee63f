//! One connection to the API server, and requests on it.
//!
//! A round makes its own connection: kept ones would stay with the server replica that was there first, and would
//! be closed unused more often than not. Within a round pages share it; between rounds TLS sessions are resumed.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::body::{Body, Budget};
use super::fault::Fault;
use super::server::Server;

/// Bytes of a file of the service account.
const FILE: u64 = 1 << 20;
/// Bytes of an answer's head.
const HEAD: usize = 64 << 10;
/// Bytes of a refusal that are read.
const REFUSAL: u64 = 8 << 10;

/// Makes connections.
#[derive(Debug, Default)]
pub(super) struct Client {
    tls: Option<Tls>,
}

/// TLS with the certificates that the file held.
struct Tls {
    pem: Vec<u8>,
    connector: TlsConnector,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// A connection, for one round.
#[derive(Debug)]
pub(super) struct Connection {
    requests: SendRequest<Empty<Bytes>>,
    server: Server,
}

impl Client {
    /// Connects, and makes sure of the server.
    pub(super) fn connect(
        &mut self,
        server: &Server,
        ca: &Path,
        budget: &Budget<'_>,
    ) -> Result<Connection, Fault> {
        let connector = if server.tls { Some(self.connector(ca)?) } else { None };
        let connecting = TcpStream::connect((server.host.as_str(), server.port));
        let stream = budget
            .wait("connect", connecting)?
            .map_err(|source| Fault::Connect { server: server.authority(), source })?;
        let requests = match connector {
            None => open(stream, budget)?,
            Some(connector) => {
                let failed = |source| Fault::Tls { server: server.authority(), ca: ca.to_owned(), source };
                let name = ServerName::try_from(server.host.clone())
                    .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
                let stream = budget.wait("agree on TLS", connector.connect(name, stream))?.map_err(failed)?;
                open(stream, budget)?
            }
        };
        Ok(Connection { requests, server: server.clone() })
    }

    /// The connector for the certificates in the file now: a cluster's CA can be replaced. Kept while they stay,
    /// and TLS sessions with it.
    fn connector(&mut self, ca: &Path) -> Result<TlsConnector, Fault> {
        let failed = |source| Fault::File { what: "CA certificates", path: ca.to_owned(), source };
        let pem = read(ca).map_err(failed)?;
        if let Some(tls) = self.tls.as_ref().filter(|tls| tls.pem == pem) {
            return Ok(tls.connector.clone());
        }
        let connector = trusting(&pem).map_err(failed)?;
        self.tls = Some(Tls { pem, connector: connector.clone() });
        Ok(connector)
    }
}

impl Connection {
    /// Asks for `path`. A refusal is a fault.
    pub(super) fn get<'b, 'r>(
        &mut self,
        path: &str,
        token: &Path,
        budget: &'b mut Budget<'r>,
    ) -> Result<Body<'b, 'r>, Fault> {
        let attempt = "ask the API server";
        let mut request = Request::get(format!("{}{path}", self.server.prefix))
            .header(HOST, self.server.authority())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("warpmeter/", env!("CARGO_PKG_VERSION")));
        // Never in the clear: a proxy on this host has a token of its own.
        if self.server.tls {
            request = request.header(AUTHORIZATION, bearer(token)?);
        }
        let request = request.body(Empty::new())?;
        let failed = |source| Fault::Http { attempt, source };
        budget.wait(attempt, self.requests.ready())?.map_err(failed)?;
        let answer = budget.wait(attempt, self.requests.send_request(request))?.map_err(failed)?;
        let status = answer.status();
        let wait = answer.headers().get(RETRY_AFTER).and_then(seconds);
        let mut body = Body::new(answer.into_body(), budget);
        if status == hyper::StatusCode::OK {
            return Ok(body);
        }
        Err(Fault::Refused { status: status.as_u16(), message: message(&mut body), wait })
    }
}

/// Begins HTTP on a stream. Its other half runs while the round waits for something.
fn open<S>(stream: S, budget: &Budget<'_>) -> Result<SendRequest<Empty<Bytes>>, Fault>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let attempt = "begin HTTP";
    let opening = http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream));
    let (requests, connection) =
        budget.wait(attempt, opening)?.map_err(|source| Fault::Http { attempt, source })?;
    budget.spawn(async move {
        // Whoever waits for an answer is told of the same failure.
        connection.await.ok();
    });
    Ok(requests)
}

/// TLS that trusts the certificates of `pem`, and no others.
fn trusting(pem: &[u8]) -> io::Result<TlsConnector> {
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    let certificates: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(certificates);
    if taken == 0 {
        return Err(invalid("it holds no certificate".to_owned()));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The token in the file now: the kubelet replaces it before it expires.
fn bearer(path: &Path) -> Result<HeaderValue, Fault> {
    let failed = |source| Fault::File { what: "token", path: path.to_owned(), source };
    let text = read(path).map_err(failed)?;
    let token = text.trim_ascii();
    if token.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is empty")));
    }
    let mut value =
        HeaderValue::from_bytes(&[b"Bearer ", token].concat()).map_err(hyper::http::Error::from)?;
    value.set_sensitive(true);
    Ok(value)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A whole number of seconds, which is the form that API servers write.
fn seconds(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// What the server says of its refusal; nothing if it says it in another form.
fn message(body: &mut Body<'_, '_>) -> String {
    #[derive(Default, Deserialize)]
    struct Status {
        #[serde(default)]
        message: String,
    }
    let mut text = Vec::new();
    match body.take(REFUSAL).read_to_end(&mut text) {
        Ok(_) => serde_json::from_slice::<Status>(&text).unwrap_or_default().message,
        Err(_) => String::new(),
    }
}
