//! SM figures of GPUs without GPM, from a DCGM exporter that runs on the node.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;
use warpmeter_tests::daemon::{self, Daemon};
use warpmeter_tests::exposition::{Exposition, Labels};
use warpmeter_tests::gpus::{busy, engine_active, labels, sm_active as sm};
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{http, wait};

const NODE: &str = "[[gpu]]\nmodel = \"A100\"\n[[gpu]]\nmodel = \"T4\"\n[[gpu]]\nmodel = \"H100\"";

/// What an exporter does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Well,
    /// It accepts connections, and answers nothing.
    Hangs,
    /// It collects, but finds SMs at rest for ever.
    Zeros,
    /// It shows what it showed last.
    Stale,
}

/// An exporter that collects every two seconds.
#[derive(Debug)]
struct Exporter {
    address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
}

impl Exporter {
    fn start(sim: &Sim) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let manner = Arc::new(Mutex::new(Manner::Well));
        let uuids: Vec<String> = sim.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let now = Arc::clone(&manner);
        std::thread::spawn(move || {
            let (began, mut held, mut last) = (Instant::now(), Vec::new(), String::new());
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let manner = *now.lock().unwrap();
                if manner == Manner::Hangs {
                    held.push(stream);
                    continue;
                }
                if manner != Manner::Stale {
                    last = page(&uuids, began.elapsed().as_secs() / 2, manner);
                }
                // Whatever is asked for, and whether it is still wanted.
                let mut request = [0; 4096];
                let asked = stream.read(&mut request).unwrap_or(0);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{last}", last.len());
                if asked > 0 {
                    stream.write_all(head.as_bytes()).ok();
                }
            }
        });
        Self { address, manner }
    }

    fn now(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    fn config(&self) -> String {
        format!("[dcgm]\nurl = \"http://{}/metrics\"\ninterval = \"2s\"\nperiod = \"400ms\"\n", self.address)
    }
}

/// SMs are active for 40 %, a little more at each collection.
fn page(uuids: &[String], round: u64, manner: Manner) -> String {
    let mut page = String::new();
    for uuid in uuids {
        let mut line = |family: &str, value: &str| {
            writeln!(page, "DCGM_FI_{family}{{gpu=\"0\",UUID=\"{uuid}\",modelName=\"A\"}} {value}").unwrap();
        };
        let more = format!("{:04}", round % 10_000);
        let zeros = manner == Manner::Zeros;
        line("PROF_SM_ACTIVE", &if zeros { "0.000000".to_owned() } else { format!("0.40{more}") });
        line("PROF_SM_OCCUPANCY", &if zeros { "0.000000".to_owned() } else { format!("0.20{more}") });
        line("PROF_PCIE_RX_BYTES", &format!("100{more}"));
        // In percent, as the driver gives it: the page is in ratios.
        line("DEV_GPU_UTIL", "60");
        line("DEV_TOTAL_ENERGY_CONSUMPTION", &format!("{}", 5_000_000 + round * 1000));
    }
    page
}

fn until(metrics: &Exposition, gpu: Labels<'_>) -> Option<f64> {
    metrics.get("warpmeter_gpu_sm_counted_until_timestamp_seconds", gpu)
}

/// What the daemon says of the exporter.
fn health(daemon: &Daemon, what: &str, so: impl Fn(&str, &str) -> bool) -> String {
    daemon.until_health("dcgm", what, so)
}

