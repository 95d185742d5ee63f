//! Where the exporter is, and how it is read.

use std::fmt;
use std::time::Duration;

use hyper::Uri;

/// How a neighbouring exporter is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DcgmOptions {
    /// Where its page is.
    pub url: Endpoint,
    /// How often it collects: its `--collect-interval`, of which 30 s is the default. A value covers no more.
    pub interval: Duration,
    /// How often its page is read: at least three times an interval. Ends of averages are known to half of it.
    pub period: Duration,
    /// How long reading the page may take in all.
    pub timeout: Duration,
    /// Bytes of the page.
    pub most: u64,
    /// Whether its ratios are known to be from 0 to 1, as DCGM gives them. Otherwise its pages have to show it.
    pub ratios: bool,
}

impl DcgmOptions {
    /// An exporter at `url` with its own defaults.
    pub fn new(url: Endpoint) -> Self {
        Self {
            url,
            interval: Duration::from_secs(30),
            period: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            most: 16 << 20,
            ratios: false,
        }
    }
}

/// Where a page is: plain HTTP, since it does not leave the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address; that of IPv6 without brackets.
    pub(super) host: String,
    /// Port.
    pub(super) port: u16,
    /// Path and query.
    pub(super) path: String,
}

impl Endpoint {
    /// Takes `http://host:port/path`; without a path it is `/metrics`, without a port 9400.
    ///
    /// # Errors
    ///
    /// What would be right. No part of `text` is in it: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let form = "wants the exporter's address such as \"http://127.0.0.1:9400/metrics\"";
        let uri: Uri = text.parse().map_err(|_invalid| form)?;
        let authority = uri.authority().ok_or(form)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err("wants http://: only plain HTTP is spoken, to an exporter on this node");
            }
            _ => return Err(form),
        }
        if authority.as_str().contains('@') {
            return Err("wants an address without user and password");
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str() == authority.host() => 9400,
            None => return Err("wants a port up to 65535"),
        };
        let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
            "/" => "/metrics",
            path if path.ends_with("/compat/dcgm") => {
                return Err("wants a DCGM exporter's address: /compat/dcgm is Warpmeter's own");
            }
            path => path,
        };
        if host.is_empty() {
            return Err(form);
        }
        Ok(Self { host: host.to_owned(), port, path: path.to_owned() })
    }

    /// Host and port, as a request names them.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_in_every_usual_form() {
        for (text, shown) in [
            ("http://127.0.0.1:9400/metrics", "http://127.0.0.1:9400/metrics"),
            ("http://127.0.0.1", "http://127.0.0.1:9400/metrics"),
            ("http://dcgm.gpu-operator.svc:9400", "http://dcgm.gpu-operator.svc:9400/metrics"),
            ("http://[::1]:9401/", "http://[::1]:9401/metrics"),
            ("http://[fd00::1]/x?y=z", "http://[fd00::1]:9400/x?y=z"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_of_an_exporter_is_refused_without_being_repeated() {
        for text in [
            "",
            "127.0.0.1:9400",
            "https://127.0.0.1:9400",
            "http://user:secret@127.0.0.1:9400",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:9408/compat/dcgm",
            "http://",
            "/metrics",
            "http://a b",
            "unix:///run/dcgm",
        ] {
            let refused = Endpoint::parse(text).expect_err(text);
            assert!(refused.starts_with("wants ") && !refused.contains("secret"), "{text}: {refused}");
        }
    }
}
