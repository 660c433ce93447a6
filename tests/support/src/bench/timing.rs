//! The time of threads: by the wall clock, and on their processors.
// `std` has no processor time of a thread.
#![allow(unsafe_code)]

use std::{
    hint,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// Nanoseconds per operation.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    /// The elapsed time, divided by the operations of all threads.
    pub wall: f64,
    /// The processor time of all threads, divided by the operations of all threads.
    pub cpu: f64,
}

/// Runs `work` on this many threads, started together. Each does `each` operations.
pub fn together(threads: usize, each: usize, work: impl Fn(usize) + Sync) -> Cost {
    let span = |thread: usize| {
        let (begin, cpu) = (Instant::now(), thread_cpu());
        work(thread);
        (begin, Instant::now(), thread_cpu().saturating_sub(cpu))
    };
    let spans: Vec<_> = if threads == 1 {
        vec![span(0)]
    } else {
        let barrier = Barrier::new(threads);
        thread::scope(|scope| {
            let start = |thread| {
                let (barrier, span) = (&barrier, &span);
                scope.spawn(move || {
                    barrier.wait();
                    span(thread)
                })
            };
            let started: Vec<_> = (0..threads).map(start).collect();
            started
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        })
    };
    let begin = spans.iter().map(|span| span.0).min().expect("a thread");
    let end = spans.iter().map(|span| span.1).max().expect("a thread");
    let cpu: Duration = spans.iter().map(|span| span.2).sum();
    let operations = (threads * each) as f64;
    Cost {
        wall: (end - begin).as_nanos() as f64 / operations,
        cpu: cpu.as_nanos() as f64 / operations,
    }
}

/// Adds up the times between `start` and `stop`, on this thread.
#[derive(Default)]
pub struct StopWatch {
    wall: Duration,
    cpu: Duration,
    started: Option<(Instant, Duration)>,
}

impl StopWatch {
    pub fn start(&mut self) {
        let cpu = thread_cpu();
        self.started = Some((Instant::now(), cpu));
    }

    pub fn stop(&mut self) {
        let (end, cpu_end) = (Instant::now(), thread_cpu());
        if let Some((begin, cpu)) = self.started.take() {
            self.wall += end - begin;
            self.cpu += cpu_end.saturating_sub(cpu);
        }
    }

    pub fn per(&self, operations: usize) -> Cost {
        Cost {
            wall: self.wall.as_nanos() as f64 / operations as f64,
            cpu: self.cpu.as_nanos() as f64 / operations as f64,
        }
    }
}

/// Keeps the turns of a contender apart.
pub struct Gap {
    at_least: Duration,
    ended: Option<Instant>,
}

impl Gap {
    pub fn new(at_least: Duration) -> Self {
        Self {
            at_least,
            ended: None,
        }
    }

    /// Waits until the gap after the last turn has passed.
    // Spins, because a processor that wakes from sleep begins slower.
    pub fn wait(&self) {
        if let Some(ended) = self.ended {
            while ended.elapsed() < self.at_least {
                hint::spin_loop();
            }
        }
    }

    /// Notes that a turn has ended.
    pub fn end(&mut self) {
        self.ended = Some(Instant::now());
    }
}

fn thread_cpu() -> Duration {
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    cpu(CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of all threads of this process.
pub fn process_cpu() -> Duration {
    const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;
    cpu(CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn cpu(clock: i32) -> Duration {
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    let mut time = [0; 2];
    // SAFETY: `struct timespec` is two 64-bit integers here, and `time` lives during the call.
    let failed = unsafe { clock_gettime(clock, &mut time) };
    assert_eq!(failed, 0);
    Duration::new(time[0] as u64, time[1] as u32)
}

/// On other systems only the wall clock is used.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn cpu(_: i32) -> Duration {
    static ORIGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed()
}
