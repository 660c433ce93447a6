//! The page as a reader uses it: opens it, types, and reads what it shows.

use std::path::Path;

use playground::{Axis, Column, Report, simulate};
use serde_json::{Value, json};

use crate::chromium::Chromium;

pub(crate) const COLUMNS: u32 = 200;

pub(crate) struct Page {
    pub(crate) chromium: Chromium,
}

/// The numbers that the page shows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Offered, admitted at once, admitted later, refused.
    counts: [u64; 4],
    longest_delay: String,
    retry_after: String,
    /// The most that passed within the period of each rule.
    most: Vec<u64>,
    /// The heights of the bars: admitted at once, admitted later, refused, passed.
    bars: [Vec<u64>; 4],
    /// The heights of the steps: waiting, remaining, and passed within the period of each rule.
    steps: Vec<Vec<u64>>,
}

impl Page {
    /// Opens the page. The fragment is what follows the `#` in the address.
    pub(crate) fn open(fragment: &str) -> Self {
        let mut page = Self {
            chromium: Chromium::start(),
        };
        page.go(fragment);
        page
    }

    /// Opens the page again.
    pub(crate) fn go(&mut self, fragment: &str) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../playground/index.html");
        let file = file.canonicalize().unwrap_or_else(|error| {
            panic!(
                "cannot read {}: {error}; expected the page, so run tools/playground/build.sh first",
                file.display()
            )
        });
        // From another page, because a new fragment alone loads nothing.
        self.chromium
            .call("Page.navigate", json!({ "url": "about:blank" }));
        let url = format!("file://{}#{fragment}", file.display());
        self.chromium.call("Page.navigate", json!({ "url": url }));
        self.chromium
            .wait_for("(document.getElementById('summary')?.textContent ?? '') !== ''");
    }

    /// Returns the text of a field.
    pub(crate) fn field(&mut self, id: &str) -> String {
        let value = self.property(id, "value");
        value.as_str().unwrap().to_owned()
    }

    pub(crate) fn property(&mut self, id: &str, name: &str) -> Value {
        self.chromium
            .evaluate(&format!("document.getElementById('{id}').{name}"))
    }

    /// Replaces the text of a field, by events of the mouse and the keyboard.
    pub(crate) fn fill(&mut self, id: &str, text: &str) {
        self.click(&format!("#{id}"));
        let all =
            json!({ "type": "keyDown", "key": "a", "modifiers": 2, "commands": ["selectAll"] });
        self.chromium.call("Input.dispatchKeyEvent", all);
        self.chromium
            .call("Input.insertText", json!({ "text": text }));
        assert_eq!(self.field(id), text);
    }

    /// Clicks into the middle of an element.
    pub(crate) fn click(&mut self, selector: &str) {
        let middle = self.chromium.evaluate(&format!(
            "(() => {{
               const element = document.querySelector({selector:?});
               element.scrollIntoView({{ block: 'center' }});
               const box = element.getBoundingClientRect();
               return [box.x + box.width / 2, box.y + box.height / 2];
             }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            self.mouse(kind, &middle);
        }
    }

    /// Sends an event of the mouse at `[x, y]`.
    pub(crate) fn mouse(&mut self, kind: &str, place: &Value) {
        let event = json!({
            "type": kind, "x": place[0], "y": place[1], "button": "left", "buttons": 1, "clickCount": 1,
        });
        self.chromium.call("Input.dispatchMouseEvent", event);
    }

    pub(crate) fn shown(&mut self) -> Shown {
        let shown = self.chromium.evaluate(
            "(() => {
               const text = (id) => document.getElementById(id).textContent.replaceAll(',', '');
               const number = (id) => Number(document.getElementById(id).value);
               return {
                 counts: ['offered', 'at-once', 'delayed', 'refused'].map(number),
                 longestDelay: text('longest-delay'),
                 retryAfter: text('retry-after'),
                 most: [...document.querySelectorAll('#windows data')].map((data) => Number(data.value)),
               };
             })()",
        );
        let text = |name: &str| shown[name].as_str().unwrap().to_owned();
        let most = shown["most"].as_array().unwrap();
        let windows = (1..=most.len())
            .map(|window| format!("#windows figure:nth-of-type({window}) .at-once"));
        let steps = ["#waiting .delayed", "#remaining .level"].map(str::to_owned);
        let bars = [
            "#drawing .at-once",
            "#drawing .delayed",
            "#drawing .refused",
            "#passed .at-once",
        ];
        Shown {
            counts: [0, 1, 2, 3].map(|index| shown["counts"][index].as_u64().unwrap()),
            longest_delay: text("longestDelay"),
            retry_after: text("retryAfter"),
            most: most.iter().map(|most| most.as_u64().unwrap()).collect(),
            bars: bars.map(|path| self.bars(path)),
            steps: steps
                .into_iter()
                .chain(windows)
                .map(|path| self.steps(&path))
                .collect(),
        }
    }

    /// Returns the heights of the bars in a picture: `M0.06 20v-3h.88v3z` is one of 3 in the first
    /// column.
    pub(crate) fn bars(&mut self, path: &str) -> Vec<u64> {
        let (commands, _) = self.picture(path);
        let mut heights = vec![0; COLUMNS as usize];
        for bar in commands.split('M').skip(1) {
            let (place, bar) = bar.split_once("v-").unwrap();
            let column: f64 = place.split(' ').next().unwrap().parse().unwrap();
            let (height, _) = bar.split_once('h').unwrap();
            heights[column as usize] = height.parse().unwrap();
        }
        heights
    }

    /// Returns the heights of the steps in a picture: `V17h1` is one of 3 in a picture of 20.
    fn steps(&mut self, path: &str) -> Vec<u64> {
        let (commands, height) = self.picture(path);
        let steps = commands
            .split('V')
            .filter_map(|step| step.strip_suffix("h1"));
        steps
            .map(|step| height - step.parse::<u64>().unwrap())
            .collect()
    }

    /// Returns the commands of a path, and the height of its picture.
    fn picture(&mut self, path: &str) -> (String, u64) {
        let picture = self.chromium.evaluate(&format!(
            "(() => {{
               const path = document.querySelector('{path}');
               return [path.getAttribute('d'), path.closest('svg').viewBox.baseVal.height];
             }})()"
        ));
        (
            picture[0].as_str().unwrap().to_owned(),
            picture[1].as_u64().unwrap(),
        )
    }

    /// Panics unless the page shows what the simulation returns for its fields.
    pub(crate) fn assert_shows_the_simulation(&mut self) {
        let (rule, traffic) = (self.field("rule"), self.field("traffic"));
        let seconds: u32 = self.field("seconds").parse().unwrap();
        let width_ms = seconds * 1000 / COLUMNS;
        let axis = Axis {
            width_ms,
            columns: COLUMNS,
        };
        let report = simulate(&rule, &arrivals(&counts(&traffic), width_ms), axis).unwrap();
        assert_eq!(self.shown(), expected(&report), "{rule}, {traffic}");
    }

    /// Panics if the page reported an error, or requested anything beside itself.
    pub(crate) fn assert_is_quiet(&mut self) {
        // Events arrive in order: those of before come before this answer.
        self.chromium.evaluate("0");
        for event in ["Runtime.exceptionThrown", "Log.entryAdded"] {
            let events = self.chromium.events_of(event);
            assert!(events.is_empty(), "{events:#?}");
        }
        let requests = self.chromium.events_of("Network.requestWillBeSent");
        assert!(!requests.is_empty());
        for request in requests {
            let url = request["request"]["url"].as_str().unwrap();
            let is_page = url == "about:blank"
                || url.starts_with("file://") && url.ends_with("/playground/index.html");
            assert!(is_page, "requested {url}");
        }
    }
}

