//! One task serves a hundred senders a second. Each has a time slice of 10 ms in turn, and a limit
//! of its own.
//!
//! `cargo run --features tokio --example pace`. One minute passes in tokio's paused time, so the
//! program ends at once.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{
    TokenBucket,
    pace::{Pacer, RoundRobin, Turns},
    time::{Clock, TokioClock},
};

const SENDERS: usize = 100;
const SECONDS: u64 = 60;
/// The rates that customers have booked, in messages a second.
const PLANS: [u64; 4] = [1, 3, 8, 20];

struct Sender {
    plan: u64,
    pacer: Pacer<TokenBucket, TokioClock>,
    sent: u64,
}

/// Stands for the network: a message takes a millisecond, and some messages hang.
async fn send(nth: u64) {
    let millis = if nth % 1000 == 999 { 35 } else { 1 };
    sleep(Duration::from_millis(millis)).await;
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let clock = TokioClock::new();
    let mut senders: Vec<_> = (0..SENDERS)
        .map(|number| {
            let plan = PLANS[number % PLANS.len()];
            Sender {
                plan,
                pacer: Pacer::with_clock(TokenBucket::per_second(plan), clock),
                sent: 0,
            }
        })
        .collect();

    let mut turns = Turns::new(RoundRobin::new(Duration::from_secs(1), SENDERS), clock);
    let end = clock.now().saturating_add(Duration::from_secs(SECONDS));
    let (mut served, mut missed, mut messages) = (0, 0, 0);
    while clock.now() < end {
        let turn = turns.next_turn().await;
        served += 1;
        missed += turn.missed;
        let sender = &mut senders[turn.sender];
        // Each sender always has messages to send. It stops when the slice is over or the plan is
        // used up.
        while clock.now() < turn.ends && sender.pacer.can_do_work(clock.now()) {
            send(messages).await;
            messages += 1;
            sender.sent += 1;
        }
    }

    println!("{messages} messages in {SECONDS} s; {served} turns served, {missed} missed\n");
    println!("plan   senders   booked by each   sent by each");
    for plan in PLANS {
        let sent: Vec<_> = senders
            .iter()
            .filter(|sender| sender.plan == plan)
            .map(|sender| sender.sent)
            .collect();
        let (least, most) = (sent.iter().min(), sent.iter().max());
        println!(
            "{plan:>2}/s {:>9} {:>16}   {} to {}",
            sent.len(),
            plan * SECONDS,
            least.unwrap_or(&0),
            most.unwrap_or(&0),
        );
    }
    println!("\nThe greatest plan is held back by the slice: ten messages fit into it.");
}
