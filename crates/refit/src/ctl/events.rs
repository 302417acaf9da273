//! `refitctl events`: lists and follows the audit log.

use std::str::FromStr;

use jiff::Timestamp;
use refit_proto::events::v1::event_service_client::EventServiceClient;
use refit_proto::events::v1::{self as wire, FollowEventsRequest, ListEventsRequest};
use serde::Serialize;
use tonic::transport::Channel;

use super::{Global, duration};
use crate::exit::Failure;
use crate::output::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show who changed what, and the differences
    Ls(Ls),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl events ls --since 1h\n  \
    refitctl events ls --since 2026-01-02T03:04:05Z --format json\n  refitctl events ls --since 0s --follow")]
pub(crate) struct Ls {
    /// Only events since then: a time ago, like 1h or 7d, or a moment, like 2026-01-02T03:04:05Z
    #[arg(long, value_name = "TIME", value_parser = Since::from_str)]
    since: Option<Since>,
    /// Keep showing new events as they arrive, until Ctrl-C
    #[arg(long)]
    follow: bool,
}

/// The start of the range; a relative one is resolved when the command runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Since {
    Ago(std::time::Duration),
    At(Timestamp),
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        duration(text).map(Self::Ago).map_err(|_| {
            format!("{text:?} is not a time; expected something like 1h, 7d or 2026-01-02T03:04:05Z")
        })
    }
}

impl Since {
    fn on_the_wire(self, now: Timestamp) -> prost_types::Timestamp {
        let at = match self {
            Self::Ago(ago) => now.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH),
            Self::At(at) => at,
        };
        let at = at.max(Timestamp::UNIX_EPOCH);
        prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
    }
}

#[derive(Serialize)]
struct Event {
    id: String,
    at: Option<Timestamp>,
    r#type: String,
    actor: String,
    subject: String,
    message: String,
    differences: Vec<Difference>,
}

#[derive(Serialize)]
struct Difference {
    path: String,
    before: String,
    after: String,
}

impl Command {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let Self::Ls(ls) = self;
        let client = EventServiceClient::new(global.target.connect().await?);
        let since = ls.since.map(|since| since.on_the_wire(Timestamp::now()));
        match ls.follow {
            true => follow(client, since, global.format).await,
            false => list(client, since, global.format).await,
        }
    }
}

async fn list(
    mut client: EventServiceClient<Channel>,
    since: Option<prost_types::Timestamp>,
    format: Format,
) -> Result<(), Failure> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = client.list_events(ListEventsRequest { since, page_size: 1000, page_token }).await?;
        let page = page.into_inner();
        all.extend(page.events.into_iter().map(Event::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    output::show(format, &all, || match (all.is_empty(), since) {
        (false, _) => text(&all),
        (true, None) => "Nothing has been done yet.".into(),
        (true, Some(_)) => "Nothing has been done since then.".into(),
    })
}

/// Shows each event as it arrives, until Ctrl-C.
async fn follow(
    mut client: EventServiceClient<Channel>,
    since: Option<prost_types::Timestamp>,
    format: Format,
) -> Result<(), Failure> {
    let interrupted = tokio::signal::ctrl_c();
    let following = async {
        let mut events = client.follow_events(FollowEventsRequest { since }).await?.into_inner();
        if format == Format::Text {
            output::print(&row(&HEADINGS.map(str::to_owned)))?;
        }
        while let Some(event) = events.message().await? {
            let event = Event::from(event);
            match format {
                Format::Text => output::print(&lines(&event, row(&cells(&event))))?,
                Format::Json => output::print(&serde_json::to_string(&event).map_err(Failure::failed)?)?,
                Format::Yaml => output::print(&format!("---\n{}", output::yaml(&event)?))?,
            }
        }
        Err(Failure::failed("the control plane has ended the stream of events; follow again"))
    };
    tokio::select! {
        ended = following => ended,
        interrupted = interrupted => interrupted.map_err(Failure::failed),
    }
}

const HEADINGS: [&str; 4] = ["TIME", "WHO", "WHAT", "MESSAGE"];

fn cells(event: &Event) -> [String; 4] {
    let at = event.at.map(output::utc).unwrap_or_default();
    [at, event.actor.clone(), event.subject.clone(), event.message.clone()]
}

/// A row with fixed column widths, because later rows are unknown.
fn row(cells: &[String; 4]) -> String {
    let [time, who, what, message] = cells;
    format!("{time:23}  {who:10}  {what:24}  {message}")
}

/// A row, and what differs below it.
fn lines(event: &Event, row: String) -> String {
    let shown = |value: &str| if value.is_empty() { "(none)".to_owned() } else { value.to_owned() };
    let differences = event.differences.iter();
    let differences =
        differences.map(|one| format!("\n    {}: {} -> {}", one.path, shown(&one.before), shown(&one.after)));
    differences.fold(row, |text, line| text + &line)
}

fn text(events: &[Event]) -> String {
    let table = output::table(HEADINGS, events.iter().map(cells));
    // Cells contain no line breaks: each line below the headings is one event.
    let mut rows = table.lines().map(str::to_owned);
    let headings = rows.next().unwrap_or_default();
    let below = events.iter().zip(rows).map(|(event, row)| lines(event, row));
    std::iter::once(headings).chain(below).collect::<Vec<_>>().join("\n")
}

impl From<wire::Event> for Event {
    fn from(event: wire::Event) -> Self {
        let differences = event.differences.into_iter();
        Self {
            id: event.id,
            at: super::timestamp(event.at),
            r#type: event.r#type,
            actor: in_one_line(event.actor),
            subject: in_one_line(event.subject),
            message: in_one_line(event.message),
            differences: differences
                .map(|one| Difference {
                    path: in_one_line(one.path),
                    before: in_one_line(one.before),
                    after: in_one_line(one.after),
                })
                .collect(),
        }
    }
}

/// Removes line breaks and control characters from texts that others wrote.
fn in_one_line(text: String) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_times_ago_are_taken() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let since = |text: &str| text.parse::<Since>().map(|since| since.on_the_wire(now).seconds);
        assert_eq!(since("1h"), Ok(now.as_second() - 3600));
        assert_eq!(since("2026-01-02T03:04:00Z"), Ok(now.as_second() - 5));
        assert_eq!(since("90000d"), Ok(0), "before everything is from the start");
        for bad in ["", "yesterday", "-1h", "2026-13-01T00:00:00Z"] {
            let error = since(bad).unwrap_err();
            assert!(error.contains("expected something like 1h"), "{error}");
        }
    }
}
