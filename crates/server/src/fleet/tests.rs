//! The owner of the fleet's state with a store in memory, and without a port.

mod bare;
mod feature_levels;
mod hosts;
mod unreadable;

pub(crate) use bare::{Bare, WITHIN, beat, group, host, store};
