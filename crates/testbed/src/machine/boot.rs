//! A booted machine: starts systemd in a container, waits until it is up, and shuts it down or kills it.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::leftovers::{cgroups, record, remove_cgroups};
use crate::Process;
use crate::wait::POLL_EVERY;

/// Far longer than a boot takes: exceeding it means that a unit does not start.
const BOOTS_WITHIN: Duration = Duration::from_secs(180);

/// A machine with its power on.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    /// Ends with all that it started: nothing leaves its namespace of processes.
    container: Process,
    /// The machine's first process, and who started it.
    leader: [u32; 2],
}

impl Running {
    pub(super) fn boot(name: &str, folder: &Path, disk: u32) -> Self {
        let (socket, log) = (folder.join("notify"), folder.join("console.log"));
        let _ = fs::remove_file(&socket);
        let told = UnixDatagram::bind(&socket).expect("a socket for what the machine tells");
        let cgroups = cgroups(name);
        for cgroup in &cgroups {
            fs::create_dir_all(cgroup).expect("a control group");
        }
        // A systemd that is not alone in its control group would manage what is not its own.
        let script = "for group in \"$@\"; do echo $$ >\"$group/cgroup.procs\" || exit; done; \
                      exec systemd-nspawn --quiet --register=no --keep-unit --machine=\"$NAME\" --directory=\"$ROOT\" \
                      --console=pipe --notify-ready=yes --resolv-conf=off --timezone=off --link-journal=no --boot";
        let fixed = [
            format!("--mount=/proc/{disk}/ns/mnt"),
            "env".into(),
            format!("NOTIFY_SOCKET={}", socket.display()),
            format!("NAME={name}"),
            format!("ROOT={}", folder.join("root").display()),
        ];
        let program =
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"];
        let groups = cgroups.iter().map(|group| group.display().to_string());
        let arguments: Vec<String> =
            fixed.into_iter().chain(program.map(str::to_owned)).chain(groups).collect();
        let container = Process::start("nsenter", &arguments, &log);
        let mut running = Self { name: name.to_owned(), container, leader: [0; 2] };
        running.leader = wait_until_ready(&told, &mut running.container, &log);
        let [leader, _] = running.leader;
        let text = format!("NAME={name}\nCLASS=container\nLEADER={leader}\n");
        let record = record(name);
        fs::create_dir_all(record.parent().expect("a directory")).expect("a directory for machines");
        fs::write(record, text).expect("a record that finds the machine by its name");
        running
    }

    /// Waits until it has ended by itself.
    pub(super) fn wait_for_end(&mut self) {
        wait_for("the machine's end", || self.container.has_ended());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.container.kill();
        // A zombie holds nothing any more; who reaps it is not this process.
        let ends = |pid: &u32| wait_for("the end of the machine", || *pid == 0 || is_over(*pid));
        self.leader.iter().for_each(ends);
        let _ = fs::remove_file(record(&self.name));
        remove_cgroups(&self.name);
    }
}

fn is_over(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.trim_start().starts_with(['Z', 'X']))
}

fn wait_until_ready(told: &UnixDatagram, container: &mut Process, log: &Path) -> [u32; 2] {
    let console = || fs::read_to_string(log).unwrap_or_default();
    let end = Instant::now() + BOOTS_WITHIN;
    told.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let (mut leader, mut message) = (None, [0; 4096]);
    loop {
        assert!(!container.has_ended(), "the machine does not boot:\n{}", console());
        assert!(Instant::now() < end, "the machine has not booted in {BOOTS_WITHIN:?}:\n{}", console());
        let Ok(size) = told.recv(&mut message) else { continue };
        let text = String::from_utf8_lossy(&message[..size]).into_owned();
        if let Some(inner) = text.lines().find_map(|line| line.strip_prefix("X_NSPAWN_LEADER_PID=")) {
            leader = Some(leader_of(container.pid(), inner));
        }
        if let Some(leader) = leader.filter(|_| text.lines().any(|line| line == "READY=1")) {
            return leader;
        }
    }
}

/// What the process, known by a number of the container's own, is called here; and who started it.
fn leader_of(container: u32, inner: &str) -> [u32; 2] {
    let starters = children(container);
    let mut found =
        starters.iter().flat_map(|starter| children(*starter).into_iter().map(|pid| [pid, *starter]));
    let names = |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let leader = found.find(|[pid, _]| {
        let names = names(*pid);
        let mut numbers =
            names.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or("").split_whitespace();
        numbers.nth(1) == Some(inner)
    });
    leader.expect("the machine's first process")
}

fn children(pid: u32) -> Vec<u32> {
    let path = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub(super) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + BOOTS_WITHIN;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {BOOTS_WITHIN:?}");
        thread::sleep(POLL_EVERY);
    }
}
