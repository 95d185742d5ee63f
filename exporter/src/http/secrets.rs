//! What guards the endpoints: files that are read at the start, and again when they change.
//!
//! Kubernetes replaces the files of a Secret by swapping a symbolic link, others write in place. So nothing is
//! watched: contents are compared. What cannot be used leaves in place what was read before, so that a
//! half-written pair or an emptied token file neither ends nor opens the endpoints.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::HeaderMap;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::tls::{self, Pem};
use super::token::{Brought, Token};

/// Bytes of a file: the longest chains have some ten thousand.
const LARGEST: u64 = 1 << 20;

/// The files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretFiles {
    /// Those of TLS; none: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The file of the bearer token; none: none is asked for.
    pub token: Option<PathBuf>,
}

/// The files of TLS, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CAs of clients; none: clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// Which of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretFile {
    /// The server's certificate.
    Certificate,
    /// Its key.
    Key,
    /// The CAs of clients.
    ClientCa,
    /// The bearer token.
    Token,
}

/// Why a file cannot be used, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretError {
    /// Which.
    pub file: SecretFile,
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for SecretError {}

/// What a request must bring.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    pub(super) tls: Option<TlsAcceptor>,
    /// Whether the client must have a certificate.
    certified: bool,
    token: Option<Token>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tls, certified, token) = (self.tls.is_some(), self.certified, self.token.is_some());
        f.debug_struct("Secrets")
            .field("tls", &tls)
            .field("certified", &certified)
            .field("token", &token)
            .finish()
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The client has no certificate.
    Certificate,
    /// There is no token.
    NoToken,
    /// The token is another one.
    WrongToken,
}

impl Secrets {
    /// Whether connections are still made as one was that was made with `acceptor`.
    pub(super) fn accepts_with(&self, acceptor: Option<&TlsAcceptor>) -> bool {
        match (&self.tls, acceptor) {
            (Some(now), Some(then)) => Arc::ptr_eq(now.config(), then.config()),
            (now, then) => now.is_none() == then.is_none(),
        }
    }

    /// Why a request with these headers is refused, if it is. `certified`: whether the client has shown a
    /// certificate, which was checked when the connection was made.
    pub(crate) fn refusal(&self, headers: &HeaderMap, certified: bool) -> Option<Refusal> {
        if self.certified && !certified {
            return Some(Refusal::Certificate);
        }
        match self.token.as_ref()?.brought(headers) {
            Brought::Right => None,
            Brought::Wrong => Some(Refusal::WrongToken),
            Brought::Nothing => Some(Refusal::NoToken),
        }
    }
}

/// The secrets in use, for whoever serves.
#[derive(Debug, Clone)]
pub struct Guard(watch::Receiver<Arc<Secrets>>);

impl Guard {
    /// Plain HTTP for everybody.
    pub fn none() -> Self {
        Self(watch::channel(Arc::default()).1)
    }

    pub(crate) fn secrets(&self) -> Arc<Secrets> {
        Arc::clone(&self.0.borrow())
    }
}

/// Keeps the secrets as the files have them.
pub struct Keeper {
    files: SecretFiles,
    tls: Option<(Pem, TlsAcceptor)>,
    token: Option<Token>,
    secrets: watch::Sender<Arc<Secrets>>,
    /// What was wrong at the last look.
    found: Option<String>,
    /// What was last told to be wrong.
    told: Option<String>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("files", &self.files).field("told", &self.told).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Every file that cannot be used.
    pub fn open(files: SecretFiles) -> Result<(Self, Guard), Vec<SecretError>> {
        let mut errors = Vec::new();
        let tls = files.tls.as_ref().map(|files| {
            let pem = read_pem(files)?;
            let acceptor = tls::acceptor(&pem).map_err(|problem| vec![of_tls(files, problem)])?;
            Ok((pem, acceptor))
        });
        let tls = tls.transpose().unwrap_or_else(|mut problems| {
            errors.append(&mut problems);
            None
        });
        let token = files.token.as_deref().map(read_token).transpose().unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let (secrets, guard) = watch::channel(Arc::default());
        let keeper = Self { files, tls, token, secrets, found: None, told: None };
        keeper.show();
        Ok((keeper, Guard(guard)))
    }

