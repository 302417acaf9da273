//! Translates reads and transactions into etcd's requests, and their responses back. No I/O.

use super::keyspace::{Keyspace, revision};
use super::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::etcdserverpb::request_op::Request;
use super::proto::etcdserverpb::response_op::Response;
use super::proto::etcdserverpb::{
    Compare as EtcdCompare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp,
    ResponseOp, TxnRequest,
};
use crate::{Compare, Error, Expect, Key, LeaseId, Read, Result, Transaction, Write};

/// Adds a read to an empty transaction: etcd answers one without operations from a member's stale state.
fn up_to_date(mut operations: Vec<RequestOp>, keys: &Keyspace) -> Vec<RequestOp> {
    if operations.is_empty() {
        let nothing = RangeRequest { key: keys.root(), keys_only: true, ..Default::default() };
        operations.push(operation(Request::RequestRange(nothing)));
    }
    operations
}

/// Reads at one revision. Reads of an empty range are left out.
pub(super) fn snapshot(reads: &[Read], keys: &Keyspace) -> TxnRequest {
    let asked = reads.iter().filter_map(|read| question(read, keys));
    let success = asked.map(|range| operation(Request::RequestRange(range))).collect();
    TxnRequest { success: up_to_date(success, keys), ..Default::default() }
}

pub(super) fn question(read: &Read, keys: &Keyspace) -> Option<RangeRequest> {
    match read {
        Read::Key(key) => Some(RangeRequest { key: keys.key(key), ..Default::default() }),
        Read::Range { range, limit } => {
            let span = keys.span(range)?;
            let limit = i64::try_from(Read::page_limit(*limit)).unwrap_or(i64::MAX);
            Some(RangeRequest { key: span.start, range_end: span.end, limit, ..Default::default() })
        }
    }
}

/// A transaction that reads the keys of its conditions if one of them does not hold.
pub(super) fn transaction(transaction: &Transaction, keys: &Keyspace) -> TxnRequest {
    let found = transaction.compares().iter().map(|compare| {
        let range = RangeRequest { key: keys.key(&compare.key), keys_only: true, ..Default::default() };
        operation(Request::RequestRange(range))
    });
    let writes = transaction.writes().iter().map(|write| operation(change(write, keys)));
    TxnRequest {
        compare: transaction.compares().iter().map(|compare| condition(compare, keys)).collect(),
        success: up_to_date(writes.collect(), keys),
        failure: found.collect(),
    }
}

fn change(write: &Write, keys: &Keyspace) -> Request {
    match write {
        Write::Put { key, value, lease } => Request::RequestPut(PutRequest {
            key: keys.key(key),
            value: value.clone(),
            lease: lease.map_or(0, |lease| lease.0),
        }),
        Write::Delete { key } => {
            Request::RequestDeleteRange(DeleteRangeRequest { key: keys.key(key), ..Default::default() })
        }
    }
}

fn condition(compare: &Compare, keys: &Keyspace) -> EtcdCompare {
    let (target, result, union) = match compare.expect {
        Expect::Absent => (CompareTarget::Create, CompareResult::Equal, TargetUnion::CreateRevision(0)),
        Expect::Present => (CompareTarget::Create, CompareResult::Greater, TargetUnion::CreateRevision(0)),
        Expect::Revision(revision) => {
            // To etcd an absent key has revision 0; no key was ever written at revision -1.
            let written = i64::try_from(revision.0).ok().filter(|written| *written > 0).unwrap_or(-1);
            (CompareTarget::Mod, CompareResult::Equal, TargetUnion::ModRevision(written))
        }
    };
    EtcdCompare {
        result: result.into(),
        target: target.into(),
        key: keys.key(&compare.key),
        target_union: Some(union),
    }
}

fn operation(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

pub(super) fn range_of(response: ResponseOp) -> RangeResponse {
    match response.response {
        Some(Response::ResponseRange(range)) => range,
        _ => RangeResponse::default(),
    }
}

/// The key of the first condition that does not hold.
pub(super) fn first_conflict(transaction: &Transaction, found: Vec<ResponseOp>) -> Option<Key> {
    let found =
        found.into_iter().map(|found| range_of(found).kvs.first().map(|item| revision(item.mod_revision)));
    let mut both = transaction.compares().iter().zip(found);
    both.find(|(compare, found)| !compare.expect.holds(*found)).map(|(compare, _)| compare.key.clone())
}

/// Rejects lease 0: etcd reads it as "no lease" and would never expire the item.
pub(super) fn check_leases(transaction: &Transaction) -> Result<()> {
    match leases(transaction).find(|lease| lease.0 == 0) {
        Some(lease) => Err(Error::LeaseNotFound(lease)),
        None => Ok(()),
    }
}

pub(super) fn leases(transaction: &Transaction) -> impl Iterator<Item = LeaseId> {
    transaction.writes().iter().filter_map(|write| match write {
        Write::Put { lease, .. } => *lease,
        Write::Delete { .. } => None,
    })
}
