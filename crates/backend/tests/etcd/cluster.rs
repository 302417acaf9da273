//! Three members of which one crashes, hangs or loses its majority.

use std::time::Duration;

use refit_backend::{Backend, Error, Key, KeyRange};
use refit_testbed::EtcdCluster;

use super::{bytes, connect, create_for_sure, key, next_keys, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_member_may_be_lost() {
    let mut cluster = EtcdCluster::start().await;
    let backend = connect(&format!("etcd://{}", cluster.endpoints())).await.unwrap();
    let start = backend.read(&[]).await.unwrap().revision;
    let mut watch = backend.watch(&KeyRange::all(), start).await.unwrap();
    let writer = {
        let backend = backend.clone();
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let mut written: Vec<Key> = Vec::new();
            while stopped.try_recv().is_err() {
                let key = key(format!("/k/{}", written.len()));
                create_for_sure(&backend, &key).await;
                backend.get(&key).await.unwrap().expect("what was just written");
                written.push(key);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            written
        });
        (stop, task)
    };
    let mut seen = next_keys(&mut watch, 20).await;
    for member in 0..3 {
        cluster.kill(member);
        seen.extend(next_keys(&mut watch, 20).await);
        cluster.restart(member).await;
        seen.extend(next_keys(&mut watch, 5).await);
    }
    let (stop, task) = writer;
    stop.send(()).unwrap();
    let written = task.await.unwrap();
    seen.extend(next_keys(&mut watch, written.len() - seen.len()).await);
    assert_eq!(seen, written);
}

#[tokio::test]
async fn a_member_that_hangs_is_left() {
    let cluster = EtcdCluster::start().await;
    let backend = connect(&format!("etcd://{}", cluster.endpoints())).await.unwrap();
    let start = backend.put(&key("/start"), bytes("")).await.unwrap();
    let mut watch = backend.watch(&KeyRange::all(), start).await.unwrap();
    cluster.pause(0);
    create_for_sure(&backend, &key("/a")).await;
    assert_eq!(next_keys(&mut watch, 1).await, [key("/a")]);
    cluster.resume(0);
}

/// Such a member could go on for ever without hearing of anything new.
#[tokio::test]
async fn a_member_without_a_majority_is_not_listened_to() {
    let mut cluster = EtcdCluster::start().await;
    let backend = connect(&format!("etcd://{}", cluster.endpoint(0))).await.unwrap();
    let start = backend.put(&key("/start"), bytes("")).await.unwrap();
    let mut watch = backend.watch(&KeyRange::all(), start).await.unwrap();
    cluster.kill(1);
    cluster.kill(2);
    let over = within("the end of the watch", watch.next()).await.unwrap_err();
    let Error::Unavailable { reason, .. } = over else { panic!("{over:?}") };
    assert!(reason.contains("no leader"), "{reason}");
    let a = key("/a");
    let (read, write) = tokio::join!(backend.get(&a), backend.put(&a, bytes("")));
    for error in [read.map(drop).unwrap_err(), write.map(drop).unwrap_err()] {
        assert!(error.to_string().contains("no leader"), "{error}");
    }
    cluster.run(1);
    cluster.run(2);
    create_for_sure(&backend, &key("/b")).await;
}