#[test]
fn sm_figures_of_gpus_without_gpm_are_the_exporters_in_its_own_intervals() {
    let sim = Sim::new(NODE);
    let exporter = Exporter::start(&sim);
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &exporter.config());
    let [a100, t4, h100] = [0, 1, 2].map(|index| labels(&sim, index));
    let before = daemon.when("both to be counted", |metrics| {
        [&a100, &t4].iter().all(|gpu| sm(metrics, *gpu) > 0.5) && sm(metrics, &h100) > 0.5
    });
    let status = daemon.until_status("authorities", |status| status["gpus"].as_array().is_some());
    let authority = |gpu: Labels<'_>| {
        let gpus = status["gpus"].as_array().unwrap();
        gpus.iter().find(|listed| listed["gpu_uuid"] == gpu[0].1).unwrap().clone()
    };
    assert_eq!(authority(&a100)["authority"]["sm"], "dcgm");
    assert!(authority(&a100)["sm_counted_until_seconds_ago"].as_f64().unwrap() > 0.0);
    assert_eq!(authority(&h100)["authority"]["sm"], "gpm_cycles", "what the device itself gives is kept");
    assert_eq!(authority(&h100)["sm_counted_until_seconds_ago"], Value::Null);
    health(&daemon, "that it is well", |health, reason| {
        health == "up" && reason.contains("not needed for all GPUs: 1 with gpm_cycles")
    });

    let enough = |metrics: &Exposition| until(metrics, &a100) > until(&before, &a100).map(|at| at + 9.0);
    let after = daemon.when("several intervals", enough);
    let over = until(&after, &a100).unwrap() - until(&before, &a100).unwrap();
    let share = (sm(&after, &a100) - sm(&before, &a100)) / over;
    assert!((0.399..0.42).contains(&share), "{share} of {over} s");
    let received = |metrics: &Exposition| metrics.sum("warpmeter_gpu_pcie_receive_bytes_total", &a100);
    let rate = (received(&after) - received(&before)) / over;
    assert!((0.99e6..1.02e6).contains(&rate), "{rate} bytes a second");
    assert_conserved(&after);

    // Away, it costs its own figures and nothing else.
    exporter.now(Manner::Hangs);
    let reason = health(&daemon, "that it is away", |health, _| health == "down");
    assert!(
        reason.contains(&format!("{}", exporter.address)) && reason.contains("[dcgm] timeout"),
        "{reason}"
    );
    daemon.until_ready_is(200, "");
    let gone = daemon.scrape();
    let later = daemon.when("time", |metrics| elapsed(metrics, a100[0].1) > elapsed(&gone, a100[0].1) + 4.0);
    assert!(sm(&later, &a100) - sm(&gone, &a100) < 1e-9, "nothing from nowhere");
    assert!(sm(&later, &h100) > sm(&gone, &h100) + 1.0);
    assert!(engine_active(&later, &a100) > engine_active(&gone, &a100) + 1.0);
    exporter.now(Manner::Well);
    let back = daemon.when("its return", |metrics| sm(metrics, &a100) > sm(&later, &a100) + 1.0);
    assert!(until(&back, &a100) > until(&later, &a100));
    assert_conserved(&back);
}

#[test]
fn stale_values_and_zeros_beside_a_busy_engine_are_not_counted_and_are_said() {
    let sim = Sim::new(NODE);
    let exporter = Exporter::start(&sim);
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &exporter.config());
    let gpu = labels(&sim, 0);
    daemon.when("it to be counted", |metrics| sm(metrics, &gpu) > 0.5);
    exporter.now(Manner::Stale);
    let reason = health(&daemon, "that it is stale", |health, reason| {
        health == "degraded" && reason.contains("taken for stale")
    });
    assert!(reason.contains(gpu[0].1) && !reason.contains(&sim.gpus[2].uuid), "{reason}");
    let stale = daemon.scrape();
    exporter.now(Manner::Zeros);
    let conflicts = |metrics: &Exposition| {
        let labels = [("source", "dcgm"), ("reason", "conflict")];
        metrics.sum("warpmeter_source_values_discarded_total", &labels)
    };
    let zeros = daemon.when("the driver's counter to contradict it", |metrics| conflicts(metrics) >= 2.0);
    assert!(sm(&zeros, &gpu) - sm(&stale, &gpu) < 0.45 * 4.0, "at most what was there before it went stale");
    exporter.now(Manner::Well);
    daemon.when("figures again", |metrics| sm(metrics, &gpu) > sm(&zeros, &gpu) + 0.5);
}

#[test]
fn a_run_with_an_exporter_and_the_replay_of_its_recording_end_in_the_same_bytes() {
    let sim = Sim::new(NODE);
    let exporter = Exporter::start(&sim);
    let _programs = busy(&sim);
    // A check does not last long enough for the page to show that.
    let stated = format!("{}scale = \"ratio\"\n", exporter.config());
    let config = sim.configure(http::free_address(), &stated).into_os_string();
    let (recording, metrics) = (sim.path("run.jsonl"), sim.path("run.prom"));
    let words = ["record".into(), "--config".into(), config.clone(), "--duration".into(), "12s".into()];
    let files = ["--metrics".into(), metrics.clone().into(), recording.clone().into()];
    let output = daemon::run(&sim, words.into_iter().chain::<[OsString; 3]>(files));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = daemon::run(&sim, [OsString::from("replay"), recording.into()]);
    let ran = std::fs::read_to_string(&metrics).unwrap();
    assert_eq!(ran, String::from_utf8(output.stdout).unwrap());
    assert!(sm(&Exposition::parse(&ran).unwrap(), &labels(&sim, 0)) > 0.5);

    let check = || {
        let output = daemon::run(&sim, [OsString::from("check"), "--config".into(), config.clone()]);
        String::from_utf8(output.stdout).unwrap()
    };
    let found =
        wait::until("check to have looked", || Some(check()).filter(|found| found.contains("not needed")));
    for line in ["DCGM exporter\n  ok ", "1 with gpm_cycles", "SM activity from dcgm"] {
        assert!(found.contains(line), "{line}: {found}");
    }
    exporter.now(Manner::Hangs);
    let found = check();
    assert!(found.contains("missing   read http://127.0.0.1:"), "{found}");
}
