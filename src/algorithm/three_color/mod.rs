//! Two rates and three colours: RFC 2698.

mod step;
mod wire;

use std::fmt;

pub(super) use self::step::ThreeColorState;
use super::{
    rule::{RuleWords, Setting, set, text},
    token_bucket::TokenBucket,
};
use crate::{
    error::{Error, or_panic, panicking},
    quota::Quota,
};

/// The two-rate three-colour marker of RFC 2698: green within a committed rate, yellow within a
/// peak rate, red above.
///
/// A token bucket for each rate, both full at first. A call that the peak bucket cannot pay is red,
/// and refused; one that the committed bucket cannot pay is yellow, and spends the peak bucket
/// alone; all others are green, and spend both. The colour is the [class](crate::Decision::class)
/// of the decision: 0 green, 1 yellow, and 2 of what is refused.
///
/// # Guarantees
///
/// In any span Δt at most peak burst + peak rate · Δt units pass, of them at most burst + rate · Δt
/// green. Both buckets are rounded as a [`TokenBucket`] is.
///
/// # Limitations
///
/// A yellow call is not restricted by itself: the handler, or an inner limit, must act on the
/// colour. A cost above the peak burst never passes; one above the burst is never green.
///
/// Decisions have the capacity, the rate, the remaining units, and the waits of the peak bucket;
/// `reset_after` is when both buckets are full.
///
/// # Colours of an outer limit
///
/// The class of a decision lies in the request's extensions, in its [`Outcome`](crate::Outcome),
/// unless the outer layer is set to leave [none](crate::respond::Http::outcome): a handler that
/// reads it can give a smaller answer. A marker that is [aware](Self::aware) takes the colour that
/// a request was [given](Self::given) before: red stays red, and yellow never becomes green again.
/// So an inner limit sheds what an outer one has demoted:
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response, StatusCode};
/// use tollgate::{Cascade, Decision, Outcome, Quota, RateLimitLayer, ThreeColor, TokenBucket};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// fn class(req: &Request<()>, policy: &str) -> u8 {
///     let outcome = req.extensions().get::<Outcome>();
///     outcome.and_then(|outcome| outcome.get(policy)).map_or(0, Decision::class)
/// }
///
/// // Two calls of class 0, one of class 1, and one of class 2.
/// let one = TokenBucket::per_hour(1);
/// let plan = Cascade::new(TokenBucket::per_hour(2)).then(one).then(one);
/// let backend = ThreeColor::new(Quota::per_hour(100), Quota::per_hour(200)).aware();
///
/// let mut service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(plan).named("plan"))
///     .layer(
///         RateLimitLayer::new(backend)
///             .named("backend")
///             .rule(move |req: &Request<()>| Some(backend.given(class(req, "plan")))),
///     )
///     .service(service_fn(async |req: Request<()>| {
///         let words = if class(&req, "backend") == 0 { "everything" } else { "the least" };
///         Ok::<_, Infallible>(Response::new(String::from(words)))
///     }));
///
/// for words in ["everything", "everything", "the least"] {
///     let response = service.ready().await?.call(Request::new(())).await?;
///     assert_eq!(response.body(), words);
/// }
/// // Red by its class, and so refused by the inner limit, which has plenty left.
/// let shed = service.ready().await?.call(Request::new(())).await?;
/// assert_eq!(shed.status(), StatusCode::TOO_MANY_REQUESTS);
/// # Ok(()) }
/// ```
///
/// # Memory
///
/// 24 bytes for each key: one instant, and a span of time for each bucket.
///
/// # When the rule changes
///
/// Credit carries over as time in both buckets, as in a [`TokenBucket`]: an exhausted client stays
/// exhausted. The given colour and the awareness are of the request alone: they change nothing that
/// is remembered.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last write, until the clock has caught up.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, Quota, ThreeColor, Timestamp};
/// use tollgate::algorithm::Algorithm;
///
/// let rule = ThreeColor::new(Quota::per_second(1), Quota::per_second(2)).burst(2).peak_burst(3);
/// let (mut state, now) = (None, Timestamp::from_nanos(1_000_000_000));
/// let mut call = || rule.step(&mut state, now, Cost::ONE).decision();
/// let colors: Vec<u8> = (0..4).map(|_| call().class()).collect();
/// assert_eq!(colors, [0, 0, 1, 2]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreeColor {
    pub(super) committed: TokenBucket,
    pub(super) peak: TokenBucket,
    /// The colour that a request was given before, if the marker is aware of it.
    given: Option<Color>,
}

/// The colour of a call; as a number, its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Color {
    Green,
    Yellow,
    Red,
}

impl ThreeColor {
    /// Creates a marker of these rates that ignores colours given before; each bucket holds its
    /// quota's amount.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails; meant for literals.
    #[track_caller]
    pub fn new(committed: Quota, peak: Quota) -> Self {
        or_panic(Self::try_new(committed, peak))
    }

    /// Creates a marker of these rates that ignores colours given before; each bucket holds its
    /// quota's amount.
    ///
    /// # Errors
    ///
    /// When the peak rate is below the committed one, or a quota is refused by a
    /// [`TokenBucket`](TokenBucket::try_new).
    pub fn try_new(committed: Quota, peak: Quota) -> Result<Self, Error> {
        if committed.slower(peak) != committed {
            return Err(Error::new(format!(
                "a peak rate of {peak} below the committed rate of {committed}: \
                 expected at least as much; exchange them, or raise the peak"
            )));
        }
        Ok(Self {
            committed: TokenBucket::try_new(committed)?,
            peak: TokenBucket::try_new(peak)?,
            given: None,
        })
    }

