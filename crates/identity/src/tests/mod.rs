//! Tests of what needs no authority to sign anything. Identities, TLS and the following of a rotation are
//! tested with a real authority, in `refit-authority`.

mod agent_state;
mod identities;
