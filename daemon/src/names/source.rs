//! The source: when the server is asked, and what became of it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use warpmeter_core::fact::{Discard, Fact, Health, HealthState, PodNames, Source};
use warpmeter_core::identity::PodUid;

use super::body::{BYTES, Budget, PAGES};
use super::client::Client;
use super::fault::Fault;
use super::list::{PODS, Roll};
use super::options::NamesOptions;
use super::server::Server;
use crate::refusals::Refusals;

/// Pods of a page.
const PAGE: usize = 250;
/// The longest that a server's wish to be left alone is heeded.
const WAIT: Duration = Duration::from_mins(5);

/// Lists this node's pods at the API server.
#[derive(Debug)]
pub struct NamesSource {
    options: NamesOptions,
    client: Client,
    /// When the server is asked next; none before the first time.
    due: Option<Instant>,
    /// The last good answer.
    known: Option<Known>,
    /// Why the last round failed, and how many did in a row.
    failed: Option<(Fault, u32)>,
    /// Where pods that want no probes are named.
    refusals: Refusals,
}

#[derive(Debug)]
struct Known {
    at: Instant,
    names: Vec<PodNames>,
    refusals: BTreeSet<PodUid>,
    unread: u64,
    beyond: u64,
    foreign: u64,
    unclear: u64,
}

impl NamesSource {
    /// A source that has asked nothing yet. Opens nothing; problems of the options are told by [`Self::health`].
    pub fn new(options: NamesOptions) -> Self {
        Self {
            options,
            client: Client::default(),
            due: None,
            known: None,
            failed: None,
            refusals: Refusals::default(),
        }
    }

    /// The same, which names the pods that want no probes to `refusals`.
    #[must_use]
    pub fn telling(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    /// Asks the server if that is due, and appends the names if they are the first or have changed.
    ///
    /// To be called often, from a thread that runs no async code. Takes the deadline at most, and returns at once
    /// while nothing is due. Each round that did ask also appends a [`Fact::Poll`].
    pub fn poll(&mut self, out: &mut Vec<Fact>) {
        self.poll_at(Instant::now(), out);
    }

    /// How well the last round went.
    pub fn health(&self) -> Health {
        self.health_at(Instant::now())
    }

    pub(super) fn poll_at(&mut self, now: Instant, out: &mut Vec<Fact>) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        let began = Instant::now();
        let asked = self.ask();
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wait = match asked {
            Ok(known) => {
                self.failed = None;
                self.learn(Known { at: now, ..known }, out);
                self.period()
            }
            Err(fault) => {
                if matches!(fault, Fault::Garbage(_)) {
                    out.push(Fact::Discarded { reason: Discard::Garbage, count: 1 });
                }
                let failures = self.failed.as_ref().map_or(0, |(_, failures)| *failures).saturating_add(1);
                let wait = self.backoff(failures).max(fault.wait().unwrap_or_default().min(WAIT));
                self.failed = Some((fault, failures));
                wait
            }
        };
        self.due = Some(now + wait);
        out.push(Fact::Poll { took, answered: self.failed.is_none() });
    }

    /// Takes over an answer, and tells what is new of it.
    fn learn(&mut self, known: Known, out: &mut Vec<Fact>) {
        let before = self.known.as_ref();
        if known.unread > 0 && before.is_none_or(|before| before.unread != known.unread) {
            out.push(Fact::Discarded { reason: Discard::Garbage, count: known.unread });
        }
        if before.is_none_or(|before| before.names != known.names) {
            out.push(Fact::Names(known.names.clone()));
        }
        self.refusals.set(Source::Names, known.refusals.clone());
        self.known = Some(known);
    }

    fn ask(&mut self) -> Result<Known, Fault> {
        let node = &self.options.node;
        // What stands in the query must be a name and nothing else.
        if node.is_empty() || !node.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        {
            return Err(Fault::Node(node.clone()));
        }
        let server = Server::find(self.options.server.as_deref(), |name| std::env::var(name).ok())?;
        // One per round: nothing of a round, such as a connection or a lookup that hangs, outlives it.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .map_err(Fault::Start)?;
        let listed = self.list(&server, &runtime);
        runtime.shutdown_background();
        listed
    }

    /// Lists all pages; once more from the start if the server has forgotten its list on the way.
    fn list(&mut self, server: &Server, runtime: &Runtime) -> Result<Known, Fault> {
        let mut budget = Budget::new(runtime, self.options.deadline);
        match self.pages(server, &mut budget) {
            Err(Fault::Refused { status: 410, .. }) => self.pages(server, &mut budget),
            listed => listed,
        }
    }

