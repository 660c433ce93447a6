//! A store in memory that compares and swaps.

use std::{collections::HashMap, sync::Mutex};

use tollgate::store::{
    StoreError,
    driver::{CompareAndSwap, Loaded, Swap, Swapped},
};

/// Values with the numbers of their writes. Nothing expires during a run.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<Values>);

#[derive(Default)]
struct Values {
    of_keys: HashMap<Vec<u8>, (u64, Vec<u8>)>,
    writes: u64,
}

impl CompareAndSwap for Shelf {
    type Version = u64;

    async fn load(&self, key: &[u8]) -> Result<Loaded<u64>, StoreError> {
        let value = self.0.lock().unwrap().of_keys.get(key).cloned();
        Ok(Loaded { value, now: None })
    }

    async fn swap(&self, key: &[u8], swap: Swap<'_, u64>) -> Result<Swapped<u64>, StoreError> {
        let mut values = self.0.lock().unwrap();
        let there = values.of_keys.get(key).map(|(version, _)| version);
        if there != swap.expected {
            return Ok(Swapped::Lost(None));
        }
        values.writes += 1;
        let version = values.writes;
        match swap.value {
            Some(value) => drop(
                values
                    .of_keys
                    .insert(key.to_vec(), (version, value.to_vec())),
            ),
            None => drop(values.of_keys.remove(key)),
        }
        Ok(Swapped::Done(Some(version)))
    }
}
