//! Recordings: a line of settings, then a line for each fact in its order of arrival.
//!
//! The lines after the first are what the source processes send over their pipes. Replaying a recording gives
//! the same views, and so the same metrics, byte for byte.

use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warpmeter_core::fact::Sample;
use warpmeter_core::fold::Fold;
use warpmeter_core::settings::Settings;
use warpmeter_core::view::View;

/// The version of the format; a reader takes no other.
const FORMAT: u32 = 2;

/// The longest line that is read, in bytes: a reading of a node's largest GPU takes a few kilobytes.
const LONGEST_LINE: u64 = 4 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    warpmeter_recording: u32,
    settings: Settings,
}

/// Why a recording could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file could not be created, written or read.
    #[error("{attempt} recording {path}: {source}")]
    File {
        /// What was attempted.
        attempt: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A line is not what belongs there.
    #[error("recording {path}, line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
}

/// A recording that is being written.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: BufWriter<std::fs::File>,
}

impl Recorder {
    /// Creates the file, which must not exist: a recording is evidence and is not overwritten.
    pub fn create(path: &Path, settings: &Settings) -> Result<Self, RecordingError> {
        let file = std::fs::File::create_new(path).map_err(|source| RecordingError::File {
            attempt: "create",
            path: path.to_owned(),
            source,
        })?;
        let mut recorder = Self { path: path.to_owned(), file: BufWriter::new(file) };
        recorder.line(&Head { warpmeter_recording: FORMAT, settings: settings.clone() })?;
        Ok(recorder)
    }

    /// Adds a fact.
    pub fn record(&mut self, sample: &Sample) -> Result<(), RecordingError> {
        self.line(sample)
    }

    /// Makes sure that everything so far is in the file.
    pub fn finish(&mut self) -> Result<(), RecordingError> {
        self.file.flush().map_err(|source| self.failed(source))
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), RecordingError> {
        let written = serde_json::to_writer(&mut self.file, value).map_err(std::io::Error::from);
        written.and_then(|()| self.file.write_all(b"\n")).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> RecordingError {
        RecordingError::File { attempt: "write", path: self.path.clone(), source }
    }
}

/// Folds a recording, handing out each view on the way. Gives the last one.
pub fn replay(path: &Path, mut each: impl FnMut(&View)) -> Result<Option<View>, RecordingError> {
    let failed = |source| RecordingError::File { attempt: "read", path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut lines = Lines { path, reader: std::io::BufReader::new(file), line: 0, text: String::new() };
    let head: Head = lines.next()?.ok_or_else(|| lines.problem("it is empty".into()))?;
    if head.warpmeter_recording != FORMAT {
        return Err(lines.problem(format!(
            "format {} is not format {FORMAT}, which this version reads",
            head.warpmeter_recording
        )));
    }
    let mut fold = Fold::new(head.settings);
    let mut last = None;
    while let Some(sample) = lines.next::<Sample>()? {
        if let Some(view) = fold.apply(sample) {
            each(&view);
            last = Some(view);
        }
    }
    Ok(last)
}

struct Lines<'p, R> {
    path: &'p Path,
    reader: R,
    line: u64,
    text: String,
}

impl<R: BufRead> Lines<'_, R> {
    fn next<T: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<T>, RecordingError> {
        self.line += 1;
        self.text.clear();
        let read = std::io::Read::take(&mut self.reader, LONGEST_LINE).read_line(&mut self.text);
        match read {
            Ok(0) => Ok(None),
            // A recorder that was killed leaves half a line: what is before it is whole.
            Ok(_) if !self.text.ends_with('\n') => {
                tracing::warn!(
                    line = self.line,
                    "the recording ends in the middle of a line, which is left out"
                );
                Ok(None)
            }
            Ok(_) => {
                serde_json::from_str(&self.text).map(Some).map_err(|error| self.problem(error.to_string()))
            }
            Err(source) => Err(RecordingError::File { attempt: "read", path: self.path.to_owned(), source }),
        }
    }

    fn problem(&self, problem: String) -> RecordingError {
        RecordingError::Line { path: self.path.to_owned(), line: self.line, problem }
    }
}
