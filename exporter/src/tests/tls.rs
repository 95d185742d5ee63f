//! Who is let in: TLS, client certificates and tokens, over real sockets and from real files.

mod files;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::http::{Answer, Server, exchange};
use crate::http::{Keeper, SecretFile};
use files::{Ca, Files, Pair};

const TOKEN: &str = "Authorization: Bearer s3cret\r\n";

/// Connects as a client that trusts `ca` only, with a certificate of its own if there is one.
fn connect(
    server: &Server,
    ca: &Ca,
    own: Option<&Pair>,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.der()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(pair) => {
            use tokio_rustls::rustls::pki_types::pem::PemObject;
            let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, server.connect());
    stream.flush()?;
    Ok(stream)
}

fn get(server: &Server, ca: &Ca, path: &str, headers: &str) -> Answer {
    exchange(&mut connect(server, ca, None).unwrap(), "GET", path, headers)
}

/// What a new connection meets with: the server's certificate.
fn shown(server: &Server, ca: &Ca) -> CertificateDer<'static> {
    let mut stream = connect(server, ca, None).unwrap();
    exchange(&mut stream, "GET", "/livez", "");
    stream.conn.peer_certificates().unwrap()[0].clone().into_owned()
}

#[test]
fn a_client_that_trusts_the_ca_is_answered_and_one_that_trusts_another_is_not() {
    let (ca, other) = (Ca::new(), Ca::new());
    let files = Files::new(&ca.server());
    let (_keeper, server) = files.serve();
    let mut stream = connect(&server, &ca, None).unwrap();
    for _ in 0..3 {
        let answer = exchange(&mut stream, "GET", "/metrics", "");
        assert!(answer.status == 200 && answer.text().contains("GPU-a"), "one connection, many scrapes");
    }
    let error = connect(&server, &other, None).expect_err("another issuer");
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    let mut plain = server.connect();
    write!(plain, "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).ok();
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"), "no answer in the clear");
    server.stop();
}

#[test]
fn clients_that_never_finish_the_handshake_hold_nobody_up_and_do_not_delay_the_end() {
    let ca = Ca::new();
    let files = Files::new(&ca.server());
    let (_keeper, server) = files.serve();
    let mut lazy: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for (number, stream) in lazy.iter_mut().enumerate().filter(|(number, _)| number % 2 == 0) {
        // The beginning of a ClientHello, of which more is announced than comes.
        stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..5 + number % 7]).unwrap();
    }
    let start = Instant::now();
    for _ in 0..10 {
        assert_eq!(get(&server, &ca, "/metrics", "").status, 200);
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let start = Instant::now();
    server.stop();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn more_connections_than_there_are_places_for_are_closed_and_places_are_given_back() {
    let ca = Ca::new();
    let files = Files::new(&ca.server());
    let (_keeper, server) = files.serve();
    let mut places: Vec<_> = (0..256).map(|_| server.connect()).collect();
    assert!(connect(&server, &ca, None).and_then(|mut stream| stream.read(&mut [0; 1])).is_err());
    places.clear();
    let deadline = Instant::now() + Duration::from_secs(10);
    while connect(&server, &ca, None).is_err() {
        assert!(Instant::now() < deadline, "places are given back");
    }
    server.stop();
}

#[test]
fn figures_need_the_token_and_probes_do_not() {
    let ca = Ca::new();
    let files = Files::new(&ca.server()).with_token();
    let (_keeper, server) = files.serve();
    for path in ["/metrics", "/status", "/compat/dcgm"] {
        let none = get(&server, &ca, path, "");
        assert_eq!(none.status, 401, "{path}");
        assert_eq!(none.header("www-authenticate"), Some("Bearer realm=\"warpmeter\""));
        assert!(none.text().contains("token_file") && !none.text().contains("GPU"), "{}", none.text());
        let wrong = get(&server, &ca, path, "Authorization: Bearer s3cres\r\n");
        assert_eq!(wrong.status, 401, "{path}");
        assert!(wrong.header("www-authenticate").unwrap().ends_with("error=\"invalid_token\""));
        assert_eq!(get(&server, &ca, path, TOKEN).status, 200, "{path}");
    }
    for path in ["/livez", "/readyz", "/"] {
        assert_eq!(get(&server, &ca, path, "").status, 200, "{path}");
    }
    server.stop();
}

#[test]
fn a_replaced_certificate_is_what_the_next_connection_gets_and_a_replaced_token_what_the_next_request_needs()
{
    let ca = Ca::new();
    let files = Files::new(&ca.server()).with_token();
    let (mut keeper, server) = files.serve();
    let first = shown(&server, &ca);
    assert_eq!(keeper.look(), None);
    let mut open = connect(&server, &ca, None).unwrap();
    assert_eq!(exchange(&mut open, "GET", "/metrics", TOKEN).status, 200);

    files.write("token", "an0ther");
    assert_eq!(keeper.look(), None, "nothing is wrong");
    assert_eq!(exchange(&mut open, "GET", "/metrics", TOKEN).status, 401, "on an old connection too");
    let other = "Authorization: Bearer an0ther\r\n";
    let answer = exchange(&mut open, "GET", "/metrics", other);
    assert_eq!((answer.status, answer.header("connection")), (200, None));

    files.put(&ca.server());
    assert_eq!(keeper.look(), None, "nothing is wrong");
    assert_ne!(shown(&server, &ca), first);
    let answer = exchange(&mut open, "GET", "/metrics", other);
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "the old one is given up");
    assert_eq!(open.read(&mut [0; 1]).unwrap_or(0), 0);
    server.stop();
}

