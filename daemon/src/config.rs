//! The configuration file: TOML, every key optional, every problem reported at once with its place.

mod cupti;
mod dcgm;
mod http;
mod peak;
mod price;
mod reader;
mod values;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use warpmeter_core::settings::Settings;

use crate::bpf::Enabled;
use crate::dcgm::DcgmOptions;
use crate::kubelet::KubeletOptions;
use crate::names::{LabelKeys, NamesOptions};
use crate::prices::PriceOptions;

pub use cupti::CuptiOptions;
pub use http::HttpOptions;
use reader::Section;
pub use reader::{Placed, Problem};
use values::PodsSource;

/// Who says which pod holds which device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pods {
    /// The kubelet where there is one, else nobody.
    Auto,
    /// The kubelet.
    Kubelet,
    /// A file.
    File(PathBuf),
    /// Nobody.
    None,
}

/// Everything that can be set. The defaults suit a plain node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the endpoints listen.
    pub listen: SocketAddr,
    /// What guards the endpoints, and what they serve beside the metrics.
    pub http: HttpOptions,
    /// Directories or files in which `libnvidia-ml.so.1` is looked for, in order; empty: the built-in list.
    pub libraries: Vec<PathBuf>,
    /// The root of the host's process file system.
    pub proc: PathBuf,
    /// The directory of the host's device files.
    pub dev: PathBuf,
    /// The directory of the host's cgroup hierarchies.
    pub cgroup: PathBuf,
    /// The node's name; empty: the host's name.
    pub node: String,
    /// Who says which pod holds which device.
    pub pods: Pods,
    /// How the kubelet is asked, if it is.
    pub kubelet: KubeletOptions,
    /// How the API server is asked for names and labels, if it is.
    pub names: Option<NamesOptions>,
    /// Whether whoever has a device open holds it; none: only where nobody says who does.
    pub infer: Option<bool>,
    /// The socket on which `release` and `resume` are taken; none: signals only.
    pub control: Option<PathBuf>,
    /// Whether the CUDA driver library and the scheduler are probed.
    pub probes: Enabled,
    /// Whether performance monitors are sampled.
    pub cupti: CuptiOptions,
    /// Whether sums of libraries that were injected into processes are read.
    pub inject: bool,
    /// How a neighbouring DCGM exporter is read, if it is.
    pub dcgm: Option<DcgmOptions>,
    /// How much is exported.
    pub level: Level,
    /// What is said of prices.
    pub price: PriceOptions,
    /// Settings of the fold, but for what depends on the node: its name, who holds what, and prices.
    pub settings: Settings,
}

pub use warpmeter_exporter::catalogue::Level;

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 9408)),
            http: HttpOptions::default(),
            libraries: Vec::new(),
            proc: "/proc".into(),
            dev: "/dev".into(),
            cgroup: "/sys/fs/cgroup".into(),
            node: String::new(),
            pods: Pods::Auto,
            kubelet: KubeletOptions::default(),
            names: None,
            infer: None,
            control: Some(crate::control::SOCKET.into()),
            probes: Enabled::Auto,
            cupti: CuptiOptions::default(),
            inject: false,
            dcgm: None,
            level: Level::Standard,
            price: PriceOptions::default(),
            settings: Settings::default(),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("read configuration {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file has problems: all of them, in order of their place.
    #[error("{}", list(path, problems))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The problems.
        problems: Vec<Problem>,
    },
}

fn list(path: &Path, problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(|problem| format!("{}:{problem}", path.display())).collect();
    lines.join("\n")
}

