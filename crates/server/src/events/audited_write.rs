//! Writes of resources that leave an event: who made the change and what differs since, in the transaction of the change.
//! Every write of the resource service goes through here.

use std::time::Duration;

use refit_backend::{Backoff, Revision};
use refit_resources::{Alongside, Found, Operation, ResourceError, ResourceStore};
use refit_types::{Kind, Resource};
use serde_json::Value;

use super::differences::{comparable, differences};
use super::{Event, Events};

/// Time limit and first pause of a write that conflicts with others.
const TRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A write of a resource; a revision is the one that the caller has seen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    Create(&'a Resource),
    Update(&'a Resource, Option<Revision>),
    Upsert(&'a Resource, Option<Revision>),
    Delete(Option<Revision>),
}

impl<'a> Change<'a> {
    fn value(self) -> Option<&'a Resource> {
        match self {
            Self::Create(value) | Self::Update(value, _) | Self::Upsert(value, _) => Some(value),
            Self::Delete(_) => None,
        }
    }

    /// Whether the change may be retried on the current value.
    fn goes_on_after(self, error: &ResourceError) -> bool {
        match (self, error) {
            (Self::Update(_, None) | Self::Delete(None), ResourceError::Conflict { .. }) => true,
            (Self::Upsert(_, None), error) => matches!(
                error,
                ResourceError::Conflict { .. }
                    | ResourceError::AlreadyExists { .. }
                    | ResourceError::NotFound { .. }
            ),
            _ => false,
        }
    }
}

/// The resource before a change.
enum Present {
    Nothing,
    Value(Found<Resource>),
    /// Only a replacement or a deletion can fix it.
    Unreadable,
}

impl Events {
    /// Writes a resource, and in the same transaction an event with the actor and the differences. A write without
    /// differences is stored without an event. `may` can refuse by the present value.
    pub(crate) async fn recorded(
        &self,
        by: &str,
        store: &dyn ResourceStore<Resource>,
        (kind, name): (Kind, &str),
        change: Change<'_>,
        may: impl Fn(Option<&Resource>) -> Result<(), ResourceError> + Send + Sync,
    ) -> Result<Revision, ResourceError> {
        let mut backoff = Backoff::starting_with(FIRST_PAUSE, TRY_FOR);
        loop {
            let present = match store.get(name).await {
                Ok(None) => Present::Nothing,
                Ok(Some(found)) => Present::Value(found),
                Err(ResourceError::Unreadable { .. }) => Present::Unreadable,
                Err(other) => return Err(other),
            };
            may(match &present {
                Present::Value(found) => Some(&found.value),
                _ => None,
            })?;
            let event = event_of(by, kind.subject(name), &present, change.value());
            let entry = event.map(|event| self.entry(event)).transpose()?;
            match attempt(store, name, &present, change, entry.as_slice()).await {
                Err(error) if change.goes_on_after(&error) && backoff.pause().await => {}
                other => return other,
            }
        }
    }
}

/// The event of a change; none if nothing differs.
fn event_of(by: &str, subject: String, present: &Present, value: Option<&Resource>) -> Option<Event> {
    let document = |value: &Resource| comparable(&value.document(None));
    let before: Option<Value> = match present {
        Present::Value(found) => Some(document(&found.value)),
        _ => None,
    };
    let after = value.map(document);
    let (differences, more) = differences(before.as_ref(), after.as_ref());
    let (event_type, verb) = match (present, &after) {
        (Present::Nothing, _) => ("resource.created", "created"),
        (_, Some(_)) => ("resource.updated", "changed"),
        (_, None) => ("resource.deleted", "deleted"),
    };
    if event_type == "resource.updated" && differences.is_empty() {
        return None;
    }
    let mut message = format!("{verb} {subject}");
    if matches!(present, Present::Unreadable) {
        message += ", which could not be read";
    }
    if more > 0 {
        message += &format!(" (and {more} more differences)");
    }
    Some(Event { differences, ..Event::new(event_type, by, subject, message) })
}

/// Writes the change unless the resource has changed since it was read.
async fn attempt(
    store: &dyn ResourceStore<Resource>,
    name: &str,
    present: &Present,
    change: Change<'_>,
    alongside: Alongside<'_>,
) -> Result<Revision, ResourceError> {
    let seen = |found: &Found<Resource>, expected: Option<Revision>| match expected {
        Some(expected) if expected != found.revision => {
            Err(ResourceError::Conflict { name: name.to_owned() })
        }
        _ => Ok(Some(found.revision)),
    };
    let operation = match (change, present) {
        (Change::Create(value) | Change::Upsert(value, _), Present::Nothing) => Operation::Create(value),
        // Refused without a write: the event would be wrong if the name became free meanwhile.
        (Change::Create(_), _) => return Err(ResourceError::AlreadyExists { name: name.to_owned() }),
        (Change::Update(value, expected) | Change::Upsert(value, expected), Present::Value(found)) => {
            Operation::Update(value, seen(found, expected)?)
        }
        (Change::Delete(expected), Present::Value(found)) => Operation::Delete(seen(found, expected)?),
        (Change::Update(value, expected), Present::Unreadable) => Operation::Update(value, expected),
        (Change::Upsert(value, _), Present::Unreadable) => Operation::Upsert(value),
        (Change::Delete(expected), Present::Unreadable) => Operation::Delete(expected),
        (Change::Update(..) | Change::Delete(_), Present::Nothing) => {
            return Err(ResourceError::NotFound { name: name.to_owned() });
        }
    };
    store.write(name, operation, alongside).await
}
