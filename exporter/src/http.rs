//! The HTTP server: HTTP/1.1, GET and HEAD, with or without TLS, bounded in connections, time and memory.

mod secrets;
mod tls;
mod token;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::heartbeat::Heartbeat;
use crate::page::Pages;
use crate::routes::{self, Client};
use crate::stall::Stalling;

pub use secrets::{Guard, Keeper, SecretError, SecretFile, SecretFiles, TlsFiles};
pub(crate) use secrets::{Refusal, Secrets};

/// Connections at a time; a further one is answered 503 and closed.
const CONNECTIONS: usize = 256;
/// How long a request may take to arrive; an idle connection is closed after this too.
const REQUEST: Duration = Duration::from_secs(30);
/// How long agreeing on TLS may take: a few round trips.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a peer may leave an answer unread.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long connections may take to finish after the shutdown.
const GRACE: Duration = Duration::from_secs(2);
/// Pause after a failed accept, which is most often a lack of file descriptors.
const RETRY: Duration = Duration::from_millis(100);
/// How long telling a peer that there is no place may take.
const REFUSAL: Duration = Duration::from_millis(20);
/// Bytes of a request's head; scrapers need a few hundred.
const HEAD: usize = 16 * 1024;

const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\n\
    Content-Length: 21\r\n\r\ntoo many connections\n";

/// Serves `pages` on `listener` to whom `guard` lets in, until `shutdown` is done.
///
/// Never waits for the pipeline: `/livez` and `/metrics` turn to 503 when `heartbeat` is older than 10 s.
pub async fn serve(
    listener: TcpListener,
    pages: Pages,
    heartbeat: Heartbeat,
    guard: Guard,
    shutdown: impl Future<Output = ()>,
) {
    let service = Service { pages, heartbeat, guard };
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let (closing, closed) = watch::channel(());
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            // Finished connections are collected as they end, so that the set stays as large as what is open.
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection's task failed");
                }
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accept a connection");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            },
        };
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            let connection = connection(stream, service.clone(), closed.clone());
            connections.spawn(async move {
                connection.await;
                drop(place);
            });
        } else if service.guard.secrets().tls.is_none() {
            refuse(&stream).await;
        }
    }
    drop(listener);
    drop(closing);
    let finish = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, finish).await.is_err() {
        tracing::debug!("connections were cut at shutdown");
    }
}

/// What connections are answered from.
#[derive(Debug, Clone)]
struct Service {
    pages: Pages,
    heartbeat: Heartbeat,
    guard: Guard,
}

async fn connection(stream: TcpStream, service: Service, mut closed: watch::Receiver<()>) {
    // Answers are written whole; waiting to fill packets would only delay their ends.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "set TCP_NODELAY");
    }
    let stream = Stalling::new(stream, PATIENCE);
    let Some(acceptor) = service.guard.secrets().tls.clone() else {
        return converse(stream, Made::default(), service, closed).await;
    };
    // Boxed: a connection without TLS should not have the size of one with it.
    let handshake = Box::pin(timeout(HANDSHAKE, acceptor.accept(stream)));
    let agreed = tokio::select! {
        agreed = handshake => agreed,
        _ = closed.changed() => return,
    };
    match agreed {
        Ok(Ok(stream)) => {
            let certified = stream.get_ref().1.peer_certificates().is_some();
            let made = Made { with: Some(acceptor), certified };
            Box::pin(converse(stream, made, service, closed)).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "agree on TLS"),
        Err(_) => tracing::debug!("a client did not finish agreeing on TLS"),
    }
}

/// How a connection was made.
#[derive(Default)]
struct Made {
    /// With which certificate, under TLS.
    with: Option<TlsAcceptor>,
    /// Whether the client has shown a certificate.
    certified: bool,
}

/// Answers requests on a connection until it ends.
async fn converse<S>(stream: S, made: Made, service: Service, mut closed: watch::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request: Request<Incoming>| {
        let Service { pages, heartbeat, guard } = &service;
        let Made { with, certified } = &made;
        async move {
            let page = Arc::clone(&pages.borrow());
            let secrets = guard.secrets();
            let client = Client { headers: request.headers(), secrets: &secrets, certified: *certified };
            let mut response =
                routes::answer(request.method(), request.uri().path(), client, page, heartbeat).await;
            // A body is never read, so nothing that follows it on this connection could be told apart. And a scraper
            // keeps its connection for ever: one that was made under a replaced certificate or CA must be made anew.
            let unread = !hyper::body::Body::is_end_stream(request.body());
            if unread || !secrets.accepts_with(with.as_ref()) {
                response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = &mut served => ended,
        // The sender is dropped, never used.
        _ = closed.changed() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "serve a connection");
    }
}

/// A new connection can be written to at once, so this waits for one turn of the runtime at most.
async fn refuse(stream: &TcpStream) {
    let write = async {
        stream.writable().await?;
        stream.try_write(BUSY)
    };
    match timeout(REFUSAL, write).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "refuse a connection"),
        Err(_) => tracing::debug!("a refused connection took no answer"),
    }
}
