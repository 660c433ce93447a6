//! The flaws of a broken store.

/// One fault in the behaviour of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Not a flaw if declared: charges several asks one after the other, and settles back.
    SettlesBack,
    /// Not a flaw if declared: rounds waits up to whole microseconds.
    RoundsWaitsUp,

    RoundsWaitsDown,
    /// One extra unit passes, once for each key.
    AdmitsOneMore,
    AdmitsOneLess,
    /// Every cost is 1.
    ForgetsCost,
    CountsUp,
    ChargesRefusals,
    OversizeClears,
    OversizeIsToldAWait,
    LookSpends,
    LookIsStale,
    RetryTooEarly,
    RetryTooLate,
    TimeStands,
    MintsAsTheClockStepsBack,
    ForgetsTooEarly,
    /// Drops the state that a rule writes when it refuses a key at first sight.
    ForgetsFirstSight,
    MixesPolicies,
    MixesKinds,
    CutsKeys,
    JoinsNames,
    TellsUnitsApart,
    IgnoresTheKeysOwnRule,
    KeepsEarlierAsks,
    AnswersInReverse,
    /// Decides several asks of one key from the same state, ignoring each other's charges.
    DecidesOnOneState,
    ChargesWhereOthersRefuse,
    LosesSettlements,
    RefundMints,
    RefundOfTheForgottenMints,
    /// A renewal does nothing, and says that it was made.
    RenewsNothing,
    /// A renewal leaves the units where they were as well.
    RenewsTwice,
    /// What was renewed does not come back.
    RenewsForGood,
    /// A renewal gives the units back before it takes them.
    RenewsInTwoSteps,
    /// A renewal that was made is said not to be.
    DeniesRenewals,
    /// A renewal that a fault lost is said to be made.
    ClaimsLostRenewals,
    ResetDoesNothing,
    ResetsAllPolicies,
    MintsOnChange,
    /// A refusal under one rule refuses the key under others, until it ends.
    RemembersRefusalsOfKeys,
    /// Keeps one state per key: a rule of another kind finds none and replaces it.
    OneKindAtATime,
    /// A reset clears only the state of the kind that wrote last.
    ResetsOneKind,
    LosesUpdates,
    LosesRefunds,
    ChargesDroppedTwice,
    DroppedBlocks,
    FailsOnce,
    ChargesFaultsTwice,
    StaysFaulty,
    InventsNumbers,
    LosesNodes,
    /// A delta that arrives twice is added twice.
    RepeatsDeltas,
    /// A delta that arrives twice at the same time is added twice.
    RacesDeltas,
    /// A delta is added as if its units were spent on its arrival.
    DeltasComeNow,
    /// The state that comes back is that before the delta.
    DeltasAnswerEarly,
    /// The states of several deltas come back in reverse.
    DeltasAnswerInReverse,
    Panics,
}
