//! The rule of a limit: one for good, or one that changes while it is in use.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use arc_swap::{ArcSwap, Guard};

use crate::{
    algorithm::{Algorithm, fits_in_memory},
    error::Error,
    locks::lock,
};

/// A rule that changes while layers and limiters decide by it.
///
/// Give it to [`Limit::live`](crate::Limit::live) or [`Limiter::live`](crate::Limiter::live), keep
/// a clone, and [`set`](Self::set) another rule at any time: after a file has changed, or from an
/// admin console. A limit reads the rule once for each request, without a lock, after the key and
/// the cost. A layer settles the charge of a request by the rule that made it.
///
/// Clients keep their usage if both rules have the same [kind of
/// state](crate::algorithm::Algorithm::state_kind). A higher limit of a window admits the
/// difference. Buckets and queues keep times, so what was spent counts at the new rate: an empty
/// bucket stays empty, and a queue of one-second slots has more room with slots of a minute.
///
/// Under a rule of another kind, each client begins anew. A `CounterStore` counts windows of each
/// length by themselves, and at most 64 lengths.
///
/// After the first change, the rate limit fields of a layer cost some more: their policy is
/// formatted for each response.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{LiveRule, Limit, prelude::*};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let rule = LiveRule::new("token-bucket 1/1h".parse::<AnyRule>()?);
/// let layer = RateLimitLayer::from(Limit::live(&rule).key(Header::new("x-user")));
/// let service = layer.layer(service_fn(async |_: Request<()>| {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
/// let status = async |user| {
///     let request = Request::builder().header("x-user", user).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status().as_u16()
/// };
///
/// assert_eq!((status("alice").await, status("alice").await), (200, 429));
/// rule.set("token-bucket 2/1h".parse()?)?;
/// assert_eq!(status("alice").await, 429);
/// assert_eq!((status("bob").await, status("bob").await), (200, 200));
/// # Ok(()) }
/// ```
#[doc(alias("hot reload", "dynamic", "update limit"))]
pub struct LiveRule<Rule>(Arc<Live<Rule>>);

struct Live<Rule> {
    current: ArcSwap<Rule>,
    /// The checks of all users, of which some are gone. Locked by who changes it or the rule, so
    /// that no user begins between the checks of a rule and its beginning.
    users: Mutex<Vec<Weak<Fits<Rule>>>>,
}

/// Returns an error if a user of a rule could not work with another one.
type Fits<Rule> = dyn Fn(&Rule) -> Result<(), Error> + Send + Sync;

/// Has the rules that are set later checked for one user, until the last clone is dropped.
pub(crate) type Watch = Arc<dyn Any + Send + Sync>;

impl_clone!(LiveRule<Rule>, { 0 });

impl<Rule: fmt::Debug> fmt::Debug for LiveRule<Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveRule").field(&*self.read()).finish()
    }
}

impl<Rule: Algorithm> LiveRule<Rule> {
    /// Begins with a rule.
    pub fn new(rule: Rule) -> Self {
        Self(Arc::new(Live {
            current: ArcSwap::from_pointee(rule),
            users: Mutex::default(),
        }))
    }

    /// Returns the current rule.
    pub fn get(&self) -> Rule {
        self.read().as_ref().clone()
    }

    /// Changes the rule for all requests that arrive from now on.
    ///
    /// The [`fits`](crate::store::Store::fits) of a store of your own must not set the rule itself.
    ///
    /// # Errors
    ///
    /// When the rule does not [fit](crate::store::Store::fits) the store of a layer or limiter that
    /// uses this one. Also when the rule [may delay](Algorithm::may_delay), and a listener uses
    /// this one, or a limit in a build without the feature `tokio`. Then nothing is changed.
    pub fn set(&self, rule: Rule) -> Result<(), Error> {
        // Dropped after the lock: the last user and the old rule may be dropped here, and their
        // stores may do anything then.
        let (fits, old): (Vec<_>, _);
        let users = self.users();
        fits = users.iter().filter_map(Weak::upgrade).collect();
        fits.iter().try_for_each(|fits| fits(&rule))?;
        old = self.0.current.swap(Arc::new(rule));
        drop(users);
        drop((fits, old));
        Ok(())
    }
}

