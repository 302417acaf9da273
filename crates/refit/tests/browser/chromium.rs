//! Drives headless Chromium: starts it, opens tabs, and collects console errors and failed requests.

use std::path::Path;

use chromiumoxide::browser::Browser;
use chromiumoxide::cdp::browser_protocol::browser::BrowserContextId;
use chromiumoxide::cdp::browser_protocol::emulation::{
    MediaFeature, SetDeviceMetricsOverrideParams, SetLocaleOverrideParams, SetScriptExecutionDisabledParams,
    SetTimezoneOverrideParams,
};
use chromiumoxide::cdp::browser_protocol::input::{
    DispatchKeyEventParams, DispatchKeyEventType, DispatchMouseEventParams, DispatchMouseEventType,
    MouseButton,
};
use chromiumoxide::cdp::browser_protocol::log::EventEntryAdded;
use chromiumoxide::cdp::browser_protocol::network::EventRequestWillBeSent;
use chromiumoxide::cdp::browser_protocol::page::CaptureScreenshotFormat;
use chromiumoxide::cdp::browser_protocol::target::{CreateBrowserContextParams, CreateTargetParams};
use chromiumoxide::cdp::js_protocol::runtime::{EvaluateParams, EventConsoleApiCalled, EventExceptionThrown};
use chromiumoxide::handler::HandlerConfig;
use chromiumoxide::listeners::EventStream;
use chromiumoxide::{Page, page::ScreenshotParams};
use data_encoding::{BASE64, HEXLOWER};
use futures::{FutureExt, StreamExt};
use refit_testbed::{Process, directory, eventually, until_seen};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::stage::{Stage, TIMEOUT};

/// Nothing of its own is sent anywhere, and nothing but this machine can be found.
const ARGUMENTS: [&str; 17] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--hide-scrollbars",
    "--disable-lcd-text",
];

/// The size of a tab, and of a phone.
pub const DESK: (i64, i64) = (1280, 800);
pub const PHONE: (i64, i64) = (375, 812);

/// A browser with a profile of its own, which ends with the test.
pub struct Chromium {
    browser: Browser,
    handler: JoinHandle<()>,
    _process: Process,
    _profile: TempDir,
    origin: String,
}

impl Chromium {
    /// Starts one for the server of a stage.
    pub async fn start(stage: &Stage) -> Self {
        Self::trusting(&stage.pin, stage.origin()).await
    }

    /// Starts one that takes the certificates of that authority for good, and of no other.
    pub async fn trusting(pin: &str, origin: String) -> Self {
        let profile = directory();
        let pin = HEXLOWER.decode(pin.strip_prefix("sha256:").unwrap().as_bytes()).unwrap();
        let mut arguments = ARGUMENTS.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        arguments.push(format!("--ignore-certificate-errors-spki-list={}", BASE64.encode(&pin)));
        arguments.push("about:blank".into());
        let log = profile.path().join("log");
        let process = Process::start("chromium", &arguments, &log);
        let file = profile.path().join("DevToolsActivePort");
        let mut address = None;
        eventually("the browser listens", TIMEOUT, || {
            address = address_in(&file);
            let found = address.is_some();
            async move { found }
        })
        .await;
        let config = HandlerConfig { ignore_https_errors: false, ..HandlerConfig::default() };
        let config = HandlerConfig { request_timeout: TIMEOUT, ..config };
        let (browser, mut handler) = Browser::connect_with_config(address.unwrap(), config).await.unwrap();
        let handler = tokio::spawn(async move { while handler.next().await.is_some() {} });
        Self { browser, handler, _process: process, _profile: profile, origin }
    }

    /// A tab of somebody who shares no cookie with the others.
    pub async fn tab(&self) -> Tab {
        let context = self.browser.create_browser_context(CreateBrowserContextParams::default());
        let context: BrowserContextId = context.await.unwrap();
        let target = CreateTargetParams::builder().url("about:blank").browser_context_id(context);
        let page = self.browser.new_page(target.build().unwrap()).await.unwrap();
        let tab = Tab {
            requests: page.event_listener().await.unwrap(),
            entries: page.event_listener().await.unwrap(),
            console: page.event_listener().await.unwrap(),
            exceptions: page.event_listener().await.unwrap(),
            origin: self.origin.clone(),
            page,
        };
        tab.resize(DESK).await;
        tab.page.execute(SetTimezoneOverrideParams::new("Europe/Berlin")).await.unwrap();
        let locale = SetLocaleOverrideParams::builder().locale("en-GB");
        tab.page.execute(locale.build()).await.unwrap();
        tab.paint("light").await;
        tab
    }

