//! A real Prometheus on the real daemon.

use serde_json::Value;
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::program::Program;
use warpmeter_tests::prometheus::{Prometheus, job, number};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{tool, wait};

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
    let Some(prometheus) = Prometheus::start(&sim, &[job("gpu", daemon.address, "honor_labels: true")])
    else {
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
    let all = prometheus.query("{__name__=~\"warpmeter_.+\"}").unwrap();
    assert!(all.len() > 100, "{}", all.len());
    for series in &all {
        let labels = series["metric"].as_object().unwrap();
        assert!(!labels.keys().any(|label| label.starts_with("exported_")), "{series}");
    }
}
