//! The fields of upstreams.

use super::{DRAFT06, LEGACY, now};

/// The fields of an upstream.
pub(super) struct Shape {
    pub(super) lines: Vec<(&'static str, String)>,
    /// The fewest remaining units in fields that can be read: in `RateLimit`, in draft-06 and in
    /// `X-RateLimit-*`.
    pub(super) least: [Option<u64>; 3],
}

pub(super) fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    let mut add = |lines: &[(&'static str, &str)], least| {
        let lines = lines
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let lines = lines.collect();
        shapes.push(Shape { lines, least });
    };
    const R: &str = "ratelimit";
    const P: &str = "ratelimit-policy";
    let none = [None; 3];
    let [limit, remaining, reset] = DRAFT06;
    let [x_limit, x_remaining, x_reset] = LEGACY;
    add(&[], none);
    for units in [3, 50, 99] {
        let lists = [Some(units), None, None];
        let draft06 = [None, Some(units), None];
        let legacy = [None, None, Some(units)];
        // The current draft.
        let member = format!("\"theirs\";r={units};t=9");
        add(&[(R, &member), (P, "\"theirs\";q=100;w=60")], lists);
        add(&[(R, &member)], lists);
        add(&[(R, &member), (P, "100;w=60")], lists);
        add(&[(R, &member), (P, "garbage")], lists);
        add(
            &[
                (R, &member),
                (R, "\"far\";r=99;t=1"),
                (P, "\"far\";q=99, \"theirs\";q=100"),
            ],
            lists,
        );
        add(
            &[
                (R, &format!("{member}, \"far\";r=99;x=?1")),
                (P, "\"theirs\";q=100"),
            ],
            lists,
        );
        add(
            &[
                (R, &format!("\"api\";r={units};t=99")),
                (P, "\"api\";q=100;w=60"),
            ],
            lists,
        );
        add(&[(R, &format!("\"theirs\";r={units};pk=:AA==:"))], lists);
        // Draft-07.
        let dictionary = format!("limit=100, remaining={units}, reset=5");
        add(&[(R, &dictionary), (P, "100;w=60")], lists);
        add(&[(R, &dictionary)], lists);
        add(&[(R, &dictionary), (P, "garbage")], lists);
        add(
            &[(R, &dictionary), (R, "limit=100, remaining=99, reset=5")],
            lists,
        );
        add(
            &[
                (R, "limit=100"),
                (R, &format!("remaining={units}")),
                (R, "reset=5"),
            ],
            lists,
        );
        add(&[(R, "\"far\";r=99"), (R, &dictionary)], lists);
        add(&[(R, &dictionary), (R, "\"unterminated")], lists);
        // Draft-06 and earlier ones.
        let left = units.to_string();
        add(&[(limit, "100"), (remaining, &left), (reset, "5")], draft06);
        add(
            &[
                (limit, "100"),
                (remaining, &left),
                (reset, "5"),
                (P, "100;w=60"),
            ],
            draft06,
        );
        add(
            &[(limit, "100, 100;w=60"), (remaining, &left), (reset, "5")],
            draft06,
        );
        add(&[(remaining, &left)], draft06);
        add(
            &[
                (limit, "100"),
                (remaining, &left),
                (reset, &(now() + 5).to_string()),
            ],
            draft06,
        );
        // `X-RateLimit-*`.
        add(
            &[(x_limit, "100"), (x_remaining, &left), (x_reset, "5")],
            legacy,
        );
        add(
            &[
                (x_limit, "100"),
                (x_remaining, &left),
                (x_reset, &(now() + 5).to_string()),
            ],
            legacy,
        );
        add(
            &[
                (x_limit, "100"),
                (x_remaining, &left),
                (x_reset, "1800000000.125"),
            ],
            legacy,
        );
        add(&[(x_limit, "100"), (x_remaining, &left)], legacy);
        // What cannot be read.
        add(
            &[(x_remaining, &left), (x_remaining, &left), (x_limit, "100")],
            none,
        );
        add(&[(remaining, &left), (reset, "soon"), (limit, "100")], none);
        add(
            &[
                (x_remaining, &left),
                (x_limit, "100"),
                (x_reset, "Thu, 01 Jan 1970 00:00:00 GMT"),
            ],
            none,
        );
    }
    for garbage in [
        "",
        ",",
        "\"",
        "\"ap",
        "theirs;r=3",
        "\"theirs\"",
        "\"theirs\";r=-3",
        "\"theirs\";r=3.5",
        "\"theirs\";r=3;t=x",
        "limit=100",
        "limit=100, remaining=-3, reset=5",
        "limit=100, remaining=3",
        "remaining=3",
        "3",
        "3;r=3",
        "\"é\";r=3",
        "(\"theirs\");r=3",
        "\"theirs\";r=9999999999999999",
        "\"theirs\";r=3,",
        "\"theirs\";r=3 \"far\"",
        "\"theirs\";r=3, 5",
        "\"theirs\";R=3",
    ] {
        add(&[(R, garbage)], none);
        add(&[(R, garbage), (P, "100;w=60")], none);
        // A number can be read as a policy.
        if garbage.starts_with('3') {
            continue;
        }
        add(&[(R, garbage), (P, garbage)], none);
        add(&[(P, garbage)], none);
    }
    for garbage in ["", "many", "-3", "3, 4", "1.5", "99999999999999999999", "é"] {
        add(&[(limit, "100"), (remaining, garbage), (reset, "5")], none);
        add(
            &[(x_limit, "100"), (x_remaining, garbage), (x_reset, "5")],
            none,
        );
    }
    add(&[(P, "100;w=60")], none);
    add(&[(P, "\"theirs\";q=100")], none);
    add(&[(limit, "100"), (x_reset, "5")], none);
    shapes
}
