//! What a fleet costs a server: heartbeats against empty calls, joins against their signatures, memory
//! for each connected agent and each cached record; and how long a `pause` takes while all agents reconnect.
//!
//! `cargo bench -p refit --bench fleet`; the server is a process of its own on the same machine. With
//! `REFIT_BENCH_STRICT=1` a missed bound is a failure.

mod reconnect;
#[allow(dead_code)]
mod records;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use records::{Outcome, reported};
use refit_authority::{Authority, HOST_TTL};
use refit_backend::MemoryBackend;
use refit_identity::{PrivateKey, SigningRequest};
use refit_loadgen::{FleetOptions, Joined, SimulatedAgent, SimulatedFleet};
use refit_testbed::{Server, directory};
use refit_types::{AgentRole, HostId, Labels};
use uuid::Uuid;

/// As many as fit under the usual limit of open files; fewer by `REFIT_BENCH_AGENTS`.
const AGENTS: usize = 15_000;
/// Calls under way at once, in both of the sides that are compared.
const AT_ONCE: usize = 128;
const FOR: Duration = Duration::from_secs(8);
const RECORDS: u128 = 100_000;

/// At least so many heartbeats for each empty call.
const LEAST_HEARTBEATS: f64 = 1.6;
/// A pause is in force on its server within this, whatever the fleet does.
const MOST_PAUSE: Duration = Duration::from_secs(1);

fn resident(pid: u32) -> Outcome<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kib * 1024)
}

/// What a join costs in signatures alone: the request's proof, the TLS and the SSH certificate.
async fn signatures_per_second() -> Outcome<f64> {
    let authority =
        Authority::load_or_create(&MemoryBackend::default(), "bench".parse()?, Timestamp::now()).await?;
    let request = PrivateKey::generate()?.signing_request()?;
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < Duration::from_secs(3) {
        let request = SigningRequest::from_pem(&request)?;
        let host = HostId::new(Uuid::from_u128(count));
        authority.issue_host(&request, host, AgentRole::Node, HOST_TTL, Timestamp::now())?;
        count += 1;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Bytes of memory for one cached record with five labels.
fn record_size() -> Outcome<f64> {
    let before = resident(std::process::id())?;
    let mut cache = BTreeMap::new();
    for n in 0..RECORDS {
        let mut labels = Labels::default();
        for label in 0..5 {
            labels.insert(&format!("label-{label}"), &format!("value-{n}"))?;
        }
        let mut host_record = reported(n, "15.1.1", labels)?;
        host_record.server = Some("b47e39ed-6e1b-4691-83f2-b5570504cc96".into());
        cache.insert(host_record.host_id, Arc::new(host_record));
    }
    let after = resident(std::process::id())?;
    Ok((after - before) as f64 / cache.len() as f64)
}

/// Has `AT_ONCE` of the agents work back to back for a while; how many answers a second came.
async fn rate<F>(agents: &mut [SimulatedAgent], work: F) -> Outcome<f64>
where
    F: AsyncFn(&mut SimulatedAgent) -> bool,
{
    let (answers, started) = (AtomicU64::new(0), Instant::now());
    let share = agents.len().div_ceil(AT_ONCE);
    let workers = agents.chunks_mut(share).map(|agents| async {
        let mut turn = 0;
        let count = agents.len();
        while started.elapsed() < FOR {
            if work(&mut agents[turn % count]).await {
                answers.fetch_add(1, Ordering::Relaxed);
            }
            turn += 1;
        }
    });
    futures::future::join_all(workers).await;
    Ok(answers.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Outcome<ExitCode> {
    let count = std::env::var("REFIT_BENCH_AGENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(AGENTS);
    let record = record_size()?;
    let bare = signatures_per_second().await?;

    let (folder, quiet) = (directory(), ["env", "REFIT_LOG=error"]);
    let data = folder.path().join("data");
    let server = Server::start_under(&quiet, env!("CARGO_BIN_EXE_refit"), &data, &[]).await;
    let invitation = server.invite(&["--ttl", "2h"]);
    let options = FleetOptions {
        proxy: server.address().into(),
        token: invitation.token,
        ca_pin: invitation.ca_pin.parse()?,
        agents: count,
        at_once: 64,
        labels: 5,
        version: "1.0.0".into(),
    };
    let keys: Vec<PrivateKey> = (0..count).map(|_| PrivateKey::generate()).collect::<Result<_, _>>()?;
    let channel = SimulatedFleet::pinned_channel(&options).await?;
    let started = Instant::now();
    let joins = keys.into_iter().map(|key| Joined::with_key(channel.clone(), &options.token, key));
    let joined: Vec<_> = stream::iter(joins).buffer_unordered(options.at_once).collect().await;
    let joined: Vec<Joined> = joined.into_iter().collect::<Result<_, _>>()?;
    let joins = count as f64 / started.elapsed().as_secs_f64();

    let before = resident(server.pid())?;
    let mut fleet = SimulatedFleet::connect(&options, &joined).await?;
    let connected = (resident(server.pid())? - before) as f64 / count as f64;

    let (mut beats, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        beats.push(rate(&mut fleet.agents, async |agent| agent.beat().await.is_ok()).await?);
        calls.push(rate(&mut fleet.agents, async |agent| agent.empty_call().await.is_ok()).await?);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;

    let pauses = reconnect::pauses(&server, &options, &joined, fleet).await?;
    let slowest = pauses.iter().max_by_key(|pause| pause.took).ok_or("nothing was paused")?;

    println!(
        "{:<56} {:>10} {:>10} {:>7}",
        format!("with {count} connected agents"),
        "Refit",
        "against",
        "ratio"
    );
    let verdict = |holds: bool| if holds { "" } else { "  MISSED" };
    let line = |what: &str, ours: f64, theirs: f64, least: Option<f64>| {
        let ratio = ours / theirs;
        let holds = least.is_none_or(|least| ratio >= least);
        let what = least.map_or_else(|| what.to_owned(), |least| format!("{what} (want at least {least})"));
        println!("{what:<56} {ours:>10.0} {theirs:>10.0} {ratio:>7.2}{}", verdict(holds));
        holds
    };
    let mut held = line("heartbeats/s : empty calls/s", mean(&beats), mean(&calls), Some(LEAST_HEARTBEATS));
    line("joins/s : bare signatures/s", joins, bare, None);
    println!("{:<56} {connected:>10.0}", "server memory for a connected agent, bytes");
    println!("{:<56} {record:>10.0}", "memory for a cached record, 5 labels, bytes");
    let is_paused_soon = slowest.took <= MOST_PAUSE;
    held &= is_paused_soon;
    let what = format!("pause while all reconnect, ms (want at most {})", MOST_PAUSE.as_millis());
    println!("{what:<56} {:>10}{}", slowest.took.as_millis(), verdict(is_paused_soon));
    for pause in &pauses {
        let took = pause.took.as_millis();
        println!("{:<56} {took:>10}", format!("  with about {} first heartbeats unanswered", pause.waiting));
    }
    let strict = std::env::var_os("REFIT_BENCH_STRICT").is_some_and(|value| value == "1");
    Ok(if strict && !held { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
