//! `refit demo`: the product at work on one machine. Nothing in it is played: the control plane, the archives, the
//! updaters and the agents are those of a real fleet, with the process supervisor in place of systemd.

mod cluster;
mod fleet;
mod frame;
mod narration;
mod packing;
mod processes;
mod setup;
mod show;
mod snapshot;
mod work_dir;

use clap::ValueEnum;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;
use crate::invocation::Invocation;
use processes::Processes;
use setup::Setup;
use show::Show;
use work_dir::WorkDir;

/// Between the beginning and the end of a rollout.
const INTERRUPTED: u8 = 130;

/// Show a rollout on this machine: a control plane, hosts in three groups, two versions
///
/// Everything is real and in one temporary directory, which is gone at the end, as is every process. It needs
/// neither root nor a network, and touches nothing else.
///
/// Exit codes: 0 if all hosts got the new version (with --once) or if it was interrupted after the rollout; 1 if the
/// rollout did not succeed (with --once) or the demonstration itself failed; 130 if it was interrupted before.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refit demo\n  refit demo --once --break one")]
pub(crate) struct Args {
    /// How many hosts, 3 to 50
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u8).range(3..=50))]
    hosts: u8,
    /// Give one group a build of the new version that does not run
    #[arg(long = "break", value_name = "WHAT", value_enum)]
    broken: Option<Broken>,
    /// End with the rollout instead of waiting for Ctrl-C
    #[arg(long)]
    once: bool,
}

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Broken {
    /// The new version of one group
    One,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Upgraded,
    NotUpgraded,
    Interrupted,
}

impl Args {
    pub(crate) fn run(self, invocation: &Invocation) -> Result<(), Failure> {
        match crate::block_on(self.play(invocation))? {
            End::Upgraded => Ok(()),
            End::NotUpgraded => Failure::passed_on(1),
            End::Interrupted => Failure::passed_on(INTERRUPTED),
        }
    }

    /// Runs the demo. However it ends, all processes are stopped and the directory is removed first.
    async fn play(&self, invocation: &Invocation) -> Result<End, Failure> {
        let mut interrupts = Interrupts::listen()?;
        let work_dir = WorkDir::new()?;
        let mut processes = Processes::new()?;
        let mut setup = Setup::new(work_dir.path(), self, invocation)?;
        let mut show = Show::new();
        let end = {
            let play = async {
                work_dir.has_room_for(self.hosts.into(), own_size()?)?;
                let (end, ending) = setup.play(&mut processes, &mut show).await?;
                if self.once {
                    show.rest();
                    show.text(&format!("\n{ending}"))?;
                } else {
                    show.note(&format!("\n{ending}\n\nCtrl-C ends all of it."))?;
                    setup.stay(&mut processes, &mut show).await?;
                }
                Ok::<_, Failure>(end)
            };
            tokio::select! {
                biased;
                () = interrupts.next() => None,
                end = play => Some(end),
            }
        };
        let end = match end {
            Some(end) => end,
            None if setup.has_ended() => Ok(End::Upgraded),
            None => Ok(End::Interrupted),
        };
        show.rest();
        setup.stop();
        let ended = processes.end().await;
        let removed = work_dir.remove();
        if ended.is_ok() && removed.is_ok() && (!self.once || matches!(end, Ok(End::Interrupted))) {
            // The terminal may be closed.
            let _ = show.text("Ended. No process and no file is left.");
        }
        end.and_then(|end| ended.and(removed).map(|()| end))
    }
}

fn own_size() -> Result<u64, Failure> {
    std::fs::metadata("/proc/self/exe").map(|program| program.len()).map_err(Failure::failed)
}

/// SIGINT, SIGTERM and SIGHUP.
struct Interrupts([Signal; 3]);

impl Interrupts {
    fn listen() -> Result<Self, Failure> {
        let of = |kind| signal(kind).map_err(Failure::failed);
        Ok(Self([of(SignalKind::interrupt())?, of(SignalKind::terminate())?, of(SignalKind::hangup())?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