    /// A tab of somebody who is signed in.
    pub async fn tab_of(&self, invitation: &str) -> Tab {
        let mut tab = self.tab().await;
        tab.sign_in(invitation).await;
        tab
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        self.handler.abort();
    }
}

/// Where the browser says that it listens: a port, and a path.
fn address_in(file: &Path) -> Option<String> {
    let said = std::fs::read_to_string(file).ok()?;
    let (port, path) = said.trim().split_once('\n')?;
    Some(format!("ws://127.0.0.1:{port}{path}"))
}

pub struct Tab {
    pub page: Page,
    origin: String,
    requests: EventStream<EventRequestWillBeSent>,
    entries: EventStream<EventEntryAdded>,
    console: EventStream<EventConsoleApiCalled>,
    exceptions: EventStream<EventExceptionThrown>,
}

impl Tab {
    pub async fn resize(&self, (width, height): (i64, i64)) {
        let size = SetDeviceMetricsOverrideParams::new(width, height, 1.0, false);
        self.page.execute(size).await.unwrap();
    }

    /// Light or dark.
    pub async fn paint(&self, scheme: &str) {
        let feature = MediaFeature::new("prefers-color-scheme", scheme);
        self.page.emulate_media_features(vec![feature]).await.unwrap();
    }

    pub async fn set_scripts(&self, allowed: bool) {
        self.page.execute(SetScriptExecutionDisabledParams::new(!allowed)).await.unwrap();
    }

    /// Goes to a page, and waits until it is whole.
    pub async fn open(&self, path: &str) {
        let address = if path.starts_with('/') { format!("{}{path}", self.origin) } else { path.to_owned() };
        self.page.goto(address).await.unwrap();
        self.until("the page is whole", "document.readyState === 'complete'").await;
    }

    pub async fn sign_in(&mut self, invitation: &str) {
        self.open(invitation).await;
        self.click("#sign-in").await;
        self.until_at("/web/").await;
    }

    /// What an expression is now, if the page is not on its way to another.
    async fn try_js(&self, expression: &str) -> Result<Value, String> {
        let mut asked = EvaluateParams::new(expression);
        (asked.await_promise, asked.return_by_value) = (Some(true), Some(true));
        let told = self.page.execute(asked).await.map_err(|error| error.to_string())?;
        match &told.exception_details {
            Some(details) => Err(format!("{expression}: {details:?}")),
            None => Ok(told.result.result.value.clone().unwrap_or_default()),
        }
    }

    /// Has that script run in every page from now on, before its own.
    pub async fn begin_pages_with(&self, script: &str) {
        self.page.evaluate_on_new_document(script).await.unwrap();
    }

    pub async fn js(&self, expression: &str) -> Value {
        self.try_js(expression).await.unwrap_or_else(|error| panic!("{error}"))
    }

    pub async fn text(&self, selector: &str) -> String {
        let found = self.js(&format!("document.querySelector({selector:?})?.innerText")).await;
        found.as_str().unwrap_or_else(|| panic!("no {selector}")).to_owned()
    }

    /// Whether there is such a thing on the page.
    pub async fn has(&self, selector: &str) -> bool {
        self.js(&format!("document.querySelector({selector:?}) !== null")).await == true
    }

    /// Waits until a condition holds; what the page shows is told when it does not come to that.
    pub async fn until(&self, what: &str, condition: &str) {
        let look = format!(
            "(async () => [await ({condition}), location.href, \
             document.body.textContent.replace(/\\s+/g, ' ')])()"
        );
        let see = async || self.try_js(&look).await.unwrap_or_else(Value::String);
        until_seen(what, TIMEOUT, see, |seen| seen[0] == true).await;
    }

    /// Waits until the page hears of what changes.
    pub async fn until_live(&self) {
        self.until("the page is live", "document.querySelector('#connection').innerText === 'live'").await;
    }

    pub async fn until_at(&self, path: &str) {
        let there = format!("location.pathname === {path:?} && document.readyState === 'complete'");
        self.until(&format!("the browser is at {path}"), &there).await;
    }

