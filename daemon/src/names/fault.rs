//! Why there are no names, and what would help.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::text::{self, NAME};

/// The permission that the daemon needs, as its administrator writes it.
const RBAC: &str = "bind its service account by a ClusterRoleBinding to a ClusterRole with \
                    `rules: [{apiGroups: [\"\"], resources: [\"pods\"], verbs: [\"list\"]}]`";

/// Why a round gave no names.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The node's name is missing or cannot be one.
    #[error(
        "{0:?} is not the name of a node: set NODE_NAME in the DaemonSet from fieldRef spec.nodeName, or \
         `[host] node`"
    )]
    Node(String),
    /// No server is configured and none is in the environment.
    #[error(
        "KUBERNETES_SERVICE_HOST is not set, so this is not a pod of a cluster: configure the API server's \
         address"
    )]
    NoServer,
    /// The configured server cannot be one.
    #[error("{server:?} is not the address of an API server: {problem}")]
    Server { server: String, problem: &'static str },
    /// A file of the service account cannot be used.
    #[error("read {what} {path}: {source}; mount a service account (automountServiceAccountToken)")]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// The runtime of a round could not be had.
    #[error("start a round: {0}")]
    Start(io::Error),
    /// Nobody answers.
    #[error(
        "connect to {server}: {source}; is there a NetworkPolicy that keeps this pod from the API server?"
    )]
    Connect { server: String, source: io::Error },
    /// The server is not who it should be, or speaks no TLS.
    #[error(
        "TLS with {server}: {source}; the certificate must name this host and descend from {ca}, the cluster's \
         own CA"
    )]
    Tls { server: String, ca: PathBuf, source: io::Error },
    /// The connection broke.
    #[error("{attempt}: {}", chain(source))]
    Http { attempt: &'static str, source: hyper::Error },
    /// The request cannot be made: a token with characters that no header may have.
    #[error("make the request: {0}; does the token's file hold a token?")]
    Request(#[from] hyper::http::Error),
    /// The round took too long.
    #[error(
        "the API server gives no complete answer within {limit:?} (it was to {attempt}): see whether a NetworkPolicy \
         or a firewall drops this pod's packets, and whether the server answers others"
    )]
    Deadline { attempt: &'static str, limit: Duration },
    /// The server refused.
    #[error("{}", refusal(*.status, .message))]
    Refused {
        status: u16,
        message: String,
        /// How long the server asks to be left alone.
        wait: Option<Duration>,
    },
    /// The answer is larger than any node's pods.
    #[error("the answer is larger than {} MiB, or has more than {pages} pages", bytes >> 20)]
    TooLarge { bytes: u64, pages: usize },
    /// The answer is no list of pods.
    #[error("the answer is no list of pods: {0}; does a proxy answer for the API server?")]
    Garbage(serde_json::Error),
}

impl Fault {
    /// How long the server asks to be left alone.
    pub(super) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Refused { wait, .. } => *wait,
            _ => None,
        }
    }
}

/// What a status says, and what to do about it.
fn refusal(status: u16, message: &str) -> String {
    let message = text::shown(message, NAME);
    let said = if message.is_empty() { String::new() } else { format!(" ({message})") };
    let help = match status {
        401 => "the token is not valid here: is it of this cluster, and for the API server's audience?",
        403 => RBAC,
        404 => "there are no pods at this address: is it the API server's?",
        410 => "the list changed faster than it could be read; it is tried again",
        429 => "the server is busy and is asked again later",
        300..=399 => "redirections are not followed: configure the API server's own address",
        500..=599 => "the server fails and is asked again later",
        _ => "this is not an answer to a list of pods",
    };
    format!("the API server answers {status}{said}: {help}")
}

/// An error and its causes: the outermost alone says little.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