/// Reads `5x20 0x10 3`.
pub(crate) fn counts(traffic: &str) -> Vec<u32> {
    let mut counts = Vec::new();
    for group in traffic.split_whitespace() {
        let (count, columns) = group.split_once('x').unwrap_or((group, "1"));
        let columns = columns.parse::<usize>().unwrap();
        counts.extend(vec![count.parse::<u32>().unwrap(); columns]);
    }
    counts.resize(COLUMNS as usize, 0);
    counts
}

/// Spreads the requests of each column over it.
fn arrivals(counts: &[u32], width_ms: u32) -> Vec<u32> {
    let mut arrivals = Vec::new();
    for (column, count) in (0..).zip(counts) {
        arrivals.extend((0..*count).map(|index| column * width_ms + index * width_ms / count));
    }
    arrivals
}

fn expected(report: &Report) -> Shown {
    let totals = report.totals;
    let longest_delay = match totals.delayed {
        0 => "–".to_owned(),
        _ => duration(report.longest_delay.as_secs_f64()),
    };
    let retry_after = report
        .longest_retry_after
        .map(|wait| wait.as_secs_f64().ceil());
    let each = |count: fn(&Column) -> u64| report.columns.iter().map(count).collect();
    let (waiting, remaining) = (each(|it| it.waiting), each(|it| it.remaining));
    let windows = report.windows.iter().map(|window| window.within.clone());
    Shown {
        counts: [
            totals.at_once + totals.delayed + totals.refused,
            totals.at_once,
            totals.delayed,
            totals.refused,
        ],
        longest_delay,
        retry_after: retry_after.map_or("–".to_owned(), |seconds| format!("{seconds} s")),
        most: report.windows.iter().map(|window| window.most).collect(),
        bars: [
            each(|it| it.arrived.at_once),
            each(|it| it.arrived.delayed),
            each(|it| it.arrived.refused),
            each(|it| it.passed),
        ],
        steps: [waiting, remaining].into_iter().chain(windows).collect(),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{} ms", (seconds * 10_000.0).round() / 10.0),
        _ => format!("{} s", (seconds * 100.0).round() / 100.0),
    }
}
