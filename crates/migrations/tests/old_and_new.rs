//! Servers that know a migration and servers that do not, on one store: whatever either does, in any
//! order and around the copy, both see the same.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use refit_backend::{Key, KeyRange, MemoryBackend, SharedBackend};
use refit_migrations::{Migration, Registry, Runner, copy_forward, retire};
use refit_resources::{
    FormatStore, MigratingStore, ResourceError, ResourceStore, StorageFormat, channels_v1, channels_v2,
};
use refit_types::Channel;

fn channel(name: &str, patch: u64) -> Channel {
    Channel {
        name: name.parse().unwrap(),
        description: String::new(),
        version: format!("1.0.{patch}").parse().unwrap(),
        critical: patch.is_multiple_of(2),
    }
}

fn runner(backend: &SharedBackend, migrations: Vec<Migration>) -> Runner {
    let (_, stop) = tokio::sync::watch::channel(false);
    Runner::new(
        backend.clone(),
        Registry::of(migrations),
        "tester".into(),
        jiff::Timestamp::now,
        Arc::new(|_, _| {}),
        stop,
    )
}

fn copying(number: u32) -> Migration {
    Migration {
        number,
        name: "copy",
        source: "copy",
        run: |store| Box::pin(async { copy_forward(store, &channels_v1(), &channels_v2()).await }),
    }
}

fn retiring(number: u32) -> Migration {
    Migration {
        number,
        name: "retire",
        source: "retire",
        run: |store| Box::pin(async { retire(store, &channels_v1(), &channels_v2()).await }),
    }
}

#[derive(Debug, Clone)]
enum Act {
    Create(usize, u64),
    Update(usize, u64),
    UpdateSeen(usize, u64),
    Upsert(usize, u64),
    Delete(usize),
}

#[derive(Debug, Clone)]
enum Step {
    Old(Act),
    New(Act),
    Copy,
}

const NAMES: [&str; 6] = ["a", "a/b", "ab", "b", "stable/cloud", "z-9"];

