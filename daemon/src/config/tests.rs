use std::net::SocketAddr;
use std::time::Duration;

use warpmeter_core::peak::Stated;
use warpmeter_core::price::{BuiltIn, Capacity, Price, Quote};
use warpmeter_cuda::Architecture;

use super::{Config, Enabled, Level, Pods, Problem};

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
        tls_certificate = "/tls/tls.crt"
        tls_key = "/tls/tls.key"
        client_ca = "/tls/ca.crt"
        token_file = "/token"
        compat_dcgm = true
        [nvidia]
        libraries = ["/a", "/b/libnvidia-ml.so.1"]
        [host]
        proc = "/host/proc"
        dev = "/host/dev"
        cgroup = "/host/cgroup"
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
        [cupti]
        enabled = true
        libraries = ["/usr/local/cuda/extras/CUPTI/lib64"]
        architectures = ["ampere", "hopper"]
        devices = ["GPU-1", "0000:17:00.0"]
        [inject]
        enabled = true
        [dcgm]
        url = "http://127.0.0.1:9401/m"
        interval = "10s"
        period = "2s"
        timeout = "1s"
        max_bytes = 1_048_576
        scale = "ratio"
        [metrics]
        level = "minimal"
        [price]
        currency = "EUR"
        default = 1
        H100 = { price = 2.95, as_of = "2026-11-01", source = "contract" }
        "A100-SXM4-80GB" = 1.2
        node = 98.32
        file = "/p.csv"
        node_labels = "/l"
        instance_type = "p5.48xlarge"
        capacity_type = "reserved"
        host_share = 0.15
        discount = 0.4
        built_in = "models"
        power_per_kwh = 0.12
        [price.owned]
        purchase = 30_000
        years = 4
        residual = 0
        as_of = 2025-01-31
        source = "invoice 7"
        [peak]
        H20 = { dram_gigabytes_per_second = 4000, tensor_teraflops = 148.5 }
        "RTX 4000" = { dram_gigabytes_per_second = 360.5 }
        "#,
    )
    .unwrap();
    assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 1)));
    let key = config.http.tls_key.unwrap();
    assert_eq!((key.value.to_str(), key.line, key.column), (Some("/tls/tls.key"), 5, 19));
    assert!(config.http.tls_certificate.is_some() && config.http.client_ca.is_some());
    assert!(config.http.token_file.is_some() && config.http.compat_dcgm);
    assert_eq!((config.libraries.len(), config.control, config.inject), (2, None, true));
    let cupti = config.cupti.wanted().unwrap();
    assert_eq!((cupti.libraries.len(), cupti.devices.len()), (1, 2));
    assert_eq!(cupti.architectures, [Architecture::Ampere, Architecture::Hopper]);
    let dcgm = config.dcgm.unwrap();
    assert_eq!((dcgm.url.to_string().as_str(), dcgm.most), ("http://127.0.0.1:9401/m", 1 << 20));
    assert!(dcgm.ratios);
    assert_eq!([dcgm.interval, dcgm.period, dcgm.timeout].map(|it| it.as_secs()), [10, 2, 1]);
    assert_eq!((config.node.as_str(), config.level), ("n1", Level::Minimal));
    let settings = config.settings;
    assert_eq!(
        (settings.window, settings.lateness, settings.retain),
        (500_000_000, 100_000_000, 600_000_000_000)
    );
    assert!(settings.redistribute && settings.equal_split);
    let stated = |dram, tensor| Stated { dram, tensor };
    let h20 = ("H20".to_owned(), stated(Some(4_000_000_000_000), Some(148_500_000_000_000)));
    assert_eq!(settings.peaks, [h20, ("RTX 4000".to_owned(), stated(Some(360_500_000_000), None))]);
    assert_eq!(config.pods, Pods::File("/etc/pods.toml".into()));
    assert_eq!((config.kubelet.resources.len(), config.kubelet.deadline), (2, Duration::from_secs(1)));
    let names = config.names.unwrap();
    assert_eq!((names.labels.team, names.labels.app.len()), (vec!["cost-center".to_owned()], 0));
    let price = config.price;
    let book = &price.book;
    let models: Vec<(&str, u64)> =
        book.models.iter().map(|(key, quote)| (key.as_str(), quote.price.0)).collect();
    assert_eq!(models, [("A100-SXM4-80GB", 1_200_000), ("H100", 2_950_000)]);
    assert_eq!(book.models[1].1.to_string(), "contract (configuration), as of 2026-11-01");
    assert_eq!(
        [&book.default, &book.node].map(|quote| quote.as_ref().unwrap().price.0),
        [1_000_000, 98_320_000]
    );
    assert_eq!(book.energy.as_ref().unwrap().price, Price(120_000));
    assert_eq!(book.owned.as_ref().unwrap().to_string(), "invoice 7 (owned hardware), as of 2025-01-31");
    assert_eq!(book.owned.as_ref().unwrap().price, Price(855_578));
    assert_eq!((book.currency.as_str(), book.host_share, book.discount), ("EUR", 150_000, Some(400_000)));
    assert_eq!(book.built_in, BuiltIn::Models);
    assert_eq!((price.file, price.node_labels), (Some("/p.csv".into()), Some("/l".into())));
    assert_eq!(
        (price.instance_type.as_deref(), price.capacity),
        (Some("p5.48xlarge"), Some(Capacity::Reserved))
    );
}

