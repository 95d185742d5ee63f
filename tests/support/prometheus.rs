//! A real Prometheus server.

use std::fmt::Write;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::sim::Sim;
use crate::{http, tool};

/// A server that scrapes once a second. Dropped, it is killed.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
}

/// A scrape job for `target` under the labels that service discovery would give its pod, with further lines.
pub fn job(name: &str, target: SocketAddr, more: &str) -> String {
    let labels = "{ namespace: monitoring, pod: warpmeter-x1, container: warpmeter, node: n }";
    let mut job = format!("- job_name: {name}\n  static_configs:\n");
    writeln!(job, "  - targets: [\"{target}\"]\n    labels: {labels}").unwrap();
    for line in more.lines() {
        writeln!(job, "  {line}").unwrap();
    }
    job
}

impl Prometheus {
    /// Starts one with these jobs; none if it is not installed.
    pub fn start(sim: &Sim, jobs: &[String]) -> Option<Self> {
        let program = tool::find("prometheus")?;
        let config = sim.path("prometheus.yml");
        let jobs = jobs.concat();
        let text = format!("global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n{jobs}");
        std::fs::write(&config, text).unwrap();
        let address = http::free_address();
        let child = Command::new(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", sim.path("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self { child, address })
    }

    /// The result of a query, once the server answers.
    pub fn query(&self, query: &str) -> Option<Vec<Value>> {
        let mut path = String::from("/api/v1/query?query=");
        for byte in query.bytes() {
            write!(path, "%{byte:02X}").unwrap();
        }
        let answer = http::get(self.address, &path, "").ok()?;
        assert_ne!(answer.status, 400, "{query}: {}", answer.text());
        let body = chunks(answer.text())?;
        let mut answer: Value = serde_json::from_str(&body).ok()?;
        Some(std::mem::take(answer["data"]["result"].as_array_mut()?))
    }

    /// The value of a query for each value of a label.
    pub fn by(&self, label: &str, query: &str) -> Option<Vec<(String, f64)>> {
        let pairs = self.query(query)?.into_iter().map(|result| {
            let name = result["metric"][label].as_str().unwrap_or_default().to_owned();
            (name, number(&result["value"][1]))
        });
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        Some(pairs)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        if self.child.kill().is_ok() {
            self.child.wait().unwrap();
        }
    }
}

/// A number as the server writes it.
pub fn number(value: &Value) -> f64 {
    value.as_str().map_or_else(|| value.as_f64(), |text| text.parse().ok()).unwrap()
}

/// A body that may be in chunks.
fn chunks(body: &str) -> Option<String> {
    if body.starts_with('{') {
        return Some(body.to_owned());
    }
    let (mut text, mut rest) = (String::new(), body);
    loop {
        let (length, after) = rest.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(text);
        }
        text.push_str(after.get(..length)?);
        rest = after.get(length + 2..)?;
    }
}
