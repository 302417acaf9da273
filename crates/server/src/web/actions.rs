//! The buttons of the rollout page: confirmation pages, and the RPCs that they call as the signed-in user.

use askama::Template;
use axum::body::Body;
use axum::http::Response;
use refit_convert::moment;
use refit_proto::rollouts::v1 as wire;
use refit_proto::rollouts::v1::GroupState;
use refit_proto::rollouts::v1::rollout_service_server::RolloutService;
use refit_types::{GroupName, Version};
use tonic::Request;

use super::Web;
use super::format::counted;
use super::request::PageRequest;
use super::response::{Frame, Refusal, redirect, rendered};
use super::rollout_page::{MARK_DONE, PAUSE, RESUME, RUN};
use crate::access::Caller;

/// An action on a rollout; each is a method of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Run,
    Pause,
    Resume,
    MarkDone,
}

impl Action {
    fn parse(word: &str) -> Result<Self, Refusal> {
        match word {
            "run" => Ok(Self::Run),
            "pause" => Ok(Self::Pause),
            "resume" => Ok(Self::Resume),
            "mark-done" => Ok(Self::MarkDone),
            _ => Err(Refusal::NotFound("There is no such page.".into())),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::MarkDone => "mark-done",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::Run => RUN,
            Self::Pause => PAUSE,
            Self::Resume => RESUME,
            Self::MarkDone => MARK_DONE,
        }
    }
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    frame: Frame,
    token: String,
    word: &'static str,
    group: String,
    question: String,
    /// The consequences, one sentence each.
    told: Vec<String>,
    button: String,
}

impl Web {
    /// Asks for confirmation and lists the consequences.
    pub(super) async fn confirm(&self, request: &PageRequest, word: &str) -> Result<Response<Body>, Refusal> {
        let action = Action::parse(word)?;
        request.caller(action.method(), None)?;
        self.rollouts.sync_from_store().await?;
        let rollout = self.rollouts.status();
        let group = request.query.get("group");
        let found = rollout.groups.iter().find(|known| known.name == group);
        let needs_group = matches!(action, Action::Run | Action::MarkDone);
        if found.is_none() && (!group.is_empty() || needs_group) {
            let group: String = group.chars().take(80).collect();
            return Err(Refusal::NotFound(format!("There is no group {group:?} in this rollout.")));
        }
        let (question, told, button) = in_words(action, found, &rollout);
        let frame = request.frame(self, "rollout", question.clone());
        let token = frame.who.as_ref().map(|who| who.token.clone()).unwrap_or_default();
        let group = group.to_owned();
        rendered(&ConfirmPage { frame, token, word: action.word(), group, question, told, button })
    }

    /// Calls the API method as the signed-in user.
    pub(super) async fn act(&self, request: &PageRequest, word: &str) -> Result<Response<Body>, Refusal> {
        request.posted()?;
        let action = Action::parse(word)?;
        let caller = request.caller(action.method(), None)?;
        let group = request.form.get("group").to_owned();
        let done = match action {
            Action::Run => {
                self.rollout_rpc
                    .run_group(called_by(caller, wire::RunGroupRequest { group: group.clone() }))
                    .await
            }
            Action::Pause => {
                self.rollout_rpc.pause(called_by(caller, wire::PauseRequest { group: group.clone() })).await
            }
            Action::Resume => {
                self.rollout_rpc.resume(called_by(caller, wire::ResumeRequest { group: group.clone() })).await
            }
            Action::MarkDone => {
                self.rollout_rpc
                    .mark_done(called_by(caller, wire::MarkDoneRequest { group: group.clone() }))
                    .await
            }
        };
        done?;
        let mut back = form_urlencoded::Serializer::new(String::new());
        back.append_pair("done", action.word()).append_pair("group", &group);
        Ok(redirect(&format!("/web/rollout?{}", back.finish())))
    }
}

/// An API request with the signed-in user as its caller.
pub(super) fn called_by<T>(caller: Caller, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(caller);
    request
}

/// The confirmation after an action, in the words of `refitctl`.
pub(super) fn said(request: &PageRequest) -> String {
    let group: Option<GroupName> = request.query.get("group").parse().ok();
    match (request.query.get("done"), group) {
        ("run", Some(group)) => format!("Executing auto-update for group '{group}' immediately."),
        ("pause", Some(group)) => {
            format!("Group '{group}' is paused: no host is told to upgrade; those that have switched finish.")
        }
        ("pause", None) => {
            "The rollout is paused: no host is told to upgrade; those that have switched finish.".into()
        }
        ("resume", Some(group)) => format!("Group '{group}' goes on."),
        ("resume", None) => "The rollout goes on.".into(),
        ("mark-done", Some(group)) => {
            format!("Group '{group}' is marked done: groups that require it go on.")
        }
        ("version", _) => match request.query.get("version").parse::<Version>() {
            Ok(version) => {
                format!("Automatic updates configuration has been updated: agents are to run v{version}.")
            }
            Err(_) => "Automatic updates configuration has been updated.".into(),
        },
        _ => String::new(),
    }
}