#[test]
fn who_names_pods_is_a_choice() {
    for (text, pods) in [
        ("", Pods::Auto),
        ("[pods]\nsource = \"auto\"", Pods::Auto),
        ("[pods]\nsource = \"kubelet\"", Pods::Kubelet),
        ("[pods]\nsource = \"none\"", Pods::None),
        ("[pods]\nfile = \"/p\"", Pods::File("/p".into())),
        ("[pods]\nfile = \"/p\"\nsource = \"file\"", Pods::File("/p".into())),
    ] {
        assert_eq!(Config::parse(text).unwrap().pods, pods, "{text}");
    }
    assert_eq!(problems("[pods]\nsource = \"device_name\"").len(), 1);
    let secret = problems("[names]\nserver = \"https://me:secret@host\"");
    assert!(secret.len() == 1 && !secret[0].contains("secret"), "{secret:?}");
}

#[test]
fn a_source_of_pods_and_a_file_that_do_not_agree_are_a_problem_beside_all_others() {
    let found = problems("[pods]\nsource = \"file\"\n[window]\nlength = 1\n");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("2:10 `source` in [pods]: \"file\" needs `file`"), "{found:#?}");
    for source in ["kubelet", "none", "auto"] {
        let found = problems(&format!("[nope]\n[pods]\nsource = \"{source}\"\nfile = \"/p\"\n"));
        assert_eq!(found.len(), 2, "{found:#?}");
        let problem = format!("4:8 `file` in [pods]: source is \"{source}\", so it would not be read");
        assert!(found[1].starts_with(&problem), "{found:#?}");
    }
    // What is wrong in itself is one problem, not two.
    for text in ["[pods]\nsource = \"file\"\nfile = 3\n", "[pods]\nsource = 3\nfile = \"/p\"\n"] {
        assert_eq!(problems(text).len(), 1, "{text}");
    }
}

#[test]
fn performance_monitors_are_left_alone_unless_asked_for() {
    assert_eq!(Config::parse("").unwrap().cupti.wanted(), None);
    assert_eq!(Config::parse("[cupti]\narchitectures = [\"hopper\"]").unwrap().cupti.wanted(), None);
    let wanted = Config::parse("[cupti]\nenabled = true").unwrap().cupti.wanted().unwrap();
    assert_eq!(
        wanted.architectures,
        Architecture::WITHOUT_GPM,
        "Hopper has GPM, and is sampled on request only"
    );
    for (text, wants) in [
        ("architectures = [\"volta\"]", "turing, ampere, ada, hopper, blackwell, got \"volta\""),
        ("architectures = \"ampere\"", "wants a list of turing"),
        ("devices = [\"0\"]", "got \"0\""),
        ("enabled = \"auto\"", "wants true or false"),
        ("interval = \"1s\"", "unknown key `interval` in [cupti]"),
    ] {
        let found = problems(&format!("[cupti]\n{text}\n"));
        assert!(found.len() == 1 && found[0].contains(wants), "{text}: {found:?}");
    }
}

