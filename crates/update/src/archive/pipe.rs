//! The pipe between the thread that downloads and hashes and the one that unpacks.

use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use sha2::{Digest, Sha256};

use super::{ResumingReader, SourceError};

const CHUNK: usize = 128 * 1024;
/// Chunks that may wait: how far the download can be ahead of the unpacking, and the bound of the memory.
const WAITING: usize = 16;

enum Message {
    Bytes(Vec<u8>),
    End(String),
    Failed(SourceError),
}

/// The end of the pipe that downloads and hashes.
pub(super) struct PipeWriter {
    sender: SyncSender<Message>,
    used: Receiver<Vec<u8>>,
}

/// The end of the pipe that inflates and unpacks.
pub(super) struct PipeReader<'a> {
    receiver: Receiver<Message>,
    used: Sender<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
    ended: Option<Result<String, SourceError>>,
    stop: &'a AtomicBool,
}

/// A pipe between two threads. Dropping the reader sets `stop`.
pub(super) fn pipe(stop: &AtomicBool) -> (PipeWriter, PipeReader<'_>) {
    let (sender, receiver) = sync_channel(WAITING);
    let (used_sender, used) = channel();
    let reader = PipeReader { receiver, used: used_sender, chunk: Vec::new(), at: 0, ended: None, stop };
    (PipeWriter { sender, used }, reader)
}

impl PipeWriter {
    /// Downloads and hashes until the end, an error, or until the reader is dropped.
    pub(super) fn run(self, mut download: ResumingReader<'_>) {
        let mut hash = Sha256::new();
        loop {
            let mut chunk = self.used.try_recv().unwrap_or_default();
            chunk.resize(CHUNK, 0);
            let mut filled = 0;
            // Small pieces are collected, because every message wakes a thread.
            let ended = loop {
                match download.next_bytes(&mut chunk[filled..]) {
                    Ok(0) => break Some(Ok(())),
                    Ok(bytes) => filled += bytes,
                    Err(error) => break Some(Err(error)),
                }
                if filled == CHUNK {
                    break None;
                }
            };
            chunk.truncate(filled);
            hash.update(&chunk);
            if self.sender.send(Message::Bytes(chunk)).is_err() {
                return;
            }
            let last = match ended {
                None => continue,
                Some(Ok(())) => Message::End(hex(&hash.finalize())),
                Some(Err(error)) => Message::Failed(error),
            };
            let _ = self.sender.send(last);
            return;
        }
    }
}

impl PipeReader<'_> {
    /// The checksum of the download once it is complete, or the error that ended it.
    pub(super) fn ended(&self) -> Option<&Result<String, SourceError>> {
        self.ended.as_ref()
    }
}

impl BufRead for PipeReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.chunk.len() && self.ended.is_none() {
            match self.receiver.recv() {
                Ok(Message::Bytes(chunk)) => {
                    let _ = self.used.send(std::mem::replace(&mut self.chunk, chunk));
                    self.at = 0;
                }
                Ok(Message::End(checksum)) => self.ended = Some(Ok(checksum)),
                Ok(Message::Failed(error)) => self.ended = Some(Err(error)),
                Err(_) => return Err(io::Error::other("the download thread ended unexpectedly")),
            }
        }
        if self.at == self.chunk.len()
            && let Some(Err(error)) = &self.ended
        {
            return Err(io::Error::other(error.clone()));
        }
        Ok(&self.chunk[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.chunk.len());
    }
}

impl Read for PipeReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut waiting = self.fill_buf()?;
        let bytes = waiting.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

impl Drop for PipeReader<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
