//! The steps of the demo from an empty directory to the end of its rollout. Calls everything else in `demo`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_types::{DataDir, Version};

use super::cluster::Cluster;
use super::fleet::{self, BROKEN, GROUPS, Host};
use super::narration::Narrator;
use super::packing::{BROKEN_MIRROR, Packing, break_mirror};
use super::processes::{Lasts, Processes, Started};
use super::show::Show;
use super::snapshot::Snapshot;
use super::{Args, End};
use crate::exit::Failure;
use crate::invocation::{Invocation, quoted};

const OLD: &str = "1.0.0";
const NEW: &str = "1.1.0";
/// Often enough to look alive.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// A server takes up a new version within a second or two.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);
/// A host that is back tells at once what happened.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(30);
/// On the slowest machine with the most hosts.
const JOIN_WITHIN: Duration = Duration::from_secs(5 * 60);
const END_WITHIN: Duration = Duration::from_secs(30 * 60);

/// The state of a running demo.
pub(super) struct Setup {
    data: DataDir,
    hosts: Vec<Host>,
    breaks: bool,
    refitctl: String,
    /// What stands for it in words that may be read when everything is gone.
    afterwards: String,
    old: Version,
    new: Version,
    work_dir: PathBuf,
    packing: Packing,
    cluster: Option<Cluster>,
    has_ended: bool,
}

impl Setup {
    pub(super) fn new(work_dir: &Path, args: &Args, invocation: &Invocation) -> Result<Self, Failure> {
        let data = DataDir::new(work_dir.join("server"));
        let refitctl = format!("{} --data-dir {}", invocation.refitctl(), quoted(data.root()));
        let afterwards = if args.once { "refitctl".to_owned() } else { refitctl.clone() };
        Ok(Self {
            hosts: fleet::hosts(work_dir, args.hosts.into()),
            old: OLD.parse().map_err(Failure::failed)?,
            new: NEW.parse().map_err(Failure::failed)?,
            work_dir: work_dir.to_owned(),
            packing: Packing::default(),
            cluster: None,
            has_ended: false,
            data,
            breaks: args.broken.is_some(),
            refitctl,
            afterwards,
        })
    }

    /// Whether the rollout is over.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Stops the background threads of this process.
    pub(super) fn stop(&mut self) {
        self.packing.give_up();
    }

    /// From nothing to the end of the rollout; the end in words is there to be shown.
    pub(super) async fn play(
        &mut self,
        processes: &mut Processes,
        show: &mut Show,
    ) -> Result<(End, String), Failure> {
        show.text(&self.opening())?;
        self.pack(show).await?;
        let cluster = self.start_server(processes, show).await?;
        cluster.store(fleet::groups(Timestamp::now())).await?;
        cluster.choose(&self.old).await?;
        let joining = cluster.token().await?;
        show.text(&self.invitation(&cluster.dashboard().await?))?;
        for host in &self.hosts {
            host.prepare(&cluster.address, &joining.token, &joining.ca_pin)?;
        }
        self.install(&cluster.address, &joining.ca_pin, processes, show).await?;
        self.join(&cluster, processes, show).await?;

        cluster.choose(&self.new).await?;
        show.step(&format!("chose {}: through the groups, {}", self.new, GROUPS.join(", then ")))?;
        let ended = self.watch(&cluster, processes, show).await;
        self.cluster = Some(cluster);
        ended
    }

