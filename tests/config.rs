//! Bad input gets an answer that says what is wrong, where, and what to do.

use std::net::TcpListener;

use warpmeter_tests::daemon;
use warpmeter_tests::http;
use warpmeter_tests::sim::Sim;

const ONE_GPU: &str = "[[gpu]]\nmodel = \"H100\"";

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn every_problem_of_a_configuration_is_told_at_once_with_its_place() {
    let sim = Sim::new(ONE_GPU);
    let path = sim.path("bad.toml");
    std::fs::write(&path, "[http]\nlisten = 9408\n[price]\nH100 = -1\n[window]\nlengh = \"1s\"\n[nope]\n")
        .unwrap();
    for command in ["run", "check", "record"] {
        let mut arguments = vec![command.into(), "--config".into(), path.clone().into_os_string()];
        arguments.extend((command == "record").then(|| sim.path("never.jsonl").into_os_string()));
        let output = daemon::run(&sim, arguments);
        assert_eq!(output.status.code(), Some(64), "{command}");
        let text = stderr(&output);
        for (place, words) in [("2:10", "listen"), ("4:8", "H100"), ("6:1", "lengh"), ("7:2", "nope")] {
            let line = format!("warpmeter: {}:{place}: ", path.display());
            let found = text.lines().find(|one| one.starts_with(&line));
            assert!(found.is_some_and(|found| found.contains(words)), "{place} {words} in:\n{text}");
        }
        assert_eq!(text.lines().count(), 4, "{text}");
    }
    assert!(!sim.path("never.jsonl").exists());
}

#[test]
fn an_unknown_flag_is_a_usage_error_that_names_it() {
    let sim = Sim::new(ONE_GPU);
    let output = daemon::run(&sim, ["run", "--gpu-id-type", "device_name"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("--gpu-id-type"), "{}", stderr(&output));
    assert_eq!(daemon::run(&sim, ["--help"]).status.code(), Some(0));
}

#[test]
fn a_configuration_that_cannot_be_read_is_named() {
    let sim = Sim::new(ONE_GPU);
    let path = sim.path("absent.toml");
    let output = daemon::run(&sim, ["run".into(), "--config".into(), path.clone().into_os_string()]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains(path.to_str().unwrap()), "{}", stderr(&output));
}

#[test]
fn an_address_in_use_ends_the_start_with_what_to_do() {
    let sim = Sim::new(ONE_GPU);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = sim.configure(address, "");
    let output = daemon::run(&sim, ["run".into(), "--config".into(), config.into_os_string()]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains(&address.to_string()) && text.contains("--listen"), "{text}");
}

#[test]
fn check_tells_what_works_and_of_each_missing_thing_what_would_mend_it() {
    let sim = Sim::new(&format!("{ONE_GPU}\n[[gpu]]\nmodel = \"T4\""));
    let config = sim.configure(http::free_address(), "[price]\nH100 = 2.95\n");
    let check = || {
        let output = daemon::run(&sim, ["check".into(), "--config".into(), config.clone().into_os_string()]);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let found = check();
    for (line, remedy) in [
        ("Tesla T4 GPU-", "Hopper"),
        ("no source says who holds which device", "[pods] file"),
        ("Tesla T4 has no price", "[price]"),
    ] {
        let mut lines = found.lines().skip_while(|one| !one.contains(line));
        assert!(lines.next().is_some(), "{line} in:\n{found}");
        assert!(lines.next().is_some_and(|next| next.contains('→') && next.contains(remedy)), "{found}");
    }
    let h100 = found.lines().find(|line| line.contains("NVIDIA H100")).unwrap();
    assert!(h100.trim_start().starts_with("ok") && h100.contains("SM activity from gpm"), "{h100}");

    sim.remove_driver();
    let found = check();
    let mut lines = found.lines().skip_while(|line| !line.contains("no libnvidia-ml.so.1 was found"));
    assert!(lines.next().is_some(), "{found}");
    assert!(lines.next().is_some_and(|next| next.contains("install the NVIDIA driver")), "{found}");
}

#[test]
fn check_waits_for_an_api_server_that_hangs_and_says_so_with_what_to_do() {
    let sim = Sim::new(ONE_GPU);
    // It takes connections, and that is all that it does.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let names = format!("[names]\napi = true\nserver = \"http://{}\"\n", server.local_addr().unwrap());
    let config = sim.configure(http::free_address(), &names);
    let output = daemon::run(&sim, ["check".into(), "--config".into(), config.into_os_string()]);
    assert_eq!(output.status.code(), Some(0));
    let found = String::from_utf8(output.stdout).unwrap();
    let section: Vec<&str> = found.lines().skip_while(|line| *line != "pod names").collect();
    let line = section.get(1).unwrap_or_else(|| panic!("{found}"));
    assert!(line.trim_start().starts_with("missing"), "{found}");
    assert!(
        line.contains("the API server gives no complete answer") && line.contains("NetworkPolicy"),
        "{found}"
    );
}
