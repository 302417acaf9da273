//! Tokens by which hosts join.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit_backend::{Key, KeyRange, MemoryBackend, SharedBackend};
use refit_types::AgentRole::{Kube, Node};

use crate::{StaticToken, TokenError, TokenStore};

const TEN_MINUTES: Duration = Duration::from_secs(600);

fn after(seconds: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

fn store(statics: &[StaticToken]) -> (SharedBackend, TokenStore) {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    (backend.clone(), TokenStore::new(backend, statics))
}

/// Nothing else is stored with it.
fn alone<T>(_: &T) -> refit_backend::Result<Vec<(Key, Vec<u8>)>> {
    Ok(Vec::new())
}

#[tokio::test]
async fn a_token_is_good_for_its_roles_and_its_time_and_as_often_as_asked() {
    let (_, tokens) = store(&[]);
    let made = tokens.create(&[Node, Kube], TEN_MINUTES, "admin", after(0), alone).await.unwrap();
    for _ in 0..3 {
        tokens.check(made.secret(), &[Node], after(599)).await.unwrap();
    }
    tokens.check(made.secret(), &[Kube, Node], after(0)).await.unwrap();
    assert_eq!(tokens.check("wrong", &[Node], after(0)).await, Err(TokenError::Unknown));
    assert_eq!(
        tokens.check(made.name(), &[Node], after(0)).await,
        Err(TokenError::Unknown),
        "its name is no key"
    );
    assert_eq!(tokens.check(made.secret(), &[Node], after(600)).await, Err(TokenError::Expired(after(600))));
    let other = tokens.create(&[Node], TEN_MINUTES, "admin", after(0), alone).await.unwrap();
    let exceeds = tokens.check(other.secret(), &[Node, Kube], after(0)).await.unwrap_err();
    assert!(
        exceeds.to_string().starts_with("the token does not allow the role kube, only node"),
        "{exceeds}"
    );
    for bad in [Duration::from_secs(59), Duration::from_secs(31 * 86_400)] {
        assert_eq!(tokens.create(&[Node], bad, "admin", after(0), alone).await.unwrap_err(), TokenError::Ttl);
    }
}

#[tokio::test]
async fn the_secret_is_nowhere_but_with_its_holder() {
    let given = StaticToken { token: "static-secret".into(), roles: vec![Node] };
    let (backend, tokens) = store(std::slice::from_ref(&given));
    let made = tokens.create(&[Node], TEN_MINUTES, "admin", after(0), alone).await.unwrap();
    let stored = backend.range(&KeyRange::all(), 10).await.unwrap().items;
    let listed = tokens.list().await.unwrap();
    let everything = format!("{stored:?} {made:?} {tokens:?} {given:?} {listed:?}");
    assert!(!everything.contains(made.secret()) && !everything.contains("static-secret"), "{everything}");
    assert_eq!(made.secret().len(), 32);
}

#[tokio::test]
async fn tokens_are_deleted_by_name_and_swept_when_they_are_long_over() {
    let (_, tokens) = store(&[StaticToken { token: "s".into(), roles: vec![Node] }]);
    tokens.check("s", &[Node], after(1_000_000_000)).await.unwrap();
    let one = tokens.create(&[Node], TEN_MINUTES, "admin", after(0), alone).await.unwrap();
    let two = tokens.create(&[Node], TEN_MINUTES, "admin", after(0), alone).await.unwrap();
    tokens.delete(one.name(), alone).await.unwrap();
    assert_eq!(tokens.check(one.secret(), &[Node], after(0)).await, Err(TokenError::Unknown));
    let again = tokens.delete(one.name(), alone).await.unwrap_err();
    assert!(again.to_string().starts_with("there is no token whose name begins with"), "{again}");
    assert!(matches!(tokens.delete("", alone).await, Err(TokenError::Name { several: false, .. })));
    let fixed = tokens.list().await.unwrap()[0].clone();
    assert_eq!(tokens.delete(fixed.name(), alone).await, Err(TokenError::Static(fixed.name().into())));
    tokens.sweep(after(600 + 86_400)).await.unwrap();
    assert_eq!(tokens.list().await.unwrap().len(), 2, "kept, so that its holder is told");
    tokens.sweep(after(600 + 86_401)).await.unwrap();
    assert_eq!(tokens.list().await.unwrap(), [fixed]);
    assert_eq!(tokens.check(two.secret(), &[Node], after(0)).await, Err(TokenError::Unknown));
}
