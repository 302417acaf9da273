//! The conformance suite on the in-memory backend.

mod conformance;

use std::sync::Arc;

use refit_backend::{MemoryBackend, SharedBackend};

struct Memory(MemoryBackend);

impl conformance::Store for Memory {
    async fn open() -> Self {
        Self(MemoryBackend::default())
    }

    fn backend(&self) -> SharedBackend {
        Arc::new(self.0.clone())
    }

    async fn forget_history(&self) {
        conformance::flood(self.backend()).await;
    }
}

conformance::suite!(Memory);
