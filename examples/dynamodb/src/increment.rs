//! Counters of windows: an item for each, to which DynamoDB adds.

use std::{collections::HashMap, time::Duration};

use aws_sdk_dynamodb::{
    operation::update_item::UpdateItemError,
    types::{DeleteRequest, KeysAndAttributes, ReturnConsumedCapacity, ReturnValue, WriteRequest},
};
use tollgate::store::{
    StoreError,
    driver::{Increment, Totals},
};

use crate::{
    Dynamo,
    item::{self, EXPIRES, Item, KEY, TOTAL, bytes, number},
};

/// The most items of a batch read, as DynamoDB allows.
const READ_TOGETHER: usize = 100;
/// The most items of a batch write.
const WRITE_TOGETHER: usize = 25;
/// The number of times that the rest of a batch, or a subtraction that lost a race, is sent again.
const ATTEMPTS: usize = 5;

impl Increment for Dynamo {
    async fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> Result<Totals, StoreError> {
        // `ADD` creates the item if there is none, in the same step.
        let update =
            format!("ADD {TOTAL} :amount SET {EXPIRES} = if_not_exists({EXPIRES}, :expires)");
        let add = self
            .client
            .update_item()
            .table_name(&*self.table)
            .key(KEY, bytes(key));
        let add = add
            .update_expression(update)
            .expression_attribute_values(":amount", number(amount))
            .expression_attribute_values(":expires", item::expiry(keep))
            .return_values(ReturnValue::UpdatedNew)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let added = add.send().await.map_err(|error| self.write_error(error))?;
        self.consumed.write(added.consumed_capacity.as_slice());
        let total = added.attributes().map(|item| item::number_of(item, TOTAL));
        let total = total.unwrap_or_else(|| Err(item::unreadable(TOTAL)))?;
        match self.read(beside).await {
            Ok(beside) => Ok(Totals { total, beside }),
            Err(error) => {
                // The call fails, so it must not be charged. If this fails, too, it is.
                let _ = self.subtract(key, amount).await;
                Err(error)
            }
        }
    }

    async fn subtract(&self, key: &[u8], amount: u64) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let enough = format!("{TOTAL} >= :amount");
            let taken = self
                .update_if(
                    key,
                    format!("SET {TOTAL} = {TOTAL} - :amount"),
                    enough,
                    amount,
                )
                .await?;
            if taken {
                return Ok(());
            }
            // There is no counter, or less in it than that.
            let less = format!("{TOTAL} < :amount");
            if self
                .update_if(key, format!("SET {TOTAL} = :none"), less, amount)
                .await?
            {
                return Ok(());
            }
            if self.read(&[key.into()]).await? == [0] {
                return Ok(());
            }
        }
        Err(StoreError::contended())
    }

    async fn read(&self, keys: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
        let mut totals = HashMap::new();
        for some in keys.chunks(READ_TOGETHER) {
            for item in self.read_items(some).await? {
                let key = item.get(KEY).and_then(|key| key.as_b().ok());
                let key = key.ok_or_else(|| item::unreadable(KEY))?;
                totals.insert(key.as_ref().to_vec(), item::number_of(&item, TOTAL)?);
            }
        }
        Ok(keys
            .iter()
            .map(|key| totals.get(&**key).copied().unwrap_or(0))
            .collect())
    }

    async fn remove(&self, keys: &[Box<[u8]>]) -> Result<(), StoreError> {
        for some in keys.chunks(WRITE_TOGETHER) {
            self.remove_items(some).await?;
        }
        Ok(())
    }
}

impl Dynamo {
    /// Updates a counter that is there, if the condition holds. Returns `true` if it did.
    async fn update_if(
        &self,
        key: &[u8],
        update: String,
        condition: String,
        amount: u64,
    ) -> Result<bool, StoreError> {
        let sets_none = update.contains(":none");
        let request = self
            .client
            .update_item()
            .table_name(&*self.table)
            .key(KEY, bytes(key));
        let request = request
            .update_expression(update)
            .condition_expression(condition)
            .expression_attribute_values(":amount", number(amount))
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let request = match sets_none {
            true => request.expression_attribute_values(":none", number(0)),
            false => request,
        };
        match request.send().await {
            Ok(answer) => {
                self.consumed.write(answer.consumed_capacity.as_slice());
                Ok(true)
            }
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(_)) => {
                    self.consumed.failed_write();
                    Ok(false)
                }
                _ => Err(self.write_error(error)),
            },
        }
    }

    async fn read_items(&self, keys: &[Box<[u8]>]) -> Result<Vec<Item>, StoreError> {
        let mut items = Vec::new();
        let keys = keys
            .iter()
            .map(|key| HashMap::from([(KEY.to_owned(), bytes(key))]));
        let request = KeysAndAttributes::builder().set_keys(Some(keys.collect()));
        let request = request
            .consistent_read(true)
            .build()
            .map_err(StoreError::other)?;
        let mut rest = Some(HashMap::from([(self.table.to_string(), request)]));
        for _ in 0..ATTEMPTS {
            let Some(wanted) = rest.take().filter(|rest| !rest.is_empty()) else {
                return Ok(items);
            };
            let read = self.client.batch_get_item().set_request_items(Some(wanted));
            let read = read.return_consumed_capacity(ReturnConsumedCapacity::Total);
            let read = read.send().await.map_err(|error| self.error(error))?;
            self.consumed.read(read.consumed_capacity());
            for found in read.responses.unwrap_or_default().into_values() {
                items.extend(found);
            }
            rest = read.unprocessed_keys;
        }
        self.all_processed(
            rest.is_none_or(|rest| rest.is_empty()),
            StoreError::unavailable,
        )?;
        Ok(items)
    }

    async fn remove_items(&self, keys: &[Box<[u8]>]) -> Result<(), StoreError> {
        let delete = |key: &[u8]| {
            let delete = DeleteRequest::builder().key(KEY, bytes(key)).build();
            delete.map(|delete| WriteRequest::builder().delete_request(delete).build())
        };
        let deletes = keys
            .iter()
            .map(|key| delete(key))
            .collect::<Result<Vec<_>, _>>();
        let mut rest = Some(HashMap::from([(
            self.table.to_string(),
            deletes.map_err(StoreError::other)?,
        )]));
        for _ in 0..ATTEMPTS {
            let Some(wanted) = rest.take().filter(|rest| !rest.is_empty()) else {
                return Ok(());
            };
            let write = self
                .client
                .batch_write_item()
                .set_request_items(Some(wanted));
            let write = write.return_consumed_capacity(ReturnConsumedCapacity::Total);
            let write = write
                .send()
                .await
                .map_err(|error| self.write_error(error))?;
            self.consumed.write(write.consumed_capacity());
            rest = write.unprocessed_items;
        }
        self.all_processed(
            rest.is_none_or(|rest| rest.is_empty()),
            StoreError::unwritten,
        )
    }

    /// Without capacity, DynamoDB leaves out a part of a batch.
    fn all_processed(
        &self,
        is_all: bool,
        error: fn(String) -> StoreError,
    ) -> Result<(), StoreError> {
        match is_all {
            true => Ok(()),
            false => Err(error(format!(
                "DynamoDB has processed a part of a batch only: expected capacity for all of it; raise that of the table `{}`",
                self.table
            ))),
        }
    }
}
