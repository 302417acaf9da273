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
    Leaf(Vec<(HostId, V)>),
    /// Each child with a lower bound of its hosts; that of the first is not looked at.
    Branch(Vec<(HostId, Arc<Node<V>>)>),
}

/// The right half of a node that grew too large.
type Split<V> = Option<(HostId, Arc<Node<V>>)>;

impl<V> Default for HostMap<V> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
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
                Node::Leaf(entries) => {
                    return position(entries, host)
                        .ok()
                        .and_then(|at| entries.get(at))
                        .map(|(_, value)| value);
                }
                Node::Branch(children) => node = &children.get(child_of(children, host))?.1,
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
                    position(entries, after).map_or_else(|at| at, |at| at + 1)
                }
                (Node::Branch(children), Some(after)) => child_of(children, after),
                (_, None) => 0,
            };
            match node {
                Node::Leaf(_) => {
                    stack.push((node, at));
                    return Iter { stack };
                }
                Node::Branch(children) => {
                    stack.push((node, at + 1));
                    match children.get(at) {
                        Some((_, child)) => node = child,
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
        if let Some(right) = split {
            let left = std::mem::replace(&mut self.root, Arc::new(Node::Leaf(Vec::new())));
            self.root = Arc::new(Node::Branch(vec![(right.0, left), right]));
        }
        self.len += usize::from(before.is_none());
        before
    }

    fn get_mut(&mut self, host: HostId) -> Option<&mut V> {
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = position(entries, host).ok()?;
                    return entries.get_mut(at).map(|(_, value)| value);
                }
                Node::Branch(children) => {
                    let at = child_of(children, host);
                    node = Arc::make_mut(&mut children.get_mut(at)?.1);
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
                Node::Branch(children) if children.len() <= 1 => {
                    children.first().map(|(_, child)| child.clone())
                }
                _ => break,
            };
            self.root = only_child.unwrap_or_else(|| Arc::new(Node::Leaf(Vec::new())));
        }
        Some(removed)
    }
}

fn key(host: HostId) -> u128 {
    host.uuid().as_u128()
}

fn position<T>(entries: &[(HostId, T)], host: HostId) -> Result<usize, usize> {
    let wanted = key(host);
    let at = entries.partition_point(|(host, _)| key(*host) < wanted);
    let is_there = entries.get(at).is_some_and(|(found, _)| *found == host);
    if is_there { Ok(at) } else { Err(at) }
}

fn child_of<T>(children: &[(HostId, T)], host: HostId) -> usize {
    let wanted = key(host);
    children.get(1..).map_or(0, |others| others.partition_point(|(first, _)| key(*first) <= wanted))
}

fn insert<V: Clone>(node: &mut Arc<Node<V>>, host: HostId, value: V) -> (Option<V>, Split<V>) {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => match position(entries, host) {
            Ok(at) => (entries.get_mut(at).map(|(_, present)| std::mem::replace(present, value)), None),
            Err(at) => {
                if entries.len() == entries.capacity() {
                    // A quarter more and not twice as much: most leaves stay as they are for long.
                    entries.reserve_exact((entries.len() / 4).clamp(2, NODE_SIZE));
                }
                entries.insert(at, (host, value));
                (None, split(entries, at, Node::Leaf))
            }
        },
        Node::Branch(children) => {
            let at = child_of(children, host);
            let Some((_, child)) = children.get_mut(at) else { return (None, None) };
            let (before, right) = insert(child, host, value);
            let Some(right) = right else { return (before, None) };
            children.insert(at + 1, right);
            (before, split(children, at + 1, Node::Branch))
        }
    }
}

/// Cuts what is too large in half, or before the last if hosts come in order: a fleet is loaded that way, and
/// full nodes are half the memory.
fn split<V, T>(
    entries: &mut Vec<(HostId, T)>,
    added: usize,
    node: fn(Vec<(HostId, T)>) -> Node<V>,
) -> Split<V> {
    if entries.len() <= NODE_SIZE {
        return None;
    }
    let at = if added + 1 == entries.len() { added } else { entries.len() / 2 };
    let right = entries.split_off(at);
    entries.shrink_to_fit();
    let first = right.first()?.0;
    Some((first, Arc::new(node(right))))
}

fn remove<V: Clone>(node: &mut Arc<Node<V>>, host: HostId) -> Option<V> {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => position(entries, host).ok().map(|at| entries.remove(at).1),
        Node::Branch(children) => {
            let at = child_of(children, host);
            let (_, child) = children.get_mut(at)?;
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
            Self::Leaf(entries) => entries.is_empty(),
            Self::Branch(children) => children.is_empty(),
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
                Node::Leaf(entries) => match entries.get(present) {
                    Some((host, value)) => return Some((*host, value)),
                    None => drop(self.stack.pop()),
                },
                Node::Branch(children) => match children.get(present) {
                    Some((_, child)) => self.stack.push((child, 0)),
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
        let leaves: usize =
            children.iter().map(|(_, child)| if let Node::Branch(b) = &**child { b.len() } else { 1 }).sum();
        assert!(leaves <= 1001, "{leaves} leaves for 64,000 hosts");
    }
}
