//! Endpoints behind TLS and a token, with the daemon's own files, and a real Prometheus that has the secrets.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpmeter_tests::daemon::{self, Daemon};
use warpmeter_tests::prometheus::{Prometheus, job};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::tls::Ca;
use warpmeter_tests::{http, tool, wait};

const ONE_GPU: &str = "[[gpu]]\nmodel = \"H100\"";
const TOKEN: &str = "Authorization: Bearer s3cret\r\n";

/// A node whose configuration names a pair and a token below `secrets`.
fn secured(ca: &Ca) -> (Sim, PathBuf) {
    let mut sim = Sim::new(ONE_GPU);
    let secrets = sim.path("secrets");
    fs::create_dir(&secrets).unwrap();
    ca.issue(&secrets);
    fs::write(secrets.join("token"), "s3cret\n").unwrap();
    fs::write(secrets.join("ca.crt"), ca.pem()).unwrap();
    let path = |name: &str| secrets.join(name).display().to_string();
    let [certificate, key, token] = ["tls.crt", "tls.key", "token"].map(path);
    sim.http = format!(
        "tls_certificate = {certificate:?}\ntls_key = {key:?}\ntoken_file = {token:?}\ncompat_dcgm = true\n"
    );
    (sim, secrets)
}

/// The status of an answer to the right token, once the daemon answers.
fn scrape(ca: &Ca, daemon: &Daemon) -> u16 {
    wait::until("an answer over TLS", || {
        ca.get(daemon.address, "/metrics", TOKEN).ok().map(|(answer, _)| answer.status)
    })
}

fn daemon_health(ca: &Ca, daemon: &Daemon) -> Option<(String, String)> {
    let (answer, _) = ca.get(daemon.address, "/status", TOKEN).ok()?;
    let status: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    let source = status["sources"].as_array()?.iter().find(|source| source["source"] == "daemon")?;
    Some((source["health"].as_str()?.to_owned(), source["reason"].as_str()?.to_owned()))
}

