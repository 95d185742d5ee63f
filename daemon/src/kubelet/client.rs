//! One conversation with the kubelet: connect, ask, hang up.
//!
//! Every round has its own connection and runtime. Nothing is left to go stale when the kubelet restarts, and nothing
//! of a hanging one survives the deadline.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Buf, Bytes, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Service, http};
use tonic::{Code, Request, Status};

use super::bounds;
use super::wire::Malformed;

/// Who holds what: gives a `ListPodResourcesResponse`.
const LIST: &str = "/v1.PodResourcesLister/List";
/// What there is to hold: gives an `AllocatableResourcesResponse`.
const OFFER: &str = "/v1.PodResourcesLister/GetAllocatableResources";

/// The largest answer that is read: the limit that Kubernetes' own clients set. A node's is some ten kilobytes.
pub(super) const LARGEST: usize = 16 << 20;
/// How much is shown of what the other side wrote.
const SHOWN: usize = 160;

/// What the kubelet says, as it came.
#[derive(Debug)]
pub(super) struct Answer {
    /// Every pod, and what its containers hold: a `ListPodResourcesResponse`.
    pub pods: Bytes,
    /// Every device that there is to hold.
    pub offered: Offered,
}

/// Every device that device plugins offer.
#[derive(Debug)]
pub(super) enum Offered {
    /// These: an `AllocatableResourcesResponse`.
    Devices(Bytes),
    /// This kubelet does not tell.
    Unserved,
    /// It does, but has not this time.
    Failed(AskError),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// No runtime to ask with.
    #[error("prepare to ask the kubelet: {0}")]
    Prepare(#[source] std::io::Error),
    /// Nobody listens, or it may not be talked to.
    #[error("connect: {0}")]
    Connect(#[source] std::io::Error),
    /// It does not answer in time.
    #[error("it does not answer within {0:?}")]
    Deadline(Duration),
    /// It answers more than is read.
    #[error("its answer is larger than {} MiB", LARGEST >> 20)]
    TooLarge,
    /// It offers more than is counted.
    #[error("it offers more than {} parts of devices", bounds::PARTS)]
    TooMany,
    /// Its answer cannot be read.
    #[error("its answer cannot be read: {0}")]
    Malformed(#[from] Malformed),
    /// It answers with an error.
    #[error("it answers {code:?} {message:?}")]
    Refused {
        /// The kind of error.
        code: Code,
        /// What it says.
        message: String,
    },
    /// It does not answer as a kubelet does, or hangs up.
    #[error("the conversation breaks off: {0}")]
    Broken(String),
}

/// Asks the kubelet at `socket`. Takes no longer than `deadline`.
pub(super) fn ask(socket: &Path, deadline: Duration) -> Result<Answer, AskError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(AskError::Prepare)?.block_on(converse(socket, deadline))
}

async fn converse(socket: &Path, deadline: Duration) -> Result<Answer, AskError> {
    let until = Instant::now() + deadline;
    let late = |_| AskError::Deadline(deadline);
    let (mut kubelet, pods) = timeout_at(until, async {
        let mut kubelet = connect(socket).await?;
        let pods = call(&mut kubelet, LIST, deadline).await.map_err(|status| AskError::from(&status))?;
        Ok::<_, AskError>((kubelet, pods))
    })
    .await
    .map_err(late)??;
    let offered = match timeout_at(until, call(&mut kubelet, OFFER, deadline)).await.map_err(late) {
        Ok(Ok(devices)) => Offered::Devices(devices),
        Ok(Err(status)) if is_unserved(&status) => Offered::Unserved,
        Ok(Err(status)) => Offered::Failed(AskError::from(&status)),
        Err(error) => Offered::Failed(error),
    };
    Ok(Answer { pods, offered })
}

async fn connect(socket: &Path) -> Result<Grpc<Connection>, AskError> {
    let stream = UnixStream::connect(socket).await.map_err(AskError::Connect)?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| AskError::Broken(chain(&error)))?;
    // Ends with the runtime, or by itself with an error that the next call reports.
    tokio::spawn(connection);
    let origin = http::Uri::from_static("http://localhost");
    Ok(Grpc::with_origin(Connection(sender), origin).max_decoding_message_size(LARGEST))
}

/// Calls `method`, whose request is an empty message.
async fn call(
    kubelet: &mut Grpc<Connection>,
    method: &'static str,
    deadline: Duration,
) -> Result<Bytes, Status> {
    kubelet.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let mut request = Request::new(());
    request.set_timeout(deadline);
    let response = kubelet.unary(request, PathAndQuery::from_static(method), AsIs).await?;
    Ok(response.into_inner())
}

/// Sends empty messages and leaves answers as they are: see [`super::wire`].
#[derive(Debug, Clone, Copy)]
struct AsIs;

impl Codec for AsIs {
    type Encode = ();
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for AsIs {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), _: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for AsIs {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = message.remaining();
        Ok(Some(message.copy_to_bytes(length)))
    }
}

/// A kubelet answers so if it is too old for a method, or has it switched off.
fn is_unserved(status: &Status) -> bool {
    status.code() == Code::Unimplemented
        || (status.code() == Code::Unknown && status.message().contains("disabled"))
}

impl From<&Status> for AskError {
    fn from(status: &Status) -> Self {
        // A status with a source was not sent but made on this side.
        match std::error::Error::source(status) {
            Some(source) => Self::Broken(chain(source)),
            None if status.code() == Code::OutOfRange && status.message().contains("too large") => {
                Self::TooLarge
            }
            None => Self::Refused { code: status.code(), message: shortened(status.message()) },
        }
    }
}

/// An error and its causes, which hyper tells apart from it.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    shortened(&causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// A connection as the generated client wants it.
#[derive(Debug)]
struct Connection(http2::SendRequest<Body>);

impl Service<http::Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