    /// Clicks with a mouse, once; again where what was aimed at moved away in between.
    pub async fn click(&self, selector: &str) {
        let aim = format!(
            "window.__missed = false; addEventListener('click', (event) => {{ \
             window.__missed = event.target.closest({selector:?}) === null }}, {{ capture: true, once: true }}); 1"
        );
        eventually(&format!("{selector} is clicked"), TIMEOUT, async || {
            let Ok(found) = self.page.find_element(selector).await else { return false };
            self.js(&aim).await;
            found.click().await.is_ok() && self.try_js("window.__missed").await != Ok(Value::Bool(true))
        })
        .await;
    }

    /// Presses or releases the mouse in the middle of something.
    pub async fn mouse(&self, kind: DispatchMouseEventType, selector: &str) {
        let found = self.page.find_element(selector).await.unwrap();
        let at = found.scroll_into_view().await.unwrap().clickable_point().await.unwrap();
        let event = DispatchMouseEventParams::builder().r#type(kind).x(at.x).y(at.y).click_count(1);
        self.page.execute(event.button(MouseButton::Left).build().unwrap()).await.unwrap();
    }

    pub async fn type_into(&self, selector: &str, text: &str) {
        self.click(selector).await;
        self.page.find_element(selector).await.unwrap().type_str(text).await.unwrap();
    }

    /// Presses a key, whatever has the focus.
    pub async fn press(&self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            other => panic!("{other} has no code here"),
        };
        for kind in [DispatchKeyEventType::KeyDown, DispatchKeyEventType::KeyUp] {
            let mut pressed = DispatchKeyEventParams::builder().r#type(kind).key(key).code(key);
            pressed = pressed.windows_virtual_key_code(code);
            if let Some(text) = text {
                pressed = pressed.text(text);
            }
            self.page.execute(pressed.build().unwrap()).await.unwrap();
        }
    }

    /// What is seen, once it is painted.
    pub async fn screenshot(&self) -> Vec<u8> {
        self.js("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => go(1))))").await;
        let how = ScreenshotParams::builder().format(CaptureScreenshotFormat::Png);
        self.page.screenshot(how.build()).await.unwrap()
    }

    /// All that can be scrolled to, in a window as high as that.
    pub async fn whole(&self) -> Vec<u8> {
        let sizes = self.js("[innerWidth, innerHeight, document.scrollingElement.scrollHeight]").await;
        let size = |at: usize| sizes[at].as_i64().unwrap();
        self.resize((size(0), size(2))).await;
        let png = self.screenshot().await;
        self.resize((size(0), size(1))).await;
        png
    }

    /// What the browser had to complain about since it was asked last: requests to anywhere else, errors and
    /// warnings of scripts, policies and the network, exceptions.
    pub async fn complaints(&mut self) -> Vec<String> {
        // What was said before this is answered has come.
        self.js("1").await;
        let mut complaints = Vec::new();
        let own = [format!("{}/", self.origin), "data:".into(), "about:".into()];
        while let Some(Some(sent)) = self.requests.next().now_or_never() {
            if !own.iter().any(|own| sent.request.url.starts_with(own.as_str())) {
                complaints.push(format!("request to {}", sent.request.url));
            }
        }
        while let Some(Some(added)) = self.entries.next().now_or_never() {
            if !matches!(added.entry.level.as_ref(), "verbose" | "info") {
                complaints.push(format!(
                    "{} ({})",
                    added.entry.text,
                    added.entry.url.as_deref().unwrap_or("")
                ));
            }
        }
        while let Some(Some(called)) = self.console.next().now_or_never() {
            if matches!(called.r#type.as_ref(), "error" | "warning" | "assert") {
                complaints.push(format!("console: {:?}", called.args));
            }
        }
        while let Some(Some(thrown)) = self.exceptions.next().now_or_never() {
            complaints.push(format!("exception: {:?}", thrown.exception_details));
        }
        complaints
    }

    /// All is well with the page that is shown: nothing to complain about, and it says what it is.
    pub async fn assert_calm(&mut self) {
        let at = self.js("location.href").await;
        assert_eq!(self.complaints().await, [""; 0], "{at}");
        let title = self.js("document.title").await;
        assert!(title.as_str().is_some_and(|title| title.ends_with("· Refit")), "{at}: {title}");
    }

    /// A refusal was asked for: the browser says so, and nothing else.
    pub async fn assert_refused(&mut self, status: u16) {
        let complaints = self.complaints().await;
        let told = format!("the server responded with a status of {status}");
        assert!(!complaints.is_empty(), "nothing was refused");
        assert!(complaints.iter().all(|complaint| complaint.contains(&told)), "{complaints:?}");
    }
}