#[test]
fn a_pair_that_cannot_be_used_ends_the_start_at_the_place_of_its_key_with_what_to_do() {
    let ca = Ca::new();
    let (sim, secrets) = secured(&ca);
    let other = sim.path("other");
    fs::create_dir(&other).unwrap();
    ca.issue(&other);
    let config = sim.configure(http::free_address(), "");
    let swap_key = || fs::copy(other.join("tls.key"), secrets.join("tls.key")).map(drop).unwrap();
    let cases: [(&dyn Fn(), &str, &str); 4] = [
        (&swap_key, "4:11: `tls_key`", "not the key of the certificate"),
        (&|| ca.issue_expired(&secrets), "3:19: `tls_certificate`", "renew it"),
        (&|| fs::remove_file(secrets.join("tls.crt")).unwrap(), "3:19: `tls_certificate`", "cannot be read"),
        (&|| fs::write(secrets.join("token"), "").unwrap(), "5:14: `token_file`", "put the token into it"),
    ];
    for (make, place, words) in cases {
        make();
        let output = daemon::run(&sim, ["run".into(), "--config".into(), config.clone().into_os_string()]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{text}");
        let wanted = format!("warpmeter: {}:{place} in [http]: {}", config.display(), secrets.display());
        assert!(text.contains(&wanted) && text.contains(words), "{wanted} … {words} in:\n{text}");
        let output = daemon::run(&sim, ["check".into(), "--config".into(), config.clone().into_os_string()]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(place) && text.contains(words), "check tells it too:\n{text}");
        ca.issue(&secrets);
        fs::write(secrets.join("token"), "s3cret").unwrap();
    }
    let output = daemon::run(&sim, ["check".into(), "--config".into(), config.into_os_string()]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("certificate, key and token can be used"));
}

#[test]
fn only_who_trusts_the_ca_and_has_the_token_gets_figures() {
    let ca = Ca::new();
    let (sim, _) = secured(&ca);
    let daemon = Daemon::start(&sim, "");
    assert_eq!(scrape(&ca, &daemon), 200);
    for path in ["/metrics", "/status", "/status/pods/any", "/compat/dcgm"] {
        let (answer, _) = ca.get(daemon.address, path, "").unwrap();
        assert!(answer.status == 401 && answer.headers.contains_key("www-authenticate"), "{answer:?}");
        let (answer, _) = ca.get(daemon.address, path, "Authorization: Bearer other\r\n").unwrap();
        assert_eq!(answer.status, 401);
    }
    assert_eq!(ca.get(daemon.address, "/livez", "").unwrap().0.status, 200);
    assert!(Ca::new().get(daemon.address, "/livez", "").is_err(), "another CA");
    assert!(http::get(daemon.address, "/metrics", TOKEN).is_err(), "nothing in the clear");
}

#[test]
fn a_renewed_certificate_is_served_within_seconds_and_a_broken_one_never() {
    let ca = Ca::new();
    let (sim, secrets) = secured(&ca);
    let daemon = Daemon::start(&sim, "");
    assert_eq!(scrape(&ca, &daemon), 200);
    let shown = || ca.get(daemon.address, "/livez", "").unwrap().1;
    let first = shown();
    let began = Instant::now();
    ca.issue(&secrets);
    let second = wait::until("the new certificate", || Some(shown()).filter(|shown| *shown != first));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());

    fs::write(secrets.join("tls.key"), "half a k").unwrap();
    let (_, reason) = wait::until("degraded health", || {
        daemon_health(&ca, &daemon).filter(|(health, _)| health == "degraded")
    });
    assert!(reason.contains("tls.key") && reason.contains("stay in use"), "{reason}");
    assert_eq!(shown(), second);
    assert_eq!(scrape(&ca, &daemon), 200);
    ca.issue(&secrets);
    wait::until("good health", || daemon_health(&ca, &daemon).filter(|(health, _)| health == "up"));
    assert_ne!(shown(), second);
    assert_eq!(daemon.log().matches("half").count(), 0, "no content of a secret is logged");
    assert_eq!(daemon.log().matches("stay in use").count(), 1, "{}", daemon.log());
}

#[test]
fn a_prometheus_with_the_ca_and_the_token_scrapes_and_one_without_does_not() {
    let ca = Ca::new();
    let (sim, secrets) = secured(&ca);
    let daemon = Daemon::start(&sim, "");
    assert_eq!(scrape(&ca, &daemon), 200);
    let wrong = sim.path("wrong-token");
    fs::write(&wrong, "s3crets").unwrap();
    let job = |name: &str, ca: &Path, token: &Path| {
        let more = format!(
            "scheme: https\nhonor_labels: true\ntls_config: {{ ca_file: {} }}\n\
             authorization: {{ credentials_file: {} }}",
            ca.display(),
            token.display()
        );
        job(name, daemon.address, &more)
    };
    let (right, other) = (secrets.join("ca.crt"), sim.path("other.crt"));
    fs::write(&other, Ca::new().pem()).unwrap();
    let token = secrets.join("token");
    let jobs =
        [job("right", &right, &token), job("wrong-token", &right, &wrong), job("other-ca", &other, &token)];
    let Some(prometheus) = Prometheus::start(&sim, &jobs) else {
        return tool::skip("prometheus is not installed");
    };
    let up = wait::until("three scrapes of each job", || {
        let scrapes = prometheus.by("job", "count_over_time(up[1m])")?;
        (scrapes.len() == 3 && scrapes.iter().all(|(_, count)| *count >= 3.0))
            .then(|| prometheus.by("job", "up"))
    });
    let wanted = [("other-ca", 0.0), ("right", 1.0), ("wrong-token", 0.0)];
    assert_eq!(up.unwrap(), wanted.map(|(name, value)| (name.to_owned(), value)));
}
