//! Streams a file to a client in chunks, and stops when the file is modified or the client stops reading.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::stream;
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::artifacts::range::Span;

/// What a download holds in memory is a few of these.
const CHUNK: u64 = 64 * 1024;

/// Streams the bytes of an open file as the client reads them. If the file is modified meanwhile, the response ends
/// early; replacing it by a rename does not affect the open file.
pub(super) fn stream(
    file: File,
    metadata: &Metadata,
    span: Span,
    takes_within: Duration,
    permit: OwnedSemaphorePermit,
) -> Body {
    let (sender, receiver) = mpsc::channel(1);
    let source = Source { file: Arc::new(file), content: content(metadata), takes_within };
    tokio::spawn(async move {
        source.send(span, &sender).await;
        drop(permit);
    });
    let chunks = stream::unfold((receiver, span.len()), |(mut receiver, left)| async move {
        let chunk: io::Result<Bytes> = match receiver.recv().await {
            Some(chunk) => chunk,
            None if left == 0 => return None,
            None => Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")),
        };
        let sent = chunk.as_ref().map_or(left, |chunk| chunk.len() as u64);
        Some((chunk, (receiver, left.saturating_sub(sent))))
    });
    Body::from_stream(chunks)
}

/// Size and times of a file, which differ when it was written to.
fn content(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

struct Source {
    file: Arc<File>,
    content: (u64, i64, i64),
    takes_within: Duration,
}

impl Source {
    async fn send(&self, span: Span, sender: &mpsc::Sender<io::Result<Bytes>>) {
        let mut at = span.start;
        while at < span.end {
            let chunk = self.read(Span { start: at, end: span.end.min(at.saturating_add(CHUNK)) }).await;
            at = chunk.as_ref().map_or(span.end, |chunk| at + chunk.len() as u64);
            if let Err(error) = &chunk {
                tracing::warn!(%error, "a download ended early");
            }
            if !matches!(tokio::time::timeout(self.takes_within, sender.send(chunk)).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    async fn read(&self, span: Span) -> io::Result<Bytes> {
        let (file, content_before) = (self.file.clone(), self.content);
        let read = move || {
            let mut bytes = vec![0; usize::try_from(span.len()).map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, span.start)?;
            if content(&file.metadata()?) != content_before {
                return Err(io::Error::other(
                    "the file was written to while it was served; put new files in its place by mv",
                ));
            }
            Ok(Bytes::from(bytes))
        };
        tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
    }
}
