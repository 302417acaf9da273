//! A download that resumes where it was interrupted. Used by the installation and the checksum.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::patience::RateMeter;
use super::{Patience, Progress, Source, SourceError, SourceErrorKind, Transfer, TransferLimits};

/// Failures in a row, without a byte between them, after which a download fails.
pub(super) const MAX_TRIES: u32 = 5;

static NEVER: AtomicBool = AtomicBool::new(false);

/// A download that resumes after interruptions, so that large files arrive over bad networks.
pub struct ResumingReader<'a> {
    source: &'a dyn Source,
    url: &'a str,
    transfer: Transfer,
    at: u64,
    failures: u32,
    progress: Progress<'a>,
    patience: &'a Patience,
    rate: RateMeter,
    stop: &'a AtomicBool,
}

impl<'a> ResumingReader<'a> {
    /// Begins a download.
    pub fn open(
        source: &'a dyn Source,
        url: &'a str,
        progress: Progress<'a>,
        patience: &'a Patience,
        limits: &TransferLimits,
    ) -> Result<Self, SourceError> {
        let mut failures = 0;
        let transfer = loop {
            match source.open(url, 0, patience) {
                Ok(transfer) => break transfer,
                Err(error) => pause_or_fail(source, error, &mut failures, patience)?,
            }
        };
        if transfer.starts_at != 0 {
            return Err(SourceError::new(
                url,
                SourceErrorKind::InvalidResponse("it does not start at the first byte".into()),
            ));
        }
        let rate = RateMeter::new(limits);
        Ok(Self { source, url, transfer, at: 0, failures, progress, patience, rate, stop: &NEVER })
    }

    /// Fails at the next interruption once `stop` is set.
    pub(super) fn until(self, stop: &'a AtomicBool) -> Self {
        Self { stop, ..self }
    }

    /// The length of the file, if the server sent it.
    pub fn total(&self) -> Option<u64> {
        self.transfer.total
    }

    /// The ETag of the content.
    pub fn etag(&self) -> Option<&str> {
        self.transfer.etag.as_deref()
    }

    /// Like `read`, but with the kind of the error.
    pub fn next_bytes(&mut self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let began = Instant::now();
        loop {
            self.patience.check().map_err(|kind| SourceError::new(self.url, kind))?;
            let error = match self.transfer.body.read(buffer) {
                Ok(0) if buffer.is_empty() => return Ok(0),
                Ok(0) => match self.transfer.total {
                    Some(total) if self.at < total => format!("it ended after {} of {total} bytes", self.at),
                    _ => return Ok(0),
                },
                Ok(bytes) => {
                    let slow = self.rate.count(bytes as u64, began.elapsed());
                    slow.map_err(|kind| SourceError::new(self.url, kind))?;
                    return self.count(bytes).map(|()| bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error.to_string(),
            };
            self.reopen(SourceErrorKind::Interrupted(error))?;
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), SourceError> {
        self.at += bytes as u64;
        self.failures = 0;
        if self.transfer.total.is_some_and(|total| self.at > total) {
            return Err(SourceError::new(
                self.url,
                SourceErrorKind::InvalidResponse("it is longer than its Content-Length".into()),
            ));
        }
        (self.progress)(self.at, self.transfer.total);
        Ok(())
    }

    fn reopen(&mut self, kind: SourceErrorKind) -> Result<(), SourceError> {
        let mut error = SourceError::new(self.url, kind);
        loop {
            tracing::debug!(%error, at = self.at, "download interrupted");
            pause_or_fail(self.source, error, &mut self.failures, self.patience)?;
            if self.stop.load(Ordering::Relaxed) {
                return Err(SourceError::new(self.url, SourceErrorKind::GivenUp));
            }
            let transfer = match &self.transfer.etag {
                Some(etag) => self.source.resume(self.url, self.at, etag, self.patience),
                None => self.source.open(self.url, self.at, self.patience),
            };
            match transfer {
                Ok(transfer) => return self.continue_with(transfer),
                Err(next) => error = next,
            }
        }
    }

    fn continue_with(&mut self, transfer: Transfer) -> Result<(), SourceError> {
        let differs = |old: &Option<String>, new: &Option<String>| old.is_some() && old != new;
        let kind = if differs(&self.transfer.etag, &transfer.etag)
            || self.transfer.total.is_some() && self.transfer.total != transfer.total
        {
            SourceErrorKind::Changed
        } else if transfer.starts_at != self.at {
            SourceErrorKind::NoRanges
        } else {
            self.transfer.body = transfer.body;
            return Ok(());
        };
        Err(SourceError::new(self.url, kind))
    }
}

/// Waits before the next try, or returns the error if there is none.
pub(super) fn pause_or_fail(
    source: &dyn Source,
    error: SourceError,
    failures: &mut u32,
    patience: &Patience,
) -> Result<(), SourceError> {
    *failures += 1;
    // A transfer that broke because the time was over, or a person waits, ends for that reason.
    let ended = |kind| SourceError { url: error.url.clone(), kind };
    patience.check().map_err(ended)?;
    if !error.is_transient() || *failures >= MAX_TRIES {
        return Err(error);
    }
    source.pause(*failures, patience).map_err(ended)
}

impl Read for ResumingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.next_bytes(buffer).map_err(io::Error::other)
    }
}
