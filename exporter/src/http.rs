//! The HTTP server: HTTP/1.1, GET and HEAD, bounded in connections, time and memory.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::heartbeat::Heartbeat;
use crate::page::Pages;
use crate::routes;
use crate::stall::Stalling;

/// Connections at a time; a further one is answered 503 and closed.
const CONNECTIONS: usize = 256;
/// How long a request may take to arrive; an idle connection is closed after this too.
const REQUEST: Duration = Duration::from_secs(30);
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

/// Serves `pages` on `listener` until `shutdown` is done.
///
/// Never waits for the pipeline: `/livez` and `/metrics` turn to 503 when `heartbeat` is older than 10 s.
pub async fn serve(
    listener: TcpListener,
    pages: Pages,
    heartbeat: Heartbeat,
    shutdown: impl Future<Output = ()>,
) {
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
            let connection = connection(stream, pages.clone(), heartbeat.clone(), closed.clone());
            connections.spawn(async move {
                connection.await;
                drop(place);
            });
        } else {
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

async fn connection(stream: TcpStream, pages: Pages, heartbeat: Heartbeat, mut closed: watch::Receiver<()>) {
    // Answers are written whole; waiting to fill packets would only delay their ends.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "set TCP_NODELAY");
    }
    let service = service_fn(|request: Request<Incoming>| {
        let (pages, heartbeat) = (&pages, &heartbeat);
        async move {
            let page = Arc::clone(&pages.borrow());
            let (path, headers) = (request.uri().path(), request.headers());
            let mut response = routes::answer(request.method(), path, headers, page, heartbeat).await;
            if !hyper::body::Body::is_end_stream(request.body()) {
                // A body is never read, so nothing that follows it on this connection could be told apart.
                response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(Stalling::new(stream, PATIENCE)), service);
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
