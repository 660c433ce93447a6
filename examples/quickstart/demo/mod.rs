//! The demo (`--demo`): sends real requests to the server, and checks that the server admits no
//! more than the rule allows.

mod chart;
mod client;
mod picture;
mod promise;

use std::{error::Error, fs, io::Write, net::SocketAddr, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use self::{
    chart::Chart,
    client::{Answer, Client},
    promise::Promise,
};
use crate::flags::Args;

const SECONDS: u64 = 10;
/// The longest `Retry-After` that the demo waits for, in seconds.
const PATIENCE: u64 = 30;

/// The results so far.
#[derive(Default)]
struct Seen {
    seconds: Vec<picture::Second>,
    admissions: Vec<(Instant, Instant)>,
    refused: u64,
    first_refusal: Option<(usize, Answer)>,
    /// The wait after the last request, if it was refused.
    retry_after: Option<u64>,
}

/// Shows a limited server at work. Fails if the server admits more than the rule allows.
pub(crate) async fn run(
    server: SocketAddr,
    args: &Args,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let promise = Promise::of(&args.rule)?;
    let pace = promise.exhausting_pace();
    let chart = Chart::of(pace);
    let mut client = Client::connect(server, crate::flags::example_header(&args.key)).await?;
    let mut seen = Seen::default();

    writeln!(
        out,
        "{}   --key {}\n{promise}\n",
        chart.heading(&args.rule.to_string()),
        args.key
    )?;
    writeln!(
        out,
        "{pace} requests a second, for {SECONDS} seconds   {}\n",
        chart.legend()
    )?;
    draw(&mut client, &mut seen, &chart, pace, out).await?;
    if let Some(path) = &args.svg {
        let picture = picture::svg(&args.rule.to_string(), &seen.seconds);
        fs::write(path, picture).map_err(|error| {
            format!("--svg \"{path}\": cannot be written: {error}; expected a file in a folder that exists")
        })?;
    }
    let admitted = seen.admissions.len();
    let most = promise.most(Duration::from_secs(SECONDS));
    let all = u64::try_from(admitted)? + seen.refused;
    writeln!(
        out,
        "\n{admitted} of {all} admitted; the rule allows at most {most} in this time"
    )?;

    if let Some((before, refusal)) = &seen.first_refusal {
        let title = format!("The first refusal, after {before} admitted");
        writeln!(out, "\n{}\n\n{refusal}", chart.heading(&title))?;
        retry(&mut client, &mut seen, &chart, out).await?;
    } else {
        writeln!(
            out,
            "Nothing was refused: the rule allows more than this demo sends."
        )?;
    }
    match promise.broken_by(&seen.admissions) {
        Some(broken) => Err(format!("the rule broke its promise: {broken}").into()),
        None => Ok(writeln!(out, "The rule kept its promise: {promise}.")?),
    }
}

/// Sends requests evenly, and draws a bar for each second.
async fn draw(
    client: &mut Client,
    seen: &mut Seen,
    chart: &Chart,
    pace: u64,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let live = chart::is_live();
    let start = Instant::now();
    for second in 0..SECONDS {
        let (mut admitted, mut refused) = (0, 0);
        for index in 0..pace {
            let due =
                Duration::from_secs(second) + Duration::from_nanos(1_000_000_000 * index / pace);
            sleep_until(start + due).await;
            if seen.ask(client).await? {
                admitted += 1;
            } else {
                refused += 1;
            }
            if live {
                write!(out, "\r{}", chart.row(second + 1, admitted, refused))?;
                out.flush()?;
            }
        }
        seen.seconds.push((admitted, refused));
        if live {
            writeln!(out)?;
        } else {
            writeln!(out, "{}", chart.row(second + 1, admitted, refused))?;
        }
    }
    Ok(())
}

/// Waits exactly as long as a refusal says, and sends another request.
async fn retry(
    client: &mut Client,
    seen: &mut Seen,
    chart: &Chart,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    // The last request may have been admitted. The test needs a refusal with no request after it.
    let mut attempts = 0;
    let wait = loop {
        if let Some(wait) = seen.retry_after {
            break wait;
        }
        seen.ask(client).await?;
        attempts += 1;
        if attempts > 10_000 {
            return Err("refused before, but not in 10,000 requests now".into());
        }
    };
    writeln!(out, "{}\n", chart.heading("Is Retry-After true?"))?;
    if wait > PATIENCE {
        writeln!(
            out,
            "  The last refusal said {wait} s, which is longer than this demo waits ({PATIENCE} s).\n"
        )?;
        return Ok(());
    }
    write!(
        out,
        "  The last refusal said {wait} s. Exactly that much later: "
    )?;
    out.flush()?;
    sleep(Duration::from_secs(wait)).await;
    let admitted = seen.ask(client).await?;
    writeln!(out, "{}\n", if admitted { "admitted." } else { "refused." })?;
    if admitted {
        return Ok(());
    }
    Err(format!("refused after waiting the {wait} s of Retry-After").into())
}

impl Seen {
    /// Sends a request. Returns `true` if it was admitted.
    async fn ask(&mut self, client: &mut Client) -> Result<bool, Box<dyn Error>> {
        let answer = client.get().await?;
        if answer.is_admitted()? {
            self.admissions.push((answer.sent, answer.received));
            self.retry_after = None;
            return Ok(true);
        }
        self.refused += 1;
        self.retry_after = match answer.retry_after() {
            Some(seconds @ 1..) => Some(seconds),
            _ => {
                return Err(
                    format!("a refusal without a Retry-After of at least 1:\n{answer}").into(),
                );
            }
        };
        self.first_refusal
            .get_or_insert((self.admissions.len(), answer));
        Ok(false)
    }
}
