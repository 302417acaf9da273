//! refit
fn main() {}