impl Config {
    /// Reads a configuration file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let mut config = Self::parse(&text)
            .map_err(|problems| ConfigError::Invalid { path: path.to_owned(), problems })?;
        path.clone_into(&mut config.http.file);
        Ok(config)
    }

    /// Parses a configuration. On failure gives every problem of the text, in order of place.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let mut config = Self::default();
        let mut names = NamesOptions::new("");
        let (mut api, mut price_api) = (false, false);
        reader::read(text, |name, section| match name {
            "http" => http::read(section, &mut config.listen, &mut config.http),
            "nvidia" => section.read(&["libraries"], |section, key| match key {
                "libraries" => section.set(key, &mut config.libraries, values::paths),
                _ => false,
            }),
            "host" => section.read(&["proc", "dev", "cgroup", "node"], |section, key| match key {
                "proc" => section.set(key, &mut config.proc, values::path),
                "dev" => section.set(key, &mut config.dev, values::path),
                "cgroup" => section.set(key, &mut config.cgroup, values::path),
                "node" => section.set(key, &mut config.node, values::text),
                _ => false,
            }),
            "pods" => pods(section, &mut config.pods),
            "kubelet" => kubelet(section, &mut config.kubelet),
            "names" => section.read(&["api", "server", "token", "ca", "refresh"], |section, key| match key {
                "api" => section.set(key, &mut api, values::boolean),
                "server" => section.set_some(key, &mut names.server, values::server),
                "token" => section.set(key, &mut names.token, values::path),
                "ca" => section.set(key, &mut names.ca, values::path),
                "refresh" => section.set(key, &mut names.refresh, values::period),
                _ => false,
            }),
            "labels" => labels(section, &mut names.labels),
            "control" => section.read(&["socket"], |section, key| match key {
                "socket" => section.set(key, &mut config.control, values::optional_path),
                _ => false,
            }),
            "window" => window(section, &mut config.settings),
            "allocation" => {
                section.read(&["infer", "redistribute", "equal_split"], |section, key| match key {
                    "infer" => section.set_some(key, &mut config.infer, values::boolean),
                    "redistribute" => section.set(key, &mut config.settings.redistribute, values::boolean),
                    "equal_split" => section.set(key, &mut config.settings.equal_split, values::boolean),
                    _ => false,
                })
            }
            "bpf" => section.read(&["enabled"], |section, key| match key {
                "enabled" => section.set(key, &mut config.probes, values::enabled),
                _ => false,
            }),
            "cupti" => cupti::read(section, &mut config.cupti),
            "inject" => section.read(&["enabled"], |section, key| match key {
                "enabled" => section.set(key, &mut config.inject, values::boolean),
                _ => false,
            }),
            "dcgm" => dcgm::read(section, &mut config.dcgm),
            "metrics" => section.read(&["level"], |section, key| match key {
                "level" => section.set(key, &mut config.level, values::level),
                _ => false,
            }),
            "price" => price::read(section, &mut config.price, &mut price_api),
            "peak" => peak::read(section, &mut config.settings.peaks),
            _ => false,
        })?;
        config.price.api = price_api.then(|| names.clone());
        config.names = api.then_some(names);
        let incomplete = config.http.incomplete();
        if incomplete.is_empty() { Ok(config) } else { Err(incomplete) }
    }
}

/// Source and file have to agree: a file that nobody would read is a mistake.
fn pods(section: &mut Section<'_>, pods: &mut Pods) -> bool {
    let mut file = None;
    let mut source = None;
    section.read(&["source", "file"], |section, key| match key {
        "source" => section.set_some(key, &mut source, values::pods_source),
        "file" => section.set_some(key, &mut file, values::path),
        _ => false,
    });
    match (source, file) {
        (None | Some(PodsSource::File), Some(file)) => *pods = Pods::File(file),
        (Some(PodsSource::File), None) => {
            if !section.has("file") {
                section.refuse("source", "\"file\" needs `file`, the absolute path of the pods' file");
            }
        }
        (Some(other), Some(_)) => {
            let written = other.written();
            let message = format!("source is \"{written}\", so it would not be read; leave out one of them");
            section.refuse("file", &message);
        }
        (Some(PodsSource::Kubelet), None) => *pods = Pods::Kubelet,
        (Some(PodsSource::None), None) => *pods = Pods::None,
        (None | Some(PodsSource::Auto), None) => *pods = Pods::Auto,
    }
    true
}

fn kubelet(section: &mut Section<'_>, options: &mut KubeletOptions) -> bool {
    let keys = ["socket", "resources", "pod_logs", "container_logs", "deadline", "refresh"];
    section.read(&keys, |section, key| match key {
        "socket" => section.set(key, &mut options.socket, values::path),
        "resources" => section.set(key, &mut options.resources, values::texts),
        "pod_logs" => section.set(key, &mut options.pod_logs, values::path),
        "container_logs" => section.set(key, &mut options.container_logs, values::path),
        "deadline" => section.set(key, &mut options.deadline, values::period),
        "refresh" => section.set(key, &mut options.refresh, values::period),
        _ => false,
    })
}

/// For each attribute of a pod, the keys of the labels or annotations that give it, in order of preference.
fn labels(section: &mut Section<'_>, keys: &mut LabelKeys) -> bool {
    section.read(&["team", "app", "model", "environment", "idle_ok", "probes"], |section, key| match key {
        "team" => section.set(key, &mut keys.team, values::texts),
        "app" => section.set(key, &mut keys.app, values::texts),
        "model" => section.set(key, &mut keys.model, values::texts),
        "environment" => section.set(key, &mut keys.environment, values::texts),
        "idle_ok" => section.set(key, &mut keys.idle_ok, values::texts),
        "probes" => section.set(key, &mut keys.probes, values::texts),
        _ => false,
    })
}

fn window(section: &mut Section<'_>, settings: &mut Settings) -> bool {
    let short = |value: &_| values::duration(value, Duration::from_millis(100), Duration::from_secs(60));
    let long = |value: &_| values::duration(value, Duration::from_secs(1), Duration::from_secs(86_400));
    let late = |value: &_| values::duration(value, Duration::from_millis(1), Duration::from_secs(60));
    let keys = ["length", "lateness", "process_lateness", "retain", "no_work_after"];
    section.read(&keys, |section, key| match key {
        "length" => section.set(key, &mut settings.window, short),
        "lateness" => section.set(key, &mut settings.lateness, late),
        "process_lateness" => section.set(key, &mut settings.process_lateness, late),
        "retain" => section.set(key, &mut settings.retain, long),
        "no_work_after" => section.set(key, &mut settings.no_work_after, long),
        _ => false,
    })
}

#[cfg(test)]
mod tests;
