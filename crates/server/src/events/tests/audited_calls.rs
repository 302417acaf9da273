//! Events of tokens, hosts, identities and rotations share the transaction of what they tell of.

use std::collections::BTreeMap;

use refit_authority::{Authority, TokenStore};
use refit_identity::{Phase, PrivateKey, Role, Roles};
use refit_proto::auth::v1::SignUserRequest;
use refit_proto::auth::v1::auth_service_server::AuthService;
use refit_proto::nodes::v1::node_service_server::NodeService;
use refit_proto::nodes::v1::{CreateTokenRequest, DeleteNodeRequest, DeleteTokenRequest};
use refit_proto::rotation::v1::SetPhaseRequest;
use refit_proto::rotation::v1::rotation_service_server::RotationService;
use tonic::{Request, Status};

use super::*;
use crate::access::Caller;
use crate::authorities::Authorities;
use crate::connection::Peer;
use crate::fleet::tests::{Bare, host};
use crate::rotation::go_on;
use crate::rpc::{Auth, Nodes, Rotations};
use crate::web::Sessions;

/// Everything that a server does and tells of, by itself or for somebody.
#[derive(Debug, Clone, Copy)]
enum Call {
    CreateToken { seconds: i64 },
    DeleteToken { exists: bool },
    SignUser { seconds: i64 },
    DeleteNode { host: u128 },
    ForgetNode,
    SetPhase(Phase),
    GoOn(Phase),
}

struct World {
    refusing: Arc<InterceptedBackend<RefusedWrites>>,
    nodes: Nodes,
    auth: Auth,
    rotations: Rotations,
    _bare: Bare,
    _directory: tempfile::TempDir,
}

fn in_a_month() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(31 * 24)
}

/// A request of an administrator.
fn by_alice<T>(path: &str, message: T) -> Request<T> {
    let (cluster, name) = ("example".parse().unwrap(), "alice".parse().unwrap());
    let principal = refit_identity::Principal::User { cluster, name, roles: Roles::from(Role::Admin) };
    let peer = Arc::new(Peer::new(([127, 0, 0, 1], 1).into(), &[]));
    let mut request = Request::new(message);
    request.extensions_mut().insert(Caller::authorize(path, &peer, || Ok(principal)).unwrap());
    request
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let inner = SqliteBackend::open(&directory.path().join("store")).unwrap();
        let refusing = refusing_backend(inner, "/events/");
        let backend: SharedBackend = refusing.clone();
        let now: fn() -> Timestamp = Timestamp::now;
        Authority::load_or_create(&*backend, "example".parse().unwrap(), now()).await.unwrap();
        let stored = Authority::load(&*backend).await.unwrap().unwrap();
        let authorities = Authorities::new(backend.clone(), stored).unwrap();
        let events = Arc::new(Events::new(backend.clone(), now));
        let bare = Bare::new(&backend, "s1");
        let (fleet, rollouts) = (bare.fleet.clone(), bare.rollouts.clone());
        for n in 1..=2 {
            bare.joins(n).await;
        }
        rollouts.operator_changed().await.unwrap();
        let tokens = Arc::new(TokenStore::new(backend.clone(), &[]));
        let sessions = Arc::new(Sessions::new(backend.clone(), now));
        Self {
            refusing,
            nodes: Nodes {
                backend: backend.clone(),
                fleet: fleet.clone(),
                rollouts,
                tokens,
                authorities: authorities.clone(),
                events: events.clone(),
                now,
            },
            auth: Auth {
                backend: backend.clone(),
                authorities: authorities.clone(),
                events: events.clone(),
                sessions,
                now,
            },
            rotations: Rotations { backend, fleet, authorities, events, now },
            _bare: bare,
            _directory: directory,
        }
    }

    async fn make(&self, call: Call) -> std::result::Result<(), Status> {
        let ttl = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        match call {
            Call::CreateToken { seconds } => {
                let request = CreateTokenRequest {
                    roles: vec!["node".into()],
                    ttl: ttl(seconds),
                    ..Default::default()
                };
                let path = "/refit.nodes.v1.NodeService/CreateToken";
                self.nodes.create_token(by_alice(path, request)).await.map(drop)
            }
            Call::DeleteToken { exists } => {
                let all = self.nodes.tokens.list().await.unwrap();
                let name = all
                    .first()
                    .filter(|_| exists)
                    .map_or("none".into(), |token| token.name()[..6].to_owned());
                let path = "/refit.nodes.v1.NodeService/DeleteToken";
                self.nodes.delete_token(by_alice(path, DeleteTokenRequest { name })).await.map(drop)
            }
            Call::SignUser { seconds } => {
                let certificate_request = PrivateKey::generate().unwrap().signing_request().unwrap();
                let (user, roles) = ("bob".into(), vec!["viewer".into()]);
                let request = SignUserRequest { user, roles, ttl: ttl(seconds), certificate_request };
                let path = "/refit.auth.v1.AuthService/SignUser";
                self.auth.sign_user(by_alice(path, request)).await.map(drop)
            }
            Call::DeleteNode { host: n } => {
                let request = DeleteNodeRequest { host_id: host(n).to_string() };
                let path = "/refit.nodes.v1.NodeService/DeleteNode";
                self.nodes.delete_node(by_alice(path, request)).await.map(drop)
            }
            Call::ForgetNode => {
                self.nodes.rollouts.forget_lost(in_a_month()).await;
                Ok(())
            }
            Call::SetPhase(phase) => {
                let request = SetPhaseRequest { phase: phase.to_string(), force: true, ..Default::default() };
                let path = "/refit.rotation.v1.RotationService/SetPhase";
                self.rotations.set_phase(by_alice(path, request)).await.map(drop)
            }
            Call::GoOn(phase) => {
                let Rotations { authorities, events, .. } = &self.rotations;
                let went = go_on(authorities, events, &authorities.current(), phase, Timestamp::now()).await;
                went.map_err(|error| Status::internal(error.to_string()))
            }
        }
    }

    /// Every key with the revision of its last write, and the store's own.
    async fn stored(&self) -> (Revision, BTreeMap<Key, Revision>) {
        let page = self.refusing.range(&KeyRange::all(), 1000).await.unwrap();
        (page.revision, page.items.into_iter().map(|item| (item.key, item.revision)).collect())
    }
}

