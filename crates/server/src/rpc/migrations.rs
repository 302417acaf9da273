//! The service of migrations: their history, and another run of those that are outstanding.

use std::sync::Arc;

use refit_backend::SharedBackend;
use refit_migrations::{Record, RunError, Runner, Summary, list_history};
use refit_proto::migrations::v1 as wire;
use refit_proto::migrations::v1::migration_service_server::MigrationService;
use refit_proto::v1::Metadata;
use tonic::{Request, Response, Status};

use super::{paging, store_status, timestamp};
use crate::access::caller;
use crate::events::{Event, Events};

/// Shows the history of migrations and starts them again.
#[derive(Clone)]
pub(crate) struct Migrations {
    pub(crate) backend: SharedBackend,
    pub(crate) runner: Arc<Runner>,
    pub(crate) events: Arc<Events>,
}

#[tonic::async_trait]
impl MigrationService for Migrations {
    async fn list_migrations(
        &self,
        request: Request<wire::ListMigrationsRequest>,
    ) -> Result<Response<wire::ListMigrationsResponse>, Status> {
        let request = request.into_inner();
        let size = paging::size(request.page_size)?;
        let after =
            match paging::name_in(&request.page_token)? {
                None => None,
                Some(number) => Some(number.parse().map_err(|_| {
                    Status::invalid_argument("page_token: it is not one that this service gave")
                })?),
            };
        let (records, more) = list_history(&self.backend, after, size).await.map_err(status)?;
        let last = records.last().filter(|_| more);
        let next_page_token = last.map(|record| paging::token_after(&record.number.to_string()));
        Ok(Response::new(wire::ListMigrationsResponse {
            migrations: records.into_iter().map(on_the_wire).collect(),
            next_page_token: next_page_token.unwrap_or_default(),
        }))
    }

    async fn apply_migrations(
        &self,
        request: Request<wire::ApplyMigrationsRequest>,
    ) -> Result<Response<()>, Status> {
        let (by, runner, events) = (caller(&request)?.name(), self.runner.clone(), self.events.clone());
        // In a task of its own: a caller that hangs up does not stop what it started.
        let run = tokio::spawn(async move {
            let outcome = runner.apply().await;
            if let Some(event) = told(by, &outcome) {
                events.note(event).await;
            }
            outcome
        });
        match run.await {
            Ok(outcome) => outcome.map(|_| Response::new(())).map_err(status),
            Err(_) => Err(Status::internal(
                "the run of the migrations ended without a result; see the server's log",
            )),
        }
    }
}

/// What is worth telling of a run that somebody asked for: not that nothing was due.
fn told(by: String, outcome: &Result<Summary, RunError>) -> Option<Event> {
    let event = |event_type, message| Some(Event::new(event_type, by, "migrations", message));
    match outcome {
        Ok(summary) if summary.applied.is_empty() => None,
        Ok(summary) => {
            let numbers: Vec<String> = summary.applied.iter().map(|number| format!("{number:04}")).collect();
            event("migrations.applied", format!("applied {}", numbers.join(", ")))
        }
        Err(error @ RunError::Failed { .. }) => event("migrations.failed", error.to_string()),
        Err(_) => None,
    }
}

fn on_the_wire(record: Record) -> wire::Migration {
    let duration = std::time::Duration::from_micros(record.execution_time_us);
    wire::Migration {
        kind: "migration".into(),
        sub_kind: String::new(),
        version: "v1".into(),
        metadata: Some(Metadata { name: record.name, ..Metadata::default() }),
        number: record.number.into(),
        applied_at: Some(timestamp(record.applied_at)),
        execution_time: duration.try_into().ok(),
        success: record.success,
        message: record.message,
    }
}

fn status(error: RunError) -> Status {
    let message = error.to_string();
    match error {
        RunError::InFlight { .. } | RunError::Altered { .. } | RunError::Failed { .. } => {
            Status::failed_precondition(message)
        }
        RunError::Stopped => Status::unavailable(message),
        RunError::Store(error) => store_status(error),
        RunError::History { .. } => Status::data_loss(message),
    }
}
