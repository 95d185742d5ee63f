//! The serving side.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tonic::codegen::Service;
use tonic::{Code, Request, Response, Status};

use crate::raw;
use crate::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use crate::v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};

/// How a kubelet behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manner {
    /// As it should.
    Answers,
    /// It serves only `List`, as before 1.21.
    OnlyLists,
    /// It answers `List`, and hangs when asked what is allocatable.
    HangsWhenAskedMore,
    /// It accepts, and then is silent.
    Hangs,
    /// It answers `List` with this message, whatever it is, and every other call as it should.
    Lists(Bytes),
    /// It answers every call with this error.
    Refuses(Code, String),
    /// It is not a kubelet at all: it sends these bytes and hangs up.
    Sends(Vec<u8>),
}

/// How often it was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// `List`.
    pub list: u32,
    /// `GetAllocatableResources`.
    pub allocatable: u32,
    /// `Get`.
    pub get: u32,
    /// Connections.
    pub connections: u32,
}

/// What it knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pods: Vec<PodResources>,
    pub(crate) allocatable: Vec<ContainerDevices>,
    pub(crate) manner: Manner,
    pub(crate) calls: Calls,
}

/// What it knows, in the hands of the test and the server.
#[derive(Debug, Clone)]
pub(crate) struct Shared(pub(crate) Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn behave(&self, lists: bool) -> Result<(), Status> {
        let manner = self.lock().manner.clone();
        match manner {
            Manner::Answers | Manner::Lists(_) | Manner::Sends(_) => Ok(()),
            Manner::OnlyLists | Manner::HangsWhenAskedMore if lists => Ok(()),
            Manner::OnlyLists => {
                Err(Status::unimplemented("unknown method for service v1.PodResourcesLister"))
            }
            Manner::HangsWhenAskedMore | Manner::Hangs => std::future::pending().await,
            Manner::Refuses(code, message) => Err(Status::new(code, message)),
        }
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Shared {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.lock().calls.list += 1;
        self.behave(true).await?;
        Ok(Response::new(ListPodResourcesResponse { pod_resources: self.lock().pods.clone() }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.lock().calls.allocatable += 1;
        self.behave(false).await?;
        let devices = self.lock().allocatable.clone();
        Ok(Response::new(AllocatableResourcesResponse { devices, ..AllocatableResourcesResponse::default() }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        self.lock().calls.get += 1;
        self.behave(false).await?;
        let wanted = request.into_inner();
        let pod = self
            .lock()
            .pods
            .iter()
            .find(|pod| pod.name == wanted.pod_name && pod.namespace == wanted.pod_namespace)
            .cloned();
        let pod = pod.ok_or_else(|| Status::unknown(format!("pod {} not found", wanted.pod_name)))?;
        Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(pod) }))
    }
}

/// A thread that serves a socket until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves a new socket at `path`.
    pub(crate) fn start(path: &Path, state: Shared) -> std::io::Result<Self> {
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, state) => {}
                }
            });
            // Connections that hang do not keep it from ending.
            runtime.shutdown_timeout(Duration::ZERO);
        });
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

async fn accept(listener: std::os::unix::net::UnixListener, state: Shared) {
    let Ok(listener) = UnixListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        state.lock().calls.connections += 1;
        tokio::spawn(serve(stream, state.clone()));
    }
}

async fn serve(mut stream: UnixStream, state: Shared) {
    let manner = state.lock().manner.clone();
    if let Manner::Sends(bytes) = &manner {
        // Whether they arrive is the other side's affair.
        drop(stream.write_all(bytes).await);
        return;
    }
    let calls = state.clone();
    let server = PodResourcesListerServer::new(state);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (mut server, manner, calls) = (server.clone(), manner.clone(), calls.clone());
        async move {
            Ok::<_, Infallible>(match manner {
                Manner::Lists(list) if request.uri().path().ends_with("/List") => {
                    calls.lock().calls.list += 1;
                    raw::answer(list, request).await
                }
                _ => infallible(server.call(request).await),
            })
        }
    });
    let connection =
        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    // A client that hangs up is no failure of the server.
    drop(connection.await);
}

fn infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
