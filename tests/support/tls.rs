//! Certificates, and asking the daemon over TLS.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::http::{self, Answer};

/// A certificate authority.
#[derive(Debug)]
pub struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    /// A new one.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Puts a server's certificate for this machine and its key into `directory`, as `tls.crt` and `tls.key`.
    pub fn issue(&self, directory: &Path) {
        self.write(directory, &params());
    }

    /// The same with a certificate that has expired.
    pub fn issue_expired(&self, directory: &Path) {
        let mut params = params();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.write(directory, &params);
    }

    fn write(&self, directory: &Path, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        std::fs::write(directory.join("tls.crt"), certificate).unwrap();
        std::fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
    }

    /// GETs `path` as a client that trusts this authority only. Gives the server's certificate too.
    pub fn get(
        &self,
        address: SocketAddr,
        path: &str,
        headers: &str,
    ) -> std::io::Result<(Answer, CertificateDer<'static>)> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connection = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut stream = StreamOwned::new(connection, stream);
        let answer = http::ask(&mut stream, path, headers)?;
        let shown = stream.conn.peer_certificates().unwrap()[0].clone().into_owned();
        Ok((answer, shown))
    }
}

impl Default for Ca {
    fn default() -> Self {
        Self::new()
    }
}

fn params() -> CertificateParams {
    CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap()
}
