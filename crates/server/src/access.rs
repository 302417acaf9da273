use std::sync::Arc;

use refit_pki::{AuthError, Principal, Role};
use refit_types::Kind;
use tonic::Status;

use crate::connection::Peer;

/// Who may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
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

const fn row(method: &'static str, rule: Rule) -> Row {
    Row { method, kind: None, rule }
}

const fn on(kind: Kind, method: &'static str, rule: Rule) -> Row {
    Row { method, kind: Some(kind), rule }
}

/// The table. A method that is not in it is refused to everyone.
pub const ROWS: &[Row] = &[
    row("/refit.cluster.v1.ClusterService/GetStatus", EVERY_ROLE),
    row("/refit.auth.v1.AuthService/SignUser", ADMIN),
    row("/refit.migrations.v1.MigrationService/ListMigrations", EVERY_ROLE),
    row("/refit.migrations.v1.MigrationService/ApplyMigrations", ADMIN),
    on(Kind::Channel, "/refit.resources.v1.ResourceService/GetResource", EVERY_ROLE),
    on(Kind::Channel, "/refit.resources.v1.ResourceService/ListResources", EVERY_ROLE),
    on(Kind::Channel, "/refit.resources.v1.ResourceService/CreateResource", VERSION_EDITORS),
    on(Kind::Channel, "/refit.resources.v1.ResourceService/UpdateResource", VERSION_EDITORS),
    on(Kind::Channel, "/refit.resources.v1.ResourceService/UpsertResource", VERSION_EDITORS),
    on(Kind::Channel, "/refit.resources.v1.ResourceService/DeleteResource", VERSION_EDITORS),
];

impl Rule {
    fn allows(self, principal: &Principal) -> bool {
        match (self, principal) {
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
    pub(crate) principal: Principal,
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
        let Some(Row { method, .. }) = rows().next() else {
            return Err(Status::unimplemented(format!("there is no method {path}")));
        };
        let principal = principal().map_err(|error| Status::unauthenticated(error.to_string()))?;
        if !rows().any(|row| row.rule.allows(&principal)) {
            return Err(denied(&principal, method, None));
        }
        Ok(Self { principal, peer: peer.clone(), method })
    }

    /// Refuses kinds of resources on which the caller may not use the method.
    pub(crate) fn require(&self, kind: Kind) -> Result<(), Status> {
        let row = ROWS.iter().find(|row| row.method == self.method && row.kind == Some(kind));
        match row {
            Some(row) if row.rule.allows(&self.principal) => Ok(()),
            _ => Err(denied(&self.principal, self.method, Some(kind))),
        }
    }
}

fn denied(principal: &Principal, method: &str, kind: Option<Kind>) -> Status {
    let action = method.rsplit('/').next().unwrap_or(method);
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

/// Who makes the call, as a handler sees it.
pub(crate) fn caller<T>(request: &tonic::Request<T>) -> Result<&Caller, Status> {
    request.extensions().get::<Caller>().ok_or_else(|| Status::internal("the call was not authorised"))
}
