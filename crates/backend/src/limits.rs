//! What every backend accepts. etcd's limits are the portable ones, so they hold on all of them.

/// Distinct keys that one transaction may compare and write, guard included. etcd takes 128 operations.
pub const MAX_TRANSACTION_KEYS: usize = 100;

/// Bytes of keys and values that one transaction may carry: 1.25 MiB, below etcd's 1.5 MiB request.
pub const MAX_TRANSACTION_BYTES: usize = 1_310_720;

/// Bytes of one key: long enough for any path built here, short enough for an index page.
pub const MAX_KEY_BYTES: usize = 1024;

/// Items that one page of a range may hold: a page is held in memory whole.
pub const MAX_PAGE_ITEMS: usize = 1000;
