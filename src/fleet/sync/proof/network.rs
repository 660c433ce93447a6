//! The events of a schedule: calls, delays, losses, deaths and outages; and the faults that are
//! made on purpose.

use super::fleet::Operation;
use crate::random::Random;

/// A law that is broken on purpose, to see that the invariants notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Broken {
    #[default]
    Nothing,
    /// A node that is as far ahead as it may be goes on.
    NotHard,
    /// An answer that does not come is taken for one.
    LossIsTaken,
    /// A delta that is sent again has another number.
    NumberedAnew,
    /// The store takes in a delta each time.
    CountsTwice,
    /// A node takes the clock of the store to be later than it is.
    ClockAhead,
    /// A view is dropped although the store does not know all of it.
    DropsUnsynced,
    /// A node goes on admitting while the store decides a call.
    AdmitsBesideStore,
    /// A node forgets that the store decides a call of a key that it does not know.
    ForgetsCalls,
    /// A node goes by the state that an earlier answer brought.
    OldView,
    /// A node that ends cleanly does not push to the store first.
    FlushesNothing,
    /// A node that has flushed admits by itself again.
    AdmitsAfterFlush,
    /// A node that may not be ahead is.
    AheadAtZero,
    /// A node that is offline takes the whole limit.
    WholePart,
    /// A node refuses although it may be ahead.
    RefusesAhead,
    /// A reset forgets that the store decides calls of the key.
    ResetForgetsCalls,
    /// An answer to what was sent before a reset is taken for one of the view after it.
    AnswerOfBefore,
    /// The rest of a delta after a refund counts from its first unit on.
    RefundFromFirst,
    /// A refund is taken from units that were not pushed, and made by the store as well.
    RefundsTwice,
    /// A grant is taken from units that were not pushed, and made by the store as well.
    GrantsTwice,
    /// An answer does not set what a node knows of the clock of the store.
    KeepsClock,
    /// A node forgets a key when it leaves a call of it to the store.
    ForgetsView,
    /// The calls of nodes without the wrapper are not in the state that the others get.
    PlainApart,
}

/// The events of a schedule. Times are nanoseconds, chances are in a thousand.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    pub(super) nodes: u64,
    pub(super) calls: u64,
    pub(super) max_cost: u64,
    /// The longest gap between two calls; most are much shorter.
    pub(super) gap: u64,
    /// The longest time of a message.
    pub(super) delay: u64,
    pub(super) timeout: u64,
    pub(super) loss: u64,
    pub(super) repeat: u64,
    pub(super) death: u64,
    pub(super) keys: u64,
    /// The most keys that a node knows.
    pub(super) room: usize,
    /// Of a node to forget a key.
    pub(super) forget: u64,
    /// Of a node to hear of another number of nodes. If it is above 0, it knows of none at first.
    pub(super) count: u64,
    /// Of a call to come under another rule.
    pub(super) change: u64,
    /// The most units by which a node may be ahead.
    pub(super) most: u64,
    pub(super) period: u64,
    /// `true` if a failed call means that the store cannot be reached.
    pub(super) cuts_off: bool,
    /// Of a node to reset a key.
    pub(super) reset: u64,
    /// Of a call of a node to be corrected, mostly to less.
    pub(super) settle: u64,
    /// Of a node to grant units to a key.
    pub(super) grant: u64,
    /// Of the clock of a node to step.
    pub(super) node_steps: u64,
    /// Of the clock of the store to step.
    pub(super) store_steps: u64,
    /// The longest step of a clock.
    pub(super) longest_step: u64,
    /// `true` if the clock of the store may step back.
    pub(super) steps_back: bool,
    /// Of a call to come to a node without the wrapper.
    pub(super) plain: u64,
    /// `true` if each node has a period, a number of nodes and a number of units of its own.
    pub(super) differs: bool,
    pub(super) broken: Broken,
    /// An operation of which the meter allows a unit less than it may.
    pub(super) spared: Option<Operation>,
}

impl Network {
    /// One key, and a network that does what it should, in 5 ms at most.
    pub(super) fn quiet() -> Self {
        Self {
            nodes: 1,
            max_cost: 1,
            gap: 1,
            delay: 5_000_000,
            timeout: 50_000_000,
            keys: 1,
            room: 1,
            period: 1,
            ..Self::default()
        }
    }

    /// `span` is the time in which the whole limit is refilled.
    pub(super) fn random(random: &mut Random, span: u64, limit: u64) -> Self {
        let mut rarely = |chance| match random.up_to(2) {
            0 => random.up_to(chance),
            _ => 0,
        };
        let [loss, repeat, death, forget, count, change] =
            [300, 200, 40, 200, 100, 1000].map(&mut rarely);
        let keys = 1 + rarely(3);
        let delay = random.up_to(span / 4) >> random.up_to(5);
        // Each of them allows more, so most schedules have none.
        let mut seldom = |chance| match random.up_to(7) {
            0 => 1 + random.up_to(chance),
            _ => 0,
        };
        let [reset, settle, grant, node_steps, store_steps, plain] =
            [60, 600, 60, 60, 60, 600].map(&mut seldom);
        let differs = seldom(1) > 0;
        Self {
            nodes: 1 + random.up_to(4),
            calls: 20 + random.up_to(50),
            max_cost: 1 + random.up_to(2),
            gap: 1 + (random.up_to(span / 4) >> random.up_to(6)),
            delay,
            timeout: 1_000_000 + delay / 2 + random.up_to(3 * delay),
            loss,
            repeat,
            death,
            keys,
            room: 1 + random.up_to(keys) as usize,
            forget,
            count,
            change,
            most: 1 + random.up_to(limit / 2),
            period: 1_000_000 + random.up_to(span / 2),
            cuts_off: false,
            reset,
            settle,
            grant,
            node_steps,
            store_steps,
            longest_step: 2 * span,
            steps_back: true,
            plain,
            differs,
            broken: Broken::Nothing,
            spared: None,
        }
    }

    /// Leaves out corrections, resets, steps of clocks, and nodes that are not like the others.
    pub(super) fn simplify(&mut self) {
        (self.reset, self.settle, self.grant) = (0, 0, 0);
        (self.node_steps, self.store_steps) = (0, 0);
        (self.plain, self.differs) = (0, false);
    }
}
