use std::collections::{BTreeMap, BTreeSet};

use refit_backend::{
    Error, Expect, Item, Key, KeyRange, MAX_PAGE_ITEMS, Read, Result, Revision, SharedBackend,
};
use refit_migrations::{Form, autoupdate_version_v1, cluster_maintenance_config_v1};
use refit_types::{
    AutoupdateVersion, ClusterMaintenanceConfig, GroupName, GroupRecord, Kind, RolloutRecord, Span,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::presence;

/// Something stored, and when it was last written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept<T> {
    pub(crate) value: T,
    pub(crate) revision: Revision,
}

/// What is stored of rollouts, all from one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    /// That moment.
    pub(crate) as_of: Revision,
    pub(crate) config: Option<Kept<ClusterMaintenanceConfig>>,
    pub(crate) version: Option<Kept<AutoupdateVersion>>,
    pub(crate) plan: Option<Kept<RolloutRecord>>,
    pub(crate) groups: BTreeMap<GroupName, Kept<GroupRecord>>,
    /// The servers that live: what they hear is heard.
    pub(crate) servers: BTreeSet<Box<str>>,
}

impl Stored {
    pub(crate) async fn read(backend: &SharedBackend) -> Result<Self> {
        let reads = [
            Read::Key(config_key()?),
            Read::Key(version_key()?),
            Read::Key(plan_key()?),
            Read::Range { range: KeyRange::below(&groups_prefix()?), limit: MAX_PAGE_ITEMS },
            Read::Range { range: KeyRange::below(&presence::prefix()?), limit: MAX_PAGE_ITEMS },
        ];
        let mut snapshot = backend.read(&reads).await?;
        let mut next = |n| snapshot.take(n).items;
        let (config, version, plan) = (next(0).pop(), next(1).pop(), next(2).pop());
        let named = |item: &Item| item.key.as_str().rsplit('/').next().map(str::to_owned);
        let (groups, servers) = (next(3), next(4));
        let groups = groups.iter().filter_map(|item| {
            let name = named(item)?.parse().ok()?;
            // A record that a newer server wrote is left to that server.
            let value = serde_json::from_slice(&item.value).ok()?;
            Some((name, Kept { value, revision: item.revision }))
        });
        let groups = groups.collect();
        let servers = servers.iter().filter_map(|item| named(item).map(Into::into)).collect();
        Ok(Self {
            as_of: snapshot.revision,
            config: config.map(|item| resource(&cluster_maintenance_config_v1(), &item)).transpose()?,
            version: version.map(|item| resource(&autoupdate_version_v1(), &item)).transpose()?,
            plan: plan.map(|item| decoded(&item)).transpose()?,
            groups,
            servers,
        })
    }

    /// Takes what was read, unless something newer was read before: several ask at once, and the answers
    /// overtake each other. Groups that this server itself has written since stay as it wrote them.
    pub(crate) fn replace_by(&mut self, read: Self) {
        if read.as_of < self.as_of {
            return;
        }
        let known = std::mem::replace(self, read);
        self.groups.extend(known.groups.into_iter().filter(|(_, kept)| kept.revision > self.as_of));
    }

    /// Which windows of which groups are open: in these, hosts are told to go.
    pub(crate) fn open_windows(&self) -> Vec<(GroupName, Span)> {
        let open = |(name, kept): (&GroupName, &Kept<GroupRecord>)| Some((name.clone(), kept.value.window?));
        self.groups.iter().filter_map(open).collect()
    }

    /// What the operator said, or the defaults.
    pub(crate) fn settings(&self) -> ClusterMaintenanceConfig {
        self.config.as_ref().map(|kept| kept.value.clone()).unwrap_or_default()
    }

    /// Conditions under which what was decided from these holds: nobody changed what operators say.
    pub(crate) fn unchanged(&self) -> Result<[(Key, Expect); 3]> {
        Ok([
            (config_key()?, as_it_is(self.config.as_ref())),
            (version_key()?, as_it_is(self.version.as_ref())),
            (plan_key()?, as_it_is(self.plan.as_ref())),
        ])
    }

    pub(crate) fn group_unchanged(&self, name: &GroupName) -> Result<(Key, Expect)> {
        Ok((group_key(name)?, as_it_is(self.groups.get(name))))
    }
}

pub(crate) fn as_it_is<T>(kept: Option<&Kept<T>>) -> Expect {
    kept.map_or(Expect::Absent, |kept| Expect::Revision(kept.revision))
}

fn config_key() -> Result<Key> {
    cluster_maintenance_config_v1().key(Kind::ClusterMaintenanceConfig.singleton().unwrap_or_default())
}

fn version_key() -> Result<Key> {
    autoupdate_version_v1().key(Kind::AutoupdateVersion.singleton().unwrap_or_default())
}

pub(crate) fn plan_key() -> Result<Key> {
    Key::new("/rollouts/v1/default/plan")
}

fn groups_prefix() -> Result<Key> {
    Key::new("/rollouts/v1/default/groups")
}

pub(crate) fn group_key(name: &GroupName) -> Result<Key> {
    groups_prefix()?.child(name)
}

fn resource<T>(form: &Form<T>, item: &Item) -> Result<Kept<T>> {
    let value = (form.decode)(form.name(&item.key), &item.value)
        .map_err(|reason| Error::Invalid(format!("{} cannot be read: {reason}", item.key)))?;
    Ok(Kept { value, revision: item.revision })
}

fn decoded<T: DeserializeOwned>(item: &Item) -> Result<Kept<T>> {
    let value = serde_json::from_slice(&item.value)
        .map_err(|error| Error::Invalid(format!("{} cannot be read: {error}", item.key)))?;
    Ok(Kept { value, revision: item.revision })
}

pub(crate) fn encoded(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::Invalid(error.to_string()))
}
