//! The contract of every store, as tests. A test file for one store writes
//! `conformance::suite!(MyStore);` for a type that implements [`Store`].

#![allow(clippy::unwrap_used)]

pub mod leases;
pub mod ranges;
pub mod watches;
pub mod writes;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use refit_backend::{Key, SharedBackend};

/// A fresh, empty store for one test.
pub trait Store: Send + Sync + Sized {
    /// Makes one.
    fn open() -> impl Future<Output = Self> + Send;

    /// The store under test.
    fn backend(&self) -> SharedBackend;

    /// Makes the store drop every event up to its current revision.
    fn forget_history(&self) -> impl Future<Output = ()> + Send;
}

/// The limit for everything that tests wait for, generous for a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

pub fn key(path: impl AsRef<str>) -> Key {
    Key::new(path).expect("a valid key")
}

pub fn bytes(value: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(value.as_ref())
}

/// Fails the test when `future` takes longer than [`TIMEOUT`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {TIMEOUT:?}"),
    }
}

/// For stores that keep recent events in memory: writes more of them than are kept.
#[allow(dead_code)]
pub async fn flood(backend: SharedBackend) {
    for round in 0..700 {
        let mut transaction = refit_backend::Transaction::new();
        for n in 0..100 {
            transaction = transaction.put(&key(format!("/flood/{n}")), bytes(format!("{round}")));
        }
        backend.transact(transaction).await.expect("flooding");
    }
}

macro_rules! suite {
    ($store:ty) => {
        $crate::conformance::suite!(@tests $store, writes:
            single_operations_have_distinct_errors,
            a_failed_compare_writes_nothing_and_names_the_key,
            every_kind_of_compare_holds_and_fails,
            revisions_grow_strictly_and_are_shared_within_a_transaction,
            values_may_be_empty_or_a_mebibyte,
            counting_by_compare_loses_no_increment,
            limits_are_the_same_everywhere,
            a_key_is_written_once_in_a_transaction,
            concurrent_creates_have_one_winner,
        );
        $crate::conformance::suite!(@tests $store, ranges:
            ranges_are_ordered_and_bounded,
            keys_that_are_prefixes_of_each_other_stay_apart,
            pages_cover_everything_once,
            paging_under_concurrent_writes_keeps_what_stays,
            a_snapshot_is_one_moment,
            delete_range_takes_all_at_once,
            a_scan_gives_every_item_once_in_bounded_pages,
            a_watch_after_a_scan_tells_what_its_pages_lack,
        );
        $crate::conformance::suite!(@tests $store, leases:
            an_expired_lease_takes_its_items_along,
            a_lease_that_is_kept_alive_stays,
            an_expired_item_is_absent_inside_a_transaction,
            revoking_deletes_now,
            rewriting_without_the_lease_keeps_the_item,
            a_lease_that_is_gone_is_refused,
        );
        $crate::conformance::suite!(@tests $store, watches:
            a_watch_sees_its_own_writes_in_order,
            a_watch_from_an_earlier_revision_misses_nothing,
            a_watch_is_bounded_by_its_range,
            a_watch_under_load_sees_every_write_once,
            a_read_and_a_watch_join_without_a_gap,
            expiry_is_an_event,
            a_watch_that_fell_behind_says_so,
            following_reads_again_after_a_lost_watch,
            following_ends_with_its_server,
        );
    };
    (@tests $store:ty, $group:ident: $($name:ident,)+) => {
        mod $group {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let store = <$store as $crate::conformance::Store>::open().await;
                    $crate::conformance::within(
                        stringify!($name),
                        $crate::conformance::$group::$name(&store),
                    )
                    .await;
                }
            )+
        }
    };
}
pub(crate) use suite;
