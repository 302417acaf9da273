//! Who may call which gRPC method: one table, asked before every call. What kinds of resources say of their editors is
//! turned into rows of it. `dispatch` asks it; handlers see the [`Caller`] that it let through.

use std::sync::{Arc, LazyLock};

use refit_identity::{AuthError, Principal, Role};
use refit_types::{AgentRole, Editors, HostId, Kind};
use tonic::Status;

use crate::connection::Peer;

/// Who may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Whoever can reach the port: what they bring along is the proof.
    Anyone,
    /// Hosts of the fleet, each for itself.
    Hosts,
    /// Users that have one of these roles.
    Users(&'static [Role]),
}

/// One line of the table of who may do what.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The method's path on the wire.
    pub method: &'static str,
    /// The kind of resource, for methods that work on resources.
    pub kind: Option<Kind>,
    /// Who may.
    pub rule: Rule,
}

const ADMIN: Rule = Rule::Users(&[Role::Admin]);
const EVERY_ROLE: Rule = Rule::Users(&Role::ALL);
const VERSION_EDITORS: Rule = Rule::Users(&[Role::Admin, Role::VersionEditor]);
const ROLLOUT_EDITORS: Rule = Rule::Users(&[Role::Admin, Role::RolloutEditor]);

const fn row(method: &'static str, rule: Rule) -> Row {
    Row { method, kind: None, rule }
}

/// The table. A method that is not in it is refused to everyone.
pub static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let of_resources = Kind::ALL.into_iter().flat_map(|kind| {
        let editors = match kind.info().editors {
            Editors::Administrators => ADMIN,
            Editors::Versions => VERSION_EDITORS,
            Editors::Rollouts => ROLLOUT_EDITORS,
        };
        let row = move |rule| move |method: &&'static str| Row { method, kind: Some(kind), rule };
        let reads = RESOURCE_READS.iter().map(row(EVERY_ROLE));
        reads.chain(RESOURCE_WRITES.iter().map(row(editors)))
    });
    METHODS.iter().copied().chain(of_resources).collect()
});

const RESOURCE_READS: &[&str] =
    &["/refit.resources.v1.ResourceService/GetResource", "/refit.resources.v1.ResourceService/ListResources"];

const RESOURCE_WRITES: &[&str] = &[
    "/refit.resources.v1.ResourceService/CreateResource",
    "/refit.resources.v1.ResourceService/UpdateResource",
    "/refit.resources.v1.ResourceService/UpsertResource",
    "/refit.resources.v1.ResourceService/DeleteResource",
];

/// The rows of all methods that work on no resource.
const METHODS: &[Row] = &[
    row("/refit.agent.v1.JoinService/Join", Rule::Anyone),
    row("/refit.agent.v1.AgentService/Renew", Rule::Hosts),
    row("/refit.agent.v1.AgentService/GetAuthorities", Rule::Hosts),
    row("/refit.agent.v1.AgentService/Heartbeat", Rule::Hosts),
    row("/refit.nodes.v1.NodeService/CreateToken", ADMIN),
    row("/refit.nodes.v1.NodeService/ListTokens", ADMIN),
    row("/refit.nodes.v1.NodeService/DeleteToken", ADMIN),
    row("/refit.nodes.v1.NodeService/ListNodes", EVERY_ROLE),
    row("/refit.nodes.v1.NodeService/DeleteNode", ADMIN),
    row("/refit.rotation.v1.RotationService/GetRotation", EVERY_ROLE),
    row("/refit.rotation.v1.RotationService/SetPhase", ADMIN),
    row("/refit.rotation.v1.RotationService/StartAutomatic", ADMIN),
    row("/refit.rollouts.v1.RolloutService/GetRollout", EVERY_ROLE),
    row("/refit.rollouts.v1.RolloutService/ListGroupHosts", EVERY_ROLE),
    row("/refit.rollouts.v1.RolloutService/RunGroup", ROLLOUT_EDITORS),
    row("/refit.rollouts.v1.RolloutService/Pause", ROLLOUT_EDITORS),
    row("/refit.rollouts.v1.RolloutService/Resume", ROLLOUT_EDITORS),
    row("/refit.rollouts.v1.RolloutService/MarkDone", ROLLOUT_EDITORS),
    row("/refit.events.v1.EventService/ListEvents", EVERY_ROLE),
    row("/refit.events.v1.EventService/FollowEvents", EVERY_ROLE),
    row("/refit.cluster.v1.ClusterService/GetStatus", EVERY_ROLE),
    row("/refit.auth.v1.AuthService/SignUser", ADMIN),
    row("/refit.auth.v1.AuthService/CreateWebLogin", EVERY_ROLE),
    row("/refit.migrations.v1.MigrationService/ListMigrations", EVERY_ROLE),
    row("/refit.migrations.v1.MigrationService/ApplyMigrations", ADMIN),
];

