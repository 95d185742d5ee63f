//! This node's own labels, which say its instance type and how it is paid for.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::body::Budget;
use super::client::Client;
use super::fault::Fault;
use super::options::NamesOptions;
use super::server::Server;

/// Bytes of an answer: a node with its images and managed fields has a tenth of it.
const LARGEST: u64 = 4 << 20;
/// From one question to the next. Labels of a node seldom change.
const REFRESH: Duration = Duration::from_mins(5);
/// From the first failure to the next try; twice as long after each further one, up to [`REFRESH`].
const RETRY: Duration = Duration::from_secs(10);

/// What the server says of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAnswer {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its `spec.providerID`; empty if it has none.
    pub provider_id: String,
}

/// Asks the API server for this node. Needs `get` on `nodes`.
#[derive(Debug)]
pub struct NodeSource {
    options: NamesOptions,
    client: Client,
    due: Option<Instant>,
    known: Option<NodeAnswer>,
    /// Why the last round failed, and how many did in a row.
    failed: Option<(String, u32)>,
}

#[derive(Deserialize)]
struct Node {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "providerID")]
    provider_id: String,
}

impl NodeSource {
    /// A source that has asked nothing yet.
    pub fn new(mut options: NamesOptions, node: &str) -> Self {
        if options.node.is_empty() {
            node.clone_into(&mut options.node);
        }
        Self { options, client: Client::default(), due: None, known: None, failed: None }
    }

    /// Asks if that is due. Whether the answer is new. Takes the deadline at most.
    pub fn poll(&mut self, now: Instant) -> bool {
        if self.due.is_some_and(|due| now < due) {
            return false;
        }
        match self.ask() {
            Ok(answer) => {
                self.failed = None;
                self.due = Some(now + REFRESH);
                let new = self.known.as_ref() != Some(&answer);
                self.known = Some(answer);
                new
            }
            Err(fault) => {
                let failures = self.failed.as_ref().map_or(0, |(_, failures)| *failures).saturating_add(1);
                let wait = RETRY * (1 << (failures - 1).min(5));
                self.due = Some(now + wait.max(fault.wait().unwrap_or_default()).min(REFRESH));
                self.failed = Some((self.told(&fault), failures));
                false
            }
        }
    }

    /// The last good answer.
    pub fn known(&self) -> Option<&NodeAnswer> {
        self.known.as_ref()
    }

    /// Why the last round failed; empty if it did not.
    pub fn reason(&self) -> String {
        match (&self.failed, &self.known) {
            (Some((reason, _)), Some(_)) => format!("labels of the node: {reason}; those last known stay"),
            (Some((reason, _)), None) => format!("labels of the node: {reason}"),
            (None, None) => "labels of the node: the API server has not been asked yet".to_owned(),
            (None, Some(_)) => String::new(),
        }
    }

    /// A fault in the words of a question for a node: others are the same as for its pods.
    fn told(&self, fault: &Fault) -> String {
        match fault {
            Fault::Refused { status: 403, .. } => {
                "the API server answers 403: bind the service account by a ClusterRoleBinding to a ClusterRole with \
                 `rules: [{apiGroups: [\"\"], resources: [\"nodes\"], verbs: [\"get\"]}]`"
                    .to_owned()
            }
            Fault::Refused { status: 404, .. } => {
                format!("the API server knows no node {:?}: set NODE_NAME or [host] node", self.options.node)
            }
            Fault::Garbage(error) => format!("the answer is not this node: {error}"),
            other => other.to_string(),
        }
    }

    fn ask(&mut self) -> Result<NodeAnswer, Fault> {
        let Self { options, client, .. } = self;
        let name = &options.node;
        // What stands in the path must be a name and nothing else.
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        {
            return Err(Fault::Node(name.clone()));
        }
        let server = Server::find(options.server.as_deref(), |name| std::env::var(name).ok())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .map_err(Fault::Start)?;
        let asked = (|| {
            let mut budget = Budget::new(&runtime, options.deadline);
            let mut connection = client.connect(&server, &options.ca, &budget)?;
            let mut body = connection.get(&format!("/api/v1/nodes/{name}"), &options.token, &mut budget)?;
            match parse((&mut body).take(LARGEST), name) {
                Ok(answer) => Ok(answer),
                Err(error) => Err(body.fault().unwrap_or(Fault::Garbage(error))),
            }
        })();
        runtime.shutdown_background();
        asked
    }
}

fn parse(text: impl Read, name: &str) -> Result<NodeAnswer, serde_json::Error> {
    let node: Node = serde_json::from_reader(std::io::BufReader::new(text))?;
    if node.metadata.name == name {
        Ok(NodeAnswer { labels: node.metadata.labels, provider_id: node.spec.provider_id })
    } else {
        Err(serde::de::Error::custom("it has another name"))
    }
}