fn act() -> impl Strategy<Value = Act> {
    let name = 0..NAMES.len();
    prop_oneof![
        (name.clone(), 0..1000u64).prop_map(|(n, v)| Act::Create(n, v)),
        (name.clone(), 0..1000u64).prop_map(|(n, v)| Act::Update(n, v)),
        (name.clone(), 0..1000u64).prop_map(|(n, v)| Act::UpdateSeen(n, v)),
        (name.clone(), 0..1000u64).prop_map(|(n, v)| Act::Upsert(n, v)),
        name.prop_map(Act::Delete),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![5 => act().prop_map(Step::Old), 5 => act().prop_map(Step::New), 1 => Just(Step::Copy)]
}

type Model = BTreeMap<String, Channel>;

async fn perform(store: &dyn ResourceStore<Channel>, act: &Act, model: &mut Model) {
    let name = match act {
        Act::Create(n, _)
        | Act::Update(n, _)
        | Act::UpdateSeen(n, _)
        | Act::Upsert(n, _)
        | Act::Delete(n) => NAMES[*n],
    };
    let exists = model.contains_key(name);
    let gone = Err(ResourceError::NotFound { name: name.into() });
    match act {
        Act::Create(_, patch) => {
            let value = channel(name, *patch);
            let outcome = store.create(name, &value, &[]).await.map(drop);
            if exists {
                assert_eq!(outcome, Err(ResourceError::AlreadyExists { name: name.into() }));
            } else {
                outcome.unwrap();
                model.insert(name.into(), value);
            }
        }
        Act::Update(_, patch) | Act::UpdateSeen(_, patch) => {
            let value = channel(name, *patch);
            let seen = match act {
                Act::UpdateSeen(..) => store.get(name).await.unwrap().map(|found| found.revision),
                _ => None,
            };
            let outcome = store.update(name, &value, seen, &[]).await.map(drop);
            if exists {
                outcome.unwrap();
                if let Some(seen) = seen {
                    let again = store.update(name, &value, Some(seen), &[]).await.map(drop);
                    assert_eq!(
                        again,
                        Err(ResourceError::Conflict { name: name.into() }),
                        "the revision is old now"
                    );
                }
                model.insert(name.into(), value);
            } else {
                assert_eq!(outcome, gone);
            }
        }
        Act::Upsert(_, patch) => {
            let value = channel(name, *patch);
            store.upsert(name, &value, &[]).await.unwrap();
            model.insert(name.into(), value);
        }
        Act::Delete(_) => {
            let outcome = store.delete(name, None, &[]).await.map(drop);
            assert_eq!(outcome, if exists { Ok(()) } else { gone });
            model.remove(name);
        }
    }
}

async fn agrees(store: &dyn ResourceStore<Channel>, model: &Model, who: &str) {
    for name in NAMES {
        let found = store.get(name).await.unwrap().map(|found| found.value);
        assert_eq!(found.as_ref(), model.get(name), "{who} gets {name}");
    }
    for limit in [1, 2, 100] {
        let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = store.list(after.as_deref(), limit).await.unwrap();
            assert!(page.items.len() <= limit);
            listed.extend(page.items.into_iter().map(|found| found.value));
            pages += 1;
            assert!(pages < 50, "paging goes on for ever");
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(listed, model.values().cloned().collect::<Vec<_>>(), "{who} lists in pages of {limit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn neither_side_loses_what_the_other_does(steps in prop::collection::vec(step(), 1..60)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let backend: SharedBackend = Arc::new(MemoryBackend::default());
            let old = FormatStore::new(backend.clone(), channels_v1());
            let new = MigratingStore::new(backend.clone(), channels_v1(), channels_v2()).unwrap();
            let mut model = Model::new();
            let mut copies = 0;
            for step in &steps {
                match step {
                    Step::Old(act) => perform(&old, act, &mut model).await,
                    Step::New(act) => perform(&new, act, &mut model).await,
                    Step::Copy => {
                        copies += 1;
                        runner(&backend, vec![copying(copies)]).run().await.unwrap();
                    }
                }
                agrees(&old, &model, "the old server").await;
                agrees(&new, &model, "the new server").await;
            }
            // One major version later: only servers that know both forms are left, then only the new one.
            runner(&backend, vec![retiring(9000)]).run().await.unwrap();
            let only_new = FormatStore::new(backend.clone(), channels_v2());
            agrees(&new, &model, "a server of the version before").await;
            agrees(&only_new, &model, "a server of the version after").await;
            for (n, name) in NAMES.iter().enumerate() {
                perform(&new, &Act::Upsert(n, n as u64), &mut model).await;
                agrees(&only_new, &model, name).await;
                perform(&only_new, &Act::Delete(n), &mut model).await;
                agrees(&new, &model, name).await;
            }
            let left = backend.range(&channels_v1().range(), 10).await.unwrap();
            assert_eq!(left.items, [], "a retired form stays empty");
        });
    }
}

/// The two losses that a plain "read new, fall back to old" has.
#[tokio::test]
async fn what_an_old_server_does_after_the_copy_is_seen() {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    let old = FormatStore::new(backend.clone(), channels_v1());
    let new = MigratingStore::new(backend.clone(), channels_v1(), channels_v2()).unwrap();
    for name in ["kept", "changed", "deleted"] {
        old.create(name, &channel(name, 1), &[]).await.unwrap();
    }
    runner(&backend, vec![copying(1)]).run().await.unwrap();
    assert_eq!(backend.range(&channels_v2().range(), 10).await.unwrap().items.len(), 3);

    old.update("changed", &channel("changed", 2), None, &[]).await.unwrap();
    old.delete("deleted", None, &[]).await.unwrap();
    assert_eq!(new.get("changed").await.unwrap().unwrap().value, channel("changed", 2));
    assert_eq!(new.get("deleted").await.unwrap(), None);
    let names: Vec<String> =
        new.list(None, 10).await.unwrap().items.iter().map(|found| found.value.name.to_string()).collect();
    assert_eq!(names, ["changed", "kept"]);

    new.upsert("kept", &channel("kept", 3), &[]).await.unwrap();
    new.delete("changed", None, &[]).await.unwrap();
    new.create("made", &channel("made", 4), &[]).await.unwrap();
    assert_eq!(old.get("kept").await.unwrap().unwrap().value, channel("kept", 3));
    assert_eq!(old.get("changed").await.unwrap(), None);
    assert_eq!(old.get("made").await.unwrap().unwrap().value, channel("made", 4));
}

