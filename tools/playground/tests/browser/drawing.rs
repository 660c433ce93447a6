//! Drawing with the mouse, with a finger, and with the keyboard.

use serde_json::{Value, json};

use crate::page::{Page, counts};

const EMPTY: &str = "rule=token-bucket+10/s+burst%3D20&traffic=";

/// Returns the place of a number of requests in a column.
fn place(page: &mut Page, column: u32, requests: u32) -> Value {
    page.chromium.evaluate(&format!(
        "(() => {{
           const drawing = document.querySelector('#drawing svg');
           drawing.scrollIntoView({{ block: 'center' }});
           const box = drawing.getBoundingClientRect();
           return [box.x + box.width * {column}.5 / 200, box.y + box.height * (1 - {requests} / 20)];
         }})()"
    ))
}

fn drawn(page: &mut Page) -> Vec<u32> {
    counts(&page.field("traffic"))
}

/// A line from 16 requests in column 10 to 4 in column 70, and nothing else.
fn line() -> Vec<u32> {
    let height = |column: u32| 16.0 - 12.0 * f64::from(column - 10) / 60.0;
    let columns = 0..200;
    columns
        .map(|column| match column {
            10..=70 => height(column).round() as u32,
            _ => 0,
        })
        .collect()
}

#[test]
fn the_mouse_draws_a_line() {
    let mut page = Page::open(EMPTY);
    assert_eq!(drawn(&mut page), [0; 200]);
    let (begin, end) = (place(&mut page, 10, 16), place(&mut page, 70, 4));
    page.mouse("mousePressed", &begin);
    page.mouse("mouseMoved", &end);
    page.mouse("mouseReleased", &end);
    assert_eq!(drawn(&mut page), line());
    page.assert_shows_the_simulation();

    // The button is up, so nothing is drawn.
    let elsewhere = place(&mut page, 100, 20);
    page.mouse("mouseMoved", &elsewhere);
    assert_eq!(drawn(&mut page), line());
    let readout = page.property("readout", "textContent");
    assert_eq!(readout, "10 s: 0 requests");
    page.assert_is_quiet();
}

#[test]
fn a_finger_draws_a_line_and_does_not_scroll() {
    let mut page = Page::open(EMPTY);
    let narrow = json!({ "width": 360, "height": 800, "deviceScaleFactor": 2, "mobile": true });
    page.chromium
        .call("Emulation.setDeviceMetricsOverride", narrow);
    page.chromium.call(
        "Emulation.setTouchEmulationEnabled",
        json!({ "enabled": true }),
    );
    let (begin, end) = (place(&mut page, 10, 16), place(&mut page, 70, 4));
    let scrolled = page.chromium.evaluate("window.scrollY");
    for (kind, at) in [
        ("touchStart", Some(&begin)),
        ("touchMove", Some(&end)),
        ("touchEnd", None),
    ] {
        let points: Vec<_> = at
            .map(|at| json!({ "x": at[0], "y": at[1] }))
            .into_iter()
            .collect();
        let event = json!({ "type": kind, "touchPoints": points });
        page.chromium.call("Input.dispatchTouchEvent", event);
    }
    assert_eq!(drawn(&mut page), line());
    assert_eq!(page.chromium.evaluate("window.scrollY"), scrolled);
    page.assert_shows_the_simulation();
    page.assert_is_quiet();
}

/// Presses a key so many times, with Shift if it says so.
fn press(page: &mut Page, key: &str, times: u32) {
    let (key, modifiers) = match key.strip_prefix("Shift+") {
        Some(key) => (key, 8),
        None => (key, 0),
    };
    for _ in 0..times {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": key, "code": key, "modifiers": modifiers });
            page.chromium.call("Input.dispatchKeyEvent", event);
        }
    }
}

#[test]
fn the_keyboard_draws_columns() {
    let mut page = Page::open(EMPTY);
    // From the last field before the drawing.
    page.chromium
        .evaluate("[...document.querySelectorAll('#presets button')].at(-1).focus()");
    let tab = json!({ "type": "keyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9 });
    page.chromium.call("Input.dispatchKeyEvent", tab);
    let focused = page.chromium.evaluate("document.activeElement.id");
    assert_eq!(focused, "drawing");

    press(&mut page, "ArrowRight", 3);
    press(&mut page, "ArrowUp", 4);
    press(&mut page, "ArrowDown", 1);
    press(&mut page, "Shift+ArrowRight", 2);
    press(&mut page, "Shift+ArrowUp", 9);
    press(&mut page, "ArrowLeft", 1);
    press(&mut page, "ArrowUp", 7);
    press(&mut page, "Delete", 1);
    press(&mut page, "End", 1);
    press(&mut page, "ArrowRight", 1);
    press(&mut page, "ArrowUp", 2);
    press(&mut page, "Home", 1);
    press(&mut page, "ArrowUp", 1);
    let mut expected = [0; 200];
    // Shift makes steps of five, and 20 is the greatest number.
    (expected[3], expected[13], expected[199], expected[0]) = (3, 20, 2, 1);
    assert_eq!(drawn(&mut page), expected);
    page.assert_shows_the_simulation();

    press(&mut page, "Shift+ArrowRight", 2);
    press(&mut page, "ArrowRight", 3);
    let value = |page: &mut Page, name: &str| {
        let value = page.property("drawing", &format!("getAttribute('aria-value{name}')"));
        value.as_str().unwrap().to_owned()
    };
    assert_eq!(value(&mut page, "now"), "20");
    assert_eq!(value(&mut page, "max"), "20");
    assert_eq!(value(&mut page, "text"), "1.3 s: 20 requests, 20 admitted");
    page.assert_is_quiet();
}

/// A lower picture cuts what would be above it.
#[test]
fn the_height_can_be_chosen() {
    let mut page = Page::open("most=100&traffic=100x2+50+7&rule=token-bucket+10/s");
    assert_eq!(drawn(&mut page)[..5], [100, 100, 50, 7, 0]);
    page.chromium.evaluate(
        "(() => {
           const most = document.getElementById('most');
           most.value = '20';
           most.dispatchEvent(new Event('change'));
         })()",
    );
    assert_eq!(drawn(&mut page)[..5], [20, 20, 20, 7, 0]);
    page.assert_shows_the_simulation();
    page.assert_is_quiet();
}
