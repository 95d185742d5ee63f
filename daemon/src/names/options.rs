//! What is asked of which server, and which labels are taken.

use std::path::PathBuf;
use std::time::Duration;

/// Where a pod finds the identity that the cluster gave it.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How the API server is reached and what is taken from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamesOptions {
    /// The server, as `https://host[:port][/prefix]`; none for the cluster's own, from `KUBERNETES_SERVICE_HOST` and
    /// `KUBERNETES_SERVICE_PORT`. `http://` is taken only with a loopback host, for a `kubectl proxy` beside the
    /// daemon, and then no token is sent.
    pub server: Option<String>,
    /// This node, as the cluster calls it: `spec.nodeName`, which need not be the host's name.
    pub node: String,
    /// File of the bearer token. Read at each request, since the kubelet rotates it.
    pub token: PathBuf,
    /// File of the certificates, in PEM, that the server's certificate must descend from. Read at each round.
    pub ca: PathBuf,
    /// How often pods are listed. Each node takes up to a tenth less, so that nodes started at once drift apart.
    pub refresh: Duration,
    /// How long one round may take in all.
    pub deadline: Duration,
    /// Which labels and annotations become attributes of a pod.
    pub labels: LabelKeys,
}

impl NamesOptions {
    /// The cluster's own server and the service account of the daemon's pod, for the pods of `node`.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            server: None,
            node: node.into(),
            token: format!("{ACCOUNT}/token").into(),
            ca: format!("{ACCOUNT}/ca.crt").into(),
            refresh: Duration::from_secs(30),
            deadline: Duration::from_secs(5),
            labels: LabelKeys::default(),
        }
    }
}

/// For each attribute, the keys of labels or annotations that can give it.
///
/// The first key with a value wins, whatever the order in which a pod lists them; of a label and an annotation of
/// the same key, the label. A pod without any of them leaves the attribute empty. Keys are exact; an empty list
/// turns its attribute off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelKeys {
    /// Who pays. By default `team`, then `owner`: the keys of common cost tools. Not `app.kubernetes.io/part-of`,
    /// which names a product and not whoever pays for it; a wrong bill is worse than none.
    pub team: Vec<String>,
    /// The application. By default Kubernetes' recommended `app.kubernetes.io/name`, the older `app` and `k8s-app`,
    /// and OpenTelemetry's `resource.opentelemetry.io/service.name`.
    pub app: Vec<String>,
    /// The model trained or served. By default `model`, llm-d's `llm-d.ai/model` and KServe's
    /// `serving.kserve.io/inferenceservice`.
    pub model: Vec<String>,
    /// The environment. By default `environment`, `env`, Datadog's `tags.datadoghq.com/env` and OpenTelemetry's
    /// `resource.opentelemetry.io/deployment.environment.name`.
    pub environment: Vec<String>,
    /// Whether idleness is intended: `true`, `1` or `yes` in any case; every other value means that it is not. By
    /// default `warpmeter/idle-ok`. One key of our own: no other tool's label means this.
    pub idle_ok: Vec<String>,
    /// Whether its processes may be probed: not with `off`, `false`, `0` or `no` in any case. By default
    /// `warpmeter/probes`.
    pub probes: Vec<String>,
}

impl Default for LabelKeys {
    fn default() -> Self {
        let keys = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect();
        Self {
            team: keys(&["team", "owner"]),
            app: keys(&[
                "app.kubernetes.io/name",
                "app",
                "k8s-app",
                "resource.opentelemetry.io/service.name",
            ]),
            model: keys(&["model", "llm-d.ai/model", "serving.kserve.io/inferenceservice"]),
            environment: keys(&[
                "environment",
                "env",
                "tags.datadoghq.com/env",
                "resource.opentelemetry.io/deployment.environment.name",
            ]),
            idle_ok: keys(&["warpmeter/idle-ok"]),
            probes: keys(&["warpmeter/probes"]),
        }
    }
}