    /// Keeps showing changes until interrupted.
    pub(super) async fn stay(&self, processes: &mut Processes, show: &mut Show) -> Result<(), Failure> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        loop {
            processes.all_live()?;
            show.snapshot(&cluster.snapshot(&self.hosts, show.last()).await?)?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn opening(&self) -> String {
        let (old, new, work_dir) = (&self.old, &self.new, self.work_dir.display());
        let sizes = GROUPS.map(|group| {
            let size = self.hosts.iter().filter(|host| host.group == group).count();
            format!("{group} ({size})")
        });
        let mut text = format!(
            "This brings {} hosts from {old} to {new}, in three groups:\n{}.\n\
             Control plane, updaters and agents are the real ones. All of it is in\n{work_dir}, and goes with it.",
            self.hosts.len(),
            sizes.join(", then "),
        );
        if self.breaks {
            text.push_str(&format!(
                "\nThe hosts of {BROKEN} get their archives from another mirror,\nwhere the build of {new} does not run."
            ));
        }
        text + "\n"
    }

    fn invitation(&self, dashboard: &str) -> String {
        let tries = ["autoupdate status", "nodes ls", "events ls", "web login"];
        let tries = tries.map(|command| format!("{} {command}", self.refitctl));
        format!(
            "\n  Dashboard  {dashboard}\n             (signs you in once, within five minutes; \"web login\" below makes another;\n             \
             your browser does not know the authority of this demonstration, and warns)\n  Try        {}\n",
            tries.join("\n             ")
        )
    }

    async fn pack(&mut self, show: &mut Show) -> Result<(), Failure> {
        let artifacts = self.data.artifacts();
        fs::create_dir_all(&artifacts)
            .map_err(|error| Failure::failed(format!("{}: {error}", artifacts.display())))?;
        for version in [&self.old, &self.new] {
            self.packing.begin(&artifacts, version);
        }
        while !self.packing.is_done() {
            show.progress(&format!("packs this program as {} and as {}", self.old, self.new))?;
            tokio::time::sleep(PROGRESS_EVERY).await;
        }
        self.packing.end()?;
        if self.breaks {
            break_mirror(&artifacts, &self.old, &self.new)?;
        }
        show.step(&format!("packed this program as {} and as {}", self.old, self.new))
    }

    async fn start_server(&self, processes: &mut Processes, show: &mut Show) -> Result<Cluster, Failure> {
        show.progress("starts a control plane")?;
        let fixed = ["server", "--listen", "127.0.0.1:0", "--diag-listen", "127.0.0.1:0", "--data-dir"];
        let arguments: Vec<&OsStr> =
            fixed.iter().map(OsStr::new).chain([self.data.root().as_os_str()]).collect();
        processes.start(
            "the control plane",
            Lasts::UntilTold,
            "refit",
            &arguments,
            &self.work_dir.join("server.log"),
        )?;
        let cluster = Cluster::reach(self.data.root(), processes).await?;
        show.step(&format!("a control plane listens at {}", cluster.address))?;
        Ok(cluster)
    }

    /// As many at the same time as the machine has processors.
    async fn install(
        &self,
        proxy: &str,
        pin: &str,
        processes: &mut Processes,
        show: &mut Show,
    ) -> Result<(), Failure> {
        let abreast = thread::available_parallelism().map_or(2, usize::from);
        let mut waiting = self.hosts.iter();
        let mut installing = Vec::new();
        let mut installed = 0;
        while installed < self.hosts.len() {
            while installing.len() < abreast
                && let Some(host) = waiting.next()
            {
                let mut arguments: Vec<OsString> =
                    vec!["--root".into(), host.root.clone().into(), "enable".into()];
                arguments.extend(["--proxy", proxy, "--ca-pin", pin].map(OsString::from));
                if self.breaks && host.group == BROKEN {
                    let mirror = format!("https://{proxy}/v1/artifacts/{BROKEN_MIRROR}");
                    arguments.extend(["--base-url".into(), mirror.into()]);
                }
                installing.push((host, start_update(processes, host, Lasts::UntilDone, &arguments)?));
            }
            let mut still = Vec::new();
            for (host, started) in installing {
                match processes.take_if_done(started)? {
                    None => still.push((host, started)),
                    Some(done) => {
                        done?;
                        installed += 1;
                        let root = host.root.clone().into();
                        let arguments =
                            ["--root".into(), root, "supervise".into(), "--every".into(), "1m".into()];
                        start_update(processes, host, Lasts::UntilTold, &arguments)?;
                    }
                }
            }
            installing = still;
            processes.all_live()?;
            let count = self.hosts.len();
            show.progress(&format!("refit-update installs {} on {count} hosts: {installed} done", self.old))?;
            tokio::time::sleep(PROGRESS_EVERY).await;
        }
        show.step(&format!("refit-update installed {} on {} hosts", self.old, self.hosts.len()))
    }

    async fn join(
        &self,
        cluster: &Cluster,
        processes: &mut Processes,
        show: &mut Show,
    ) -> Result<(), Failure> {
        let end = Instant::now() + JOIN_WITHIN;
        loop {
            processes.all_live()?;
            let snapshot = cluster.snapshot(&self.hosts, show.last()).await?;
            let joined = snapshot.hosts.iter().filter(|host| host.is_connected).count();
            if snapshot.all_run(&self.old) {
                show.begins(snapshot);
                return show.step(&format!("all hosts have joined, and run {}", self.old));
            }
            if Instant::now() > end {
                let whom = snapshot.hosts.iter().find(|host| !host.is_connected).map(|host| &host.name);
                return Err(Failure::failed(format!("not all hosts joined: {whom:?} is missing")));
            }
            show.progress(&format!("hosts join with a token: {joined} of {}", self.hosts.len()))?;
            tokio::time::sleep(PROGRESS_EVERY).await;
        }
    }

    async fn watch(
        &mut self,
        cluster: &Cluster,
        processes: &mut Processes,
        show: &mut Show,
    ) -> Result<(End, String), Failure> {
        let begin = Instant::now();
        let mut witness = Narrator::default();
        let mut rests_since = None;
        let snapshot: Snapshot = loop {
            processes.all_live()?;
            let snapshot = cluster.snapshot(&self.hosts, show.last()).await?;
            // Until the server has begun the epoch, its status is that of the previous version.
            if snapshot.version == self.new.to_string()
                && (snapshot.has_begun() || begin.elapsed() > BEGINS_WITHIN)
            {
                witness.sees(&snapshot);
                show.snapshot(&snapshot)?;
            }
            if snapshot.is_at_rest(&self.new) {
                let rests_since = *rests_since.get_or_insert_with(Instant::now);
                if snapshot.is_explained() || rests_since.elapsed() > EXPLAINED_WITHIN {
                    break snapshot;
                }
            }
            if begin.elapsed() > END_WITHIN {
                return Err(Failure::failed("the rollout does not end"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        self.has_ended = true;
        if snapshot.all_run(&self.new) {
            return Ok((End::Upgraded, witness.success(&snapshot, &self.new, begin.elapsed())));
        }
        let again = format!("{} autoupdate run --group {BROKEN}", self.afterwards);
        Ok((End::NotUpgraded, witness.failure(&snapshot, &self.old, &self.new, &again)))
    }
}

fn start_update(
    processes: &mut Processes,
    host: &Host,
    lasts: Lasts,
    arguments: &[OsString],
) -> Result<Started, Failure> {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
    processes.start(&format!("refit-update of {}", host.name), lasts, "refit-update", &arguments, &host.log)
}