impl Rule {
    pub(crate) fn allows(self, principal: &Principal) -> bool {
        match (self, principal) {
            (Self::Anyone, _) | (Self::Hosts, Principal::Host { .. }) => true,
            (Self::Users(allowed), Principal::User { roles, .. }) => {
                allowed.iter().any(|role| roles.contains(*role))
            }
            _ => false,
        }
    }
}

/// Who makes a call, once that was found good.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Whom the certificate speaks for; nobody is needed where anyone may call.
    principal: Option<Principal>,
    pub(crate) peer: Arc<Peer>,
    method: &'static str,
}

impl Caller {
    /// The caller, if the method is open to it for at least some kind of resource.
    pub(crate) fn authorize(
        path: &str,
        peer: &Arc<Peer>,
        principal: impl FnOnce() -> Result<Principal, AuthError>,
    ) -> Result<Self, Status> {
        let rows = || ROWS.iter().filter(|row| row.method == path);
        let Some(Row { method, rule, .. }) = rows().next() else {
            return Err(Status::unimplemented(format!("there is no method {path}")));
        };
        let principal = match (principal(), rule) {
            (Ok(principal), _) => Some(principal),
            (Err(_), Rule::Anyone) => None,
            (Err(error), _) => return Err(Status::unauthenticated(error.to_string())),
        };
        if let Some(principal) = &principal
            && !rows().any(|row| row.rule.allows(principal))
        {
            return Err(denied(principal, method, None));
        }
        Ok(Self { principal, peer: peer.clone(), method })
    }

    /// Whom the caller's certificate speaks for, if it has one that is good.
    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// The caller's name, for the log.
    pub(crate) fn name(&self) -> String {
        self.principal.as_ref().map_or_else(|| "nobody".into(), Principal::name)
    }

    /// The host that calls, with the role of the identity that it shows.
    pub(crate) fn host(&self) -> Result<(HostId, AgentRole), Status> {
        match &self.principal {
            Some(Principal::Host { id, role, .. }) => Ok((*id, *role)),
            _ => Err(Status::permission_denied("only hosts may call this")),
        }
    }

    /// Refuses kinds of resources on which the caller may not use the method.
    pub(crate) fn require(&self, kind: Kind) -> Result<(), Status> {
        let row = ROWS.iter().find(|row| row.method == self.method && row.kind == Some(kind));
        match (row, &self.principal) {
            (Some(row), Some(principal)) if row.rule.allows(principal) => Ok(()),
            (_, Some(principal)) => Err(denied(principal, self.method, Some(kind))),
            (_, None) => Err(Status::unauthenticated("sign in first")),
        }
    }
}

fn denied(principal: &Principal, method: &str, kind: Option<Kind>) -> Status {
    let action = in_words(method.rsplit('/').next().unwrap_or(method));
    let on = kind.map(|kind| format!(" on a {kind}")).unwrap_or_default();
    let roles = match principal {
        Principal::User { roles, .. } => format!(" with the roles {roles}"),
        _ => String::new(),
    };
    let who = principal.name();
    Status::permission_denied(format!(
        "{who:?}{roles} may not {action}{on}; ask an administrator of the cluster"
    ))
}

/// `SetPhase` as people say it: `set phase`.
fn in_words(method: &str) -> String {
    let mut words = String::new();
    for letter in method.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// Who makes the call, as a handler sees it.
pub(crate) fn caller<T>(request: &tonic::Request<T>) -> Result<&Caller, Status> {
    request.extensions().get::<Caller>().ok_or_else(|| Status::internal("the call was not authorised"))
}
