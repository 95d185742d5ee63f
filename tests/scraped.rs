//! A real Prometheus on the real daemon.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{http, tool, wait};

/// A Prometheus server. Dropped, it is killed.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Scrapes `target` once a second, under the labels that service discovery would give its pod.
    fn start(sim: &Sim, target: SocketAddr) -> Option<Self> {
        let program = tool::find("prometheus")?;
        let config = sim.path("prometheus.yml");
        std::fs::write(
            &config,
            format!(
                "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n- job_name: gpu\n  \
                 honor_labels: true\n  static_configs:\n  - targets: [\"{target}\"]\n    \
                 labels: {{ namespace: monitoring, pod: warpmeter-x1, container: warpmeter, node: n }}\n"
            ),
        )
        .unwrap();
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

    /// The result of a query; its characters must need no escape but a space.
    fn query(&self, query: &str) -> Option<Vec<Value>> {
        let path = format!("/api/v1/query?query={}", query.replace(' ', "%20").replace('"', "%22"));
        let answer = http::get(self.address, &path, "").ok().filter(|answer| answer.status == 200)?;
        let body = chunks(answer.text())?;
        let mut answer: Value = serde_json::from_str(&body).ok()?;
        Some(std::mem::take(answer["data"]["result"].as_array_mut()?))
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

fn number(value: &Value) -> f64 {
    value.as_str().map_or_else(|| value.as_f64(), |text| text.parse().ok()).unwrap()
}

#[test]
fn a_prometheus_keeps_the_workloads_labels_and_sees_every_second_of_every_gpu() {
    let sim = Sim::new(
        "[[gpu]]\nmodel = \"H100\"\ncount = 2\n[[gpu]]\nmodel = \"A100\"\nmig = [{ profile = \"2g.20gb\" }]",
    );
    let gpu = &sim.gpus[0].uuid;
    let pods = sim.pods(&format!(
        "[[pod]]\nuid = \"1\"\nnamespace = \"research\"\nname = \"trainer\"\n\
         containers = [{{ name = \"main\", devices = [{gpu:?}] }}]\n"
    ));
    let _program = Program::start(&sim, gpu, None, "hog --duty 0.5");
    let daemon = Daemon::start(&sim, &pods);
    daemon.until_ready_is(200, "ready");
    let Some(prometheus) = Prometheus::start(&sim, daemon.address) else {
        return tool::skip("prometheus is not installed");
    };
    let results = wait::until("eight scrapes of each GPU", || {
        let results = prometheus.query("sum by (gpu_uuid) (warpmeter_gpu_seconds_total)[60s:1s]")?;
        let scrapes = |result: &Value| result["values"].as_array().map_or(0, Vec::len);
        (results.len() == 3 && results.iter().all(|result| scrapes(result) >= 10)).then_some(results)
    });
    for result in &results {
        let values = result["values"].as_array().unwrap();
        let (first, last) = (values.first().unwrap(), values.last().unwrap());
        let passed = number(&last[0]) - number(&first[0]);
        let counted = number(&last[1]) - number(&first[1]);
        // A window more or less has closed.
        assert!((passed - counted).abs() < 2.5, "{counted} s of {passed} s: {result}");
        assert!(values.windows(2).all(|pair| number(&pair[0][1]) <= number(&pair[1][1])), "{result}");
    }
    let up = prometheus.query("up").unwrap();
    assert_eq!(up.iter().map(|up| number(&up["value"][1])).collect::<Vec<_>>(), [1.0]);
    let pod =
        prometheus.query("sum by (namespace, pod, container) (warpmeter_pod_gpu_seconds_total)").unwrap();
    assert_eq!(pod.len(), 1, "{pod:?}");
    let labels = ["namespace", "pod", "container"].map(|label| pod[0]["metric"][label].as_str().unwrap());
    assert_eq!(labels, ["research", "trainer", "main"]);
    let all = prometheus.query("{__name__=~\"warpmeter_.%2B\"}").unwrap();
    assert!(all.len() > 100, "{}", all.len());
    for series in &all {
        let labels = series["metric"].as_object().unwrap();
        assert!(!labels.keys().any(|label| label.starts_with("exported_")), "{series}");
    }
}
