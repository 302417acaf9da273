//! An ordered map of hosts that is cheap to publish: a clone shares everything, and a change copies only the few
//! nodes on its way. Knows nothing of what is in it; the engine and the server keep their hosts in it.

use std::fmt;
use std::sync::Arc;

use refit_types::HostId;

/// Entries of a leaf and children of a branch. Small enough to copy one for a single change, large enough that a
/// million hosts are four levels.
const NODE_SIZE: usize = 64;

/// Hosts by their UUIDs. Readers hold a clone for as long as they like while the owner goes on changing its own.
#[derive(Clone)]
pub struct HostMap<V> {
    root: Arc<Node<V>>,
    len: usize,
}

#[derive(Clone)]
enum Node<V> {
    Leaf(Entries<V>),
    /// Each child with a lower bound of its hosts; that of the first is not looked at.
    Branch(Entries<Arc<Node<V>>>),
}

/// The right half of a node that grew too large, and its first host.
type Split<V> = Option<(HostId, Arc<Node<V>>)>;

/// Hosts in order, each with what belongs to it. Hosts are kept apart from the rest: a search then reads a few
/// neighbouring cache lines, and this is most of what a look-up costs in a large fleet.
#[derive(Clone)]
struct Entries<T> {
    hosts: Vec<HostId>,
    values: Vec<T>,
}

impl<T> Entries<T> {
    const EMPTY: Self = Self { hosts: Vec::new(), values: Vec::new() };

    fn len(&self) -> usize {
        self.values.len()
    }

    /// Where the host is, or where it would be.
    fn position(&self, host: HostId) -> Result<usize, usize> {
        let wanted = key(host);
        let at = self.hosts.partition_point(|host| key(*host) < wanted);
        if self.hosts.get(at) == Some(&host) { Ok(at) } else { Err(at) }
    }

    /// The child below which the host is, if it is anywhere.
    fn child_of(&self, host: HostId) -> usize {
        let wanted = key(host);
        self.hosts.get(1..).map_or(0, |others| others.partition_point(|first| key(*first) <= wanted))
    }

    fn insert(&mut self, at: usize, host: HostId, value: T) {
        if self.values.len() == self.values.capacity() {
            // A quarter more and not twice as much: most nodes stay as they are for long.
            let more = (self.len() / 4).clamp(2, NODE_SIZE);
            self.hosts.reserve_exact(more);
            self.values.reserve_exact(more);
        }
        self.hosts.insert(at, host);
        self.values.insert(at, value);
    }

    fn remove(&mut self, at: usize) -> T {
        self.hosts.remove(at);
        self.values.remove(at)
    }

    /// Cuts what is too large in half, or before the last if hosts come in order: a fleet is loaded that way, and
    /// full nodes are half the memory.
    fn split<V>(&mut self, added: usize, node: fn(Self) -> Node<V>) -> Split<V> {
        if self.len() <= NODE_SIZE {
            return None;
        }
        let at = if added + 1 == self.len() { added } else { self.len() / 2 };
        let right = Self { hosts: self.hosts.split_off(at), values: self.values.split_off(at) };
        self.hosts.shrink_to_fit();
        self.values.shrink_to_fit();
        let first = *right.hosts.first()?;
        Some((first, Arc::new(node(right))))
    }
}

impl<V> Default for HostMap<V> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Entries::EMPTY)), len: 0 }
    }
}

impl<V> HostMap<V> {
    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is kept for a host.
    pub fn get(&self, host: HostId) -> Option<&V> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(entries) => return entries.values.get(entries.position(host).ok()?),
                Node::Branch(children) => node = children.values.get(children.child_of(host))?,
            }
        }
    }

    /// Every host in the order of UUIDs.
    pub fn iter(&self) -> Iter<'_, V> {
        self.iter_after(None)
    }

    /// The hosts behind that one, in the order of UUIDs.
    pub fn iter_after(&self, after: Option<HostId>) -> Iter<'_, V> {
        let (mut stack, mut node) = (Vec::new(), &*self.root);
        loop {
            let at = match (node, after) {
                (Node::Leaf(entries), Some(after)) => {
                    entries.position(after).map_or_else(|at| at, |at| at + 1)
                }
                (Node::Branch(children), Some(after)) => children.child_of(after),
                (_, None) => 0,
            };
            match node {
                Node::Leaf(_) => {
                    stack.push((node, at));
                    return Iter { stack };
                }
                Node::Branch(children) => {
                    stack.push((node, at + 1));
                    match children.values.get(at) {
                        Some(child) => node = child,
                        None => return Iter { stack },
                    }
                }
            }
        }
    }
}

impl<V: Clone> HostMap<V> {
    /// Keeps a value for a host; what was kept before.
    pub fn insert(&mut self, host: HostId, value: V) -> Option<V> {
        // Nearly all hosts are there already, and stay where they are.
        if let Some(present) = self.get_mut(host) {
            return Some(std::mem::replace(present, value));
        }
        let (before, split) = insert(&mut self.root, host, value);
        if let Some((first, right)) = split {
            let left = std::mem::replace(&mut self.root, Arc::new(Node::Leaf(Entries::EMPTY)));
            let children = Entries { hosts: vec![first, first], values: vec![left, right] };
            self.root = Arc::new(Node::Branch(children));
        }
        self.len += usize::from(before.is_none());
        before
    }

