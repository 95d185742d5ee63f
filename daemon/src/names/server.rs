//! Which API server is asked.

use std::net::IpAddr;

use hyper::Uri;

use super::fault::Fault;

/// An API server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// Whether it is spoken to in TLS.
    pub tls: bool,
    /// Name or address; that of IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What comes before `/api` in every path: empty, or `/prefix`.
    pub prefix: String,
}

impl Server {
    /// The configured server, or else the one that the cluster told its pods of.
    pub(super) fn find(
        configured: Option<&str>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Fault> {
        if let Some(text) = configured {
            return Self::parse(text).map_err(|problem| Fault::Server { server: text.to_owned(), problem });
        }
        let variable = |name| environment(name).filter(|value| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST").ok_or(Fault::NoServer)?;
        let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host };
        let server = format!("https://{bracketed}:{port}");
        Self::parse(&server).map_err(|problem| Fault::Server { server, problem })
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let scheme = "write https://host:port";
        let uri: Uri = text.parse().map_err(|_invalid| scheme)?;
        let authority = uri.authority().ok_or(scheme)?;
        if authority.as_str().contains('@') {
            return Err("a token belongs in its file, not in the address");
        }
        if uri.query().is_some() {
            return Err("it has a query");
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned();
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if is_loopback(&host) => false,
            Some("http") => return Err("without TLS it must be on this host: use https://"),
            _ => return Err(scheme),
        };
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().ends_with(&host) || authority.as_str().ends_with(']') => {
                if tls {
                    443
                } else {
                    80
                }
            }
            None => return Err("its port is not a number up to 65535"),
        };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { tls, host, port, prefix })
    }

    /// Host and port, as a request names them.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(bool, String, String), &'static str> {
        Server::parse(text).map(|server| (server.tls, server.authority(), server.prefix))
    }

    #[test]
    fn addresses_are_taken_in_every_usual_form() {
        let of = |tls, authority: &str, prefix: &str| Ok((tls, authority.to_owned(), prefix.to_owned()));
        assert_eq!(parsed("https://10.96.0.1:6443"), of(true, "10.96.0.1:6443", ""));
        assert_eq!(parsed("https://10.96.0.1"), of(true, "10.96.0.1:443", ""));
        assert_eq!(parsed("https://api.example.com/"), of(true, "api.example.com:443", ""));
        assert_eq!(parsed("https://[fd00::1]:6443"), of(true, "[fd00::1]:6443", ""));
        assert_eq!(parsed("https://[fd00::1]"), of(true, "[fd00::1]:443", ""));
        let rancher = "https://rancher.example.com/k8s/clusters/c-1/";
        assert_eq!(parsed(rancher), of(true, "rancher.example.com:443", "/k8s/clusters/c-1"));
        assert_eq!(parsed("http://localhost:8001"), of(false, "localhost:8001", ""));
        assert_eq!(parsed("http://127.0.0.1:8001"), of(false, "127.0.0.1:8001", ""));
        assert_eq!(parsed("http://[::1]:8001"), of(false, "[::1]:8001", ""));
    }

    #[test]
    fn what_would_send_a_token_astray_is_refused() {
        for text in [
            "",
            "10.96.0.1:443",
            "api.example.com",
            "ftp://10.96.0.1",
            "http://10.96.0.1",
            "http://localhost.example.com",
            "https://user:secret@10.96.0.1",
            "https://10.96.0.1:99999",
            "https://10.96.0.1?x=y",
            "https://",
            "/api",
            "https://a b",
        ] {
            assert!(parsed(text).is_err(), "{text:?} gives {:?}", parsed(text));
        }
    }

    #[test]
    fn a_pod_finds_its_cluster_in_the_environment() {
        let find = |host: &'static str, port: &'static str| {
            Server::find(None, move |name| match name {
                "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
                "KUBERNETES_SERVICE_PORT" => Some(port.to_owned()),
                _ => None,
            })
            .map(|server| server.authority())
        };
        assert_eq!(find("10.96.0.1", "443").unwrap(), "10.96.0.1:443");
        assert_eq!(find("fd00::1", "6443").unwrap(), "[fd00::1]:6443");
        assert_eq!(find("10.96.0.1", "").unwrap(), "10.96.0.1:443");
        assert!(matches!(find("", "443"), Err(Fault::NoServer)));
        assert!(matches!(find("10.96.0.1", "x"), Err(Fault::Server { .. })));
    }
}
