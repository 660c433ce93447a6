//! Draws the seconds of the demo as an SVG (`--svg`), for pages.

use std::fmt::Write as _;

/// The admitted and the refused requests of one second.
pub(crate) type Second = (u64, u64);

/// The sizes of the picture, in pixels.
const WIDTH: u64 = 720;
const HEIGHT: u64 = 240;
const LEFT: u64 = 40;
const TOP: u64 = 56;
/// The height of a column in which all requests of a second are.
const FULL: u64 = 144;

/// Returns a picture with a column for each second: admitted requests below, refused ones above.
pub(crate) fn svg(rule: &str, seconds: &[Second]) -> String {
    let most = seconds.iter().map(|(admitted, refused)| admitted + refused);
    let most = most.max().unwrap_or(0).max(1);
    let height = |requests: u64| requests * FULL / most;
    let step = (WIDTH - 2 * LEFT) / (seconds.len() as u64).max(1);
    let base = TOP + FULL;
    // Readable on a light and on a dark page.
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>Requests of each second under {rule}: admitted and refused</title>
<style>
svg {{ color: #1f2328; background: #fff }}
.admitted {{ fill: #1a7f37 }}
.refused {{ fill: #e5a2a2 }}
@media (prefers-color-scheme: dark) {{
svg {{ color: #e6edf3; background: #0d1117 }}
.admitted {{ fill: #3fb950 }}
.refused {{ fill: #7d3b40 }}
}}
</style>
<text x="{LEFT}" y="28" fill="currentColor" font-size="15" font-weight="600">{rule}</text>
<rect class="admitted" x="{}" y="18" width="12" height="12"/>
<text x="{}" y="28" fill="currentColor">admitted</text>
<rect class="refused" x="{}" y="18" width="12" height="12"/>
<text x="{}" y="28" fill="currentColor">refused</text>
"##,
        WIDTH - 220,
        WIDTH - 202,
        WIDTH - 120,
        WIDTH - 102,
        rule = escaped(rule),
    );
    for (index, (admitted, refused)) in seconds.iter().enumerate() {
        let x = LEFT + index as u64 * step;
        let (green, red) = (height(*admitted), height(*refused));
        let (width, middle) = (step - 8, x + (step - 8) / 2);
        let mut column = |class: &str, y: u64, height: u64, count: u64| {
            let _ = writeln!(
                svg,
                r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#
            );
            // Where it has room.
            if height >= 16 {
                let _ = writeln!(
                    svg,
                    r##"<text x="{middle}" y="{}" text-anchor="middle" fill="{}">{count}</text>"##,
                    y + height / 2 + 5,
                    if class == "admitted" {
                        "#fff"
                    } else {
                        "currentColor"
                    },
                );
            }
        };
        column("admitted", base - green, green, *admitted);
        column("refused", base - green - red, red, *refused);
        let _ = writeln!(
            svg,
            r#"<text x="{middle}" y="{}" text-anchor="middle" fill="currentColor">{} s</text>"#,
            base + 20,
            index + 1,
        );
    }
    svg += "</svg>\n";
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