#[test]
fn an_exporter_is_read_only_if_its_address_is_given_and_several_times_an_interval() {
    assert_eq!(Config::parse("").unwrap().dcgm, None);
    let seconds = |text: &str| {
        let dcgm =
            Config::parse(&format!("[dcgm]\nurl = \"http://127.0.0.1\"\n{text}")).unwrap().dcgm.unwrap();
        [dcgm.interval, dcgm.period, dcgm.timeout].map(|it| it.as_secs())
    };
    assert_eq!(seconds(""), [30, 5, 2]);
    let large = "[dcgm]\nurl = \"http://h\"\nmax_bytes = 1.6777216e+07\n";
    assert_eq!(Config::parse(large).unwrap().dcgm.unwrap().most, 16 << 20, "as Helm writes it");
    assert_eq!(seconds("interval = \"6s\""), [6, 1, 1], "the others follow");
    for (text, wants) in [
        ("interval = \"10s\"", "2:2 `url` is missing in [dcgm]"),
        ("url = \"https://h:9400\"", "only plain HTTP"),
        ("url = \"http://me:secret@h:9400\"", "without user and password"),
        ("url = 9400", "wants a text"),
        ("url = \"http://h\"\nperiod = \"11s\"", "4:10 `period` in [dcgm]: wants at most a third"),
        ("url = \"http://h\"\ntimeout = \"6s\"", "4:11 `timeout` in [dcgm]: wants at most `period`"),
        ("url = \"http://h\"\ninterval = \"10m\"", "from 2s to 2m"),
        ("url = \"http://h\"\nmax_bytes = 1", "from 65536 to 268435456"),
        ("url = \"http://h\"\nmax_bytes = 65536.5", "from 65536 to 268435456"),
        ("url = \"http://h\"\nmax_bytes = \"1M\"", "from 65536 to 268435456"),
        ("url = \"http://h\"\nenabled = true", "unknown key `enabled` in [dcgm]"),
        ("url = \"http://h\"\nscale = \"percent\"", "4:9 `scale` in [dcgm]: wants \"ratio\""),
    ] {
        let found = problems(&format!("\n[dcgm]\n{text}\n"));
        assert!(found.len() == 1 && found[0].contains(wants), "{text}: {found:?}");
        assert!(!found[0].contains("secret"), "{found:?}");
    }
}

#[test]
fn a_key_of_tls_without_those_it_needs_is_told_with_its_place() {
    for (text, start) in [
        ("[http]\ntls_certificate = \"/c\"", "2:19 `tls_certificate` in [http] needs `tls_key`"),
        ("[http]\ntls_key = \"/k\"", "2:11 `tls_key` in [http] needs `tls_certificate`"),
        ("[http]\n\nclient_ca = \"/k\"", "3:13 `client_ca` in [http] needs `tls_certificate`"),
        ("[http]\ntls_key = \"tls.key\"", "2:11 `tls_key` in [http]: wants an absolute path"),
        ("[http]\ncompat_dcgm = \"yes\"", "2:15 `compat_dcgm` in [http]: wants true or false"),
    ] {
        let found = problems(text);
        assert!(found.len() == 1 && found[0].starts_with(start), "{text}: {found:?}");
    }
    assert!(Config::parse("[http]\ntoken_file = \"/t\"").is_ok(), "a token needs no TLS: a mesh may have it");
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
            // As Helm writes large numbers, and what is set on its command line.
            .into_iter()
            .chain([("5e+05", 500_000_000_000), ("\"2.95\"", 2_950_000)])
    {
        let config = Config::parse(&format!("[price]\nH100 = {text}\n")).unwrap();
        let models = [("H100".to_owned(), Quote::configured(Price(micros)))];
        assert_eq!(config.price.book.models, models, "{text}");
    }
    for text in ["0.0000001", "nan", "inf", "1e7", "0x10", "1000001", "\"two\"", "\"\"", "true"] {
        assert_eq!(problems(&format!("[price]\nH100 = {text}\n")).len(), 1, "{text}");
    }
}

