//! The pictures of `--plot`.

use crate::program::{TempFile, replay};

const COLOURS: [&str; 3] = ["#004488", "#DDAA33", "#BB5566"];

/// Draws a picture and parses it.
fn picture(name: &str, args: &[&str], input: &str) -> Svg {
    let file = TempFile::named(name);
    let end = replay(&[args, &["--plot", file.path()]].concat(), input);
    assert_eq!((end.code, &*end.errors), (Some(0), ""));
    Svg::parse(&std::fs::read_to_string(&file.0).expect("a picture"))
}

/// An element; its children are not included.
#[derive(Debug)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
}

struct Svg(Vec<Element>);

impl Svg {
    /// Parses XML with only elements, attributes and text. Panics if it is not well formed.
    fn parse(text: &str) -> Self {
        let (mut elements, mut open): (Vec<Element>, Vec<String>) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some(begin) = rest.find('<') {
            let (content, tag) = rest.split_at(begin);
            if let (Some(last), false) = (elements.last_mut(), content.trim().is_empty()) {
                last.text += unescaped(content.trim()).as_str();
            }
            let end = tag.find('>').expect("a tag that ends");
            rest = &tag[end + 1..];
            let tag = &tag[1..end];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name), "closed in order");
                continue;
            }
            let (tag, closed) = match tag.strip_suffix('/') {
                Some(tag) => (tag, true),
                None => (tag, false),
            };
            let (name, mut attributes) = tag.split_once(' ').expect("a name and attributes");
            let mut read = Vec::new();
            while let Some((key, value)) = attributes.split_once("=\"") {
                let (value, more) = value.split_once('"').expect("a value that ends");
                read.push((key.trim().to_owned(), unescaped(value)));
                attributes = more;
            }
            assert_eq!(attributes.trim(), "", "{tag}");
            elements.push(Element {
                name: name.to_owned(),
                attributes: read,
                text: String::new(),
            });
            if !closed {
                open.push(name.to_owned());
            }
        }
        assert_eq!((rest.trim(), &open[..]), ("", &[][..]), "all is closed");
        Self(elements)
    }

    fn texts(&self) -> Vec<&str> {
        let texts = self.0.iter().filter(|element| element.name == "text");
        texts.map(|element| &*element.text).collect()
    }

    /// Returns the start, width and height of the bars of a series. Skips the legend's square,
    /// which is the first of its color.
    fn bars(&self, series: usize) -> Vec<[i32; 4]> {
        let rects = self.0.iter().filter(|element| element.name == "rect");
        let own = rects.filter(|rect| rect.get("fill") == COLOURS[series]);
        own.skip(1)
            .map(|rect| {
                ["x", "y", "width", "height"].map(|name| rect.get(name).parse().expect("a number"))
            })
            .collect()
    }
}

impl Element {
    fn get(&self, name: &str) -> &str {
        let mut attributes = self.attributes.iter();
        attributes
            .find(|(own, _)| own == name)
            .map_or("", |(_, value)| value)
    }
}

fn unescaped(text: &str) -> String {
    assert!(!text.contains(['<', '>']), "{text}");
    let mut parts = text.split('&');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (entity, more) = part.split_once(';').expect("an entity that ends");
        plain.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            other => panic!("`{other}` is no entity of XML"),
        });
        plain += more;
    }
    plain
}

#[test]
fn series_are_stacked_over_time() {
    // One request a second passes. There are four in the first second, two in the fifth, one in the
    // tenth.
    let input = "0,a,1\n100,a,1\n200,a,1\n300,a,1\n4000000000,a,1\n4000000001,a,1\n9000000000,a,1\n\
                 9000000000,a,1,look\n9000000000,a,1,refund\n9000000000,b,9,look\n";
    let svg = picture(
        "stacked.svg",
        &["--rule=token-bucket 1/1s & token-bucket 9/1h"],
        input,
    );
    let texts = svg.texts();
    for text in [
        "token-bucket 1/s & token-bucket 9/1h",
        "admitted 3",
        "delayed 0",
        "refused 4",
    ] {
        assert!(texts.contains(&text), "{text} is not in {texts:?}");
    }
    assert!(
        texts.iter().any(|text| text.starts_with("requests per ")),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("1970-01-01")),
        "{texts:?}"
    );
    let [admitted, delayed, refused] = [0, 1, 2].map(|series| svg.bars(series));
    assert_eq!((admitted.len(), delayed.len(), refused.len()), (3, 0, 2));
    for bars in [&admitted, &refused] {
        assert!(bars.windows(2).all(|two| two[0][0] < two[1][0]), "in order");
    }
    // Bars of refused requests are above the admitted ones of the same time: three times as high,
    // and as high.
    for (admitted, refused, times) in [(admitted[0], refused[0], 3), (admitted[1], refused[1], 1)] {
        assert_eq!([admitted[0], admitted[2]], [refused[0], refused[2]]);
        assert_eq!(refused[1] + refused[3], admitted[1]);
        assert!(
            (refused[3] - times * admitted[3]).abs() <= times,
            "{admitted:?} {refused:?}"
        );
    }
    // From the first to the fifth second, and from there to the tenth.
    let [first, second, third] = [0, 1, 2].map(|bar| admitted[bar][0]);
    let steps = [5 * (second - first), 4 * (third - second)];
    assert!((steps[0] - steps[1]).abs() <= 20, "{admitted:?}");
}

