//! Exactly as much as the rule says, however many ask.

use std::{env, fmt::Debug, process::Stdio, sync::Arc};

use tokio::{process::Command, sync::Barrier};
use tollgate::store::{Store, StoreError};

use super::{acquire, at_once, connect, counters, key, servers, swaps, url, window};
use tollgate::store::MemcachedConnection;

const LIMIT: u64 = 100;
const PROCESSES: usize = 8;
const TASKS: usize = 8;
const CALLS: usize = 5;

/// The number of admitted calls of all tasks. One that is given up as contended is asked again, for
/// it was not answered.
async fn admitted_by_tasks<Rule, S>(store: S, rule: Rule) -> u64
where
    Rule: Clone + Send + Sync + 'static,
    S: Store<Rule, Error = StoreError, Answer: Send> + Clone + Debug + Send + Sync + 'static,
{
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (store, rule) = (store.clone(), rule.clone());
            tokio::spawn(async move {
                let (mut admitted, mut contended) = (0, 0);
                for _ in 0..CALLS {
                    loop {
                        match acquire(&store, &rule, key()).await {
                            Ok(decision) => break admitted += u64::from(decision.is_admitted()),
                            Err(error) if error.is_contended() && contended < 1000 => {
                                contended += 1
                            }
                            Err(error) => panic!("{error:?} of {store:?}"),
                        }
                    }
                }
                admitted
            })
        })
        .collect();
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    sum
}

const URL: &str = "TOLLGATE_TEST_MEMCACHED_URL";
const CLASS: &str = "TOLLGATE_TEST_MEMCACHED_CLASS";

async fn admitted_by_processes(class: &str) -> u64 {
    let server = servers::Memcached::start();
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args([
                    "exact::one_of_the_processes",
                    "--exact",
                    "--ignored",
                    "--nocapture",
                ])
                .env(URL, url(server.address()))
                .env(CLASS, class)
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap()
        })
        .collect();
    let mut sum = 0;
    for process in processes {
        let output = process.wait_with_output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        let admitted = text.lines().find_map(|line| line.split_once("admitted: "));
        sum += admitted.unwrap().1.parse::<u64>().unwrap();
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_together_admit_the_limit_by_compare_and_swap() {
    assert_eq!(admitted_by_processes("swap").await, LIMIT);
}

/// Every call costs one: then what is added and taken back again is in nobody's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_together_admit_the_limit_by_counters() {
    assert_eq!(admitted_by_processes("count").await, LIMIT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the processes that `admitted_by_processes` starts"]
async fn one_of_the_processes() {
    let url = env::var(URL).expect("started by another test, with the server's URL");
    let builder =
        MemcachedConnection::builder(url).response_timeout(std::time::Duration::from_secs(20));
    let connection = builder.connect().await.unwrap();
    let admitted = match env::var(CLASS).as_deref() {
        Ok("swap") => admitted_by_tasks(swaps(&connection), at_once(LIMIT)).await,
        _ => admitted_by_tasks(counters(&connection), window(LIMIT)).await,
    };
    assert!(admitted <= (TASKS * CALLS) as u64);
    println!("admitted: {admitted}");
}

/// Reads a count, and writes one more if it is below the limit: as it is done without
/// compare-and-swap.
async fn get_then_set(server: Arc<servers::Memcached>, all_have_read: Arc<Barrier>) -> bool {
    let ask = async |command: &'static str| {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || server.command(command))
            .await
            .unwrap()
    };
    let count = ask("mg naive v").await;
    all_have_read.wait().await;
    let is_admitted = count == "EN";
    if is_admitted {
        assert_eq!(ask("ms naive 1 T60\r\n1").await, "HD");
    }
    is_admitted
}

/// Read, decide, write admits all who have read before the first one writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_then_set_admits_too_many_where_these_stores_do_not() {
    const NODES: usize = 8;
    let server = Arc::new(servers::Memcached::start());
    let barrier = Arc::new(Barrier::new(NODES));
    let naive: Vec<_> = (0..NODES)
        .map(|_| tokio::spawn(get_then_set(Arc::clone(&server), Arc::clone(&barrier))))
        .collect();
    let mut admitted = [0; 3];
    for node in naive {
        admitted[0] += u64::from(node.await.unwrap());
    }
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let (connection, barrier) = (connect(&server).await, Arc::clone(&barrier));
        nodes.push(tokio::spawn(async move {
            let (swaps, counters) = (swaps(&connection), counters(&connection));
            barrier.wait().await;
            let one = acquire(&swaps, &at_once(1), key()).await.unwrap();
            barrier.wait().await;
            let other = acquire(&counters, &window(1), key()).await.unwrap();
            [one, other].map(|decision| u64::from(decision.is_admitted()))
        }));
    }
    for node in nodes {
        let [one, other] = node.await.unwrap();
        admitted[1] += one;
        admitted[2] += other;
    }
    assert_eq!(admitted, [NODES as u64, 1, 1]);
}