    fn get_mut(&mut self, host: HostId) -> Option<&mut V> {
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = entries.position(host).ok()?;
                    return entries.values.get_mut(at);
                }
                Node::Branch(children) => {
                    let at = children.child_of(host);
                    node = Arc::make_mut(children.values.get_mut(at)?);
                }
            }
        }
    }

    /// Forgets a host; what was kept for it. Nodes that others leave nearly empty are not joined: hosts leave a
    /// fleet rarely, and come back into the same places.
    pub fn remove(&mut self, host: HostId) -> Option<V> {
        self.get(host)?;
        let removed = remove(&mut self.root, host)?;
        self.len -= 1;
        loop {
            let only_child = match &*self.root {
                Node::Branch(children) if children.len() <= 1 => children.values.first().cloned(),
                _ => break,
            };
            self.root = only_child.unwrap_or_else(|| Arc::new(Node::Leaf(Entries::EMPTY)));
        }
        Some(removed)
    }
}

fn key(host: HostId) -> u128 {
    host.uuid().as_u128()
}

fn insert<V: Clone>(node: &mut Arc<Node<V>>, host: HostId, value: V) -> (Option<V>, Split<V>) {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => match entries.position(host) {
            Ok(at) => (entries.values.get_mut(at).map(|present| std::mem::replace(present, value)), None),
            Err(at) => {
                entries.insert(at, host, value);
                (None, entries.split(at, Node::Leaf))
            }
        },
        Node::Branch(children) => {
            let at = children.child_of(host);
            let Some(child) = children.values.get_mut(at) else { return (None, None) };
            let (before, right) = insert(child, host, value);
            let Some((first, right)) = right else { return (before, None) };
            children.insert(at + 1, first, right);
            (before, children.split(at + 1, Node::Branch))
        }
    }
}

fn remove<V: Clone>(node: &mut Arc<Node<V>>, host: HostId) -> Option<V> {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => entries.position(host).ok().map(|at| entries.remove(at)),
        Node::Branch(children) => {
            let at = children.child_of(host);
            let child = children.values.get_mut(at)?;
            let removed = remove(child, host);
            if child.is_empty() {
                children.remove(at);
            }
            removed
        }
    }
}

impl<V> Node<V> {
    fn is_empty(&self) -> bool {
        match self {
            Self::Leaf(entries) => entries.len() == 0,
            Self::Branch(children) => children.len() == 0,
        }
    }
}

/// Hosts in the order of their UUIDs.
pub struct Iter<'m, V> {
    /// The way down to the present leaf, each node with the position of what comes next in it.
    stack: Vec<(&'m Node<V>, usize)>,
}

impl<'m, V> Iterator for Iter<'m, V> {
    type Item = (HostId, &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (node, at) = self.stack.last_mut()?;
            let present = *at;
            *at += 1;
            match *node {
                Node::Leaf(entries) => match (entries.hosts.get(present), entries.values.get(present)) {
                    (Some(host), Some(value)) => return Some((*host, value)),
                    _ => drop(self.stack.pop()),
                },
                Node::Branch(children) => match children.values.get(present) {
                    Some(child) => self.stack.push((child, 0)),
                    None => drop(self.stack.pop()),
                },
            }
        }
    }
}

impl<V: PartialEq> PartialEq for HostMap<V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<V> fmt::Debug for HostMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMap").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<V: Clone> FromIterator<(HostId, V)> for HostMap<V> {
    fn from_iter<I: IntoIterator<Item = (HostId, V)>>(hosts: I) -> Self {
        let mut map = Self::default();
        for (host, value) in hosts {
            map.insert(host, value);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn host(number: u128) -> HostId {
        HostId::new(Uuid::from_u128(number))
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u16, u32),
        Remove(u16),
        Publish,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0_u16..2000, any::<u32>()).prop_map(|(host, value)| Step::Insert(host, value)),
            3 => (0_u16..2000).prop_map(Step::Remove),
            1 => Just(Step::Publish),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_a_map_and_what_was_published_stays(
            start in 0_u16..2000,
            steps in prop::collection::vec(step(), 1..600),
        ) {
            let mut map: HostMap<u32> = (0..start).map(|n| (host(n.into()), 0)).collect();
            let mut model: BTreeMap<u16, u32> = (0..start).map(|n| (n, 0)).collect();
            let mut published = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(n, value) => {
                        prop_assert_eq!(map.insert(host(n.into()), value), model.insert(n, value));
                    }
                    Step::Remove(n) => prop_assert_eq!(map.remove(host(n.into())), model.remove(&n)),
                    Step::Publish => published.push((map.clone(), model.clone())),
                }
            }
            published.push((map, model));
            for (map, model) in published {
                let expected: Vec<_> = model.iter().map(|(n, value)| (host((*n).into()), value)).collect();
                prop_assert_eq!(map.iter().collect::<Vec<_>>(), expected.clone());
                prop_assert_eq!(map.len(), model.len());
                for after in [0_u16, 1, 77, 1000, 1999] {
                    let behind: Vec<_> = model.range(after + 1..).map(|(n, _)| host((*n).into())).collect();
                    let found: Vec<_> = map.iter_after(Some(host(after.into()))).map(|(host, _)| host).collect();
                    prop_assert_eq!(found, behind);
                    prop_assert_eq!(map.get(host(after.into())), model.get(&after));
                }
            }
        }
    }

    #[test]
    fn hosts_that_come_in_order_fill_the_leaves() {
        let map: HostMap<u8> = (0..64_000).map(|n| (host(n), 0)).collect();
        let Node::Branch(children) = &*map.root else { panic!("one leaf") };
        let leaves: usize = children
            .values
            .iter()
            .map(|child| if let Node::Branch(b) = &**child { b.len() } else { 1 })
            .sum();
        assert!(leaves <= 1001, "{leaves} leaves for 64,000 hosts");
    }
}
