//! Workers that wait for their turn.

// Copy from here.
use tollgate::{
    TokenBucket,
    pace::{NeverReady, Pacer},
    time::TokioClock,
};

type Pace = Pacer<TokenBucket, TokioClock>;

/// One for all workers: clones share the budget.
fn pace() -> Pace {
    // 100 a second, evenly.
    Pacer::with_clock(TokenBucket::per_second(100).burst(1), TokioClock::new())
}

async fn work(pace: Pace, jobs: Vec<Job>) -> Result<(), NeverReady> {
    for job in jobs {
        pace.until_ready().await?;
        job.run().await;
    }
    Ok(())
}
// Copy to here.

struct Job;

impl Job {
    async fn run(self) {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn workers_share_the_pace() {
        let pace = pace();
        let jobs = |count| (0..count).map(|_| Job).collect();
        let start = Instant::now();
        let workers = [
            tokio::spawn(work(pace.clone(), jobs(30))),
            tokio::spawn(work(pace, jobs(20))),
        ];
        for worker in workers {
            worker.await.unwrap().unwrap();
        }
        assert_eq!(start.elapsed().as_millis(), 490);
    }
}
