//! Certificates, and the files of an endpoint.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::super::http::Server;
use super::super::sample;
use crate::compat::Dcgm;
use crate::http::{Keeper, SecretFile, SecretFiles, TlsFiles};

/// A certificate authority.
pub(super) struct Ca(pub(super) CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Ca {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pair(&self, adjust: impl Fn(&mut CertificateParams)) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        adjust(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    pub(super) fn server(&self) -> Pair {
        self.pair(|_| {})
    }

    pub(super) fn expired(&self) -> Pair {
        self.pair(|params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }

    pub(super) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }
}

/// The files of an endpoint.
pub(super) struct Files {
    pub(super) directory: TempDir,
    pub(super) files: SecretFiles,
}

impl Files {
    pub(super) fn new(pair: &Pair) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let tls = TlsFiles { certificate: path("tls.crt"), key: path("tls.key"), client_ca: None };
        let files = SecretFiles { tls: Some(tls), token: None };
        let files = Self { directory, files };
        files.put(pair);
        files
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub(super) fn put(&self, pair: &Pair) {
        self.write("tls.crt", &pair.certificate);
        self.write("tls.key", &pair.key);
    }

    pub(super) fn with_token(mut self) -> Self {
        self.write("token", "s3cret\n");
        self.files.token = Some(self.path("token"));
        self
    }

    pub(super) fn with_client_ca(mut self, ca: &Ca) -> Self {
        self.write("ca.crt", &ca.0.pem());
        self.files.tls.as_mut().unwrap().client_ca = Some(self.path("ca.crt"));
        self
    }

    pub(super) fn serve(&self) -> (Keeper, Server) {
        let (keeper, guard) = Keeper::open(self.files.clone()).unwrap();
        (keeper, Server::start_with(sample::view(), guard, Some(Dcgm::default())))
    }

    /// What `open` says is wrong.
    pub(super) fn refused(&self) -> Vec<(SecretFile, PathBuf, String)> {
        let errors = Keeper::open(self.files.clone()).expect_err("these files must be refused");
        errors.into_iter().map(|error| (error.file, error.path, error.problem)).collect()
    }
}
