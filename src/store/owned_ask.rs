//! The asks of a call that waits.

use smallvec::SmallVec;

use super::Ask;
use crate::{decision::Cost, key::Key, policy::Policy};

/// The asks of a call, owned: for a store or wrapper whose answer comes later.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket, store::{Ask, Decisions, Local, OwnedAsks, Store}};
///
/// /// Asks a store from a task, which outlives the caller's asks.
/// async fn ask_later(store: Local<TokenBucket>, asks: &[Ask<'_, TokenBucket>]) -> Decisions {
///     let asks = OwnedAsks::new(asks);
///     let task = tokio::spawn(async move { store.acquire(&asks.to_vec()).await });
///     match task.await.unwrap() {
///         Ok(decisions) => decisions,
///         Err(never) => match never {},
///     }
/// }
///
/// # #[tokio::main] async fn main() {
/// let (api, rule) = (Policy::new("api"), TokenBucket::per_second(10));
/// let decisions = ask_later(Local::new(), &[Ask::new(&api, &rule, "alice".into(), Cost::ONE)]).await;
/// assert_eq!(decisions.as_slice()[0].remaining(), Some(9));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OwnedAsks<Rule>(SmallVec<[OwnedAsk<Rule>; 1]>);

#[derive(Clone, Debug)]
struct OwnedAsk<Rule> {
    policy: Policy,
    rule: Rule,
    key: Key,
    cost: Cost,
    /// The most units that may be granted in place of the cost, see [`Ask::up_to`].
    up_to: u64,
    decides: bool,
}

impl<Rule: Clone> OwnedAsks<Rule> {
    /// Copies the asks of a call.
    pub fn new(asks: &[Ask<'_, Rule>]) -> Self {
        let owned = |ask: &Ask<'_, Rule>| OwnedAsk {
            policy: ask.policy().clone(),
            rule: ask.rule().clone(),
            key: *ask.key(),
            cost: ask.cost(),
            up_to: ask.spend().most(),
            decides: ask.decides(),
        };
        Self(asks.iter().map(owned).collect())
    }
}

impl<Rule> OwnedAsks<Rule> {
    /// Returns the asks, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Ask<'_, Rule>> {
        self.0.iter().map(|owned| {
            let ask = Ask::new(&owned.policy, &owned.rule, owned.key, owned.cost);
            let ask = ask.up_to(owned.up_to);
            if owned.decides {
                ask.that_decides()
            } else {
                ask
            }
        })
    }

    /// Returns the policy and the key of each ask.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Policy, &Key)> + Clone {
        self.0.iter().map(|ask| (&ask.policy, &ask.key))
    }

    /// Returns the asks as a list that takes no allocation for two of them.
    pub(crate) fn to_list(&self) -> SmallVec<[Ask<'_, Rule>; 2]> {
        self.iter().collect()
    }

    /// Returns the asks as a list, to be put to a store.
    pub fn to_vec(&self) -> Vec<Ask<'_, Rule>> {
        self.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::OwnedAsks;
    use crate::{Cost, Policy, TokenBucket, store::Ask};

    #[test]
    fn all_parts_of_an_ask_are_kept() {
        let policies = ["api", "tokens"].map(Policy::new);
        let rules = [TokenBucket::per_second(10), TokenBucket::per_hour(20)];
        let cost = |units| Cost::new(units).unwrap();
        let asks = [
            Ask::new(&policies[0], &rules[0], "alice".into(), cost(3)).up_to(40),
            Ask::new(&policies[1], &rules[1], "bob".into(), cost(5)).that_decides(),
        ];
        let owned = OwnedAsks::new(&asks);
        for kept in [
            owned.to_vec(),
            owned.to_list().to_vec(),
            owned.clone().to_vec(),
        ] {
            assert_eq!(format!("{kept:?}"), format!("{asks:?}"));
            let most = kept.iter().map(|ask| ask.spend().most());
            assert_eq!(most.collect::<Vec<_>>(), [40, 5]);
            let decides: Vec<_> = kept.iter().map(Ask::decides).collect();
            assert_eq!(decides, [false, true]);
        }
    }
}