impl<Rule> LiveRule<Rule> {
    fn read(&self) -> Guard<Arc<Rule>> {
        self.0.current.load()
    }

    /// Returns the checks of users that are not gone.
    fn users(&self) -> MutexGuard<'_, Vec<Weak<Fits<Rule>>>> {
        let mut users = lock(&self.0.users);
        users.retain(|fits| fits.strong_count() > 0);
        users
    }

    /// Has the current rule and all later ones checked for a user.
    ///
    /// # Errors
    ///
    /// That of the check, about the current rule.
    pub(crate) fn watch<F>(&self, fits: F) -> Result<Watch, Error>
    where
        F: Fn(&Rule) -> Result<(), Error> + Send + Sync + 'static,
    {
        let mut users = self.users();
        fits(&self.read())?;
        let fits = Arc::new(fits);
        let weak = Arc::downgrade(&fits);
        users.push(weak);
        Ok(fits)
    }
}

/// Checks that this build can delay requests if a rule does, and that nothing is beside calls in
/// flight.
pub(crate) fn check_rule(rule: &impl Algorithm) -> Result<(), Error> {
    fits_in_memory(rule)?;
    if rule.may_delay() && !cfg!(feature = "tokio") {
        return Err(Error::new(
            "the rule delays requests, which this build cannot: expected tollgate's feature `tokio`; enable it, or \
             take a rule that answers at once, such as `token-bucket`, `warm-up`, or `leaky-bucket` with `queue=0`",
        ));
    }
    Ok(())
}

/// The rule of a limit for requests without a rule of their own.
#[derive(Clone)]
pub(crate) enum OwnRule<Rule> {
    Fixed(Rule),
    Live {
        rule: LiveRule<Rule>,
        /// Has later rules checked for the limit.
        _watch: Watch,
    },
}

impl<Rule: fmt::Debug> fmt::Debug for OwnRule<Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(rule) => rule.fmt(f),
            Self::Live { rule, .. } => rule.fmt(f),
        }
    }
}

impl<Rule> OwnRule<Rule> {
    /// Returns the rule if it never changes.
    pub(crate) fn fixed(&self) -> Option<&Rule> {
        match self {
            Self::Fixed(rule) => Some(rule),
            Self::Live { .. } => None,
        }
    }
}

impl<Rule: Clone> OwnRule<Rule> {
    /// Has the rule checked for a user, and later ones while the result is kept.
    ///
    /// # Errors
    ///
    /// That of the check, about the current rule.
    #[cfg(feature = "listen")]
    pub(crate) fn watch<F>(&self, fits: F) -> Result<Option<Watch>, Error>
    where
        F: Fn(&Rule) -> Result<(), Error> + Send + Sync + 'static,
    {
        match self {
            Self::Fixed(rule) => fits(rule).map(|()| None),
            Self::Live { rule, .. } => rule.watch(fits).map(Some),
        }
    }

    /// Returns a copy of the current rule.
    pub(crate) fn get(&self) -> Rule {
        RequestRule::default().or_current(self).clone()
    }
}

/// Storage for a rule that one request is decided by, unless that is its limit's for good.
// Public because a hidden trait names it.
#[doc(hidden)]
#[derive(Debug)]
pub struct RequestRule<Rule> {
    pub(crate) of_request: Option<Rule>,
    current: Option<Guard<Arc<Rule>>>,
}

impl<Rule> Default for RequestRule<Rule> {
    #[inline]
    fn default() -> Self {
        Self {
            of_request: None,
            current: None,
        }
    }
}

impl<Rule> RequestRule<Rule> {
    /// Returns the rule of the request, or else the current rule of its limit.
    #[inline(always)]
    pub(crate) fn or_current<'a>(&'a mut self, own: &'a OwnRule<Rule>) -> &'a Rule {
        match (&self.of_request, own) {
            (Some(rule), _) | (None, OwnRule::Fixed(rule)) => rule,
            (None, OwnRule::Live { rule, .. }) => hold(&mut self.current, rule),
        }
    }
}

// Of its own, to keep the reader's bookkeeping out of the path of fixed rules.
#[inline(never)]
fn hold<'a, Rule>(storage: &'a mut Option<Guard<Arc<Rule>>>, rule: &LiveRule<Rule>) -> &'a Rule {
    storage.insert(rule.read())
}
