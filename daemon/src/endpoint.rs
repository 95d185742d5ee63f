//! What guards the endpoints: opened at the start, kept as the files have it, and told of in the daemon's health.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpmeter_core::fact::{Fact, Health, HealthState};
use warpmeter_exporter::http::{Guard, Keeper, SecretError, SecretFile, SecretFiles, TlsFiles};

use crate::config::{ConfigError, HttpOptions, Placed};
use crate::pipeline::Intake;

/// How often the files are read again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How often the end of the daemon is looked for meanwhile.
const STEP: Duration = Duration::from_millis(100);

/// Reads the files that the configuration names. Without any, everybody is answered.
///
/// # Errors
///
/// Every file that cannot be used, at the place of its key.
pub fn open(options: &HttpOptions) -> Result<(Option<Keeper>, Guard), ConfigError> {
    let files = files(options);
    if files == SecretFiles::default() {
        return Ok((None, Guard::none()));
    }
    match Keeper::open(files) {
        Ok((keeper, guard)) => Ok((Some(keeper), guard)),
        Err(errors) => {
            let mut problems: Vec<_> = errors.iter().filter_map(|error| problem(options, error)).collect();
            problems.sort();
            Err(ConfigError::Invalid { path: options.file.clone(), problems })
        }
    }
}

/// Whether a token goes over the wire where others may read it.
pub fn token_in_the_clear(options: &HttpOptions) -> bool {
    options.token_file.is_some() && options.tls_certificate.is_none()
}

/// Keeps the secrets until `stop`. What is wrong with their files is the daemon's health.
pub fn keep(mut keeper: Keeper, daemon: &Intake, stop: &AtomicBool) {
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next = Instant::now() + LOOK_EVERY;
            if let Some(told) = keeper.look() {
                let state = if told.is_ok() { HealthState::Up } else { HealthState::Degraded };
                daemon.put(Fact::Health(Health { state, reason: told.err().unwrap_or_default() }));
            }
        }
        std::thread::sleep(STEP);
    }
}

fn files(options: &HttpOptions) -> SecretFiles {
    let path = |placed: &Option<Placed<PathBuf>>| placed.as_ref().map(|placed| placed.value.clone());
    let tls = path(&options.tls_certificate).zip(path(&options.tls_key));
    let tls =
        tls.map(|(certificate, key)| TlsFiles { certificate, key, client_ca: path(&options.client_ca) });
    SecretFiles { tls, token: path(&options.token_file) }
}

/// The same at the place of the key that names the file.
fn problem(options: &HttpOptions, error: &SecretError) -> Option<crate::config::Problem> {
    let (key, placed) = match error.file {
        SecretFile::Certificate => ("tls_certificate", &options.tls_certificate),
        SecretFile::Key => ("tls_key", &options.tls_key),
        SecretFile::ClientCa => ("client_ca", &options.client_ca),
        SecretFile::Token => ("token_file", &options.token_file),
    };
    Some(placed.as_ref()?.problem(format!("`{key}` in [http]: {error}")))
}
