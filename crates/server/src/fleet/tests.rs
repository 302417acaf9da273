//! The owner of the fleet's state with a store in memory, and without a port.

mod bare;
mod feature_levels;
mod held_backend;
mod hosts;
mod not_loaded;
mod restored;
mod storm;
mod unreadable;

pub(crate) use bare::{Bare, WITHIN, beat, group, host, store};
pub(crate) use held_backend::held_backend;
