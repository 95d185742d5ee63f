//! One page over HTTP, within a deadline and a bound.
//!
//! A round has a connection and a runtime of its own: nothing of it, such as a lookup that hangs, outlives it. To make
//! the runtime takes 7 µs (measured on a shared virtual processor), once in some seconds.

use std::error::Error;
use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::options::{DcgmOptions, Endpoint};

/// Bytes of an answer's head.
const HEAD: usize = 64 << 10;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The runtime of a round could not be had.
    #[error("start a round: {0}")]
    Start(io::Error),
    /// Nobody answers.
    #[error(
        "connect to the DCGM exporter at {url}: {source}; does it run on this node, and may this pod reach it \
         ([dcgm] url, NetworkPolicy)?"
    )]
    Connect { url: Endpoint, source: io::Error },
    /// The connection broke, or what is spoken is not HTTP.
    #[error("read {url}: {}; is a DCGM exporter there?", chain(&**source))]
    Http { url: Endpoint, source: Box<dyn Error + Send + Sync> },
    /// It took too long.
    #[error(
        "read {url}: no complete answer within {limit:?}; an exporter that is that slow hangs in DCGM, as a rule: \
         restart it, or raise [dcgm] timeout"
    )]
    Deadline { url: Endpoint, limit: Duration },
    /// It answered, but not with a page.
    #[error("read {url}: it answers {status}: {}", remedy(*.status))]
    Refused { url: Endpoint, status: StatusCode },
    /// More than a node's GPUs can need.
    #[error(
        "read {url}: the answer is larger than {most} bytes; is a DCGM exporter there? Or raise [dcgm] max_bytes"
    )]
    TooLarge { url: Endpoint, most: u64 },
}

fn remedy(status: StatusCode) -> &'static str {
    match status.as_u16() {
        300..=399 => "redirections are not followed: set [dcgm] url to the exporter's own address",
        401 | 403 => "it wants a password or a certificate, of which this daemon has none",
        404 => "set [dcgm] url to the path of its metrics, /metrics as a rule",
        500..=599 => "one of its collectors failed: see its log",
        _ => "this is not a page of metrics",
    }
}

/// An error and its causes: the outermost alone says little.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (**error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Reads the exporter's page.
pub(super) fn fetch(options: &DcgmOptions) -> Result<Bytes, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .map_err(Fault::Start)?;
    let limit = options.timeout;
    let late = |_elapsed| Fault::Deadline { url: options.url.clone(), limit };
    let page = runtime.block_on(async { tokio::time::timeout(limit, read(options)).await });
    runtime.shutdown_background();
    page.map_err(late)?
}

async fn read(options: &DcgmOptions) -> Result<Bytes, Fault> {
    let url = &options.url;
    let broken = |source: hyper::Error| Fault::Http { url: url.clone(), source: source.into() };
    let stream = TcpStream::connect((url.host.as_str(), url.port))
        .await
        .map_err(|source| Fault::Connect { url: url.clone(), source })?;
    let (mut requests, connection) =
        http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Whoever waits for the answer is told of the same failure.
    drop(tokio::spawn(async move { connection.await.ok() }));
    let request = Request::get(&url.path)
        .header(HOST, url.authority())
        .header(ACCEPT, "text/plain")
        .header(USER_AGENT, concat!("warpmeter/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|source| Fault::Http { url: url.clone(), source: source.into() })?;
    let answer = requests.send_request(request).await.map_err(broken)?;
    let status = answer.status();
    if status != StatusCode::OK {
        return Err(Fault::Refused { url: url.clone(), status });
    }
    let most = usize::try_from(options.most).unwrap_or(usize::MAX);
    match Limited::new(answer.into_body(), most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(source) if source.is::<LengthLimitError>() => {
            Err(Fault::TooLarge { url: url.clone(), most: options.most })
        }
        Err(source) => Err(Fault::Http { url: url.clone(), source }),
    }
}
