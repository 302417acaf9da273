//! The agent's socket, asked as the updater asks it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use refit_agent::{Readiness, ReadinessError, ReadinessSocket, SocketError, query_readiness};
use refit_testbed::eventually;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

fn readiness(connected: bool) -> Readiness {
    Readiness {
        version: "15.1.1".parse().unwrap(),
        started_at: "2026-03-01T00:00:00Z".parse().unwrap(),
        pid: 7,
        session: "s".into(),
        connected,
        reason: (!connected).then(|| "refused".into()),
        host_id: Some("6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55".parse().unwrap()),
        cluster: Some("main".into()),
        identity_expires: None,
        identity_issuer: None,
    }
}

#[tokio::test]
async fn the_answer_is_what_is_so_now() {
    let directory = refit_testbed::directory();
    let path = directory.path().join("agent.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a stale socket is in the way");
    let socket = ReadinessSocket::bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (now, current) = watch::channel(readiness(false));
    let serving = tokio::spawn(socket.serve(current));
    assert_eq!(query_readiness(&path).await.unwrap(), readiness(false));
    now.send_replace(readiness(true));
    assert_eq!(query_readiness(&path).await.unwrap(), readiness(true));

    let mut line = String::new();
    tokio::net::UnixStream::connect(&path).await.unwrap().read_to_string(&mut line).await.unwrap();
    assert_eq!(
        line,
        "{\"version\":\"15.1.1\",\"started_at\":\"2026-03-01T00:00:00Z\",\"pid\":7,\"session\":\"s\",\
         \"connected\":true,\"host_id\":\"6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55\",\"cluster\":\"main\",\
         \"identity_expires\":null}\n"
    );
    let issuer = format!("sha256:{}", "0f".repeat(32)).parse().ok();
    now.send_replace(Readiness { identity_issuer: issuer, ..readiness(true) });
    let issued = query_readiness(&path).await.unwrap();
    assert!(issued.identity_issuer.is_some() && issued.identity_issuer == issuer);
    now.send_replace(readiness(true));
    drop(std::os::unix::net::UnixStream::connect(&path).unwrap());
    assert_eq!(query_readiness(&path).await.unwrap(), readiness(true), "after someone who went away");

    serving.abort();
    eventually("the file is gone", Duration::from_secs(10), async || !path.exists()).await;
    assert!(matches!(query_readiness(&path).await, Err(ReadinessError::NotRunning(_))));
}

#[tokio::test]
async fn no_agent_and_a_silent_one_are_told_apart() {
    let directory = refit_testbed::directory();
    let path = directory.path().join("agent.sock");
    let nobody = query_readiness(&path).await.unwrap_err();
    assert!(nobody.to_string().starts_with("no agent is running"), "{nobody}");
    let listener = UnixListener::bind(&path).unwrap();
    let silent = query_readiness(&path).await.unwrap_err();
    assert!(matches!(silent, ReadinessError::Silent { .. }), "{silent}");
    drop(listener);
    assert!(
        matches!(query_readiness(&path).await, Err(ReadinessError::NotRunning(_))),
        "the file is left, nobody listens"
    );
    fs::remove_file(&path).unwrap();
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    for (answer, expected) in
        [("", "ended or reloaded"), ("hello\n", "cannot understand the answer"), ("{}", "`version`")]
    {
        let stranger = async {
            let (mut asking, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut asking, answer.as_bytes()).await.unwrap();
        };
        let (answer, ()) = tokio::join!(query_readiness(&path), stranger);
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_successor_is_not_cut_off() {
    let directory = refit_testbed::directory();
    let path = directory.path().join("agent.sock");
    let first = ReadinessSocket::bind(&path).unwrap();
    let second = ReadinessSocket::bind(&path).unwrap();
    drop(first);
    let (_now, current) = watch::channel(readiness(true));
    tokio::spawn(second.serve(current));
    assert_eq!(query_readiness(&path).await.unwrap(), readiness(true));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_path_that_no_socket_can_have_is_told() {
    let directory = refit_testbed::directory();
    let fill = |length: usize| {
        let base = directory.path().as_os_str().len() + "/".len() + "/agent.sock".len();
        let deep = directory.path().join("d".repeat(length - base));
        fs::create_dir_all(&deep).unwrap();
        deep.join("agent.sock")
    };
    drop(ReadinessSocket::bind(&fill(107)).unwrap());
    let error = ReadinessSocket::bind(&fill(108)).unwrap_err();
    assert!(matches!(error, SocketError::TooLong { length: 108, .. }), "{error}");
    assert!(error.to_string().contains("choose a shorter data directory"), "{error}");
    let nowhere = ReadinessSocket::bind(Path::new("/no/such/agent.sock")).unwrap_err();
    assert!(nowhere.to_string().contains("cannot be made"), "{nowhere}");
}