#[test]
fn problems_inside_a_table_of_prices_have_their_own_places() {
    let found = problems(
        "[price]\nH100 = { price = -1, as_of = \"yesterday\", sauce = 1 }\nA100 = { source = \"x\" }\nowned = { years = 0, \
         residual = 2 }\nhost_share = 1\ndiscount = 0.0000001\ncapacity_type = \"cheap\"\nbuilt_in = true\nnode = \"one\"\n",
    );
    let starts = [
        "2:18 `price` in [price.H100]",
        "2:30 `as_of` in [price.H100]",
        "2:43 unknown key `sauce` in [price.H100]",
        "3:8 `price` is missing in [price.A100]",
        "4:9 `purchase` is missing in [price.owned]",
        "4:19 `years` in [price.owned]",
        "5:14 `host_share` in [price]",
        "6:12 `discount` in [price]",
        "7:17 `capacity_type` in [price]",
        "8:12 `built_in` in [price]",
        "9:8 `node` in [price]",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}: {start}");
    }
    assert_eq!(problems("[price]\nowned = { purchase = 1, years = 4, residual = 2 }\n").len(), 1);
    assert_eq!(problems("[price]\nowned = 3\n").len(), 1);
    assert_eq!(problems("[price]\napi = true\nnode_labels = \"/l\"\n").len(), 1);
}

#[test]
fn the_api_server_of_names_is_asked_for_the_node_too() {
    let config = Config::parse("[names]\nserver = \"https://10.0.0.1\"\n[price]\napi = true\n").unwrap();
    assert_eq!(config.names, None);
    assert_eq!(config.price.api.unwrap().server.as_deref(), Some("https://10.0.0.1"));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(\\[|\\]|[a-z\"=.\n#{}, 0-9]|http|listen|price|é){0,60}") {
        if let Err(problems) = Config::parse(&text) {
            proptest::prop_assert!(!problems.is_empty());
        }
    }
}

#[test]
fn probes_are_attached_where_they_work_always_never_or_replaced_by_samples() {
    for (value, enabled) in [
        ("\"auto\"", Enabled::Auto),
        ("\"proc\"", Enabled::Proc),
        ("true", Enabled::Yes),
        ("false", Enabled::No),
    ] {
        assert_eq!(Config::parse(&format!("[bpf]\nenabled = {value}\n")).unwrap().probes, enabled);
    }
    let problems = Config::parse("[bpf]\nenabled = \"sample\"\n").unwrap_err();
    assert!(problems[0].to_string().contains("\"proc\""), "{problems:?}");
}

#[test]
fn a_peak_is_a_rate_above_nothing_of_a_model() {
    let found = problems(
        "[peak]\nH100 = 3350\nA100 = { dram_gigabytes_per_second = 0, tensor = 1 }\nfoo = { tensor_teraflops = 1 }\n",
    );
    let begins = [
        "2:8 `H100` in [peak]: wants a table",
        "3:38 `dram_gigabytes_per_second` in [peak.A100]",
        "3:41 unknown key `tensor`",
    ];
    for (problem, beginning) in found.iter().zip(begins) {
        assert!(problem.starts_with(beginning), "{problem}");
    }
    assert!(found[3].contains("unknown key `foo` in [peak]"), "{found:?}");
    assert_eq!(found.len(), 4, "{found:?}");
}
