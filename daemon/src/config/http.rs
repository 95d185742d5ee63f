//! `[http]`: where the endpoints listen, and to whom they answer.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::reader::{Placed, Section};
use super::{Problem, values};

/// What guards the endpoints, and what they serve beside the metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpOptions {
    /// The configuration file, for messages; empty without one.
    pub file: PathBuf,
    /// The file of the server's certificate, if there is to be TLS; then there is a key too.
    pub tls_certificate: Option<Placed<PathBuf>>,
    /// The file of its key.
    pub tls_key: Option<Placed<PathBuf>>,
    /// The file of the CAs by which clients must have a certificate, if they must.
    pub client_ca: Option<Placed<PathBuf>>,
    /// The file of the bearer token, if one is asked for.
    pub token_file: Option<Placed<PathBuf>>,
    /// Whether figures are served under DCGM's names too.
    pub compat_dcgm: bool,
}

const KEYS: [&str; 6] = ["listen", "tls_certificate", "tls_key", "client_ca", "token_file", "compat_dcgm"];

pub(super) fn read(section: &mut Section<'_>, listen: &mut SocketAddr, options: &mut HttpOptions) -> bool {
    section.read(&KEYS, |section, key| match key {
        "listen" => section.set(key, listen, values::address),
        "tls_certificate" => section.set_placed(key, &mut options.tls_certificate, values::path),
        "tls_key" => section.set_placed(key, &mut options.tls_key, values::path),
        "client_ca" => section.set_placed(key, &mut options.client_ca, values::path),
        "token_file" => section.set_placed(key, &mut options.token_file, values::path),
        "compat_dcgm" => section.set(key, &mut options.compat_dcgm, values::boolean),
        _ => false,
    })
}

impl HttpOptions {
    /// Keys without those that they need.
    pub(super) fn incomplete(&self) -> Vec<Problem> {
        let [certificate, key, ca] =
            [&self.tls_certificate, &self.tls_key, &self.client_ca].map(Option::as_ref);
        let alone = match (certificate, key) {
            (Some(place), None) => Some((place, "`tls_certificate` in [http] needs `tls_key` beside it")),
            (None, Some(place)) => Some((place, "`tls_key` in [http] needs `tls_certificate` beside it")),
            _ => None,
        };
        let no_tls = ca.filter(|_| certificate.is_none() && key.is_none());
        let no_tls =
            no_tls.map(|place| (place, "`client_ca` in [http] needs `tls_certificate` and `tls_key`"));
        alone.into_iter().chain(no_tls).map(|(place, message)| place.problem(message.to_owned())).collect()
    }
}