fn in_words(
    action: Action,
    group: Option<&wire::Group>,
    rollout: &wire::Rollout,
) -> (String, Vec<String>, String) {
    let version = &rollout.version;
    match (action, group) {
        (Action::Run, Some(group)) => (
            format!("Run group {} now?", group.name),
            run_in_words(group, rollout),
            format!("Run {} now", group.name),
        ),
        (Action::Pause, Some(group)) => (
            format!("Pause group {}?", group.name),
            vec![
                format!("No more hosts of {} are told to update to v{version}.", group.name),
                finish(group.in_flight),
                "A pause outlasts a new version: it holds until somebody resumes the group.".into(),
            ],
            format!("Pause {}", group.name),
        ),
        (Action::Resume, Some(group)) => (
            format!("Resume group {}?", group.name),
            vec![
                format!("Hosts of {} may be told to update to v{version} again.", group.name),
                "Its window, its limit and what it requires still hold.".into(),
            ],
            format!("Resume {}", group.name),
        ),
        (Action::MarkDone, Some(group)) => (
            format!("Mark group {} as done?", group.name),
            vec![
                format!("No host of {} runs v{version}. It counts as succeeded all the same.", group.name),
                "Groups that require it go on, with a version that nobody has tried here.".into(),
                "It holds for this version only.".into(),
            ],
            format!("Mark {} as done", group.name),
        ),
        (Action::Pause, None) => (
            "Pause the whole rollout?".into(),
            vec![
                format!("No more hosts are told to update to v{version}, in a group or not."),
                finish(rollout.groups.iter().map(|group| group.in_flight).sum()),
                "A pause outlasts a new version: it holds until somebody resumes the rollout.".into(),
            ],
            "Pause the rollout".into(),
        ),
        (_, None) => (
            "Resume the rollout?".into(),
            vec![
                format!("Hosts may be told to update to v{version} again, group by group."),
                "Groups that are paused by themselves stay paused.".into(),
            ],
            "Resume the rollout".into(),
        ),
    }
}

fn finish(in_flight: u32) -> String {
    match in_flight {
        0 => "No host is in flight.".into(),
        1 => "The host in flight finishes if it has switched, and is counted; otherwise it waits.".into(),
        many => format!(
            "Of the {many} hosts in flight, those that have switched finish, and are counted; the others wait."
        ),
    }
}

fn run_in_words(group: &wire::Group, rollout: &wire::Rollout) -> Vec<String> {
    let name = &group.name;
    let window = moment(group.opens_at).zip(moment(group.closes_at));
    let hours = window.map(|(opens, closes)| closes.duration_since(opens).as_hours().unsigned_abs());
    let lasts = hours.map(|hours| format!(", for {}", counted(hours, "hour"))).unwrap_or_default();
    let mut told = vec![format!(
        "A window of {name} opens now{lasts}: its hosts are told to update to v{}.",
        rollout.version
    )];
    if group.newcomers > 0 {
        let joins = if group.newcomers == 1 { "becomes a member" } else { "become members" };
        told.push(format!("{} {joins} of it before.", counted(group.newcomers.into(), "newcomer")));
    }
    if group.members > 0 {
        told.push(format!(
            "Of its {}, at most {} are in flight at the same time; {} upgraded already.",
            counted(group.members.into(), "member"),
            group.limit,
            if group.upgraded == 1 { "1 is".into() } else { format!("{} are", group.upgraded) },
        ));
    }
    if group.failed + group.timed_out > 0 {
        told.push(format!(
            "{} failed and {} timed out: that is forgotten, and those hosts get another attempt.",
            group.failed, group.timed_out
        ));
    }
    if group.known_state() == GroupState::Halted {
        told.push("The group has halted, and goes on.".into());
    }
    let waits: Vec<&str> = group
        .requires
        .iter()
        .filter(|name| {
            let is_open = |other: &wire::Group| other.known_state() != GroupState::Succeeded;
            rollout.groups.iter().any(|other| other.name == **name && is_open(other))
        })
        .map(String::as_str)
        .collect();
    if !waits.is_empty() {
        told.push(format!("It still waits until {} succeeded.", waits.join(", ")));
    }
    if rollout.paused_at.is_some() || group.paused_at.is_some() {
        told.push("It is paused: nothing starts until it is resumed.".into());
    }
    if !rollout.enabled {
        told.push("Automatic updates are disabled: this will be refused until they are enabled.".into());
    }
    told
}
