//! States of every rule: an item for each key, replaced by conditional writes.

use aws_sdk_dynamodb::{
    operation::{delete_item::DeleteItemError, put_item::PutItemError},
    types::{ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure},
};
use tollgate::store::{
    StoreError,
    driver::{CompareAndSwap, Loaded, Swap, Swapped},
};

use crate::{
    Dynamo,
    item::{self, EXPIRES, Item, KEY, STATE, WRITE, bytes, number},
};

impl CompareAndSwap for Dynamo {
    /// Drawn for each write. A count would begin again after the item was removed, and a writer
    /// that was delayed would take the new item for the old one.
    type Version = u64;

    async fn load(&self, key: &[u8]) -> Result<Loaded<u64>, StoreError> {
        let answer = self
            .client
            .get_item()
            .table_name(&*self.table)
            .key(KEY, bytes(key));
        // Otherwise it could miss the last write, and each refusal would be decided by an old
        // state.
        let answer = answer
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let answer = answer.send().await.map_err(|error| self.error(error))?;
        self.consumed.read(answer.consumed_capacity.as_slice());
        loaded(answer.item())
    }

    async fn swap(&self, key: &[u8], swap: Swap<'_, u64>) -> Result<Swapped<u64>, StoreError> {
        match swap.value {
            Some(value) => self.put(key, value, &swap).await,
            None => self.delete(key, &swap).await,
        }
    }
}

impl Dynamo {
    async fn put(
        &self,
        key: &[u8],
        value: &[u8],
        swap: &Swap<'_, u64>,
    ) -> Result<Swapped<u64>, StoreError> {
        let version = fastrand::u64(..);
        let put = self.client.put_item().table_name(&*self.table);
        let put = put
            .item(KEY, bytes(key))
            .item(WRITE, number(version))
            .item(STATE, bytes(value))
            .item(EXPIRES, item::expiry(swap.keep));
        let put = match swap.expected {
            Some(expected) => put
                .condition_expression(format!("{WRITE} = :expected"))
                .expression_attribute_values(":expected", number(expected)),
            None => put.condition_expression(format!("attribute_not_exists({KEY})")),
        };
        // One round trip also for a lost race: the error has the current item.
        let put = put
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        match put.send().await {
            Ok(answer) => {
                self.consumed.write(answer.consumed_capacity.as_slice());
                Ok(Swapped::Done(Some(version)))
            }
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(lost)) => self.lost(lost.item()),
                _ => Err(self.write_error(error)),
            },
        }
    }

    async fn delete(&self, key: &[u8], swap: &Swap<'_, u64>) -> Result<Swapped<u64>, StoreError> {
        let delete = self
            .client
            .delete_item()
            .table_name(&*self.table)
            .key(KEY, bytes(key));
        let delete = match swap.expected {
            Some(expected) => delete
                .condition_expression(format!("{WRITE} = :expected"))
                .expression_attribute_values(":expected", number(expected)),
            None => delete.condition_expression(format!("attribute_not_exists({KEY})")),
        };
        let delete = delete
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        match delete.send().await {
            Ok(answer) => {
                self.consumed.write(answer.consumed_capacity.as_slice());
                Ok(Swapped::Done(None))
            }
            Err(error) => match error.as_service_error() {
                Some(DeleteItemError::ConditionalCheckFailedException(lost)) => {
                    self.lost(lost.item())
                }
                _ => Err(self.write_error(error)),
            },
        }
    }

    /// Returns a lost race, with the current item if the server has sent it.
    fn lost(&self, item: Option<&Item>) -> Result<Swapped<u64>, StoreError> {
        self.consumed.failed_write();
        Ok(Swapped::Lost(
            item.map(|item| loaded(Some(item))).transpose()?,
        ))
    }
}

fn loaded(item: Option<&Item>) -> Result<Loaded<u64>, StoreError> {
    let value = item.map(|item| {
        let state = item.get(STATE).and_then(|state| state.as_b().ok());
        let state = state.ok_or_else(|| item::unreadable(STATE))?;
        Ok::<_, StoreError>((item::number_of(item, WRITE)?, state.as_ref().to_vec()))
    });
    Ok(Loaded {
        value: value.transpose()?,
        // DynamoDB returns no time: processes decide by their own clocks.
        now: None,
    })
}
