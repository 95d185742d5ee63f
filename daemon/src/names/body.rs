//! What a round may use, and an answer's body within that.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use tokio::runtime::Runtime;

use super::fault::Fault;

/// Bytes of all pages of a round: 1,024 pods of 32 KiB, which is a large one with its managed fields.
pub(super) const BYTES: u64 = 32 << 20;
/// Pages of a round.
pub(super) const PAGES: usize = 16;

/// What is left for a round.
#[derive(Debug)]
pub(super) struct Budget<'r> {
    runtime: &'r Runtime,
    limit: Duration,
    until: Instant,
    bytes: u64,
}

impl<'r> Budget<'r> {
    pub(super) fn new(runtime: &'r Runtime, limit: Duration) -> Self {
        Self { runtime, limit, until: Instant::now() + limit, bytes: BYTES }
    }

    /// Waits for `future`, but not beyond the round's deadline.
    pub(super) fn wait<F: Future>(&self, attempt: &'static str, future: F) -> Result<F::Output, Fault> {
        let late = || Fault::Deadline { attempt, limit: self.limit };
        // A future that is always ready would never be found late by its timer.
        if Instant::now() >= self.until {
            return Err(late());
        }
        self.runtime
            .block_on(async { tokio::time::timeout_at(self.until.into(), future).await })
            .map_err(|_elapsed| late())
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }
}

/// The body of an answer: read as it arrives, so that no answer is in memory as a whole.
#[derive(Debug)]
pub(super) struct Body<'b, 'r> {
    incoming: Incoming,
    chunk: Bytes,
    budget: &'b mut Budget<'r>,
    /// Why reading failed.
    fault: Option<Fault>,
}

impl<'b, 'r> Body<'b, 'r> {
    pub(super) fn new(incoming: Incoming, budget: &'b mut Budget<'r>) -> Self {
        Self { incoming, chunk: Bytes::new(), budget, fault: None }
    }

    /// Why reading failed, if it did.
    pub(super) fn fault(self) -> Option<Fault> {
        self.fault
    }

    /// Waits for bytes; none at the end of the body.
    fn fill(&mut self) -> Result<(), Fault> {
        let attempt = "read the answer";
        while self.chunk.is_empty() {
            match self.budget.wait(attempt, self.incoming.frame())? {
                None => return Ok(()),
                Some(Ok(frame)) => {
                    if let Ok(chunk) = frame.into_data() {
                        let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                        let left = self.budget.bytes.checked_sub(length);
                        self.budget.bytes = left.ok_or(Fault::TooLarge { bytes: BYTES, pages: PAGES })?;
                        self.chunk = chunk;
                    }
                }
                Some(Err(source)) => return Err(Fault::Http { attempt, source }),
            }
        }
        Ok(())
    }
}

impl Read for Body<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Err(fault) = self.fill() {
            self.fault = Some(fault);
            return Err(io::Error::other("the body cannot be read"));
        }
        let length = out.len().min(self.chunk.len());
        out[..length].copy_from_slice(&self.chunk.split_to(length));
        Ok(length)
    }
}