    panicking! {
        /// Sets the capacity of the committed bucket, in tokens.
        pub fn burst(self, tokens: u64) = try_burst;
    }

    /// Sets the capacity of the committed bucket, in tokens.
    ///
    /// # Errors
    ///
    /// When `tokens` is 0 or above 2⁴⁰, or such a bucket takes more than 24 years to fill.
    pub fn try_burst(self, tokens: u64) -> Result<Self, Error> {
        let committed = self.committed.try_burst(tokens)?;
        Ok(Self { committed, ..self })
    }

    panicking! {
        /// Sets the capacity of the peak bucket, in tokens.
        pub fn peak_burst(self, tokens: u64) = try_peak_burst;
    }

    /// Sets the capacity of the peak bucket, in tokens.
    ///
    /// # Errors
    ///
    /// When `tokens` is 0 or above 2⁴⁰, or such a bucket takes more than 24 years to fill.
    pub fn try_peak_burst(self, tokens: u64) -> Result<Self, Error> {
        let peak = self.peak.try_burst(tokens)?;
        Ok(Self { peak, ..self })
    }

    /// Makes the marker aware of the colour that a request was [given](Self::given) before.
    #[must_use]
    pub fn aware(self) -> Self {
        let given = self.given.or(Some(Color::Green));
        Self { given, ..self }
    }

    /// Returns the marker for a request that was given the colour `class` before: 0 green, 1
    /// yellow, 2 and above red.
    ///
    /// Changes nothing on a marker that is not [aware](Self::aware) of colours.
    #[must_use]
    pub fn given(self, class: u8) -> Self {
        let color = match class {
            0 => Color::Green,
            1 => Color::Yellow,
            _ => Color::Red,
        };
        let given = self.given.map(|_| color);
        Self { given, ..self }
    }

    /// Returns `true` if it is aware of the colour that a request was given before.
    pub const fn is_aware(&self) -> bool {
        self.given.is_some()
    }

    /// Returns the peak rate, which is the quota of decisions.
    pub const fn quota(&self) -> Quota {
        self.peak.quota()
    }

    /// Returns the capacity of the peak bucket in tokens: the greatest cost that can ever pass.
    pub const fn capacity(&self) -> u64 {
        self.peak.capacity()
    }

    /// Returns the committed rate.
    pub const fn committed_quota(&self) -> Quota {
        self.committed.quota()
    }

    /// Returns the capacity of the committed bucket in tokens: the greatest cost that can ever be
    /// green.
    pub const fn committed_capacity(&self) -> u64 {
        self.committed.capacity()
    }
}

impl ThreeColor {
    /// Parses a quota and settings, without the name before them.
    fn of_words(words: &mut RuleWords<'_>) -> Result<Self, Error> {
        let committed = words.quota()?;
        let names = ["burst", "peak", "peak-burst", "aware", "given"];
        let [burst, peak, peak_burst, aware, given] = words.settings(&names)?;
        let Some(peak) = peak else {
            return Err(Error::new(format!(
                "no peak rate in `{}`: expected one, as in `three-color 100/s peak=200/s`",
                words.text().trim()
            ))
            .at_column(words.text().trim_end().len() + 1));
        };
        let marker = peak.apply(peak.quota()?, |peak| Self::try_new(committed, peak))?;
        let marker = set(marker, burst, Setting::number, Self::try_burst)?;
        let mut marker = set(marker, peak_burst, Setting::number, Self::try_peak_burst)?;
        if let Some(word) = aware {
            word.flag()?;
            marker = marker.aware();
        }
        let Some(word) = given else {
            return Ok(marker);
        };
        let class = match word.word() {
            "green" => Color::Green,
            "yellow" => Color::Yellow,
            "red" => Color::Red,
            _ => return Err(word.error("`green`, `yellow` or `red`, as in `given=red`")),
        } as u8;
        word.apply(class, |class| {
            if marker.is_aware() {
                Ok(marker.given(class))
            } else {
                Err(Error::new(
                    "`given` without `aware`: expected both; write `aware` too, or leave out `given`",
                ))
            }
        })
    }

    /// Writes the quota, and the settings that differ from the defaults.
    fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (committed, peak) = (self.committed.quota(), self.peak.quota());
        write!(f, "{committed}")?;
        if self.committed.capacity() != committed.amount() {
            write!(f, " burst={}", self.committed.capacity())?;
        }
        write!(f, " peak={peak}")?;
        if self.peak.capacity() != peak.amount() {
            write!(f, " peak-burst={}", self.peak.capacity())?;
        }
        f.write_str(match self.given {
            None => "",
            Some(Color::Green) => " aware",
            Some(Color::Yellow) => " aware given=yellow",
            Some(Color::Red) => " aware given=red",
        })
    }
}

text! {
    /// Parses `three-color 100/s burst=100 peak=200/s peak-burst=200 aware given=yellow`; all but
    /// the quotas may be left out.
    ThreeColor
}
