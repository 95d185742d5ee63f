//! A file that is read again when it changes.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most of a file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// Problems that are told at once; `check` has all of them.
const MOST_TOLD: usize = 10;

/// What tells one version of a file from the next.
type Version = (SystemTime, u64, u64);

/// A file, what it last said, and what is wrong with it now.
#[derive(Debug)]
pub(super) struct Watched<T> {
    path: PathBuf,
    version: Option<Version>,
    /// What the last version without a problem says.
    pub(super) value: Option<T>,
    /// Everything that is wrong with the version there is now.
    pub(super) problems: Vec<String>,
}

impl<T> Watched<T> {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, version: None, value: None, problems: Vec::new() }
    }

    /// Reads the file if it has changed. Whether that, or that it could not be read, is new.
    ///
    /// A version with problems changes nothing: what the last good one said stays.
    pub(super) fn look(&mut self, parse: impl Fn(&[u8]) -> Result<T, Vec<String>>) -> bool {
        let read = match version(&self.path) {
            Ok(version) if self.version == Some(version) => return false,
            Ok(version) => {
                self.version = Some(version);
                read(&self.path)
            }
            Err(error) => Err(error),
        };
        let problems = match read.map(|bytes| parse(&bytes)) {
            Ok(Ok(value)) => {
                self.value = Some(value);
                Vec::new()
            }
            Ok(Err(problems)) => problems,
            Err(error) => {
                // A file that is made readable has not changed, and is wanted all the same.
                self.version = None;
                vec![format!("it cannot be read: {error}")]
            }
        };
        let new = self.version.is_some() || self.problems != problems;
        self.problems = problems;
        new
    }

    /// What is wrong, in one line; empty if nothing is.
    pub(super) fn reason(&self) -> String {
        if self.problems.is_empty() {
            return String::new();
        }
        let mut told = self.problems.iter().take(MOST_TOLD).cloned().collect::<Vec<_>>().join("; ");
        let more = self.problems.len().saturating_sub(MOST_TOLD);
        if more > 0 {
            told += &format!("; and {more} more, which `warpmeter check` lists");
        }
        let stays = if self.value.is_some() { ", and what it said before stays" } else { "" };
        format!("{} is not used{stays}: {told}", self.path.display())
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn version(path: &Path) -> std::io::Result<Version> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.modified()?, metadata.len(), metadata.ino()))
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= LARGEST) {
        Ok(bytes)
    } else {
        Err(std::io::Error::other(format!("it is larger than {} MiB", LARGEST >> 20)))
    }
}