#[tokio::test]
async fn an_event_is_stored_in_the_transaction_of_its_change_or_neither_is() {
    let world = World::new().await;
    let calls = [
        (Call::CreateToken { seconds: 600 }, "token.created", "alice", "/tokens/v1/join"),
        (Call::DeleteToken { exists: true }, "token.deleted", "alice", "/tokens/v1/join"),
        (Call::SignUser { seconds: 3600 }, "identity.signed", "alice", "/identities/v1/user"),
        (Call::DeleteNode { host: 1 }, "node.removed", "alice", "/instances/v1/default"),
        (Call::ForgetNode, "node.removed", "server s1", "/instances/v1/default"),
        (Call::SetPhase(Phase::Init), "rotation.phase", "alice", "/authorities/v1/default"),
        (Call::GoOn(Phase::UpdateClients), "rotation.phase", "server", "/authorities/v1/default"),
    ];
    for (call, event_type, actor, changed) in calls {
        let (revision, before) = world.stored().await;
        world.refusing.refuses.store(true, Ordering::Relaxed);
        let refused = world.make(call).await;
        assert!(refused.is_err() || matches!(call, Call::ForgetNode), "{call:?}");
        assert_eq!(world.stored().await, (revision, before.clone()), "{call:?} without its event");

        world.refusing.refuses.store(false, Ordering::Relaxed);
        world.make(call).await.unwrap();
        let (now, after) = world.stored().await;
        assert_eq!(now, Revision(revision.0 + 1), "{call:?} is one transaction");
        let is_new = |(key, written): &(&Key, &Revision)| before.get(*key) != Some(*written);
        let written: Vec<&Key> = after.iter().filter(is_new).map(|(key, _)| key).collect();
        let deleted = before.keys().filter(|key| !after.contains_key(*key));
        let mut places: Vec<&str> =
            written.into_iter().chain(deleted).map(|key| key.as_str().rsplit_once('/').unwrap().0).collect();
        places.sort_unstable();
        let mut expected = [changed, super::super::PREFIX];
        expected.sort_unstable();
        assert_eq!(places, expected, "{call:?}");
        let told = world.nodes.events.page(None, None, 1000).await.unwrap().events.pop().unwrap();
        assert_eq!((told.event_type.as_str(), told.actor.as_str()), (event_type, actor), "{call:?}");
    }
}

#[tokio::test]
async fn what_is_refused_is_no_event() {
    let world = World::new().await;
    let before = world.stored().await;
    let calls = [
        Call::CreateToken { seconds: 1 },
        Call::DeleteToken { exists: false },
        Call::SignUser { seconds: 1_000_000_000 },
        Call::DeleteNode { host: 9 },
        Call::SetPhase(Phase::Rollback),
    ];
    for call in calls {
        world.make(call).await.unwrap_err();
        assert_eq!(world.stored().await, before, "{call:?}");
    }
    let Rotations { authorities, events, .. } = &world.rotations;
    let current = authorities.current();
    world.make(Call::SetPhase(Phase::Init)).await.unwrap();
    world.make(Call::SetPhase(Phase::UpdateClients)).await.unwrap();
    let before = world.stored().await;
    let (manual, entry) = (refit_authority::RotationMode::Manual, events.entry(event("late")).unwrap());
    let late = authorities.advance(&current, Phase::Init, manual, Timestamp::now(), &[entry]).await;
    assert!(late.is_err(), "another server was quicker");
    assert_eq!(world.stored().await, before);
}