    /// Reads the files again, and takes what has changed. Says what is wrong with them when that has changed:
    /// `Ok` once all is well again.
    ///
    /// A problem counts from the second look on: between the two, a pair may have been half replaced.
    pub fn look(&mut self) -> Option<Result<(), String>> {
        let problems: Vec<String> = [self.renew_tls(), self.renew_token()]
            .into_iter()
            .filter_map(Result::err)
            .map(|error| error.to_string())
            .collect();
        let found = (!problems.is_empty()).then(|| problems.join("; "));
        let settled = found.is_none() || found == self.found;
        self.found.clone_from(&found);
        if !settled || found == self.told {
            return None;
        }
        self.told.clone_from(&found);
        Some(found.map_or(Ok(()), Err))
    }

    fn renew_tls(&mut self) -> Result<(), SecretError> {
        let (Some(files), Some((current, _))) = (&self.files.tls, &self.tls) else { return Ok(()) };
        let kept = |mut error: SecretError| {
            error.problem += "; the certificate and key that were read before stay in use";
            error
        };
        let pem = read_pem(files).map_err(|mut errors| kept(errors.remove(0)))?;
        if pem == *current {
            // It may have run out since.
            return tls::still_valid(&current.certificate).map_err(|problem| of_tls(files, problem));
        }
        let acceptor = tls::acceptor(&pem).map_err(|problem| kept(of_tls(files, problem)))?;
        tracing::info!(certificate = %files.certificate.display(), "the certificate was replaced");
        self.tls = Some((pem, acceptor));
        self.show();
        Ok(())
    }

    fn renew_token(&mut self) -> Result<(), SecretError> {
        let (Some(path), Some(current)) = (&self.files.token, &self.token) else { return Ok(()) };
        let token = read_token(path).map_err(|mut error| {
            error.problem += "; the token that was read before stays in use";
            error
        })?;
        if token != *current {
            tracing::info!(path = %path.display(), "the token was replaced");
            self.token = Some(token);
            self.show();
        }
        Ok(())
    }

    fn show(&self) {
        let certified = self.files.tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        let tls = self.tls.as_ref().map(|(_, acceptor)| acceptor.clone());
        self.secrets.send_replace(Arc::new(Secrets { tls, certified, token: self.token.clone() }));
    }
}

/// Reads all files of TLS; never gives an empty list of errors.
fn read_pem(files: &TlsFiles) -> Result<Pem, Vec<SecretError>> {
    let certificate = read(SecretFile::Certificate, &files.certificate);
    let key = read(SecretFile::Key, &files.key);
    let client_ca = files.client_ca.as_deref().map(|path| read(SecretFile::ClientCa, path)).transpose();
    match (certificate, key, client_ca) {
        (Ok(certificate), Ok(key), Ok(client_ca)) => Ok(Pem { certificate, key, client_ca }),
        (certificate, key, client_ca) => {
            Err([certificate.err(), key.err(), client_ca.err()].into_iter().flatten().collect())
        }
    }
}

fn read_token(path: &Path) -> Result<Token, SecretError> {
    let content = read(SecretFile::Token, path)?;
    Token::of(&content).map_err(|problem| SecretError {
        file: SecretFile::Token,
        path: path.to_owned(),
        problem,
    })
}

fn read(file: SecretFile, path: &Path) -> Result<Vec<u8>, SecretError> {
    let failed = |problem: String| SecretError { file, path: path.to_owned(), problem };
    let mut content = Vec::new();
    let reading = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut content));
    reading.map_err(|error| failed(format!("cannot be read: {error}")))?;
    if content.len() as u64 > LARGEST {
        return Err(failed("it is larger than 1 MiB".into()));
    }
    Ok(content)
}

fn of_tls(files: &TlsFiles, (file, problem): (SecretFile, String)) -> SecretError {
    let path = match file {
        SecretFile::Key => &files.key,
        SecretFile::ClientCa => files.client_ca.as_ref().unwrap_or(&files.certificate),
        SecretFile::Certificate | SecretFile::Token => &files.certificate,
    };
    SecretError { file, path: path.clone(), problem }
}
