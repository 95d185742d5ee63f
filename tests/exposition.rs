//! What a scrape gives: valid, typed, compressed on request, and adding up.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{http, tool};

const NODE: &str = r#"
[[gpu]]
model = "H100"

[[gpu]]
model = "A100"
mig = [{ profile = "3g.40gb" }, { profile = "1g.10gb" }]

[[gpu]]
model = "T4"
"#;

/// A pod called what no pod is called, on a GPU that is busy.
fn busy_node() -> (Sim, Daemon, Program) {
    let sim = Sim::new(NODE);
    let gpu = &sim.gpus[0].uuid;
    let pods = sim.pods(&format!(
        "[[pod]]\nuid = \"1\"\nnamespace = \"a\"\nname = 'quo\"te back\\slash'\nlabels = {{ team = \"ö\\n\" }}\n\
         containers = [{{ name = \"c\", devices = [{gpu:?}] }}]\n"
    ));
    let program = Program::start(&sim, gpu, None, "hog --duty 0.5");
    let daemon = Daemon::start(&sim, &format!("{pods}[price]\nH100 = 2.95\ndefault = 1\n"));
    (sim, daemon, program)
}

#[test]
fn promtool_and_a_strict_parser_accept_a_live_scrape_and_its_ledgers_add_up() {
    let (sim, daemon, _program) = busy_node();
    let gpu = sim.gpus[0].uuid.as_str();
    let metrics = daemon.when("five seconds of accounts with work in them", |metrics| {
        elapsed(metrics, gpu) >= 5.0
            && metrics.sum("warpmeter_gpu_used_seconds_total", &[("gpu_uuid", gpu)]) > 1.0
    });
    assert_conserved(&metrics);
    let pod = [("pod", "quo\"te back\\slash")];
    assert!(metrics.sum("warpmeter_pod_gpu_seconds_total", &pod) > 4.0);
    assert_eq!(metrics.all("warpmeter_pod_info", &pod).next().unwrap().label("team"), "ö\n");
    // The A100's instances give no activity: their time is counted, and its use is unknown.
    let divided = [("gpu_uuid", sim.gpus[1].uuid.as_str())];
    assert!(metrics.sum("warpmeter_gpu_use_unknown_seconds_total", &divided) > 1.0);
    assert_eq!(metrics.get("warpmeter_gpu_engine_active_seconds_total", &divided), None);

    let Some(promtool) = tool::find("promtool") else { return tool::skip("promtool is not installed") };
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = daemon.ask("/metrics").unwrap().text().to_owned();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn a_scrape_tells_its_type_and_is_compressed_for_those_who_can() {
    let (sim, daemon, _program) = busy_node();
    daemon.when("a window", |metrics| elapsed(metrics, &sim.gpus[0].uuid) > 0.0);
    let plain = http::get(daemon.address, "/metrics", "").unwrap();
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n";
    let packed =
        http::get(daemon.address, "/metrics", &format!("{accept}Accept-Encoding: gzip\r\n")).unwrap();
    for answer in [&plain, &packed] {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    }
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.body.len() < plain.body.len() / 3, "{} of {}", packed.body.len(), plain.body.len());
    let mut text = String::new();
    flate2::read::GzDecoder::new(&*packed.body).read_to_string(&mut text).unwrap();
    let (packed, plain) = (Exposition::parse(&text).unwrap(), Exposition::parse(plain.text()).unwrap());
    assert_eq!(packed.series.len(), plain.series.len());
}

#[test]
fn before_the_first_window_there_is_a_valid_exposition_too() {
    let sim = Sim::new(NODE);
    sim.remove_driver();
    let daemon = Daemon::start(&sim, "");
    let metrics = daemon.scrape();
    assert_eq!(metrics.all("warpmeter_build_info", &[]).count(), 1);
    assert_eq!(metrics.all("warpmeter_gpu_up", &[]).count(), 0);
}
