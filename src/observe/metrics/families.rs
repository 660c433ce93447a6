//! All metrics, in one list: their names, types, units, labels and descriptions, and the fields
//! that they show.

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit, with_recorder};

use super::Publish;

/// Makes a family of its name, type, unit and description.
macro_rules! family {
    ($name:literal $Type:ident $Unit:ident $help:literal) => {
        Family {
            name: $name,
            metric_type: MetricType::$Type,
            unit: Unit::$Unit,
            help: $help,
        }
    };
}

/// Makes the list of all metrics, the table for the documentation, a constant of each metric under
/// `constants`, and [`Publish`] for each snapshot.
///
/// A metric of a snapshot shows the field of its name. `with` has the fields that are shown by
/// constants, by themselves or with a label.
macro_rules! families {
    (
        constants {
            $($FAMILY:ident = $name:literal $Type:ident $Unit:ident [$($labels:literal)?] $help:literal;)*
        }
        $(
            $(#[$cfg:meta])?
            snapshot $Snapshot:path as $label:literal {
                $($field:ident = $field_name:literal $FieldType:ident $FieldUnit:ident $field_help:literal;)*
            }
            $(with { $($SHARED:ident $([$key:literal = $value:literal])? = $shared:ident;)* })?
        )*
    ) => {
        $(
            #[doc = $help]
            pub(super) const $FAMILY: Family = family!($name $Type $Unit $help);
        )*

        $(
            $(#[$cfg])?
            impl Publish for $Snapshot {
                fn publish(&self, name: &str) {
                    $(
                        family!($field_name $FieldType $FieldUnit $field_help)
                            .set(labels($label, name, &[]), self.$field);
                    )*
                    $($(
                        $SHARED.set(labels($label, name, &[$(($key, $value))?]), self.$shared);
                    )*)?
                }
            }
        )*

        /// All metrics.
        pub(super) const ALL: &[Family] = &[
            $($FAMILY,)*
            $($(family!($field_name $FieldType $FieldUnit $field_help),)*)*
        ];

        /// Returns the table of the documentation.
        macro_rules! table {
            () => {
                concat!(
                    "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n",
                    $("| `", $name, "` | ", stringify!($Type), " | ", stringify!($Unit), " | ", $($labels,)? " | ", $help, " |\n",)*
                    $($("| `", $field_name, "` | ", stringify!($FieldType), " | ", stringify!($FieldUnit), " | `", $label, "` | ", $field_help, " |\n",)*)*
                )
            };
        }
    };
}

families! {
    constants {
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
        LAYER_COLLISIONS = "tollgate_layer_collisions" Gauge Count ["`layer`"]
            "Limits that share the states of this layer's now, as both have no name";
        LAYER_MISCONFIGURED = "tollgate_layer_misconfigured_total" Counter Count ["`layer`"]
            "Requests that were refused, or decided twice, because the server is set up wrongly";
        LAYER_UNSETTLED = "tollgate_layer_unsettled_total" Counter Count ["`layer`"]
            "Charges that may not have been corrected, in the layer's store";

        // Published for the responder of a layer.
        REFUSED_BODIES = "tollgate_refused_bodies_total" Counter Count
            ["`layer`; `outcome`: `finished`, `failed`, `given_up`, `over_capacity`, `no_runtime`"]
            "Bodies of refused requests that were read, or dropped because of a bound";

        // Published for a layer of introspection.
        INTROSPECT_REQUESTS = "tollgate_introspect_requests_total" Counter Count
            ["`layer`; `outcome`: `anonymous`, `inactive`, `malformed`, `stale`, `unavailable`, `unchecked`"]
            "Requests without a token, with one that is not valid, or with one that could not be checked";
        INTROSPECT_TOKENS = "tollgate_introspect_tokens" Gauge Count ["`layer`; `state`: `active`, `inactive`"]
            "Tokens in the cache, including those whose lifetime has ended";

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
            "Settlements that failed, may have failed, or refunded nothing";
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

        // Published for stores of counters, as `MemcachedCounters`.
        MEMCACHED_HEALED = "tollgate_memcached_healed_total" Counter Count ["`store`"]
            "Counters whose value was not a number and was removed";
    }

    // Published for the responder of a layer.
    #[cfg(all(feature = "http-body", feature = "tokio"))]
    snapshot crate::respond::DrainStats as "layer" {
        in_flight = "tollgate_refused_bodies_in_flight" Gauge Count
            "Bodies of refused requests that are being read";
    } with {
        REFUSED_BODIES["outcome" = "finished"] = finished;
        REFUSED_BODIES["outcome" = "failed"] = failed;
        REFUSED_BODIES["outcome" = "given_up"] = given_up;
        REFUSED_BODIES["outcome" = "over_capacity"] = crowded;
        REFUSED_BODIES["outcome" = "no_runtime"] = no_runtime;
    }

    // Published for a layer of introspection.
    #[cfg(feature = "introspect")]
    snapshot crate::key::introspect::IntrospectStats as "layer" {
        hits = "tollgate_introspect_hits_total" Counter Count
            "Requests whose token was answered from the cache";
        lookups = "tollgate_introspect_lookups_total" Counter Count
            "Look-ups of tokens that were started";
        shared = "tollgate_introspect_shared_total" Counter Count
            "Requests that waited for the look-up of another request";
        failed = "tollgate_introspect_failed_total" Counter Count
            "Look-ups that failed, including the next three";
        timeouts = "tollgate_introspect_timeouts_total" Counter Count
            "Look-ups without an answer within the deadline";
        invalid_answers = "tollgate_introspect_invalid_answers_total" Counter Count
            "Look-ups with an answer that could not be read";
        aborted = "tollgate_introspect_aborted_total" Counter Count
            "Look-ups that ended by a panic, or with their runtime";
        expired = "tollgate_introspect_expired_total" Counter Count
            "Look-ups of active tokens that had expired by this node's clock";
        crowded = "tollgate_introspect_over_capacity_total" Counter Count
            "Requests whose token was not looked up, because too many others were";
        in_flight = "tollgate_introspect_in_flight" Gauge Count
            "Look-ups in flight";
    } with {
        INTROSPECT_REQUESTS["outcome" = "anonymous"] = anonymous;
        INTROSPECT_REQUESTS["outcome" = "inactive"] = inactive;
        INTROSPECT_REQUESTS["outcome" = "malformed"] = malformed;
        INTROSPECT_REQUESTS["outcome" = "stale"] = stale;
        INTROSPECT_REQUESTS["outcome" = "unavailable"] = unavailable;
        INTROSPECT_REQUESTS["outcome" = "unchecked"] = unchecked;
        INTROSPECT_TOKENS["state" = "active"] = cached;
        INTROSPECT_TOKENS["state" = "inactive"] = cached_inactive;
    }

    // Published for leases.
    #[cfg(feature = "tokio")]
    snapshot crate::store::LeaseStats as "store" {
        asked = "tollgate_leases_asked_total" Counter Count
            "Calls of leases to the store";
        from_leases = "tollgate_leases_admitted_total" Counter Count
            "Calls that were admitted by leased units, without the store";
        refused_here = "tollgate_leases_refused_total" Counter Count
            "Calls that were refused by what the store had said before";
        crowded = "tollgate_leases_crowded_total" Counter Count
            "Calls of keys for which there was no room, decided by the store";
        failed = "tollgate_leases_failed_total" Counter Count
            "Calls of leases that the store failed";
        granted = "tollgate_leases_granted_units_total" Counter Count
            "Units that the store granted";
        spent = "tollgate_leases_spent_units_total" Counter Count
            "Granted units that calls spent, without those that were given back";
        expired = "tollgate_leases_expired_units_total" Counter Count
            "Granted units that were not spent in time";
        returned = "tollgate_leases_returned_units_total" Counter Count
            "Granted units that were given back to the store";
        lost = "tollgate_leases_lost_units_total" Counter Count
            "Granted units that nobody can spend any more";
        left = "tollgate_leases_left_units" Gauge Count
            "Granted units that may still be spent";
        keys = "tollgate_leases_keys" Gauge Count
            "Keys with leases";
        nodes = "tollgate_leases_nodes" Gauge Count
            "Nodes that share the limits; 0 while their number is not known";
        undershoot_bound = "tollgate_leases_undershoot_bound_units" Gauge Count
            "Units that all nodes together may admit less than the rule, at an instant";
        overshoot_bound = "tollgate_leases_overshoot_bound_units" Gauge Count
            "Units that all nodes together may admit more than the rule: 0";
    }

    // Published for stores that synchronise in the background.
    #[cfg(feature = "tokio")]
    snapshot crate::store::SyncStats as "store" {
        admitted = "tollgate_sync_admitted_total" Counter Count
            "Calls that were admitted here, and told to the store later";
        refused = "tollgate_sync_refused_total" Counter Count
            "Calls that were refused here";
        cut_off = "tollgate_sync_cut_off_total" Counter Count
            "Calls that were decided here while the store could not be reached";
        waited = "tollgate_sync_waited_total" Counter Count
            "Waits of calls until the store was told or asked";
        in_store = "tollgate_sync_in_store_total" Counter Count
            "Calls that the store decided";
        crowded = "tollgate_sync_crowded_total" Counter Count
            "Calls of keys for which there was no room, decided by the store";
        syncs = "tollgate_sync_calls_total" Counter Count
            "Calls to the store that told or asked it something";
        failed = "tollgate_sync_failed_total" Counter Count
            "Of these, calls that failed";
        told = "tollgate_sync_told_units_total" Counter Count
            "Units that the store took in";
        dropped = "tollgate_sync_dropped_units_total" Counter Count
            "Units that were dropped untold, because their key was reset or the store cannot take them in";
        unsynced = "tollgate_sync_unsynced_units" Gauge Count
            "Units that the store may not know yet";
        staleness_nanos = "tollgate_sync_staleness_nanoseconds" Gauge Nanoseconds
            "Age of the oldest of them";
        lost = "tollgate_sync_lost_units_total" Counter Count
            "Units that the store will never hear of, because it cannot take in any";
        drift = "tollgate_sync_drift_units" Gauge Count
            "The most units of a key that other nodes had spent, and this one did not know of, in this minute and the one before";
        least_share = "tollgate_sync_least_share_permille" Gauge Count
            "The part of this node of what all nodes admitted of a key lately, in thousandths: the least of all keys of which it is known";
        mean_share = "tollgate_sync_mean_share_permille" Gauge Count
            "The mean of these parts";
        most_share = "tollgate_sync_most_share_permille" Gauge Count
            "The greatest of these parts";
        keys = "tollgate_sync_keys" Gauge Count
            "Keys of which this node knows something";
        nodes = "tollgate_sync_nodes" Gauge Count
            "Nodes that share the limits; 0 while their number is not known";
        overshoot_bound = "tollgate_sync_overshoot_bound_units" Gauge Count
            "Units that all nodes together may admit more than the rule";
        undershoot_bound = "tollgate_sync_undershoot_bound_units" Gauge Count
            "Units that a call may lack although the rule has them";
        cut_off_bound = "tollgate_sync_cut_off_bound_units" Gauge Count
            "Units of a key that this node may add to what others admit, while it cannot reach the store";
    }

    // Published for `Local`.
    snapshot crate::store::Stats as "store" {
        keys = "tollgate_local_keys" Gauge Count
            "Keys in the store, once for each kind of rule";
        capacity = "tollgate_local_capacity" Gauge Count
            "Maximum number of keys";
        inserted = "tollgate_local_inserted_total" Counter Count
            "New keys that were inserted";
        forgotten = "tollgate_local_forgotten_total" Counter Count
            "Keys that were reclaimed because their states had expired";
        returned = "tollgate_local_returned_total" Counter Count
            "New keys that had been reclaimed before, an estimate";
        evicted = "tollgate_local_evicted_total" Counter Count
            "Keys that were evicted at the capacity";
        held_back = "tollgate_local_held_back_total" Counter Count
            "Requests of new keys that were refused because of inherited usage";
        turned_away = "tollgate_local_turned_away_total" Counter Count
            "New keys that were refused because the store was full";
        let_through = "tollgate_local_let_through_total" Counter Count
            "New keys that were admitted without being counted because the store was full";
        unsettled = "tollgate_local_unsettled_total" Counter Count
            "Cancelled calls whose place in a queue is not remembered";
    }

    // Published for stores that run scripts, as `Redis`.
    #[cfg(feature = "redis")]
    snapshot crate::store::ScriptStats as "store" {
        requests = "tollgate_script_requests_total" Counter Count
            "Requests that were sent to decide";
        calls = "tollgate_script_calls_total" Counter Count
            "Calls in those requests";
        healed = "tollgate_script_healed_total" Counter Count
            "States that could not be read and counted as none";
    } with {
        STORE_UNSETTLED = unsettled;
    }

    // Published for stores that compare and swap, as `Memcached`.
    #[cfg(feature = "tokio")]
    snapshot crate::store::CasStats as "store" {
        loads = "tollgate_cas_loads_total" Counter Count
            "Loads sent";
        swaps = "tollgate_cas_swaps_total" Counter Count
            "Swaps sent";
        lost = "tollgate_cas_lost_total" Counter Count
            "Swaps that lost their race";
        contended = "tollgate_cas_contended_total" Counter Count
            "Calls, settlements and resets that were given up as contended";
        healed = "tollgate_cas_healed_total" Counter Count
            "Values, and states in them, that could not be read and counted as no state";
        newer = "tollgate_cas_newer_total" Counter Count
            "Values, and states in them, that a newer version of the program wrote";
    } with {
        STORE_UNSETTLED = unsettled;
    }

    // Published for stores of counters, as `MemcachedCounters`.
    #[cfg(feature = "tokio")]
    snapshot crate::store::CounterStats as "store" {
        additions = "tollgate_counters_additions_total" Counter Count
            "Additions, one for each ask that was not refused before";
        readings = "tollgate_counters_readings_total" Counter Count
            "Readings";
        taken_back = "tollgate_counters_taken_back_total" Counter Count
            "Additions that were refused and taken back";
        cut = "tollgate_counters_cut_total" Counter Count
            "Grants of less than was asked for: more was added, and taken back";
        left_behind = "tollgate_counters_left_behind_total" Counter Count
            "Additions that were refused, and those above a grant, that could not be taken back";
        doubtful = "tollgate_counters_doubtful_units_total" Counter Count
            "Units of nodes that decide by themselves whose addition failed; they may have been added";
    } with {
        STORE_UNSETTLED = unsettled;
    }
}

pub(super) use table;

static METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

/// A metric with all its time series, which differ in their labels.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) metric_type: MetricType,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

impl Family {
    /// Registers the unit and the description.
    pub(super) fn describe(&self) {
        let (name, unit, help) = (self.name.into(), Some(self.unit), self.help.into());
        with_recorder(|recorder| match self.metric_type {
            MetricType::Counter => recorder.describe_counter(name, unit, help),
            MetricType::Gauge => recorder.describe_gauge(name, unit, help),
            MetricType::Histogram => recorder.describe_histogram(name, unit, help),
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
    pub(super) fn set(&self, labels: Vec<Label>, value: impl TryInto<u64>) {
        let value = value.try_into().unwrap_or(u64::MAX);
        match self.metric_type {
            MetricType::Counter => self.counter(labels).absolute(value),
            MetricType::Gauge => self.gauge(labels).set(value as f64),
            // Its values cannot be set.
            MetricType::Histogram => {}
        }
    }
}

/// Returns the label `kind`, for a store or a layer, with this name, and other labels.
pub(super) fn labels(
    kind: &'static str,
    name: &str,
    others: &[(&'static str, &'static str)],
) -> Vec<Label> {
    let mut labels = vec![Label::new(kind, name.to_owned())];
    let others = others.iter();
    labels.extend(others.map(|(key, value)| Label::from_static_parts(key, value)));
    labels
}