    fn pages(&mut self, server: &Server, budget: &mut Budget<'_>) -> Result<Known, Fault> {
        let Self { options, client, .. } = self;
        let mut connection = client.connect(server, &options.ca, budget)?;
        let mut roll = Roll::new(&options.labels, Some(&options.node));
        let first = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}&limit={PAGE}", options.node);
        // From the server's own memory, which holds pods by node, and not from etcd, which would read all pods of
        // the cluster: 0 asks for any version, and seconds do not matter here. Such a list may come as one page.
        let mut path = format!("{first}&resourceVersion=0");
        for _ in 0..PAGES {
            let mut body = connection.get(&path, &options.token, budget)?;
            let next = match roll.page(std::io::BufReader::new(&mut body)) {
                Ok(next) => next,
                Err(error) => return Err(body.fault().unwrap_or(Fault::Garbage(error))),
            };
            if next.is_empty() {
                let Roll { unread, beyond, foreign, unclear, .. } = roll;
                let (at, refusals) = (Instant::now(), roll.refusals());
                return Ok(Known {
                    at,
                    refusals,
                    unread,
                    beyond,
                    foreign,
                    unclear,
                    names: roll.into_names(),
                });
            }
            // The token carries the version, and a version beside it is refused.
            path = format!("{first}&continue={}", encoded(&next));
        }
        Err(Fault::TooLarge { bytes: BYTES, pages: PAGES })
    }

    /// From one round to the next: the refresh, less a part that depends on the node, and never less than a second.
    fn period(&self) -> Duration {
        let hash = self
            .options
            .node
            .bytes()
            .fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        (self.options.refresh * (1000 - hash % 100) / 1000).max(Duration::from_secs(1))
    }

    /// From the `failures`-th failure in a row to the next try: short at first, up to four periods.
    fn backoff(&self, failures: u32) -> Duration {
        self.period() / 4 * (1 << (failures - 1).min(4))
    }

    pub(super) fn health_at(&self, now: Instant) -> Health {
        let (state, reason) = match (&self.failed, &self.known) {
            (None, None) => (HealthState::Down, "the API server has not been asked yet".to_owned()),
            (Some((fault, _)), None) => (HealthState::Down, fault.to_string()),
            (Some((fault, _)), Some(known)) => {
                let age = age(now.saturating_duration_since(known.at));
                (HealthState::Degraded, format!("{fault}; the names of {age} ago stay"))
            }
            (None, Some(known)) => {
                let reason = known.gaps(&self.options.node);
                let state = if reason.is_empty() { HealthState::Up } else { HealthState::Degraded };
                (state, reason)
            }
        };
        Health { state, reason }
    }
}

impl Known {
    /// What is missing from the answer.
    fn gaps(&self, node: &str) -> String {
        let mut gaps = Vec::new();
        // A node of a cluster runs some pod, such as this one. A name that the server does not know is no error to
        // it: it lists nothing.
        if self.names.is_empty() && self.unread == 0 {
            gaps.push(format!(
                "the API server lists no pod on node {node:?}, so no pod here gets a name or a label: is the node \
                 called so in the cluster (in a container the host's name is the pod's)? Set NODE_NAME in the \
                 DaemonSet from fieldRef spec.nodeName, or `[host] node`"
            ));
        }
        if self.foreign > 0 {
            gaps.push(format!(
                "{} pods of the answer are not of node {node:?} and left out: the API server does not filter by \
                 fieldSelector (see whether a proxy before it drops the query, and set `[names] server`)",
                self.foreign
            ));
        }
        if self.unclear > 0 {
            gaps.push(format!(
                "{} pods have an annotation of HAMi or gpushare that does not tell which GPU is whose: they hold what \
                 the kubelet was told (compare the annotation with the order of the pod's containers)",
                self.unclear
            ));
        }
        if self.unread > 0 {
            gaps.push(format!("{} pods of the answer cannot be read and stay unnamed", self.unread));
        }
        if self.beyond > 0 {
            gaps.push(format!("only {PODS} pods are named, and there are {} more", self.beyond));
        }
        gaps.join("; ")
    }
}

/// An age in words that seldom change, so that a health's reason does too.
fn age(age: Duration) -> String {
    match (age.as_secs() / 60).checked_ilog2() {
        None => "less than a minute".to_owned(),
        Some(power) => format!("{} min or more", 1_u64 << power),
    }
}

/// `text` as a part of a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
