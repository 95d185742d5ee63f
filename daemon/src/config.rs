//! The configuration file: TOML, every key optional, every problem reported at once with its place.

mod reader;
mod values;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use warpmeter_core::price::{Price, Prices};
use warpmeter_core::settings::Settings;

pub use reader::Problem;
use reader::Section;

/// Everything that can be set. The defaults suit a plain node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the endpoints listen.
    pub listen: SocketAddr,
    /// Directories or files in which `libnvidia-ml.so.1` is looked for, in order; empty: the built-in list.
    pub libraries: Vec<PathBuf>,
    /// The root of the host's process file system.
    pub proc: PathBuf,
    /// The directory of the host's device files.
    pub dev: PathBuf,
    /// The node's name; empty: the host's name.
    pub node: String,
    /// A file that names pods and what they were granted.
    pub pods: Option<PathBuf>,
    /// The socket on which `release` and `resume` are taken; none: signals only.
    pub control: Option<PathBuf>,
    /// How much is exported.
    pub level: Level,
    /// Settings of the fold.
    pub settings: Settings,
}

pub use warpmeter_exporter::catalogue::Level;

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 9408)),
            libraries: Vec::new(),
            proc: "/proc".into(),
            dev: "/dev".into(),
            node: String::new(),
            pods: None,
            control: Some(crate::control::SOCKET.into()),
            level: Level::Standard,
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
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}:{}:{}: {}", path.display(), problem.line, problem.column, problem.message))
        .collect();
    lines.join("\n")
}

impl Config {
    /// Reads a configuration file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|problems| ConfigError::Invalid { path: path.to_owned(), problems })
    }

    /// Parses a configuration. On failure gives every problem of the text, in order of place.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let mut config = Self::default();
        let mut infer = None;
        reader::read(text, |name, section| match name {
            "http" => section.read(&["listen"], |section, key| match key {
                "listen" => section.set(key, &mut config.listen, values::address),
                _ => false,
            }),
            "nvidia" => section.read(&["libraries"], |section, key| match key {
                "libraries" => section.set(key, &mut config.libraries, values::paths),
                _ => false,
            }),
            "host" => section.read(&["proc", "dev", "node"], |section, key| match key {
                "proc" => section.set(key, &mut config.proc, values::path),
                "dev" => section.set(key, &mut config.dev, values::path),
                "node" => section.set(key, &mut config.node, values::text),
                _ => false,
            }),
            "pods" => section.read(&["file"], |section, key| match key {
                "file" => section.set_some(key, &mut config.pods, values::path),
                _ => false,
            }),
            "control" => section.read(&["socket"], |section, key| match key {
                "socket" => section.set(key, &mut config.control, values::optional_path),
                _ => false,
            }),
            "window" => window(section, &mut config.settings),
            "allocation" => {
                section.read(&["infer", "redistribute", "equal_split"], |section, key| match key {
                    "infer" => section.set_some(key, &mut infer, values::boolean),
                    "redistribute" => section.set(key, &mut config.settings.redistribute, values::boolean),
                    "equal_split" => section.set(key, &mut config.settings.equal_split, values::boolean),
                    _ => false,
                })
            }
            "metrics" => section.read(&["level"], |section, key| match key {
                "level" => section.set(key, &mut config.level, values::level),
                _ => false,
            }),
            "price" => prices(section, &mut config.settings.prices),
            _ => false,
        })?;
        // Whoever names pods says who holds what; otherwise those hold a device who have it open.
        config.settings.infer_allocation = infer.unwrap_or(config.pods.is_none());
        Ok(config)
    }
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

/// `currency`, `default`, and otherwise words of product names.
fn prices(section: &mut Section<'_>, prices: &mut Prices) -> bool {
    "USD".clone_into(&mut prices.currency);
    let mut models: Vec<(String, Price)> = Vec::new();
    section.read(&["currency", "default", "a word of a GPU's product name such as H100"], |section, key| {
        match key {
            "currency" => section.set(key, &mut prices.currency, values::currency),
            "default" => section.set_some(key, &mut prices.other, values::price),
            model if values::is_model(model) => {
                let mut price = None;
                section.set_some(model, &mut price, values::price);
                models.extend(price.map(|price| (model.to_owned(), price)));
                true
            }
            _ => false,
        }
    });
    prices.models = models;
    true
}

#[cfg(test)]
mod tests;
