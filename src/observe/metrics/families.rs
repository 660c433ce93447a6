//! All metrics, in one list: their names, units, labels and descriptions.

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit, with_recorder};

/// Makes a constant of each metric, the list of all, and the table for the documentation.
macro_rules! families {
    ($($FAMILY:ident = $name:literal $Form:ident $Unit:ident [$($labels:literal)?] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub(super) const $FAMILY: Family = Family {
                name: $name,
                form: Form::$Form,
                unit: Unit::$Unit,
                help: $help,
            };
        )*

        /// All of them.
        pub(super) const ALL: &[Family] = &[$($FAMILY),*];

        /// Returns the table of the documentation.
        macro_rules! table {
            () => {
                concat!(
                    "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n",
                    $("| `", $name, "` | ", stringify!($Form), " | ", stringify!($Unit), " | ", $($labels,)? " | ", $help, " |\n",)*
                )
            };
        }
    };
}

families! {
    // Reported by `Metrics`, event by event.
    REQUESTS = "tollgate_requests_total" Counter Count
        ["`policy`; `outcome`: `admitted`, `delayed`, `refused`, `undecided_admitted`, `undecided_refused`"]
        "Decisions of a limit; undecided if the store could not decide";
    DELAY = "tollgate_delay_seconds" Histogram Seconds ["`policy`"]
        "Delays of requests that a limit delayed";
    SETTLED_UNITS = "tollgate_settled_units_total" Counter Count ["`policy`; `direction`: `returned`, `added`"]
        "Units by which charges were corrected to their actual costs";
    DRY_RUN = "tollgate_dry_run_total" Counter Count
        ["`policy`; `verdict`: `admitted`, `delayed`, `refused`, `undecided`"]
        "Decisions of a limit on a dry run, which had no effect";
    EXEMPT = "tollgate_exempt_total" Counter Count []
        "Requests that all limits of a layer exempted";
    MISSING_KEYS = "tollgate_missing_keys_total" Counter Count ["`fault`: `client`, `server`"]
        "Requests without a key; the server's fault if it lacks what a key is made of";

    // Published for a layer.
    LAYER_CANCELLED = "tollgate_layer_cancelled_total" Counter Count ["`layer`"]
        "Delayed requests that were dropped before their turn";
    LAYER_COLLISIONS = "tollgate_layer_collisions_total" Counter Count ["`layer`"]
        "Limits of other layers that share the states of this one, as both have no name";
    LAYER_MISCONFIGURED = "tollgate_layer_misconfigured_total" Counter Count ["`layer`"]
        "Requests that were refused, or charged twice, because the server is set up wrongly";
    LAYER_UNSETTLED = "tollgate_layer_unsettled_total" Counter Count ["`layer`"]
        "Charges that may not have been corrected, in the layer's store";

    // Published for the responder of a layer.
    REFUSED_BODIES = "tollgate_refused_bodies_total" Counter Count
        ["`layer`; `outcome`: `finished`, `failed`, `given_up`, `crowded`, `no_runtime`"]
        "Bodies of refused requests that were read, or dropped because of a bound";
    REFUSED_BODIES_IN_FLIGHT = "tollgate_refused_bodies_in_flight" Gauge Count ["`layer`"]
        "Bodies of refused requests that are being read";

    // Published for a layer of introspection.
    INTROSPECT_HITS = "tollgate_introspect_hits_total" Counter Count ["`layer`"]
        "Requests whose token was answered from the cache";
    INTROSPECT_LOOKUPS = "tollgate_introspect_lookups_total" Counter Count ["`layer`"]
        "Look-ups of tokens that were started";
    INTROSPECT_SHARED = "tollgate_introspect_shared_total" Counter Count ["`layer`"]
        "Requests that waited for the look-up of another request";
    INTROSPECT_FAILED = "tollgate_introspect_failed_total" Counter Count ["`layer`"]
        "Look-ups that failed, including the next three";
    INTROSPECT_TIMEOUTS = "tollgate_introspect_timeouts_total" Counter Count ["`layer`"]
        "Look-ups without an answer within the deadline";
    INTROSPECT_INVALID = "tollgate_introspect_invalid_answers_total" Counter Count ["`layer`"]
        "Look-ups with an answer that could not be read";
    INTROSPECT_ABORTED = "tollgate_introspect_aborted_total" Counter Count ["`layer`"]
        "Look-ups that ended by a panic, or with their runtime";
    INTROSPECT_EXPIRED = "tollgate_introspect_expired_total" Counter Count ["`layer`"]
        "Look-ups of active tokens that had expired by this node's clock";
    INTROSPECT_CROWDED = "tollgate_introspect_crowded_total" Counter Count ["`layer`"]
        "Requests whose token was not looked up, because too many others were";
    INTROSPECT_REQUESTS = "tollgate_introspect_requests_total" Counter Count
        ["`layer`; `outcome`: `anonymous`, `inactive`, `malformed`, `stale`, `unavailable`, `unchecked`"]
        "Requests without a token, with one that is not valid, or with one that could not be checked";
    INTROSPECT_TOKENS = "tollgate_introspect_tokens" Gauge Count ["`layer`; `state`: `active`, `inactive`"]
        "Tokens in the cache, including those whose lifetime has ended";
    INTROSPECT_IN_FLIGHT = "tollgate_introspect_in_flight" Gauge Count ["`layer`"]
        "Look-ups in flight";

    // Published for any store.
    STORE_FAILURES = "tollgate_store_failures_total" Counter Count ["`store`"]
        "Calls that the store failed";
    STORE_UNWRITTEN = "tollgate_store_unwritten_total" Counter Count ["`store`"]
        "Calls that failed because the server takes no writes";
    STORE_CONTENTIONS = "tollgate_store_contentions_total" Counter Count ["`store`"]
        "Calls that lost every race for a key";
    STORE_UNSUPPORTED = "tollgate_store_unsupported_total" Counter Count ["`store`"]
        "Calls that the store does not support";
    STORE_UNSETTLED = "tollgate_store_unsettled_total" Counter Count ["`store`"]
        "Settlements that failed, may have failed, or gave nothing back";
    STORE_TIMEOUTS = "tollgate_store_timeouts_total" Counter Count ["`store`"]
        "Calls without an answer within the deadline";

    // Published for wrappers.
    CIRCUIT_STATE = "tollgate_circuit_state" Gauge Count ["`store`; `state`: `closed`, `half_open`, `open`"]
        "1 for the state of the circuit breaker, 0 for the others; with several shards, the worst state";
    CIRCUIT_OPENED = "tollgate_circuit_opened_total" Counter Count ["`store`"]
        "Times that a circuit opened";
    CIRCUIT_REJECTED = "tollgate_circuit_rejected_total" Counter Count ["`store`"]
        "Calls that failed without reaching the store";
    CIRCUIT_PROBES = "tollgate_circuit_probes_total" Counter Count ["`store`"]
        "Calls that probed the store while the circuit was half-open";
    FALLBACK_DECIDED = "tollgate_fallback_decided_total" Counter Count ["`store`"]
        "Calls that the local store decided";
    FALLBACK_TURNED_AWAY = "tollgate_fallback_turned_away_total" Counter Count ["`store`"]
        "Calls that were refused because this node has no share of their rule";
    REMEMBERED_REFUSALS = "tollgate_remembered_refusals" Gauge Count ["`store`"]
        "Cached refusals, including those that have ended";
    REMEMBERED_HITS = "tollgate_remembered_refusals_hits_total" Counter Count ["`store`"]
        "Calls that were refused from the cache";
    REMEMBERED_STORED = "tollgate_remembered_refusals_stored_total" Counter Count ["`store`"]
        "Refusals that were stored in the cache";
    REMEMBERED_EVICTED = "tollgate_remembered_refusals_evicted_total" Counter Count ["`store`"]
        "Refusals that were evicted from the cache before they ended";
    BLOCKS_MADE = "tollgate_blocks_made_total" Counter Count ["`store`"]
        "Blocks of keys that this process made";
    BLOCKS_FAILED = "tollgate_blocks_failed_total" Counter Count ["`store`"]
        "Blocks that could not be made";
    BLOCKS_REFUSED = "tollgate_blocks_refused_total" Counter Count ["`store`"]
        "Calls that were refused because a key was blocked";
    BLOCKS_UNCOUNTED = "tollgate_blocks_uncounted_refusals_total" Counter Count ["`store`"]
        "Refusals that do not lead to a block, because too many other keys were refused";
    LEASES_ASKED = "tollgate_leases_asked_total" Counter Count ["`store`"]
        "Calls of leases to the store";
    LEASES_ADMITTED = "tollgate_leases_admitted_total" Counter Count ["`store`"]
        "Calls that were admitted by leased units, without the store";
    LEASES_REFUSED = "tollgate_leases_refused_total" Counter Count ["`store`"]
        "Calls that were refused by what the store had said before";
    LEASES_CROWDED = "tollgate_leases_crowded_total" Counter Count ["`store`"]
        "Calls of keys for which there was no room, decided by the store";
    LEASES_FAILED = "tollgate_leases_failed_total" Counter Count ["`store`"]
        "Calls of leases that the store failed";
    LEASES_GRANTED = "tollgate_leases_granted_units_total" Counter Count ["`store`"]
        "Units that the store granted";
    LEASES_SPENT = "tollgate_leases_spent_units_total" Counter Count ["`store`"]
        "Granted units that calls spent, without those that were given back";
    LEASES_EXPIRED = "tollgate_leases_expired_units_total" Counter Count ["`store`"]
        "Granted units that were not spent in time";
    LEASES_RETURNED = "tollgate_leases_returned_units_total" Counter Count ["`store`"]
        "Granted units that were given back to the store";
    LEASES_LOST = "tollgate_leases_lost_units_total" Counter Count ["`store`"]
        "Granted units that nobody can spend any more";
    LEASES_LEFT = "tollgate_leases_left_units" Gauge Count ["`store`"]
        "Granted units that may still be spent";
    LEASES_KEYS = "tollgate_leases_keys" Gauge Count ["`store`"]
        "Keys with leases";
    LEASES_NODES = "tollgate_leases_nodes" Gauge Count ["`store`"]
        "Nodes that share the limits; 0 while their number is not known";
    LEASES_UNDERSHOOT = "tollgate_leases_undershoot_bound_units" Gauge Count ["`store`"]
        "Units that all nodes together may admit less than the rule, at an instant";
    LEASES_OVERSHOOT = "tollgate_leases_overshoot_bound_units" Gauge Count ["`store`"]
        "Units that all nodes together may admit more than the rule: 0";
    SYNC_ADMITTED = "tollgate_sync_admitted_total" Counter Count ["`store`"]
        "Calls that were admitted here, and told to the store later";
    SYNC_REFUSED = "tollgate_sync_refused_total" Counter Count ["`store`"]
        "Calls that were refused here";
    SYNC_CUT_OFF = "tollgate_sync_cut_off_total" Counter Count ["`store`"]
        "Calls that were decided here while the store could not be reached";
    SYNC_WAITED = "tollgate_sync_waited_total" Counter Count ["`store`"]
        "Waits of calls until the store was told or asked";
    SYNC_IN_STORE = "tollgate_sync_in_store_total" Counter Count ["`store`"]
        "Calls that the store decided";
    SYNC_CROWDED = "tollgate_sync_crowded_total" Counter Count ["`store`"]
        "Calls of keys for which there was no room, decided by the store";
    SYNC_CALLS = "tollgate_sync_calls_total" Counter Count ["`store`"]
        "Calls to the store that told or asked it something";
    SYNC_FAILED = "tollgate_sync_failed_total" Counter Count ["`store`"]
        "Of these, calls that failed";
    SYNC_TOLD = "tollgate_sync_told_units_total" Counter Count ["`store`"]
        "Units that the store took in";
    SYNC_DROPPED = "tollgate_sync_dropped_units_total" Counter Count ["`store`"]
        "Units that were dropped untold, because their key was reset or the store cannot take them in";
    SYNC_LOST = "tollgate_sync_lost_units_total" Counter Count ["`store`"]
        "Units that the store will never hear of, because it cannot take in any";
    SYNC_UNSYNCED = "tollgate_sync_unsynced_units" Gauge Count ["`store`"]
        "Units that the store may not know yet";
    SYNC_STALENESS = "tollgate_sync_staleness_nanoseconds" Gauge Nanoseconds ["`store`"]
        "Age of the oldest of them";
    SYNC_DRIFT = "tollgate_sync_drift_units" Gauge Count ["`store`"]
        "The most units of a key that other nodes had spent, and this one did not know of, in this minute and the one before";
    SYNC_LEAST_SHARE = "tollgate_sync_least_share_permille" Gauge Count ["`store`"]
        "The part of this node of what all nodes admitted of a key lately, in thousandths: the least of all keys of which it is known";
    SYNC_MEAN_SHARE = "tollgate_sync_mean_share_permille" Gauge Count ["`store`"]
        "The mean of these parts";
    SYNC_MOST_SHARE = "tollgate_sync_most_share_permille" Gauge Count ["`store`"]
        "The greatest of these parts";
    SYNC_KEYS = "tollgate_sync_keys" Gauge Count ["`store`"]
        "Keys of which this node knows something";
    SYNC_NODES = "tollgate_sync_nodes" Gauge Count ["`store`"]
        "Nodes that share the limits; 0 while their number is not known";
    SYNC_OVERSHOOT = "tollgate_sync_overshoot_bound_units" Gauge Count ["`store`"]
        "Units that all nodes together may admit more than the rule";
    SYNC_UNDERSHOOT = "tollgate_sync_undershoot_bound_units" Gauge Count ["`store`"]
        "Units that a call may lack although the rule has them";
    SYNC_CUT_OFF_BOUND = "tollgate_sync_cut_off_bound_units" Gauge Count ["`store`"]
        "Units of a key that this node may add to what others admit, while it cannot reach the store";

    // Published for `Local`.
    LOCAL_KEYS = "tollgate_local_keys" Gauge Count ["`store`"]
        "Keys in the store, once for each kind of rule";
    LOCAL_CAPACITY = "tollgate_local_capacity" Gauge Count ["`store`"]
        "Maximum number of keys";
    LOCAL_INSERTED = "tollgate_local_inserted_total" Counter Count ["`store`"]
        "New keys that were inserted";
    LOCAL_FORGOTTEN = "tollgate_local_forgotten_total" Counter Count ["`store`"]
        "Keys that were reclaimed because their states had expired";
    LOCAL_RETURNED = "tollgate_local_returned_total" Counter Count ["`store`"]
        "New keys that had been reclaimed before, an estimate";
    LOCAL_EVICTED = "tollgate_local_evicted_total" Counter Count ["`store`"]
        "Keys that were evicted at the capacity";
    LOCAL_HELD_BACK = "tollgate_local_held_back_total" Counter Count ["`store`"]
        "Requests of new keys that were refused because of an inherited debt";
    LOCAL_TURNED_AWAY = "tollgate_local_turned_away_total" Counter Count ["`store`"]
        "New keys that were refused because the store was full";
    LOCAL_LET_THROUGH = "tollgate_local_let_through_total" Counter Count ["`store`"]
        "New keys that were admitted without being counted because the store was full";
    LOCAL_UNSETTLED = "tollgate_local_unsettled_total" Counter Count ["`store`"]
        "Cancelled calls whose place in a queue is not remembered";

    // Published for stores that run scripts, as `Redis`.
    SCRIPT_REQUESTS = "tollgate_script_requests_total" Counter Count ["`store`"]
        "Requests that were sent to decide";
    SCRIPT_CALLS = "tollgate_script_calls_total" Counter Count ["`store`"]
        "Calls in those requests";
    SCRIPT_HEALED = "tollgate_script_healed_total" Counter Count ["`store`"]
        "States that could not be read and counted as none";

    // Published for stores that compare and swap, as `Memcached`.
    CAS_LOADS = "tollgate_cas_loads_total" Counter Count ["`store`"]
        "Loads sent";
    CAS_SWAPS = "tollgate_cas_swaps_total" Counter Count ["`store`"]
        "Swaps sent";
    CAS_LOST = "tollgate_cas_lost_total" Counter Count ["`store`"]
        "Swaps that lost their race";
    CAS_CONTENDED = "tollgate_cas_contended_total" Counter Count ["`store`"]
        "Calls, settlements and resets that were given up as contended";
    CAS_HEALED = "tollgate_cas_healed_total" Counter Count ["`store`"]
        "Values, and states in them, that could not be read and counted as no state";
    CAS_NEWER = "tollgate_cas_newer_total" Counter Count ["`store`"]
        "Values, and states in them, that a newer version of the program wrote";

    // Published for stores of counters, as `MemcachedCounters`.
    COUNTERS_ADDITIONS = "tollgate_counters_additions_total" Counter Count ["`store`"]
        "Additions, one for each ask that was not refused before";
    COUNTERS_READINGS = "tollgate_counters_readings_total" Counter Count ["`store`"]
        "Readings";
    COUNTERS_TAKEN_BACK = "tollgate_counters_taken_back_total" Counter Count ["`store`"]
        "Additions that were refused and taken back";
    COUNTERS_CUT = "tollgate_counters_cut_total" Counter Count ["`store`"]
        "Grants of less than was asked for: more was added, and taken back";
    COUNTERS_LEFT_BEHIND = "tollgate_counters_left_behind_total" Counter Count ["`store`"]
        "Additions that were refused, and those above a grant, that could not be taken back";
    COUNTERS_DOUBTFUL = "tollgate_counters_doubtful_units_total" Counter Count ["`store`"]
        "Units of nodes that decide by themselves whose addition failed; they may have been added";
    MEMCACHED_HEALED = "tollgate_memcached_healed_total" Counter Count ["`store`"]
        "Counters whose value was not a number and was removed";
}

