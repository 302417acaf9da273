//! The stored state of a rotation reads back, and what is no state is named.

use crate::{AgentState, IdentitySlot, Phase};

#[test]
fn a_state_reads_back() {
    let state = AgentState {
        rotation_id: "x".into(),
        phase: Phase::UpdateClients,
        presents: IdentitySlot::Replacement,
    };
    assert_eq!(
        state.to_json().unwrap(),
        r#"{"kind":"state","version":"v2","metadata":{"name":"state"},"spec":{"rotation_id":"x","phase":"update_clients","presents":"replacement"}}"#
    );
    assert_eq!(AgentState::from_json(state.to_json().unwrap().as_bytes()).unwrap(), state);
    for (from, to, expected) in [
        ("\"state\",\"v", "\"identity\",\"v", "its kind is \"identity\""),
        ("v2", "v1", "its version is \"v1\""),
        ("update_clients", "later", "expected standby, init, update_clients, update_servers or rollback"),
        ("\"replacement\"", "\"both\"", "expected current or replacement"),
        ("rotation_id", "id", "spec.rotation_id is missing"),
        ("}}", "", "not JSON"),
    ] {
        let text = state.to_json().unwrap().replace("\"state\",\"version", "\"state\",\"v").replace(from, to);
        let text = text.replace("\",\"v\"", "\",\"version\"");
        let error = AgentState::from_json(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
