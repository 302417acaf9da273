//! A disk in memory that knows what was synced, and can lose the rest.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use refit_update::{Disk, FileKind};

type Id = usize;
type Names = BTreeMap<OsString, Id>;

#[derive(Debug, Clone)]
enum Node {
    File { live: Vec<u8>, durable: Vec<u8> },
    Link(PathBuf),
    Directory { live: Names, durable: Names },
}

#[derive(Debug)]
struct State {
    nodes: Vec<Node>,
    operations: usize,
    cut_after: usize,
    full_after: usize,
    /// What each operation was, in words.
    log: Vec<String>,
}

/// Shared by all that have it open.
#[derive(Debug, Clone)]
pub struct MemoryDisk(Arc<Mutex<State>>);

impl Default for MemoryDisk {
    fn default() -> Self {
        let root = Node::Directory { live: Names::new(), durable: Names::new() };
        Self(Arc::new(Mutex::new(State {
            nodes: vec![root],
            operations: 0,
            cut_after: usize::MAX,
            full_after: usize::MAX,
            log: Vec::new(),
        })))
    }
}

/// As it is below the data directory.
fn short(path: &Path) -> String {
    let path = path.strip_prefix("/var/lib/refit").unwrap_or(path).display().to_string();
    if path.is_empty() { "/var/lib/refit".into() } else { path }
}

fn error(kind: io::ErrorKind, path: &Path) -> io::Error {
    io::Error::new(kind, path.display().to_string())
}

impl State {
    fn names(&mut self, directory: Id) -> &mut Names {
        match &mut self.nodes[directory] {
            Node::Directory { live, .. } => live,
            other => panic!("not a directory: {other:?}"),
        }
    }

    /// The directory that a path is in, with links on the way followed, and its last part.
    fn parent(&self, path: &Path) -> io::Result<(Id, OsString)> {
        let name = path.file_name().ok_or_else(|| error(io::ErrorKind::InvalidInput, path))?;
        Ok((self.resolve(path.parent().unwrap_or(Path::new("/")))?, name.to_owned()))
    }