#[test]
fn a_swapped_symbolic_link_is_a_change() {
    let ca = Ca::new();
    let files = Files::new(&ca.server());
    let link = |name: &str, pair: &Pair| {
        let directory = files.path(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("tls.crt"), &pair.certificate).unwrap();
        std::fs::write(directory.join("tls.key"), &pair.key).unwrap();
        // As the kubelet replaces a Secret's files: a link is renamed over the old one.
        std::os::unix::fs::symlink(name, files.path("..data_tmp")).unwrap();
        std::fs::rename(files.path("..data_tmp"), files.path("..data")).unwrap();
    };
    link("..1", &ca.server());
    for name in ["tls.crt", "tls.key"] {
        std::fs::remove_file(files.path(name)).unwrap();
        std::os::unix::fs::symlink(Path::new("..data").join(name), files.path(name)).unwrap();
    }
    let (mut keeper, server) = files.serve();
    let first = shown(&server, &ca);
    link("..2", &ca.server());
    assert_eq!(keeper.look(), None);
    assert_ne!(shown(&server, &ca), first);
    server.stop();
}

#[test]
fn what_cannot_be_used_leaves_the_old_in_place_and_is_told_once() {
    let ca = Ca::new();
    let pair = ca.server();
    let files = Files::new(&pair).with_token();
    let (mut keeper, server) = files.serve();
    let first = shown(&server, &ca);
    let halves = Pair { key: ca.server().key, ..ca.server() };
    let breaks: [(&dyn Fn(), &str); 6] = [
        (&|| files.put(&halves), "not the key of the certificate"),
        (&|| files.write("tls.crt", "nonsense"), "no certificate"),
        (&|| files.put(&ca.expired()), "expired"),
        (&|| std::fs::remove_file(files.path("tls.key")).unwrap(), "cannot be read"),
        (&|| files.write("token", ""), "empty"),
        (&|| std::fs::remove_file(files.path("token")).unwrap(), "cannot be read"),
    ];
    for (make, words) in breaks {
        make();
        assert_eq!(keeper.look(), None, "once may be the middle of a replacement");
        let told = keeper.look().expect("twice is not").unwrap_err();
        assert!(told.contains(words) && told.contains("stay"), "{words}: {told}");
        assert_eq!((keeper.look(), keeper.look()), (None, None), "it is told once");
        assert_eq!(shown(&server, &ca), first);
        assert_eq!(get(&server, &ca, "/metrics", "").status, 401, "an emptied token opens nothing");
        assert_eq!(get(&server, &ca, "/metrics", TOKEN).status, 200);
        files.put(&pair);
        files.write("token", "s3cret");
        assert_eq!(keeper.look(), Some(Ok(())), "all is well again");
        assert_eq!(keeper.look(), None);
    }
    server.stop();
}

