//! The service of rollouts: how far the fleet is, and what operators do about it.

use std::str::FromStr;
use std::sync::Arc;

use refit_proto::rollouts::v1 as wire;
use refit_proto::rollouts::v1::rollout_service_server::RolloutService;
use refit_types::HostId;
use tonic::{Request, Response, Status};

use super::{paging, store_status};
use crate::access::caller;
use crate::rollout::{HostStatus, OperatorError, Rollouts};

/// How far the fleet is, and what operators do about it.
#[derive(Clone)]
pub(crate) struct RolloutRpc {
    pub(crate) rollouts: Arc<Rollouts>,
}

#[tonic::async_trait]
impl RolloutService for RolloutRpc {
    async fn get_rollout(
        &self,
        _: Request<wire::GetRolloutRequest>,
    ) -> Result<Response<wire::Rollout>, Status> {
        self.rollouts.sync_from_store().await.map_err(store_status)?;
        Ok(Response::new(self.rollouts.status()))
    }

    async fn list_group_hosts(
        &self,
        request: Request<wire::ListGroupHostsRequest>,
    ) -> Result<Response<wire::ListGroupHostsResponse>, Status> {
        let request = request.into_inner();
        let size = paging::size(request.page_size)?;
        let after = paging::name_in(&request.page_token)?;
        let after = after.map(|name| HostId::from_str(&name)).transpose();
        let after = after.map_err(|error| Status::invalid_argument(format!("page_token: {error}")))?;
        let outcome = request.outcome_text();
        let wanted = Some(outcome.as_str()).filter(|text| !text.is_empty());
        let wanted = wanted.map(HostStatus::parse).transpose();
        let wanted = wanted.map_err(|error| Status::invalid_argument(format!("outcome: {error}")))?;
        let rollouts = self.rollouts.clone();
        // A fleet is walked away from the threads that answer.
        let walk = move || rollouts.group_hosts(&request.group, wanted, after, size);
        let found = tokio::task::spawn_blocking(walk).await;
        let found = found.map_err(|error| Status::internal(error.to_string()))?;
        let (hosts, more) = found.map_err(operator_status)?;
        let next = hosts.last().filter(|_| more).map(|last| paging::token_after(&last.host_id));
        Ok(Response::new(wire::ListGroupHostsResponse { hosts, next_page_token: next.unwrap_or_default() }))
    }

    async fn run_group(&self, request: Request<wire::RunGroupRequest>) -> Result<Response<()>, Status> {
        let by = caller(&request)?.name();
        let group = request.into_inner().group;
        self.rollouts.run_group(&group, &by).await.map_err(operator_status)?;
        tracing::info!(target: "audit", by, group, "ran a group by hand");
        Ok(Response::new(()))
    }

    async fn pause(&self, request: Request<wire::PauseRequest>) -> Result<Response<()>, Status> {
        let by = caller(&request)?.name();
        let group = request.into_inner().group;
        self.set_paused(&group, true, &by).await
    }

    async fn resume(&self, request: Request<wire::ResumeRequest>) -> Result<Response<()>, Status> {
        let by = caller(&request)?.name();
        let group = request.into_inner().group;
        self.set_paused(&group, false, &by).await
    }

    async fn mark_done(&self, request: Request<wire::MarkDoneRequest>) -> Result<Response<()>, Status> {
        let by = caller(&request)?.name();
        let group = request.into_inner().group;
        self.rollouts.mark_done(&group, &by).await.map_err(operator_status)?;
        tracing::info!(target: "audit", by, group, "declared a group done");
        Ok(Response::new(()))
    }
}

impl RolloutRpc {
    async fn set_paused(&self, group: &str, paused: bool, by: &str) -> Result<Response<()>, Status> {
        let group = Some(group).filter(|group| !group.is_empty());
        self.rollouts.set_paused(group, paused, by).await.map_err(operator_status)?;
        tracing::info!(target: "audit", by, group, paused, "paused or resumed");
        Ok(Response::new(()))
    }
}

pub(super) fn operator_status(error: OperatorError) -> Status {
    match error {
        OperatorError::NoGroup { .. } => Status::not_found(error.to_string()),
        OperatorError::Store(error) => store_status(error),
        other => Status::failed_precondition(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use refit_proto::{TextEnum, code_of};

    use super::*;

    #[test]
    fn every_outcome_has_a_number_on_the_wire() {
        for (_, text) in HostStatus::ALL {
            assert_ne!(code_of::<wire::HostOutcome>(text), 0, "{text}");
        }
        assert_eq!(HostStatus::ALL.len(), wire::HostOutcome::TEXTS.len());
    }
}
