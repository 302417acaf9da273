//! A simulated timeline as an SVG drawing.

use std::fmt::Write;

use jiff::Timestamp;
use refit_types::GroupState;

use super::text::percent;
use super::timeline::{GroupTimeline, Sample, Timeline};
use crate::blocked_by::in_words;
use crate::table::fitted;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 970.0;
const TOP: f64 = 76.0;
const ROW: f64 = 58.0;
const BAR: f64 = 36.0;

const STYLE: &str = "text{font-family:system-ui,sans-serif;font-size:13px;fill:#1b2733}.title{font-size:17px;font-weight:600}\
    .small{font-size:11px;fill:#5b6b7a}.grid{stroke:#dde3e9}.row{fill:#f1f4f7}.open{fill:#dbeafe}\
    .upgraded{fill:#2f9e5b}.flight{fill:#f2b134}.bad{fill:#d33a2c}.halt{stroke:#d33a2c;stroke-width:2}\
    .halted{fill:#d33a2c;font-weight:600;\
    paint-order:stroke;stroke:#fff;stroke-width:3px}";

impl Timeline {
    /// A drawing that stands by itself: a row for each group, how far it was over time, and halts in red.
    pub fn to_svg(&self) -> String {
        let bottom = TOP + ROW * self.groups.len() as f64;
        let noted: Vec<&String> = self.warnings.iter().take(12).collect();
        let height = bottom + 64.0 + 16.0 * noted.len() as f64;
        let mut svg = String::new();
        let title = format!("Version {} on {} hosts", self.version, self.hosts);
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text class=\"title\" x=\"24\" y=\"32\">{0}</text>\n<text class=\"small\" x=\"24\" y=\"52\">{1}</text>\n",
            escaped(&title),
            escaped(&self.subtitle()),
        );
        legend(&mut svg);
        for (number, group) in self.groups.iter().enumerate() {
            self.row(&mut svg, group, TOP + ROW * number as f64);
        }
        self.axis(&mut svg, bottom);
        for (number, warning) in noted.iter().enumerate() {
            let y = bottom + 58.0 + 16.0 * number as f64;
            let _ = writeln!(
                svg,
                "<text class=\"small\" x=\"24\" y=\"{y}\">! {}</text>",
                escaped(&fitted(warning, 150))
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn subtitle(&self) -> String {
        let took = in_words(self.end.duration_since(self.start));
        let outcomes = &self.outcomes;
        format!(
            "{} after {took}: {} upgraded, {} failed, {} timed out. {} limit of hosts in flight passed.",
            if self.finished { "over" } else { "not over" },
            outcomes.upgraded,
            outcomes.failed,
            outcomes.timed_out,
            if self.limit_passed { "A" } else { "No" },
        )
    }

    /// Where a moment lies from left to right.
    fn x(&self, at: Timestamp) -> f64 {
        let whole = self.end.duration_since(self.start).as_secs().max(1) as f64;
        let passed = at.duration_since(self.start).as_secs() as f64;
        tenth(LEFT + (RIGHT - LEFT) * (passed / whole).clamp(0.0, 1.0))
    }

    fn row(&self, svg: &mut String, group: &GroupTimeline, top: f64) {
        let (name, base) = (group.name.as_str(), top + BAR);
        let share = group.samples.last().map_or(0, |last| percent(last.upgraded, last.members));
        let state = match group.opened {
            Some(_) => format!("{}, {share}% of {}", group.state.as_str(), group.members),
            None => format!("{}, {} hosts", group.state.as_str(), group.hosts),
        };
        let is_halted = matches!(group.state, GroupState::Halted(_));
        let class = if is_halted { "halted" } else { "small" };
        let _ = write!(
            svg,
            "<g>\n<title>{}</title>\n<text x=\"24\" y=\"{}\">{}</text>\n\
             <text class=\"{class}\" x=\"24\" y=\"{}\">{}</text>\n\
             <rect class=\"row\" x=\"{LEFT}\" y=\"{top}\" width=\"{}\" height=\"{BAR}\"/>\n",
            escaped(name),
            top + 16.0,
            escaped(&fitted(name, 24)),
            top + 32.0,
            escaped(&state),
            RIGHT - LEFT,
        );
        for window in &group.windows {
            let (from, to) = (self.x(window.start), self.x(window.end));
            let width = tenth((to - from).max(1.0));
            let _ = writeln!(
                svg,
                "<rect class=\"open\" x=\"{from}\" y=\"{top}\" width=\"{width}\" height=\"{BAR}\"/>"
            );
        }
        let upgraded = |sample: &Sample| sample.upgraded;
        let bad = |sample: &Sample| sample.failed + sample.timed_out;
        let ended = move |sample: &Sample| upgraded(sample) + bad(sample);
        let told = move |sample: &Sample| ended(sample) + sample.in_flight;
        self.area(svg, group, "flight", base, &told);
        self.area(svg, group, "bad", base, &ended);
        self.area(svg, group, "upgraded", base, &upgraded);
        if let (true, Some(ended)) = (is_halted, group.ended) {
            self.halt(svg, group, ended, top);
        }
        svg.push_str("</g>\n");
    }

    /// The share of the members that `counted` gives, as steps over time.
    fn area(
        &self,
        svg: &mut String,
        group: &GroupTimeline,
        class: &str,
        base: f64,
        counted: &dyn Fn(&Sample) -> u32,
    ) {
        if group.samples.iter().all(|sample| counted(sample) == 0) {
            return;
        }
        let Some(first) = group.samples.first() else { return };
        let mut path = format!("M{} {base}", self.x(first.at));
        for sample in &group.samples {
            let share = f64::from(counted(sample)) / f64::from(sample.members.max(1));
            let _ = write!(path, "H{}V{}", self.x(sample.at), tenth(base - BAR * share.min(1.0)));
        }
        let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}H{RIGHT}V{base}Z\"/>");
    }

