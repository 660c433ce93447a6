//! When the worker is launched, and when it is idle.

use std::time::Duration;

use tollgate::Timestamp;

/// A launch and pauses.
pub(super) struct Scenario {
    /// From the beginning of a second of the clock to the launch, in tenths of a second.
    phase: u64,
    /// The length of each pause; 0 for none. In tenths of a second, as all times here.
    pause: u64,
    /// When pauses begin, after the launch.
    pauses: [u64; 2],
}

const TENTH: Duration = Duration::from_millis(100);

fn tenths(number: u64) -> Duration {
    TENTH * number as u32
}

impl Scenario {
    /// Returns all scenarios.
    pub(super) fn all() -> Vec<Self> {
        // After a pause of 2 s from 4 s, half a second of work comes before the next one.
        let pauses = [(0, [0, 0]), (5, [40, 60]), (10, [40, 60]), (20, [40, 65])];
        let of_phase = |phase| {
            pauses.map(|(pause, pauses)| Self {
                phase,
                pause,
                pauses,
            })
        };
        [0, 3].into_iter().flat_map(of_phase).collect()
    }

    /// Returns the name, as in `pause_1.0s_phase0.3`.
    pub(super) fn name(&self) -> String {
        let decimal = |tenths: u64| format!("{}.{}", tenths / 10, tenths % 10);
        let phase = decimal(self.phase);
        match self.pause {
            0 => format!("plain_phase{phase}"),
            pause => format!("pause_{}s_phase{phase}", decimal(pause)),
        }
    }

    /// Returns a title, as in
    /// `pauses of 1 s from 4 s and from 6 s; launched 0.3 s into a second of the clock`.
    pub(super) fn title(&self) -> String {
        let seconds = |tenths: u64| tenths as f64 / 10.0;
        let [first, second] = self.pauses.map(seconds);
        let pauses = match self.pause {
            0 => "without pauses".to_owned(),
            pause => format!(
                "with pauses of {} s from {first} s and from {second} s",
                seconds(pause)
            ),
        };
        let phase = seconds(self.phase);
        format!("{pauses}, launched {phase} s into a second of the clock")
    }

    /// Returns the instant of the launch.
    pub(super) fn launch(&self) -> Timestamp {
        let noon = Timestamp::from_nanos(43_200_000_000_000);
        noon.saturating_add(tenths(self.phase))
    }

    /// Returns the end of the pause at a time after the launch.
    pub(super) fn paused_until(&self, time: Duration) -> Option<Duration> {
        let pauses = self.pauses.iter();
        let mut pauses = pauses.map(|begin| (tenths(*begin), tenths(*begin + self.pause)));
        let pause = pauses.find(|(begin, end)| (*begin..*end).contains(&time));
        pause.map(|(_, end)| end)
    }

    /// Returns `true` if all of a tenth of a second is a pause.
    pub(super) fn is_paused(&self, tenth: u64) -> bool {
        self.paused_until(tenths(tenth)).is_some()
    }
}