#[test]
fn all_elements_are_inside_the_picture() {
    let minute = 60_000_000_000_u64;
    let day = 1440 * minute;
    let rule = [
        "--rule=token-bucket 1/1s burst=3 & token-bucket 100/1h & token-bucket 1000/1d burst=5000",
    ];
    for (name, begin, step, count) in [
        ("instant.svg", 1_700_000_000_000_000_000, 0, 5),
        ("nanoseconds.svg", 1_700_000_000_999_999_999, 1, 300),
        ("microseconds.svg", 0, 1_234, 5_000),
        ("seconds.svg", 1_700_000_000_000_000_000, 990_000_000, 2_000),
        ("days.svg", 951_782_400_000_000_000, 17 * minute, 20_000),
        ("centuries.svg", 0, 2_000 * day, 53),
    ] {
        let lines = (0..count).map(|n| format!("{},k,1\n", begin + n * step));
        let svg = picture(name, &rule, &lines.collect::<String>());
        let bars: Vec<_> = (0..3).flat_map(|series| svg.bars(series)).collect();
        assert!(
            !bars.is_empty() && bars.len() <= 400,
            "{name}: {} bars",
            bars.len()
        );
        for [x, y, width, height] in bars {
            assert!(x >= 0 && y >= 0 && width > 0 && height >= 0, "{name}");
            assert!(x + width <= 960 && y + height <= 480, "{name}");
        }
        let texts = svg.texts();
        let numbers: u64 = ["admitted ", "delayed ", "refused "]
            .iter()
            .filter_map(|series| texts.iter().find_map(|text| text.strip_prefix(series)))
            .map(|count| count.replace(',', "").parse::<u64>().expect("a number"))
            .sum();
        assert_eq!(numbers, count, "{name}: {texts:?}");
        // A title in two lines, three series, two axes, and ticks at both.
        assert!((10..30).contains(&texts.len()), "{name}: {texts:?}");
    }
}

#[test]
fn access_logs_are_drawn_too() {
    let line = |minute: u32| {
        format!("::1 - - [29/Feb/2024:23:{minute:02}:00 +0000] \"GET / HTTP/1.1\" 200 1\n")
    };
    let input = [10, 10, 40, 40, 40].map(line).concat();
    let args = [
        "--format=combined",
        "--rule=token-bucket 1/1m",
        "--key=path",
    ];
    let svg = picture("log.svg", &args, &input);
    let texts = svg.texts();
    for text in [
        "token-bucket 1/1m, for each path",
        "admitted 2",
        "refused 3",
        "time on 2024-02-29 (UTC)",
        "23:30",
    ] {
        assert!(texts.contains(&text), "{text} is not in {texts:?}");
    }
    assert_eq!([0, 1, 2].map(|series| svg.bars(series).len()), [2, 0, 2]);
}

#[test]
fn the_title_counts_further_rules() {
    let input = "1,a,1\n1,,0,rule,token-bucket 2/1m\n1,,0,rule,token-bucket 3/1m\n1,a,1\n";
    let svg = picture("rules.svg", &["--rule=token-bucket 1/1m"], input);
    assert_eq!(svg.texts()[0], "token-bucket 1/1m, then 2 more");
}

#[test]
fn an_empty_input_draws_no_bars() {
    let svg = picture("nothing.svg", &["--rule=token-bucket 1/1m"], "1,a,1,look\n");
    assert_eq!(svg.texts(), ["token-bucket 1/1m", "no requests"]);
}