    fn halt(&self, svg: &mut String, group: &GroupTimeline, ended: Timestamp, top: f64) {
        let x = self.x(ended);
        let reason = group.waiting.as_deref().unwrap_or("halted");
        let (anchor, shift) = if x > (LEFT + RIGHT) / 2.0 { ("end", -6.0) } else { ("start", 6.0) };
        let _ = write!(
            svg,
            "<path class=\"halt\" d=\"M{x} {}V{}\"/>\n\
             <text class=\"halted\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>\n",
            top - 4.0,
            top + BAR + 4.0,
            tenth(x + shift),
            top + 22.0,
            escaped(reason),
        );
    }

    fn axis(&self, svg: &mut String, bottom: f64) {
        let step = step(self.end.duration_since(self.start).as_secs());
        let first = self.start.as_second().div_euclid(step) * step;
        let mut day = None;
        for at in (0..=20).filter_map(|n| Timestamp::from_second(first + n * step).ok()) {
            if at < self.start || at > self.end {
                continue;
            }
            let x = self.x(at);
            let today = at.strftime("%Y-%m-%d").to_string();
            let hour = at.strftime("%H:%M");
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x} {TOP}V{bottom}\"/>\n\
                 <text class=\"small\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{hour}</text>",
                bottom + 14.0
            );
            if day.as_ref() != Some(&today) {
                let _ = writeln!(
                    svg,
                    "<text class=\"small\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{today}</text>",
                    bottom + 28.0
                );
                day = Some(today);
            }
        }
        let _ = writeln!(svg, "<text class=\"small\" x=\"24\" y=\"{}\">UTC</text>", bottom + 14.0);
    }
}

fn legend(svg: &mut String) {
    let parts =
        [("upgraded", "upgraded"), ("flight", "in flight"), ("bad", "failed, timed out"), ("open", "window")];
    let mut x = 610.0;
    for (class, label) in parts {
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"23\" width=\"10\" height=\"10\"/>\
             <text class=\"small\" x=\"{}\" y=\"32\">{label}</text>",
            x + 15.0
        );
        x += 32.0 + 6.2 * label.len() as f64;
    }
}

/// A step of time that people count in, such that an axis has at most ten.
fn step(seconds: i64) -> i64 {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 3600;
    const DAY: i64 = 86_400;
    let steps = [
        MINUTE,
        5 * MINUTE,
        10 * MINUTE,
        30 * MINUTE,
        HOUR,
        2 * HOUR,
        4 * HOUR,
        6 * HOUR,
        12 * HOUR,
        DAY,
        2 * DAY,
        7 * DAY,
        14 * DAY,
        28 * DAY,
    ];
    steps.into_iter().find(|step| seconds / step <= 9).unwrap_or(56 * DAY)
}

/// No more digits than a screen has.
fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&apos;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_markup_is_escaped() {
        assert_eq!(escaped("<a b=\"c\">&'\n"), "&lt;a b=&quot;c&quot;&gt;&amp;&apos; ");
    }

    #[test]
    fn an_axis_has_few_steps() {
        for seconds in [1, 59, 3600, 86_400, 7 * 86_400, 366 * 86_400] {
            assert!(seconds / step(seconds) <= 9, "{seconds}");
        }
    }
}