#[test]
fn a_broken_certificate_does_not_keep_a_new_token_from_being_taken() {
    let ca = Ca::new();
    let files = Files::new(&ca.server()).with_token();
    let (mut keeper, server) = files.serve();
    files.write("tls.crt", "");
    files.write("token", "an0ther");
    keeper.look();
    assert_eq!(get(&server, &ca, "/metrics", "Authorization: Bearer an0ther\r\n").status, 200);
    server.stop();
}

#[test]
fn files_that_cannot_be_used_are_all_named_at_the_start_with_what_is_wrong() {
    let ca = Ca::new();
    let files = Files::new(&ca.server()).with_token();
    let refused = |make: &dyn Fn(), file: SecretFile, words: &str| {
        make();
        let errors = files.refused();
        let (found, path, problem) = &errors[0];
        assert_eq!((errors.len(), *found), (1, file), "{words}: {errors:?}");
        assert!(path.starts_with(files.directory.path()) && problem.contains(words), "{words}: {problem}");
        files.put(&ca.server());
        files.write("token", "s3cret");
    };
    let missing = |name: &'static str| std::fs::remove_file(files.path(name)).unwrap();
    refused(&|| files.put(&ca.expired()), SecretFile::Certificate, "expired");
    let early = ca.pair(|params| params.not_before = date_time_ymd(2999, 1, 1));
    refused(&|| files.put(&early), SecretFile::Certificate, "not valid yet");
    refused(&|| files.write("tls.key", &ca.server().key), SecretFile::Key, "not the key of the certificate");
    refused(&|| files.write("tls.key", &ca.server().certificate), SecretFile::Key, "no private key");
    refused(&|| files.write("tls.crt", &ca.server().key), SecretFile::Certificate, "no certificate");
    refused(&|| files.write("tls.crt", ""), SecretFile::Certificate, "no certificate");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    refused(&|| files.write("tls.crt", broken), SecretFile::Certificate, "not a certificate");
    refused(&|| files.write("tls.crt", &"x".repeat(2 << 20)), SecretFile::Certificate, "larger");
    refused(&|| missing("tls.crt"), SecretFile::Certificate, "cannot be read");
    refused(&|| missing("token"), SecretFile::Token, "cannot be read");
    refused(&|| files.write("token", "two words"), SecretFile::Token, "spaces");
    missing("tls.crt");
    missing("tls.key");
    missing("token");
    let found: Vec<_> = files.refused().into_iter().map(|(file, ..)| file).collect();
    assert_eq!(found, [SecretFile::Certificate, SecretFile::Key, SecretFile::Token], "all at once");
    for secret in ["s3cret", "PRIVATE KEY"] {
        assert!(!format!("{:?}", files.refused()).contains(secret));
    }
}

#[test]
fn a_self_signed_certificate_is_taken() {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let files = Files::new(&Pair { certificate: certificate.pem(), key: key.serialize_pem() });
    assert!(Keeper::open(files.files.clone()).is_ok());
    // One that openssl makes by default is a CA too.
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    files.put(&Pair { certificate: certificate.pem(), key: key.serialize_pem() });
    assert!(Keeper::open(files.files.clone()).is_ok());
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    files.put(&Pair { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() });
    assert_eq!(files.refused().len(), 1, "and does not hide that it has expired");
}

#[test]
fn where_clients_need_certificates_figures_go_to_those_who_have_one_and_probes_to_all() {
    let (ca, clients, other) = (Ca::new(), Ca::new(), Ca::new());
    let files = Files::new(&ca.server()).with_client_ca(&clients);
    let (mut keeper, server) = files.serve();
    let ask = |own: Option<&Pair>, path: &str| {
        connect(&server, &ca, own).map(|mut stream| exchange(&mut stream, "GET", path, "").status)
    };
    let own = clients.server();
    assert_eq!(ask(Some(&own), "/metrics").unwrap(), 200);
    assert_eq!(ask(None, "/metrics").unwrap(), 403);
    assert_eq!(ask(None, "/livez").unwrap(), 200);
    let stranger = other.server();
    let refused = connect(&server, &ca, Some(&stranger)).and_then(|mut stream| {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).map(|()| answer)
    });
    assert!(refused.is_err(), "{refused:?}");
    files.write("ca.crt", &other.0.pem());
    assert_eq!(keeper.look(), None);
    assert_eq!(ask(Some(&stranger), "/metrics").unwrap(), 200, "the CAs are read again too");
    server.stop();
}
