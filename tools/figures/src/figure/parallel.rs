//! Work on all cores.

use std::{
    num::NonZeroUsize,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Does some work for each item, on all cores, in the order of the items. Returns the results in
/// this order.
///
/// # Errors
///
/// When the work for an item fails or panics. Work that has begun by then is done.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let serve = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return Ok(());
            };
            let result = work(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.push((index, result));
        }
    };
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    thread::scope(|scope| {
        let workers = 0..cores.min(items.len());
        let workers: Vec<_> = workers.map(|_| scope.spawn(serve)).collect();
        let ended = workers.into_iter().map(|worker| {
            let failed = |_| Err("a figure panicked; its message is above".to_owned());
            worker.join().unwrap_or_else(failed)
        });
        ended.fold(Ok(()), Result::and)
    })?;
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
