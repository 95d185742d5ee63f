use std::net::SocketAddr;
use std::time::Duration;

use warpmeter_core::price::Price;

use super::{Config, Level, Pods, Problem};

fn problems(text: &str) -> Vec<String> {
    let describe = |problem: Problem| format!("{}:{} {}", problem.line, problem.column, problem.message);
    Config::parse(text).expect_err("this must not parse").into_iter().map(describe).collect()
}

#[test]
fn nothing_is_needed() {
    assert_eq!(Config::parse("").unwrap().listen, SocketAddr::from(([0, 0, 0, 0], 9408)));
}

#[test]
fn every_key_is_taken() {
    let config = Config::parse(
        r#"
        [http]
        listen = "127.0.0.1:1"
        [nvidia]
        libraries = ["/a", "/b/libnvidia-ml.so.1"]
        [host]
        proc = "/host/proc"
        dev = "/host/dev"
        node = "n1"
        [pods]
        file = "/etc/pods.toml"
        [kubelet]
        socket = "/k/kubelet.sock"
        resources = ["example.com/gpu", "aliyun.com/"]
        pod_logs = "/l/pods"
        container_logs = "/l/containers"
        deadline = "1s"
        refresh = "5s"
        [names]
        api = true
        server = "https://10.0.0.1"
        token = "/t"
        ca = "/c"
        refresh = "1m"
        [labels]
        team = ["cost-center"]
        app = []
        model = ["m"]
        environment = ["e"]
        idle_ok = ["i"]
        probes = ["p"]
        [control]
        socket = ""
        [window]
        length = "500ms"
        lateness = "100ms"
        process_lateness = "2s"
        retain = "10m"
        no_work_after = "1m"
        [allocation]
        redistribute = true
        equal_split = true
        [bpf]
        enabled = false
        [metrics]
        level = "minimal"
        [price]
        currency = "EUR"
        default = 1
        H100 = 2.95
        "A100-SXM4-80GB" = 1.2
        "#,
    )
    .unwrap();
    assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 1)));
    assert_eq!((config.libraries.len(), config.control), (2, None));
    assert_eq!((config.node.as_str(), config.level), ("n1", Level::Minimal));
    let settings = config.settings;
    assert_eq!(
        (settings.window, settings.lateness, settings.retain),
        (500_000_000, 100_000_000, 600_000_000_000)
    );
    assert!(settings.redistribute && settings.equal_split);
    assert_eq!(config.pods, Pods::File("/etc/pods.toml".into()));
    assert_eq!((config.kubelet.resources.len(), config.kubelet.deadline), (2, Duration::from_secs(1)));
    let names = config.names.unwrap();
    assert_eq!((names.labels.team, names.labels.app.len()), (vec!["cost-center".to_owned()], 0));
    assert_eq!(settings.prices.of("NVIDIA H100 80GB HBM3"), Some(Price(2_950_000)));
    assert_eq!(settings.prices.of("NVIDIA A100-SXM4-80GB"), Some(Price(1_200_000)));
    assert_eq!(settings.prices.of("Tesla T4"), Some(Price(1_000_000)));
    assert_eq!(settings.prices.currency, "EUR");
}

#[test]
fn who_names_pods_is_a_choice() {
    for (text, pods) in [
        ("", Pods::Auto),
        ("[pods]\nsource = \"auto\"", Pods::Auto),
        ("[pods]\nsource = \"kubelet\"", Pods::Kubelet),
        ("[pods]\nsource = \"none\"", Pods::None),
        ("[pods]\nfile = \"/p\"", Pods::File("/p".into())),
        ("[pods]\nfile = \"/p\"\nsource = \"kubelet\"", Pods::Kubelet),
    ] {
        assert_eq!(Config::parse(text).unwrap().pods, pods, "{text}");
    }
    assert_eq!(problems("[pods]\nsource = \"file\"").len(), 1);
    assert_eq!(problems("[pods]\nsource = \"device_name\"").len(), 1);
    let secret = problems("[names]\nserver = \"https://me:secret@host\"");
    assert!(secret.len() == 1 && !secret[0].contains("secret"), "{secret:?}");
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let found = problems(
        "[http]\nlisten = 9408\nport = 1\n\n[price]\nH100 = -1\nA100 = 1.23456789\nfoo = 1\n[nope]\n",
    );
    let starts = [
        "2:10 `listen` in [http]",
        "3:1 unknown key `port`",
        "6:8 `H100`",
        "7:8 `A100`",
        "8:1 unknown key `foo`",
    ];
    assert_eq!(found.len(), 6, "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
    assert!(found[5].starts_with("9:2 unknown section `[nope]`"), "{found:?}");
}

#[test]
fn broken_syntax_does_not_hide_the_problems_after_it() {
    let found = problems("[http\nlisten = \n[window]\nlength = \"1 parsec\"\n");
    assert!(found.iter().any(|problem| problem.starts_with("4:10 `length`")), "{found:#?}");
    assert!(found.len() >= 2, "{found:#?}");
}

#[test]
fn prices_are_exact_decimals() {
    for (text, micros) in
        [("2.95", 2_950_000), ("0", 0), ("0.000001", 1), ("1_000.5", 1_000_500_000), ("3.0000000", 3_000_000)]
    {
        let config = Config::parse(&format!("[price]\nH100 = {text}\n")).unwrap();
        assert_eq!(config.settings.prices.models, [("H100".to_owned(), Price(micros))], "{text}");
    }
    for text in ["0.0000001", "nan", "inf", "1e3", "0x10", "1000001", "\"2\"", "true"] {
        assert_eq!(problems(&format!("[price]\nH100 = {text}\n")).len(), 1, "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(\\[|\\]|[a-z\"=.\n#{}, 0-9]|http|listen|price|é){0,60}") {
        if let Err(problems) = Config::parse(&text) {
            proptest::prop_assert!(!problems.is_empty());
        }
    }
}