pub(super) use table;

static METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

/// A name, with what [`describe`](Self::describe) tells a recorder about it.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) form: Form,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
}

/// The kinds of metrics.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Counter,
    Gauge,
    Histogram,
}

impl Family {
    /// Registers the unit and the description.
    pub(super) fn describe(&self) {
        let (name, unit, help) = (self.name.into(), Some(self.unit), self.help.into());
        with_recorder(|recorder| match self.form {
            Form::Counter => recorder.describe_counter(name, unit, help),
            Form::Gauge => recorder.describe_gauge(name, unit, help),
            Form::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }

    /// Returns the counter with these labels.
    pub(super) fn counter(&self, labels: Vec<Label>) -> Counter {
        let key = Key::from_parts(self.name, labels);
        with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
    }

    /// Returns the gauge with these labels.
    pub(super) fn gauge(&self, labels: Vec<Label>) -> Gauge {
        let key = Key::from_parts(self.name, labels);
        with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
    }

    /// Returns the histogram with these labels.
    pub(super) fn histogram(&self, labels: Vec<Label>) -> Histogram {
        let key = Key::from_parts(self.name, labels);
        with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
    }

    /// Sets a counter or a gauge to a value that is counted elsewhere. A counter never falls.
    pub(super) fn set(&self, labels: Vec<Label>, value: u64) {
        match self.form {
            Form::Counter => self.counter(labels).absolute(value),
            Form::Gauge => self.gauge(labels).set(value as f64),
            // Its values cannot be set.
            Form::Histogram => {}
        }
    }
}
