//! The calendar of logs: known instants, and consecutive days compared with counting.

use replay::calendar::{Utc, parse_log_time};
use tollgate::Timestamp;

fn seconds(text: &str) -> Option<u64> {
    let at = parse_log_time(text.as_bytes())?;
    assert_eq!(at.as_nanos() % 1_000_000_000, 0, "{text}");
    Some(at.as_nanos() / 1_000_000_000)
}

#[test]
fn known_times_are_parsed() {
    // Computed with `date -u -d … +%s`.
    for (text, expected) in [
        ("01/Jan/1970:00:00:00 +0000", 0),
        ("01/Jan/1970:00:00:01 +0000", 1),
        ("31/Dec/1969:23:00:00 -0100", 0),
        ("01/Jan/1970:05:30:00 +0530", 0),
        ("10/Oct/2000:13:55:36 -0700", 971_211_336),
        ("29/Feb/2000:12:00:00 +0000", 951_825_600),
        ("01/Mar/2000:00:00:00 +0000", 951_868_800),
        ("31/Dec/1999:23:59:59 -0000", 946_684_799),
        ("09/Sep/2001:01:46:40 +0000", 1_000_000_000),
        ("29/Feb/2024:23:59:59 +1400", 1_709_200_799),
        ("28/Feb/2024:23:59:59 -1200", 1_709_207_999),
        ("19/Jan/2038:03:14:08 +0000", 2_147_483_648),
        ("28/Feb/2100:23:59:59 +0000", 4_107_542_399),
        ("01/Mar/2100:00:00:00 +0000", 4_107_542_400),
        ("31/Dec/2016:23:59:60 +0000", 1_483_228_800),
        ("01/Jan/2017:00:00:00 +0000", 1_483_228_800),
        ("11/Apr/2262:23:47:16 +0000", 9_223_372_036),
    ] {
        assert_eq!(seconds(text), Some(expected), "{text}");
    }
}

#[test]
fn invalid_times_are_rejected() {
    for text in [
        "",
        "10/Oct/2000:13:55:36",
        "10/Oct/2000:13:55:36 -070",
        "10/Oct/2000:13:55:36 -07000",
        "10/Oct/2000:13:55:36  0700",
        "10/oct/2000:13:55:36 -0700",
        "10/Okt/2000:13:55:36 -0700",
        "1a/Oct/2000:13:55:36 -0700",
        "+1/Oct/2000:13:55:36 -0700",
        "10-Oct-2000:13:55:36 -0700",
        "10/Oct/2000 13:55:36 -0700",
        "00/Oct/2000:13:55:36 -0700",
        "32/Oct/2000:13:55:36 -0700",
        "31/Nov/2000:13:55:36 -0700",
        "29/Feb/2023:13:55:36 -0700",
        "29/Feb/2100:13:55:36 -0700",
        "30/Feb/2024:13:55:36 -0700",
        "10/Oct/2000:24:55:36 -0700",
        "10/Oct/2000:13:60:36 -0700",
        "10/Oct/2000:13:55:61 -0700",
        "10/Oct/2000:13:55:36 -2400",
        "10/Oct/2000:13:55:36 -0760",
        // Before 1970, and later than 2^63 - 1 ns.
        "31/Dec/1969:23:59:59 +0000",
        "01/Jan/1970:00:00:00 +0001",
        "11/Apr/2262:23:47:17 +0000",
        "31/Dec/9999:23:59:59 +0000",
        "01/Jan/0000:00:00:00 +0000",
    ] {
        assert_eq!(seconds(text), None, "{text}");
    }
}

#[test]
fn consecutive_days_are_a_day_apart() {
    const MONTHS: [(&str, u32); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    let mut expected = 0;
    for year in 1970..2262 {
        let leap = u32::from(year % 4 == 0 && year % 100 != 0 || year == 2000);
        for (month, (name, days)) in MONTHS.into_iter().enumerate() {
            for day in 1..=days + if name == "Feb" { leap } else { 0 } {
                let text = format!("{day:02}/{name}/{year}:04:05:06 +0000");
                assert_eq!(seconds(&text), Some(expected + 14_706), "{text}");
                let at = Timestamp::from_nanos((expected + 14_706) * 1_000_000_000 + 999_999_999);
                let written = format!("{year}-{:02}-{day:02}T04:05:06Z", month + 1);
                assert_eq!(Utc(at).to_string(), written);
                expected += 86_400;
            }
        }
    }
}