    fn resolve(&self, path: &Path) -> io::Result<Id> {
        let mut at = 0;
        let mut walked = PathBuf::from("/");
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            let Node::Directory { live, .. } = &self.nodes[at] else {
                return Err(error(io::ErrorKind::NotADirectory, path));
            };
            let id = *live.get(name).ok_or_else(|| error(io::ErrorKind::NotFound, path))?;
            match &self.nodes[id] {
                Node::Link(target) => at = self.resolve(&walked.join(target))?,
                _ => at = id,
            }
            walked.push(name);
        }
        Ok(at)
    }

    fn find(&self, path: &Path) -> io::Result<Id> {
        if path == Path::new("/") {
            return Ok(0);
        }
        let (directory, name) = self.parent(path)?;
        match &self.nodes[directory] {
            Node::Directory { live, .. } => {
                live.get(&name).copied().ok_or_else(|| error(io::ErrorKind::NotFound, path))
            }
            _ => Err(error(io::ErrorKind::NotADirectory, path)),
        }
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<Id> {
        let (directory, name) = self.parent(path)?;
        self.nodes.push(node);
        let id = self.nodes.len() - 1;
        self.names(directory).insert(name, id);
        Ok(id)
    }

    /// Every change counts, and none happens after the cut.
    fn operate(&mut self, what: String) -> io::Result<()> {
        if self.operations >= self.cut_after {
            return Err(io::Error::other("the power is gone"));
        }
        self.operations += 1;
        self.log.push(what);
        Ok(())
    }

    /// As [`State::operate`], for what needs room.
    fn take_room(&mut self, what: String) -> io::Result<()> {
        self.operate(what)?;
        if self.operations > self.full_after { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl MemoryDisk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// One more operation, of another kind than the disk's.
    pub fn operate(&self, what: &str) -> io::Result<()> {
        self.lock().operate(what.to_owned())
    }

    /// What was done since that many operations.
    pub fn log_since(&self, operations: usize) -> Vec<String> {
        self.lock().log[operations..].to_vec()
    }

    pub fn operations(&self) -> usize {
        self.lock().operations
    }

    pub fn cut_after(&self, operations: usize) {
        self.lock().cut_after = operations;
    }

    /// From then on there is room for nothing: names can go and be changed, and none can come.
    pub fn full_after(&self, operations: usize) {
        self.lock().full_after = operations;
    }

    pub fn is_cut(&self) -> bool {
        let state = self.lock();
        state.operations >= state.cut_after
    }

    /// The power is back. What was not synced is gone, if it is to be.
    pub fn power_on(&self, drops_unsynced: bool) {
        let mut state = self.lock();
        state.cut_after = usize::MAX;
        if !drops_unsynced {
            return;
        }
        for node in &mut state.nodes {
            match node {
                Node::File { live, durable } => live.clone_from(durable),
                Node::Directory { live, durable } => live.clone_from(durable),
                Node::Link(_) => {}
            }
        }
    }

    /// Everything that is there, by its path: what is in a file, where a link leads.
    pub fn tree(&self) -> BTreeMap<String, String> {
        let (state, mut tree) = (self.lock(), BTreeMap::new());
        let mut left = vec![(0, String::new())];
        while let Some((id, path)) = left.pop() {
            let found = match &state.nodes[id] {
                Node::File { live, .. } => String::from_utf8_lossy(live).into_owned(),
                Node::Link(target) => format!("-> {}", target.display()),
                Node::Directory { live, .. } => {
                    let below = live.iter().map(|(name, id)| (*id, format!("{path}/{}", name.display())));
                    left.extend(below);
                    "/".into()
                }
            };
            tree.insert(path, found);
        }
        tree
    }

    /// Makes everything that is there durable, without an operation.
    pub fn settle(&self) {
        for node in &mut self.lock().nodes {
            match node {
                Node::File { live, durable } => durable.clone_from(live),
                Node::Directory { live, durable } => durable.clone_from(live),
                Node::Link(_) => {}
            }
        }
    }

    /// Changes a file as another process would: no operation of the updater, and synced.
    pub fn write_as_other(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.lock();
        let node = Node::File { live: bytes.to_vec(), durable: bytes.to_vec() };
        match state.find(path) {
            Ok(id) => state.nodes[id] = node,
            Err(_) => {
                let id = state.add(path, node).unwrap();
                let (directory, name) = state.parent(path).unwrap();
                if let Node::Directory { durable, .. } = &mut state.nodes[directory] {
                    durable.insert(name, id);
                }
            }
        }
    }

    pub fn make_dirs_as_other(&self, path: &Path) {
        let mut walked = PathBuf::from("/");
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            walked.push(name);
            let mut state = self.lock();
            if state.find(&walked).is_err() {
                state.add(&walked, Node::Directory { live: Names::new(), durable: Names::new() }).unwrap();
            }
        }
    }

    pub fn assert_forgets(&self) {
        self.make_dirs_as_other(Path::new("/a"));
        self.settle();
        let path = Path::new("/a/file");
        self.create_file(path, 0o644).unwrap().write_all(b"x").unwrap();
        self.sync_file(path).unwrap();
        self.power_on(true);
        assert_eq!(self.kind(path).unwrap(), None, "its name was not synced");
        self.create_file(path, 0o644).unwrap().write_all(b"x").unwrap();
        self.sync_dir(Path::new("/a")).unwrap();
        self.power_on(true);
        assert_eq!(self.read(path).unwrap(), b"", "its bytes were not");
    }
}

struct OpenFile {
    disk: MemoryDisk,
    id: Id,
}

impl Write for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.lock();
        state.take_room(format!("write {} bytes", bytes.len()))?;
        match &mut state.nodes[self.id] {
            Node::File { live, .. } => live.extend_from_slice(bytes),
            _ => unreachable!(),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for MemoryDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.lock();
        match &state.nodes[state.resolve(path)?] {
            Node::File { live, .. } => Ok(live.clone()),
            _ => Err(error(io::ErrorKind::InvalidInput, path)),
        }
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let state = self.lock();
        match &state.nodes[state.find(path)?] {
            Node::Link(target) => Ok(target.clone()),
            _ => Err(error(io::ErrorKind::InvalidInput, path)),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let state = self.lock();
        match &state.nodes[state.resolve(directory)?] {
            Node::Directory { live, .. } => Ok(live.keys().cloned().collect()),
            _ => Err(error(io::ErrorKind::NotADirectory, directory)),
        }
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        let state = self.lock();
        Ok(match state.find(path) {
            Ok(id) => Some(match &state.nodes[id] {
                Node::File { live, .. } => FileKind::File { bytes: live.len() as u64 },
                Node::Link(_) => FileKind::Link,
                Node::Directory { .. } => FileKind::Directory,
            }),
            Err(_) => None,
        })
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn create_dir(&self, path: &Path, _: u32) -> io::Result<()> {
        let mut state = self.lock();
        state.take_room(format!("make {}/", short(path)))?;
        state.add(path, Node::Directory { live: Names::new(), durable: Names::new() }).map(drop)
    }

    fn create_file(&self, path: &Path, _: u32) -> io::Result<Box<dyn Write + Send>> {
        let mut state = self.lock();
        state.take_room(format!("begin {}", short(path)))?;
        let id = match state.find(path) {
            Ok(id) => {
                if let Node::File { live, .. } = &mut state.nodes[id] {
                    live.clear();
                }
                id
            }
            Err(_) => state.add(path, Node::File { live: Vec::new(), durable: Vec::new() })?,
        };
        Ok(Box::new(OpenFile { disk: self.clone(), id }))
    }

    fn set_access(&self, path: &Path, _: (u32, u32), _: u32) -> io::Result<()> {
        self.lock().operate(format!("set the access to {}", short(path)))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.operate(format!("sync {}", short(path)))?;
        let id = state.resolve(path)?;
        if let Node::File { live, durable } = &mut state.nodes[id] {
            durable.clone_from(live);
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.operate(format!("sync {}/", short(path)))?;
        let id = state.resolve(path)?;
        match &mut state.nodes[id] {
            Node::Directory { live, durable } => durable.clone_from(live),
            _ => return Err(error(io::ErrorKind::NotADirectory, path)),
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.operate(format!("rename {} to {}", short(from), short(to)))?;
        let id = state.find(from)?;
        let ((old, old_name), (new, new_name)) = (state.parent(from)?, state.parent(to)?);
        state.names(old).remove(&old_name);
        state.names(new).insert(new_name, id);
        Ok(())
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.take_room(format!("link {} to {}", short(link), short(target)))?;
        if state.find(link).is_ok() {
            return Err(error(io::ErrorKind::AlreadyExists, link));
        }
        state.add(link, Node::Link(target.to_owned())).map(drop)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.operate(format!("remove {}", short(path)))?;
        state.find(path)?;
        let (directory, name) = state.parent(path)?;
        state.names(directory).remove(OsStr::new(&name));
        Ok(())
    }

    /// One name after the other, as on a real disk.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        for name in self.list(path)? {
            let below = path.join(name);
            match self.kind(&below)? {
                Some(FileKind::Directory) => self.remove_dir_all(&below)?,
                _ => self.remove_file(&below)?,
            }
        }
        self.remove_file(path)
    }

    fn back_up_database(&self, from: &Path, to: &Path) -> io::Result<()> {
        let bytes = self.read(from)?;
        self.create_file(to, 0o600)?.write_all(&bytes)
    }
}