#[tokio::test]
async fn what_only_the_new_form_holds_survives_new_servers_and_copies() {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    let new = MigratingStore::new(backend.clone(), channels_v1(), channels_v2()).unwrap();
    let described = Channel { description: "what most run".into(), ..channel("stable", 1) };
    new.create("stable", &described, &[]).await.unwrap();
    runner(&backend, vec![copying(1)]).run().await.unwrap();
    assert_eq!(new.get("stable").await.unwrap().unwrap().value, described);
    assert_eq!(new.list(None, 10).await.unwrap().items[0].value, described);
}

#[tokio::test]
async fn what_is_written_alongside_shares_the_fate_of_the_change() {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    let migrating = MigratingStore::new(backend.clone(), channels_v1(), channels_v2()).unwrap();
    let plain = FormatStore::new(backend.clone(), raw("/plain"));
    let beside = Key::new("/beside").unwrap();
    let written =
        |count: usize| (0..count).map(|n| (beside.child(n).unwrap(), b"x".to_vec())).collect::<Vec<_>>();
    let left = async || backend.range(&KeyRange::below(&beside), 200).await.unwrap().items;

    // Both forms and the marker of the retirement count too.
    let too_many = written(98);
    migrating.create("a", &channel("a", 1), &too_many).await.unwrap_err();
    plain.create("a", &vec![1], &written(100)).await.unwrap_err();
    assert_eq!((migrating.get("a").await.unwrap(), plain.get("a").await.unwrap()), (None, None));
    migrating.delete("a", None, &written(1)).await.unwrap_err();
    migrating.update("a", &channel("a", 1), None, &written(1)).await.unwrap_err();
    plain.delete("a", None, &written(1)).await.unwrap_err();
    plain.update("a", &vec![1], None, &written(1)).await.unwrap_err();
    assert_eq!(left().await, [], "nothing was changed, so nothing is told");

    let changed = [
        migrating.create("a", &channel("a", 1), &written(97)).await.unwrap(),
        migrating.update("a", &channel("a", 2), None, &written(1)).await.unwrap(),
        migrating.upsert("a", &channel("a", 3), &written(1)).await.unwrap(),
        migrating.delete("a", None, &written(1)).await.unwrap(),
        plain.create("a", &vec![1], &written(1)).await.unwrap(),
        plain.update("a", &vec![2], None, &written(1)).await.unwrap(),
        plain.upsert("a", &vec![3], &written(1)).await.unwrap(),
        plain.delete("a", None, &written(1)).await.unwrap(),
    ];
    assert_eq!(left().await.len(), 97);
    let mut watch =
        backend.watch(&KeyRange::between(&beside, &beside.child("1").unwrap()), changed[0]).await.unwrap();
    for revision in &changed[1..] {
        assert_eq!(watch.next().await.unwrap().revision, *revision);
    }
}

fn raw(prefix: &str) -> StorageFormat<Vec<u8>> {
    StorageFormat {
        prefix: Key::new(prefix).unwrap(),
        encode: |value| value.clone().into(),
        decode: |_, value| Ok(value.to_vec()),
    }
}

#[tokio::test]
async fn large_items_are_copied_in_transactions_that_fit() {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    for n in 0..120 {
        let key = raw("/big/old").key(&format!("{n:03}")).unwrap();
        backend.put(&key, vec![n as u8; 200_000].into()).await.unwrap();
    }
    let big = Migration {
        number: 1,
        name: "big",
        source: "",
        run: |store| Box::pin(async { copy_forward(store, &raw("/big/old"), &raw("/big/new")).await }),
    };
    runner(&backend, vec![big]).run().await.unwrap();
    let copied = backend.range(&raw("/big/new").range(), 1000).await.unwrap().items;
    assert_eq!(copied.len(), 120);
    assert!(copied.iter().enumerate().all(|(n, item)| item.value == vec![n as u8; 200_000]));
    assert_eq!(
        backend.range(&KeyRange::all(), 1000).await.unwrap().items.len(),
        241,
        "and one line of history"
    );
}
