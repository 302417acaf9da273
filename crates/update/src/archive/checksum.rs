//! The checksum file beside an archive: fetched before the archive, and compared after it.

use super::install::InstallError;
use super::resume::{ResumingReader, pause_or_fail};
use super::source::redacted;
use super::{Patience, Source, SourceError, SourceErrorKind, TransferLimits};

/// More than a checksum and a file name need.
const MAX_BYTES: u64 = 4096;
/// The longest file name that is compared, and shown.
const MAX_NAME: usize = 255;

/// The SHA-256 that an archive should have, from the file beside it.
pub(super) fn fetch(
    source: &dyn Source,
    archive: &str,
    patience: &Patience,
    limits: &TransferLimits,
) -> Result<String, InstallError> {
    let url = beside(archive);
    let mut failures = 0;
    let text = loop {
        let mut text = Vec::new();
        let opened = ResumingReader::open(source, &url, &|_, _| {}, patience, limits);
        let read = opened.and_then(|mut reader| {
            let mut buffer = [0; 512];
            while text.len() as u64 <= MAX_BYTES {
                match reader.next_bytes(&mut buffer)? {
                    0 => break,
                    bytes => text.extend_from_slice(&buffer[..bytes]),
                }
            }
            Ok(())
        });
        match read {
            Ok(()) => break text,
            // The file is small: a transfer that cannot be resumed is restarted.
            Err(error) if error.needs_restart() => {
                let kind = SourceErrorKind::Interrupted(error.kind.to_string());
                pause_or_fail(source, SourceError { kind, ..error }, &mut failures, patience)?;
            }
            Err(error) => return Err(error.into()),
        }
    };
    let (checksum, named) = parse(&text).ok_or_else(|| InstallError::ChecksumFile { url: redacted(&url) })?;
    match named.filter(|named| named != file_name(archive)) {
        Some(named) => Err(InstallError::OtherFile { url: redacted(&url), named }),
        None => Ok(checksum),
    }
}

/// The last part of the path.
fn file_name(archive: &str) -> &str {
    let path = &archive[..archive.find(['?', '#']).unwrap_or(archive.len())];
    path.rsplit('/').next().unwrap_or(path)
}

/// The address of the checksum: the suffix belongs to the path, not to a query.
fn beside(archive: &str) -> String {
    let (path, rest) = archive.split_at(archive.find(['?', '#']).unwrap_or(archive.len()));
    format!("{path}.sha256{rest}")
}

/// `HEX`, or `HEX  filename` as `sha256sum` writes it: the checksum, and the file name without its directories.
fn parse(text: &[u8]) -> Option<(String, Option<String>)> {
    let text = std::str::from_utf8(text).ok()?.trim_end();
    if text.len() as u64 > MAX_BYTES || text.contains('\n') {
        return None;
    }
    let (hex, rest) = text.split_at(text.find([' ', '\t']).unwrap_or(text.len()));
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let name = rest.trim_start().trim_start_matches('*');
    let name = name.rsplit('/').next().filter(|name| !name.is_empty());
    Some((hex.to_ascii_lowercase(), name.map(|name| name.chars().take(MAX_NAME).collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_read_as_sha256sum_writes_it() {
        let hex = "0123456789abcdef".repeat(4);
        for good in ["{}", "{}\n", "{}\r\n"] {
            assert_eq!(parse(good.replace("{}", &hex).as_bytes()), Some((hex.clone(), None)), "{good}");
        }
        for good in
            ["{}  refit.tar.gz\n", "{} *refit.tar.gz\n", "{}  ./refit.tar.gz", "{}  dist/refit.tar.gz\r\n"]
        {
            let named = Some("refit.tar.gz".to_owned());
            assert_eq!(parse(good.replace("{}", &hex).as_bytes()), Some((hex.clone(), named)), "{good}");
        }
        assert_eq!(parse(hex.to_uppercase().as_bytes()), Some((hex.clone(), None)));
        for bad in ["", "{}0", "x{}", "<html>", "{}\n{}", "  {}"] {
            assert_eq!(parse(bad.replace("{}", &hex).as_bytes()), None, "{bad}");
        }
        assert_eq!(parse(&[0xff; 64]), None);
    }

    #[test]
    fn the_suffix_belongs_to_the_path() {
        assert_eq!(beside("https://a/x.tar.gz"), "https://a/x.tar.gz.sha256");
        assert_eq!(beside("https://a/x.tar.gz?t=1"), "https://a/x.tar.gz.sha256?t=1");
        assert_eq!(file_name("https://a/b/x.tar.gz?t=1/2"), "x.tar.gz");
    }
}
