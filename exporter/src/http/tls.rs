//! TLS from PEM files: one certificate chain with its key, and the CA of clients if they are to have certificates.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{CertificateError, Error, InconsistentKeys, RootCertStore, ServerConfig};

use super::secrets::SecretFile;

/// The contents of the files.
#[derive(PartialEq, Eq)]
pub(super) struct Pem {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
}

/// What is wrong, and with which file.
type Problem = (SecretFile, String);

/// Accepts connections with the certificate and key of `pem`, which fit each other and hold now.
pub(super) fn acceptor(pem: &Pem) -> Result<TlsAcceptor, Problem> {
    let provider = Arc::new(ring::default_provider());
    let key = key(pem, &provider)?;
    still_valid(&pem.certificate)?;
    let failed = |error: Error| (SecretFile::Certificate, error.to_string());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let config = match &pem.client_ca {
        None => config.with_no_client_auth(),
        Some(ca) => {
            let failed = |problem: String| (SecretFile::ClientCa, problem);
            let roots = Arc::new(roots(ca)?);
            // Probes of the kubelet bring no certificate: which requests need one is decided for each of them.
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| failed(error.to_string()))?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Whether the certificate holds now, and if not, why.
pub(super) fn still_valid(certificate: &[u8]) -> Result<(), Problem> {
    let failed = |problem: String| (SecretFile::Certificate, problem);
    let chain = certificates(certificate).map_err(failed)?;
    let leaf = chain.first().ok_or_else(|| failed(NO_CERTIFICATE.into()))?;
    let parsed = ParsedCertificate::try_from(leaf).map_err(|error| failed(unreadable(&error)))?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    // Nobody is trusted here, so the times are all that this can find wrong: clients judge the rest.
    let nobody = RootCertStore::empty();
    let judged =
        verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], UnixTime::now(), algorithms);
    match judged {
        Err(Error::InvalidCertificate(
            error @ (CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }),
        )) => Err(failed(format!("{error}; renew it, or set this host's clock"))),
        _ => Ok(()),
    }
}

const NO_CERTIFICATE: &str = "it holds no certificate; it must hold the server's one in PEM, followed by those between it and the root";

fn key(pem: &Pem, provider: &CryptoProvider) -> Result<CertifiedKey, Problem> {
    let chain = certificates(&pem.certificate).map_err(|problem| (SecretFile::Certificate, problem))?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|error| {
        let problem = match error {
            pem::Error::NoItemsFound => {
                "it holds no private key; it must hold one in PEM, not encrypted".to_owned()
            }
            other => format!("not PEM: {other}"),
        };
        (SecretFile::Key, problem)
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => (
            SecretFile::Key,
            "it is not the key of the certificate; name the pair that belongs together".into(),
        ),
        Error::InvalidCertificate(_) => (SecretFile::Certificate, unreadable(&error)),
        other => (SecretFile::Key, format!("{other}; it must be an RSA, ECDSA or Ed25519 key")),
    })
}

fn unreadable(error: &Error) -> String {
    format!("not a certificate that can be read: {error}")
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("not PEM: {error}"))?;
    if chain.is_empty() { Err(NO_CERTIFICATE.into()) } else { Ok(chain) }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, Problem> {
    let failed = |problem: String| (SecretFile::ClientCa, problem);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| failed(format!("not PEM: {error}")))?;
        roots.add(certificate).map_err(|error| failed(unreadable(&error)))?;
    }
    if roots.is_empty() {
        return Err(failed("it holds no certificate; it must hold those of the clients' CAs in PEM".into()));
    }
    Ok(roots)
}
