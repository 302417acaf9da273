//! Writes a resource and its audit event in one transaction, with retry on conflict. Called by the resource RPCs.

use std::fmt::Debug;
use std::time::Duration;

use refit_backend::{Backoff, Key, Revision};
use refit_migrations::{Found, ResourceStore, ServiceError};
use refit_types::{Kind, Resource};
use serde_json::Value;

use super::differences::{comparable, differences};
use super::{Event, Events};

/// Time limit and first pause of a write that conflicts with others.
const TRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A write of a resource; a revision is the one that the caller has seen.
#[derive(Debug)]
pub(crate) enum Change<'a, T> {
    Create(&'a T),
    Update(&'a T, Option<Revision>),
    Upsert(&'a T, Option<Revision>),
    Delete(Option<Revision>),
}

impl<T> Clone for Change<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Change<'_, T> {}

impl<'a, T> Change<'a, T> {
    fn value(self) -> Option<&'a T> {
        match self {
            Self::Create(value) | Self::Update(value, _) | Self::Upsert(value, _) => Some(value),
            Self::Delete(_) => None,
        }
    }

    /// Whether the change may be retried on the current value.
    fn goes_on_after(self, error: &ServiceError) -> bool {
        match (self, error) {
            (Self::Update(_, None) | Self::Delete(None), ServiceError::Conflict { .. }) => true,
            (Self::Upsert(_, None), error) => matches!(
                error,
                ServiceError::Conflict { .. }
                    | ServiceError::AlreadyExists { .. }
                    | ServiceError::NotFound { .. }
            ),
            _ => false,
        }
    }
}

/// The resource before a change.
enum Present<T> {
    Nothing,
    Value(Found<T>),
    /// Unreadable: only a replacement or a deletion can fix it.
    Garbled,
}

/// A resource by its name; there is only one of some kinds, and those go by the kind alone.
fn subject(kind: Kind, name: &str) -> String {
    match name {
        "" => kind.name().to_owned(),
        _ if kind.singleton().is_some() => kind.name().to_owned(),
        name => format!("{kind}/{name}"),
    }
}

impl Events {
    /// Writes a resource, and in the same transaction an event with the actor and the differences. A write without
    /// differences is stored without an event. `may` can refuse by the present value.
    pub(crate) async fn recorded<T: Debug + Send + Sync>(
        &self,
        by: &str,
        store: &dyn ResourceStore<T>,
        (kind, name): (Kind, &str),
        as_resource: fn(&T) -> Resource,
        change: Change<'_, T>,
        may: impl Fn(Option<&T>) -> Result<(), ServiceError> + Send + Sync,
    ) -> Result<Revision, ServiceError> {
        let mut backoff = Backoff::starting_with(FIRST_PAUSE, TRY_FOR);
        loop {
            let present = match store.get(name).await {
                Ok(None) => Present::Nothing,
                Ok(Some(found)) => Present::Value(found),
                Err(ServiceError::Garbled { .. }) => Present::Garbled,
                Err(other) => return Err(other),
            };
            may(match &present {
                Present::Value(found) => Some(&found.value),
                _ => None,
            })?;
            let event = self.event(by, subject(kind, name), &present, change.value(), as_resource);
            let entry = event.map(|event| self.entry(event)).transpose()?;
            match attempt(store, name, &present, change, entry.as_slice()).await {
                Err(error) if change.goes_on_after(&error) && backoff.pause().await => {}
                other => return other,
            }
        }
    }

    fn event<T>(
        &self,
        by: &str,
        subject: String,
        present: &Present<T>,
        value: Option<&T>,
        as_resource: fn(&T) -> Resource,
    ) -> Option<Event> {
        let document = |value: &T| comparable(&as_resource(value).document(None));
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
        if matches!(present, Present::Garbled) {
            message += ", which could not be read";
        }
        if more > 0 {
            message += &format!(" (and {more} more differences)");
        }
        Some(Event { differences, ..Event::new(event_type, by, subject, message) })
    }
}

/// Writes the change unless the resource has changed since it was read.
async fn attempt<T: Debug + Send + Sync>(
    store: &dyn ResourceStore<T>,
    name: &str,
    present: &Present<T>,
    change: Change<'_, T>,
    alongside: &[(Key, Vec<u8>)],
) -> Result<Revision, ServiceError> {
    let seen = |found: &Found<T>, expected: Option<Revision>| match expected {
        Some(expected) if expected != found.revision => Err(ServiceError::Conflict { name: name.to_owned() }),
        _ => Ok(Some(found.revision)),
    };
    match (change, present) {
        (Change::Create(value) | Change::Upsert(value, _), Present::Nothing) => {
            store.create(name, value, alongside).await
        }
        // Refused without a write: the event would be wrong if the name became free meanwhile.
        (Change::Create(_), _) => Err(ServiceError::AlreadyExists { name: name.to_owned() }),
        (Change::Update(value, expected) | Change::Upsert(value, expected), Present::Value(found)) => {
            store.update(name, value, seen(found, expected)?, alongside).await
        }
        (Change::Delete(expected), Present::Value(found)) => {
            store.delete(name, seen(found, expected)?, alongside).await
        }
        (Change::Update(value, expected), Present::Garbled) => {
            store.update(name, value, expected, alongside).await
        }
        (Change::Upsert(value, _), Present::Garbled) => store.upsert(name, value, alongside).await,
        (Change::Delete(expected), Present::Garbled) => store.delete(name, expected, alongside).await,
        (Change::Update(..) | Change::Delete(_), Present::Nothing) => {
            Err(ServiceError::NotFound { name: name.to_owned() })
        }
    }
}
