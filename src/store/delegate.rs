//! One list of the methods of stores, for wrappers.
//!
//! A wrapper changes some methods, and passes the others to the store inside. A method that is new
//! in [`Backend`](super::Backend) or [`Store`](super::Store) gets an arm in one of the groups here,
//! instead of a copy in each wrapper. `tests/wrappers/delegation.rs` fails if a wrapper leaves a
//! group out.

/// Implements methods of a wrapper by those of the store inside.
///
/// It is written in an implementation of [`Backend`](crate::store::Backend) or
/// [`Store`](crate::store::Store), with the store inside as an expression, and the groups of
/// methods that are passed on. Without groups, all are.
///
/// | trait | group | methods |
/// |---|---|---|
/// | `Backend` | `identity` | `address`, `id`, `shard`; the lines of waiting calls |
/// | | `unsettled` | `unsettled` |
/// | | `refusals` | `refuses_beyond_rules`, `note_refusal` |
/// | `Store<Rule>` | `calls` | `acquire`, `look`, `settle`, `reset`; the wrapper has the futures of the store inside |
/// | | `renew` | `renew` |
/// | | `fits` | `fits` |
/// | | `fleet` | [`fleet`](crate::store::Store::fleet): nodes are counted and deltas are pushed past the wrapper |
/// | `FleetStore<Rule>` | `count_node` | `count_node`; deltas are not pushed |
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::store::{Backend, Store, driver::{Ask, Check, Settlement, delegate}};
/// use tollgate::{Policy, key::Key};
///
/// /// Counts the resets of keys.
/// struct CountResets<S> {
///     store: S,
///     resets: AtomicU64,
/// }
///
/// impl<S: Backend> Backend for CountResets<S> {
///     type Error = S::Error;
///
///     delegate!(Backend, self => self.store);
/// }
///
/// impl<Rule, S: Store<Rule>> Store<Rule> for CountResets<S> {
///     type Answer = S::Answer;
///     type Done = S::Done;
///
///     fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
///         self.store.acquire(asks)
///     }
///     fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
///         self.store.look(asks)
///     }
///     fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
///         self.store.settle(settlements)
///     }
///     fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
///         self.resets.fetch_add(1, Ordering::Relaxed);
///         self.store.reset(policy, key)
///     }
///     delegate!(Store<Rule>, self => self.store; renew, fits, fleet);
/// }
/// # let store = CountResets { store: tollgate::store::Local::new(), resets: AtomicU64::new(0) };
/// # let _ = Store::<tollgate::TokenBucket>::reset(&store, &Policy::new("api"), &"ann".into());
/// # assert_eq!(store.resets.into_inner(), 1);
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! __delegate {
    (Backend, $self:ident => $store:expr) => {
        $crate::__delegate!(Backend, $self => $store; identity, unsettled, refusals);
    };
    (Store<$Rule:ty>, $self:ident => $store:expr) => {
        $crate::__delegate!(Store<$Rule>, $self => $store; calls, renew, fits, fleet);
    };
    (Backend, $self:ident => $store:expr; $($group:ident),+) => {
        $($crate::__delegate!(@ $group, $self => $store);)+
    };
    (FleetStore, $self:ident => $store:expr; count_node) => {
        fn count_node(
            &$self,
            policy: &$crate::Policy,
            period: u64,
        ) -> Option<$crate::future::BoxFuture<Result<$crate::store::driver::NodeCounts, Self::Error>>>
        {
            $crate::store::Store::fleet(&$store)?.count_node(policy, period)
        }
    };
    (Store<$Rule:ty>, $self:ident => $store:expr; $($group:ident),+) => {
        $($crate::__delegate!(@ $group<$Rule>, $self => $store);)+
    };
    (@ identity, $self:ident => $store:expr) => {
        fn address(&$self) -> Option<&str> {
            $crate::store::Backend::address(&$store)
        }

        fn id(&$self) -> Option<$crate::store::driver::StoreId> {
            $crate::store::Backend::id(&$store)
        }

        fn shard(&$self, policy: &$crate::Policy, key: &$crate::key::Key) -> u32 {
            $crate::store::Backend::shard(&$store, policy, key)
        }

        fn lines(&$self) -> Option<&::std::sync::Arc<$crate::store::driver::Lines>> {
            $crate::store::Backend::lines(&$store)
        }
    };
    (@ unsettled, $self:ident => $store:expr) => {
        fn unsettled(&$self) -> Option<u64> {
            $crate::store::Backend::unsettled(&$store)
        }
    };
    (@ refusals, $self:ident => $store:expr) => {
        fn refuses_beyond_rules(&$self) -> bool {
            $crate::store::Backend::refuses_beyond_rules(&$store)
        }

        fn note_refusal(&$self, policy: &$crate::Policy, key: &$crate::key::Key) -> bool {
            $crate::store::Backend::note_refusal(&$store, policy, key)
        }
    };
    (@ calls<$Rule:ty>, $self:ident => $store:expr) => {
        fn acquire(
            &$self,
            asks: &[$crate::store::driver::Ask<'_, $Rule>],
        ) -> $crate::store::driver::Check<Self::Answer> {
            $crate::store::Store::<$Rule>::acquire(&$store, asks)
        }

        fn look(
            &$self,
            asks: &[$crate::store::driver::Ask<'_, $Rule>],
        ) -> $crate::store::driver::Check<Self::Answer> {
            $crate::store::Store::<$Rule>::look(&$store, asks)
        }

        fn settle(
            &$self,
            settlements: Vec<$crate::store::driver::Settlement<'_, $Rule>>,
        ) -> $crate::store::driver::Check<Self::Done> {
            $crate::store::Store::<$Rule>::settle(&$store, settlements)
        }

        fn settle_one(
            &$self,
            settlement: $crate::store::driver::Settlement<'_, $Rule>,
        ) -> $crate::store::driver::Check<Self::Done> {
            $crate::store::Store::<$Rule>::settle_one(&$store, settlement)
        }

        fn reset(
            &$self,
            policy: &$crate::Policy,
            key: &$crate::key::Key,
        ) -> $crate::store::driver::Check<Self::Done> {
            $crate::store::Store::<$Rule>::reset(&$store, policy, key)
        }
    };
    (@ renew<$Rule:ty>, $self:ident => $store:expr) => {
        fn renew(
            &$self,
            renewal: $crate::store::driver::Settlement<'_, $Rule>,
        ) -> $crate::future::BoxFuture<$crate::store::driver::Renewed> {
            $crate::store::Store::<$Rule>::renew(&$store, renewal)
        }
    };
    (@ fits<$Rule:ty>, $self:ident => $store:expr) => {
        fn fits(&$self, rule: &$Rule) -> Result<(), $crate::Error> {
            $crate::store::Store::<$Rule>::fits(&$store, rule)
        }
    };
    (@ fleet<$Rule:ty>, $self:ident => $store:expr) => {
        fn fleet(
            &$self,
        ) -> Option<&dyn $crate::store::driver::FleetStore<$Rule, Error = Self::Error>>
        where
            $Rule: $crate::algorithm::Algorithm,
        {
            $crate::store::Store::<$Rule>::fleet(&$store)
        }
    };
}
