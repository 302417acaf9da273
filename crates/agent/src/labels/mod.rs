//! Labels of the host: fixed ones, and those that programs find out. The agent sends them in heartbeats.

use std::sync::Arc;
use std::time::Duration;

use refit_types::Labels;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

mod program;
mod value;

pub use program::{COMMAND_TIME_LIMIT, MAX_OUTPUT_BYTES};

/// A label whose value is the first line that a program prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelCommand {
    /// What the label is called.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long after one run the next begins.
    pub period: Duration,
}

/// The labels of this host: fixed ones, and those whose values programs print periodically. Dropping it ends
/// the programs.
#[derive(Debug)]
pub struct LabelSource {
    labels: watch::Receiver<Labels>,
    unfinished: watch::Receiver<usize>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl LabelSource {
    /// Starts every program at once, each in a task of its own, so that none waits for another. A label
    /// is absent until its program has run for the first time; one that fails has a value that says so.
    pub fn start(fixed: Labels, commands: Vec<LabelCommand>) -> Self {
        Self::start_with(fixed, commands, program::run)
    }

    fn start_with<R, F>(fixed: Labels, commands: Vec<LabelCommand>, run: R) -> Self
    where
        R: Fn(Arc<LabelCommand>, StopSignal) -> F + Clone + Send + 'static,
        F: Future<Output = Result<String, value::Failure>> + Send + 'static,
    {
        let (labels, current) = watch::channel(fixed);
        let (unfinished, still) = watch::channel(commands.len());
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for command in commands {
            let (run, labels, unfinished) = (run.clone(), labels.clone(), unfinished.clone());
            tasks.spawn(keep_current(
                Arc::new(command),
                run,
                labels,
                unfinished,
                StopSignal(stopped.clone()),
            ));
        }
        Self { labels: current, unfinished: still, stop, tasks }
    }

    /// The current labels, and a notification of every change.
    pub fn labels(&self) -> watch::Receiver<Labels> {
        self.labels.clone()
    }

    /// Waits until every program has run once (or was ended for taking too long), for callers that report a
    /// host only with all of its labels.
    pub async fn first_round(&self) {
        let _ = self.unfinished.clone().wait_for(|unfinished| *unfinished == 0).await;
    }

    /// Ends every program and waits until all are gone: a re-executed agent would not know its children.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Tells the task of a label to end its program.
#[derive(Debug, Clone)]
struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    async fn wait(&mut self) {
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}

/// Keeps one label current.
async fn keep_current<R, F>(
    command: Arc<LabelCommand>,
    run: R,
    labels: watch::Sender<Labels>,
    unfinished: watch::Sender<usize>,
    mut stop: StopSignal,
) where
    R: Fn(Arc<LabelCommand>, StopSignal) -> F,
    F: Future<Output = Result<String, value::Failure>>,
{
    let mut ticks = tokio::time::interval(command.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut first = true;
    loop {
        tokio::select! {
            biased;
            () = stop.wait() => return,
            _ = ticks.tick() => {}
        }
        let found = run(command.clone(), stop.clone()).await;
        if matches!(found, Err(value::Failure::Stopped)) {
            return;
        }
        labels.send_if_modified(|labels| value::set(labels, &command.name, found));
        if std::mem::take(&mut first) {
            unfinished.send_modify(|unfinished| *unfinished -= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;

    fn command(name: &str, seconds: u64) -> LabelCommand {
        LabelCommand { name: name.into(), command: Vec::new(), period: Duration::from_secs(seconds) }
    }

    #[tokio::test(start_paused = true)]
    async fn each_program_runs_at_the_start_and_then_by_its_period() {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let source = LabelSource::start_with(Labels::default(), vec![command("n", 3600)], move |_, _| {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move { Ok(run.to_string()) }
        });
        let mut labels = source.labels();
        let start = Instant::now();
        source.first_round().await;
        assert_eq!(labels.borrow_and_update().get("n"), Some("0"));
        assert_eq!(start.elapsed(), Duration::ZERO);
        for run in 1..5u64 {
            labels.changed().await.unwrap();
            assert_eq!(labels.borrow_and_update().get("n"), Some(run.to_string().as_str()));
            assert_eq!(start.elapsed().as_secs(), 3600 * run);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_hangs_delays_no_other_and_is_not_started_twice() {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let commands = vec![command("hangs", 10), command("works", 10)];
        let fixed: Labels = "zone=a".parse().unwrap();
        let source = LabelSource::start_with(fixed, commands, move |command, mut stopped| {
            let hangs = command.name == "hangs";
            let run = if hangs { counted.fetch_add(1, Ordering::SeqCst) } else { 0 };
            async move {
                if hangs {
                    assert_eq!(run, 0, "started while it ran");
                    stopped.wait().await;
                    return Err(value::Failure::Stopped);
                }
                Ok(Instant::now().elapsed().as_secs().to_string())
            }
        });
        let mut labels = source.labels();
        labels.changed().await.unwrap();
        assert_eq!(labels.borrow().to_string(), "works=0,zone=a");
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        source.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_told_of_what_did_not_change() {
        let commands = vec![command("same", 10)];
        let source = LabelSource::start_with(Labels::default(), commands, |_, _| async { Ok("x".into()) });
        source.first_round().await;
        let mut labels = source.labels();
        labels.borrow_and_update();
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(!labels.has_changed().unwrap());
    }
}
