//! Why an archive is refused. The texts name the member, so that a publisher can correct it.

use std::io;

/// Why an archive is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// It cannot be inflated, or not to its end.
    #[error("it is not one whole gzip file: {0}")]
    Gzip(String),
    /// The gzip file is whole, what is in it is not.
    #[error("it ends in the middle")]
    Truncated,
    /// There is more than one archive.
    #[error("something follows the archive's end")]
    Trailing,
    /// A header is broken.
    #[error("member {number} has a header that is not understood: {why}")]
    Header {
        /// Which member.
        number: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A member that no good archive has.
    #[error("the member {name:?} {why}")]
    Member {
        /// Which, as the archive says; cut short if it is long.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More members than any agent has.
    #[error("it has more than {0} members")]
    TooMany(usize),
    /// More bytes than it said, or than any agent has.
    #[error("it unpacks to more than {0} bytes, which is more than it may")]
    TooLarge(u64),
    /// Something that the profile asks for is not there.
    #[error("it lacks {}", .0.join(", "))]
    Missing(Vec<String>),
}

impl ArchiveError {
    pub(super) fn member(name: &[u8], why: &'static str) -> Self {
        let mut name = String::from_utf8_lossy(name).into_owned();
        if let Some((cut, _)) = name.char_indices().nth(100) {
            name.truncate(cut);
            name.push('…');
        }
        Self::Member { name, why }
    }

    pub(super) fn inflating(error: &io::Error) -> Self {
        Self::Gzip(match error.kind() {
            io::ErrorKind::UnexpectedEof => "it ends in the middle".into(),
            _ => error.to_string(),
        })
    }
}
