//! A strict reader of tar archives, which may be hostile. Used by the unpacker.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::ArchiveError;

const BLOCK: usize = 512;
const MAX_MEMBERS: usize = 10_000;
const MAX_NAME: usize = 1024;
/// Where the cause of an error is cut: it may quote the archive.
const MAX_CAUSE: usize = 100;
/// The limit of a header that describes the next member: times, owners, a long name.
const MAX_DESCRIPTION: u64 = 64 * 1024;

/// The kind of a member; kinds that no agent needs are refused by the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MemberKind {
    File,
    Directory,
    Symlink(Vec<u8>),
    HardLink(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    pub(super) kind: MemberKind,
}

/// Reads the members of a tar archive in constant memory: unlike in the tar crate's own iterator, descriptions are
/// bounded and the end marker is required.
pub(super) struct TarReader<R> {
    inner: R,
    body: u64,
    padding: u64,
    number: usize,
    limit: u64,
    taken: u64,
}

#[derive(Default)]
struct Description {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: bool,
}

impl<R: Read> TarReader<R> {
    /// A reader that fails after `limit` bytes.
    pub(super) fn new(inner: R, limit: u64) -> Self {
        Self { inner, body: 0, padding: 0, number: 0, limit, taken: 0 }
    }

    /// How many bytes have been read.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn into_inner(self) -> R {
        self.inner
    }

    /// The next member, or `None` at the end marker.
    pub(super) fn next_member(&mut self) -> Result<Option<Member>, ArchiveError> {
        let mut description = Description::default();
        loop {
            self.skip_body()?;
            let mut header = Header::new_old();
            self.read_exactly(header.as_mut_bytes())?;
            if header.as_bytes() == &[0; BLOCK] {
                if description.name.is_some() || description.link.is_some() || description.pax {
                    return Err(ArchiveError::Truncated);
                }
                return self.read_end().map(|()| None);
            }
            self.verify_checksum(&header)?;
            self.body = header.entry_size().map_err(|error| self.invalid_header(error))?;
            self.padding = (BLOCK as u64 - self.body % BLOCK as u64) % BLOCK as u64;
            match header.entry_type() {
                EntryType::GNULongName => {
                    let name = self.read_description()?;
                    self.once(&mut description.name, until_nul(name))?;
                }
                EntryType::GNULongLink => {
                    let link = self.read_description()?;
                    self.once(&mut description.link, until_nul(link))?;
                }
                EntryType::XHeader => {
                    let records = self.read_description()?;
                    if std::mem::replace(&mut description.pax, true) {
                        return Err(self.header_error("it is described twice"));
                    }
                    self.pax(&records, &mut description, false)?;
                }
                EntryType::XGlobalHeader => {
                    self.count()?;
                    let records = self.read_description()?;
                    self.pax(&records, &mut Description::default(), true)?;
                }
                kind => {
                    self.count()?;
                    return self.member(&header, kind, description).map(Some);
                }
            }
        }
    }

    /// Reads from the current member; 0 at its end.
    pub(super) fn read_body(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        let most = buffer.len().min(usize::try_from(self.body).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let bytes = self.read_some(&mut buffer[..most])?;
        if bytes == 0 {
            return Err(ArchiveError::Truncated);
        }
        self.body -= bytes as u64;
        Ok(bytes)
    }

    fn member(
        &self,
        header: &Header,
        kind: EntryType,
        description: Description,
    ) -> Result<Member, ArchiveError> {
        let name = description.name.unwrap_or_else(|| header.path_bytes().into_owned());
        let refused = |why| Err(ArchiveError::member(&name, why));
        let link = || description.link.or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        let kind = match kind {
            EntryType::Regular => MemberKind::File,
            EntryType::Directory => MemberKind::Directory,
            EntryType::Symlink => MemberKind::Symlink(link().unwrap_or_default()),
            EntryType::Link => MemberKind::HardLink(link().unwrap_or_default()),
            EntryType::Block | EntryType::Char => return refused("is a device"),
            EntryType::Fifo => return refused("is a pipe"),
            EntryType::GNUSparse => return refused("is a sparse file"),
            _ => return refused("is neither a file nor a directory nor a link"),
        };
        if kind != MemberKind::File && self.body > 0 {
            return refused("has bytes, and is not a file");
        }
        if name.len() > MAX_NAME
            || matches!(&kind, MemberKind::Symlink(to) | MemberKind::HardLink(to) if to.len() > MAX_NAME)
        {
            return refused("has a name that is too long");
        }
        match header.mode() {
            Ok(mode) if mode & 0o6000 == 0 => Ok(Member { name, kind }),
            Ok(_) => refused("is setuid or setgid"),
            Err(_) => refused("has a mode that is not understood"),
        }
    }

    /// The records `LENGTH KEY=VALUE\n` of a pax header. What would change how the archive is read is refused:
    /// two readers must not see two archives.
    fn pax(
        &self,
        mut records: &[u8],
        description: &mut Description,
        global: bool,
    ) -> Result<(), ArchiveError> {
        while !records.is_empty() {
            let malformed = || self.header_error("a pax record is malformed");
            let space = records.iter().take(8).position(|byte| *byte == b' ').ok_or_else(malformed)?;
            let length = std::str::from_utf8(&records[..space]).ok().and_then(|digits| digits.parse().ok());
            let length: usize = length.ok_or_else(malformed)?;
            let record = records.get(space + 1..length).ok_or_else(malformed)?;
            let record = record.strip_suffix(b"\n").ok_or_else(malformed)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" if !global => self.once(&mut description.name, value.to_vec())?,
                b"linkpath" if !global => self.once(&mut description.link, value.to_vec())?,
                b"path" | b"linkpath" | b"size" => {
                    return Err(self.header_error("a pax record changes all names, or a size"));
                }
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(self.header_error("it is a sparse file"));
                }
                _ => {}
            }
            records = &records[length..];
        }
        Ok(())
    }

    fn once(&self, slot: &mut Option<Vec<u8>>, value: Vec<u8>) -> Result<(), ArchiveError> {
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(self.header_error("it has two long names")),
        }
    }

    fn read_description(&mut self) -> Result<Vec<u8>, ArchiveError> {
        if self.body > MAX_DESCRIPTION {
            return Err(self.header_error("its description is too long"));
        }
        let mut bytes = vec![0; usize::try_from(self.body).unwrap_or_default()];
        self.read_exactly(&mut bytes)?;
        self.body = 0;
        Ok(bytes)
    }

    fn verify_checksum(&self, header: &Header) -> Result<(), ArchiveError> {
        let bytes = header.as_bytes();
        let sum: u32 = bytes[..148].iter().chain(&bytes[156..]).map(|byte| u32::from(*byte)).sum();
        match header.cksum() {
            Ok(said) if said == sum + 8 * u32::from(b' ') => Ok(()),
            Ok(_) => Err(self.header_error("its checksum is wrong")),
            Err(error) => Err(self.invalid_header(error)),
        }
    }

    fn count(&mut self) -> Result<(), ArchiveError> {
        self.number += 1;
        if self.number > MAX_MEMBERS { Err(ArchiveError::TooMany(MAX_MEMBERS)) } else { Ok(()) }
    }

    fn header_error(&self, why: &str) -> ArchiveError {
        ArchiveError::Header { number: self.number + 1, why: why.into() }
    }

    fn invalid_header(&self, error: io::Error) -> ArchiveError {
        let text: String = error.to_string().chars().take(MAX_CAUSE).collect();
        self.header_error(&text)
    }

    fn skip_body(&mut self) -> Result<(), ArchiveError> {
        self.body = self.body.checked_add(self.padding).ok_or(ArchiveError::TooLarge(self.limit))?;
        self.padding = 0;
        let mut passed = [0; 16 * 1024];
        while self.body > 0 {
            self.read_body(&mut passed)?;
        }
        Ok(())
    }

    /// Reads the rest of the end marker: after the first block of zeros another one, and then only zeros.
    fn read_end(&mut self) -> Result<(), ArchiveError> {
        let mut block = [0; BLOCK];
        self.read_exactly(&mut block)?;
        let mut rest = vec![0; 16 * 1024];
        let mut bytes = BLOCK;
        rest[..BLOCK].copy_from_slice(&block);
        while bytes > 0 {
            if rest[..bytes].iter().any(|byte| *byte != 0) {
                return Err(ArchiveError::Trailing);
            }
            bytes = self.read_some(&mut rest)?;
        }
        Ok(())
    }

    fn read_exactly(&mut self, mut buffer: &mut [u8]) -> Result<(), ArchiveError> {
        while !buffer.is_empty() {
            match self.read_some(buffer)? {
                0 => return Err(ArchiveError::Truncated),
                bytes => buffer = &mut buffer[bytes..],
            }
        }
        Ok(())
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        let bytes = loop {
            match self.inner.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| ArchiveError::inflating(&error))?,
            }
        };
        self.taken += bytes as u64;
        if self.taken > self.limit { Err(ArchiveError::TooLarge(self.limit)) } else { Ok(bytes) }
    }
}

fn until_nul(mut name: Vec<u8>) -> Vec<u8> {
    if let Some(end) = name.iter().position(|byte| *byte == 0) {
        name.truncate(end);
    }
    name
}
