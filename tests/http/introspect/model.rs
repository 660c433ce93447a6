//! The cache against a model that remembers every look-up and derives each answer from all of them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use support::Random;
use tollgate::{
    Timestamp,
    key::introspect::{Claims, Introspect, InvalidAnswer, Token},
    time::{Clock, ManualClock},
};

use tower::BoxError;

use crate::introspect::subject::{around, ask};

const SECOND: u64 = 1_000_000_000;

/// The server's word on a token.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Word {
    Active(Option<u64>),
    Inactive,
    Down,
    Unreadable,
}

impl Word {
    fn is_failure(self) -> bool {
        matches!(self, Self::Down | Self::Unreadable)
    }
}

/// Every look-up of one token, in seconds since the start.
#[derive(Default)]
struct History(Vec<(u64, Word)>);

struct Times {
    max_age: u64,
    inactive_age: u64,
    stale: u64,
    retry: u64,
    fails_open: bool,
}

impl Times {
    /// Returns the answer after a failure, without a known one.
    fn failed(&self, word: Word) -> String {
        match self.fails_open && word == Word::Down {
            true => "unchecked".to_owned(),
            false => "503".to_owned(),
        }
    }
}

impl History {
    /// Returns the last answer, and until when it is fresh and stale.
    fn last_answer(&self, times: &Times) -> Option<(bool, u64, u64)> {
        let answered = |(_, word): &&(u64, Word)| !word.is_failure();
        let (at, word) = *self.0.iter().rfind(answered)?;
        Some(match word {
            // Active, but expired: as inactive.
            Word::Active(Some(exp)) if exp <= at => (
                false,
                at + times.inactive_age,
                at + times.inactive_age + times.stale,
            ),
            Word::Active(exp) => {
                let end = exp.unwrap_or(u64::MAX);
                let fresh = (at + times.max_age).min(end);
                (true, fresh, (fresh + times.stale).min(end))
            }
            _ => (
                false,
                at + times.inactive_age,
                at + times.inactive_age + times.stale,
            ),
        })
    }

    /// Returns `true` if the last answer was an active token that does not expire before it is
    /// asked for again.
    fn renews(&self, times: &Times) -> bool {
        let last = self.0.iter().rfind(|(_, word)| !word.is_failure());
        match last {
            Some((at, Word::Active(exp))) => exp.is_none_or(|exp| at + times.max_age < exp),
            _ => false,
        }
    }

    /// Returns the expected answer at `now`, and notes the look-up if there is one; also one that
    /// `renewed` the token early, if that may be.
    fn ask(&mut self, now: u64, (word, renewed): (Word, bool), times: &Times) -> String {
        let text = |active: bool, stale: bool| match (active, stale) {
            (true, false) => "ann".to_owned(),
            (true, true) => "ann stale".to_owned(),
            (false, _) => "401".to_owned(),
        };
        if let Some((active, fresh, stale)) = self.last_answer(times) {
            let last = self.0.last().copied();
            let failed = last.filter(|(at, word)| word.is_failure() && now < at + times.retry);
            let failed_lately = failed.is_some();
            if now < fresh {
                // From 70 % of its age on it may be renewed, and from 90 % on it must be, unless it
                // ends by itself.
                let age = 10 * (now + times.max_age).saturating_sub(fresh);
                let can = self.renews(times) && !failed_lately;
                let (may, must) = (age >= 7 * times.max_age, age >= 9 * times.max_age);
                assert!(!renewed || can && may, "renewed at {now}");
                assert!(renewed || !(can && must), "not renewed at {now}");
                if renewed {
                    self.0.push((now, word));
                }
                return text(active, false);
            }
            if !failed_lately {
                self.0.push((now, word));
            }
            let word = failed.map_or(word, |(_, failure)| failure);
            if word.is_failure() {
                return match now < stale {
                    true => text(active, true),
                    false => times.failed(word),
                };
            }
        } else {
            self.0.push((now, word));
            if word.is_failure() {
                return times.failed(word);
            }
        }
        let (active, ..) = self.last_answer(times).unwrap();
        text(active, false)
    }
}

#[tokio::test(flavor = "current_thread")]
async fn answers_are_those_of_the_model() {
    const TOKENS: usize = 4;
    for seed in 0..support::cases(40).max(8) {
        let mut random = Random::new(seed);
        let mut below = |bound: u64| random.next_u64() % bound;
        let times = Times {
            max_age: 1 + below(20),
            inactive_age: 1 + below(10),
            stale: below(3) * below(20),
            retry: 1 + below(5),
            fails_open: below(2) == 0,
        };
        let clock = ManualClock::default();
        let start = clock.now().as_nanos();
        let words = Arc::new(Mutex::new([Word::Inactive; TOKENS]));
        let lookups = Arc::new(Mutex::new([0_usize; TOKENS]));
        let (server, counted) = (Arc::clone(&words), Arc::clone(&lookups));
        let look_up = move |token: Token| {
            let index: usize = token.expose().parse().unwrap();
            counted.lock().unwrap()[index] += 1;
            let word = server.lock().unwrap()[index];
            async move {
                match word {
                    Word::Down => Err(BoxError::from("down")),
                    Word::Unreadable => Err(InvalidAnswer::new("unreadable").into()),
                    Word::Inactive => Ok(None),
                    Word::Active(exp) => {
                        let claims = Claims::new().with_subject("ann");
                        let at = |exp| Timestamp::from_nanos(start + exp * SECOND);
                        Ok(Some(
                            exp.map_or(claims.clone(), |exp| claims.with_expiry(at(exp))),
                        ))
                    }
                }
            }
        };
        let seconds = Duration::from_secs;
        let mut builder = Introspect::builder(look_up);
        if times.fails_open {
            builder = builder.fail_open();
        }
        let layer = builder
            .max_age(seconds(times.max_age))
            .inactive_age(seconds(times.inactive_age))
            .serve_stale(seconds(times.stale))
            .retry_after(seconds(times.retry))
            .clock(clock.clone())
            .build()
            .unwrap();
        let subject = around(&layer);
        let mut histories = [(); TOKENS].map(|()| History::default());
        for step in 0..300 {
            let elapsed = below(3) * below(5);
            clock.advance(seconds(elapsed));
            let now = (clock.now().as_nanos() - start) / SECOND;
            let index = below(TOKENS as u64) as usize;
            if below(3) == 0 {
                words.lock().unwrap()[index] = match below(6) {
                    0 | 1 => Word::Down,
                    2 => Word::Inactive,
                    3 => Word::Active(None),
                    4 => Word::Unreadable,
                    _ => Word::Active(Some(now + below(30))),
                };
            }
            let word = words.lock().unwrap()[index];
            let answer = ask(&subject, &index.to_string()).await;
            // A renewal is a task of its own.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let asked = lookups.lock().unwrap()[index];
            let renewed = asked > histories[index].0.len();
            let expected = histories[index].ask(now, (word, renewed), &times);
            assert_eq!(answer, expected, "seed {seed}, step {step}, at {now} s");
            assert_eq!(asked, histories[index].0.len(), "seed {seed}, step {step}");
        }
        let total: usize = lookups.lock().unwrap().iter().sum();
        assert_eq!(layer.stats().lookups, total as u64);
    }
}
