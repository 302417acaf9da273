//! Channels move from bare values at `/channels/default/<name>` to documents with metadata at
//! `/channels/v2/default/<name>`.

use crate::{Guarded, MigrationError, channels_v1, channels_v2, copy_forward};

pub(super) async fn run(store: &Guarded) -> Result<String, MigrationError> {
    copy_forward(store, &channels_v1(), &channels_v2()).await
}
