//! What can be wrong with a store.

/// One thing that a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// What a store may do that says so: several asks one after the other, and back.
    SettlesBack,
    /// And this: waits in whole microseconds, in favour of the limit.
    RoundsWaitsUp,

    RoundsWaitsDown,
    /// One unit more passes, once for each key.
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
    /// What a rule writes at its first sight of a key that it refuses.
    ForgetsFirstSight,
    MixesPolicies,
    MixesKinds,
    CutsKeys,
    JoinsNames,
    TellsUnitsApart,
    IgnoresTheKeysOwnRule,
    KeepsEarlierAsks,
    AnswersInReverse,
    /// Several asks of one key each see what was there before all of them.
    DecidesOnOneState,
    ChargesWhereOthersRefuse,
    LosesSettlements,
    RefundMints,
    RefundOfTheForgottenMints,
    ResetDoesNothing,
    ResetsAllPolicies,
    MintsOnChange,
    /// One state for each key: a rule of another kind finds none, and replaces it.
    OneKindAtATime,
    /// A reset clears the state of the kind that wrote last.
    ResetsOneKind,
    LosesUpdates,
    LosesRefunds,
    ChargesDroppedTwice,
    DroppedBlocks,
    FailsOnce,
    ChargesFaultsTwice,
    StaysFaulty,
    InventsNumbers,
    Panics,
}
