//! Narrow and wide screens, contrast in both colour schemes, and names for those who cannot see.

use serde_json::json;

use crate::page::Page;

const STATES: [&str; 5] = [
    "",
    "rule=fixed-window+1099511627776/365d",
    "rule=leaky-bucket+10/s+queue%3D20+max-wait%3D2s",
    "rule=token-bucket+20/s+burst%3D40+%26+fixed-window+100/10s&traffic=1+2+3+4+5+6+7+8+9+10+11+12+13+14+15",
    "rule=token-bucket+10/s+anUnknownSettingWhoseNameIsMuchTooLongForALineOfText=1&traffic=what",
];

#[test]
fn nothing_is_cut_off_from_360_to_1600_pixels() {
    let mut page = Page::open("");
    for width in [360, 414, 768, 959, 960, 1280, 1600] {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        page.chromium
            .call("Emulation.setDeviceMetricsOverride", size);
        for state in STATES {
            page.go(state);
            let outside = page.chromium.evaluate(
                "[...document.querySelectorAll('body *:not(.hidden, script, style)')]
                   .filter((element) => {
                     const box = element.getBoundingClientRect();
                     return box.left < 0 || box.right > innerWidth + 0.5;
                   })
                   .map((element) => element.outerHTML.slice(0, 100))",
            );
            assert_eq!(outside, json!([]), "{width} pixels, {state}");
            let scrolls = page
                .chromium
                .evaluate("document.documentElement.scrollWidth > innerWidth");
            assert_eq!(scrolls, false, "{width} pixels, {state}");
        }
    }
    page.assert_is_quiet();
}

/// The ratios of the guidelines for accessibility (WCAG 2.2, level AA): 4.5 for text, 3 for fields
/// and for what a picture is read by.
#[test]
fn text_and_pictures_stand_out_from_their_backgrounds() {
    let mut page = Page::open("");
    for scheme in ["light", "dark"] {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        page.chromium.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        );
        for state in STATES {
            page.go(state);
            let result = page.chromium.evaluate(
                "(() => {
                   const channels = (color) => color.match(/[\\d.]+/g).map(Number);
                   const luminance = (color) => {
                     const [red, green, blue] = channels(color).map((value) => {
                       const part = value / 255;
                       return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
                     });
                     return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
                   };
                   const background = (element) => {
                     const color = getComputedStyle(element).backgroundColor;
                     return channels(color)[3] === 0 ? background(element.parentElement) : color;
                   };
                   const ratio = (one, other) => {
                     const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
                     return (light + 0.05) / (dark + 0.05);
                   };
                   let compared = 0;
                   const low = [];
                   const compare = (element, color, least) => {
                     // Numbers of an earlier rule are faint on purpose.
                     if (!element.checkVisibility() || element.closest('.outdated :is(dl, figure)')) return;
                     compared += 1;
                     const found = ratio(color, background(element));
                     if (found < least) low.push(`${found.toFixed(2)} ${element.outerHTML.slice(0, 80)}`);
                   };
                   for (const element of document.querySelectorAll('body *:not(svg, svg *)')) {
                     const style = getComputedStyle(element);
                     const texts = [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
                     if (texts.length > 0 || element.matches('input')) compare(element, style.color, 4.5);
                     if (element.matches('input, select, button')) {
                       compare(element.parentElement, style.borderTopColor, 3);
                     }
                   }
                   for (const path of document.querySelectorAll('path:not(.cursor)')) {
                     const { fill, stroke } = getComputedStyle(path);
                     compare(path.closest('.plot'), stroke === 'none' ? fill : stroke, 3);
                   }
                   return { compared, low };
                 })()",
            );
            assert!(result["compared"].as_u64() > Some(40), "{result}");
            assert_eq!(result["low"], json!([]), "{scheme}, {state}");
        }
    }
    // The schemes differ.
    let dark = page
        .chromium
        .evaluate("getComputedStyle(document.body).backgroundColor");
    page.chromium
        .call("Emulation.setEmulatedMedia", json!({ "features": [] }));
    page.chromium.call(
        "Emulation.setEmulatedMedia",
        json!({ "features": [{ "name": "prefers-color-scheme", "value": "light" }] }),
    );
    let light = page
        .chromium
        .evaluate("getComputedStyle(document.body).backgroundColor");
    assert_ne!(dark, light);
    page.assert_is_quiet();
}

#[test]
fn fields_buttons_and_pictures_have_names() {
    let mut page = Page::open(STATES[2]);
    let tree = page.chromium.call("Accessibility.getFullAXTree", json!({}));
    let mut found = Vec::new();
    for node in tree["nodes"].as_array().unwrap() {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        let roles = ["textbox", "combobox", "button", "slider", "image", "img"];
        if roles.contains(&role) && node["ignored"] == false {
            let name = node["name"]["value"].as_str().unwrap_or_default();
            assert!(!name.trim().is_empty(), "a {role} without a name: {node}");
            found.push(role);
        }
    }
    let count = |role: &str| found.iter().filter(|found| **found == role).count();
    assert_eq!(
        [
            count("textbox"),
            count("combobox"),
            count("slider"),
            count("button")
        ],
        [2, 2, 1, 12]
    );
    assert_eq!(count("image") + count("img"), 4, "{found:?}");
    page.assert_is_quiet();
}
