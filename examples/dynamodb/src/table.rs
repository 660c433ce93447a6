//! The table.

use std::time::Duration;

use aws_sdk_dynamodb::{
    error::ProvideErrorMetadata,
    types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
        TableStatus, TimeToLiveSpecification,
    },
};
use tollgate::store::StoreError;

use crate::{
    Dynamo,
    item::{EXPIRES, KEY},
};

/// The most checks of a new table: DynamoDB names some seconds.
const MOST_CHECKS: u32 = 300;
const BETWEEN_CHECKS: Duration = Duration::from_millis(200);

impl Dynamo {
    /// Creates the table, paid by request, whose items expire by themselves. Does nothing if it is
    /// there.
    ///
    /// # Errors
    ///
    /// When the table cannot be created, or is not ready after a minute.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        let key = AttributeDefinition::builder()
            .attribute_name(KEY)
            .attribute_type(ScalarAttributeType::B);
        let schema = KeySchemaElement::builder()
            .attribute_name(KEY)
            .key_type(KeyType::Hash);
        let create = self
            .client
            .create_table()
            .table_name(&*self.table)
            .billing_mode(BillingMode::PayPerRequest);
        let create = create.attribute_definitions(key.build().map_err(StoreError::other)?);
        let create = create.key_schema(schema.build().map_err(StoreError::other)?);
        match create.send().await {
            Ok(_) => {}
            Err(error) if error.code() == Some("ResourceInUseException") => {}
            Err(error) => return Err(self.error(error)),
        }
        for _ in 0..MOST_CHECKS {
            let found = self
                .client
                .describe_table()
                .table_name(&*self.table)
                .send()
                .await;
            let found = found.map_err(|error| self.error(error))?;
            if found.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active) {
                return self.let_items_expire().await;
            }
            tokio::time::sleep(BETWEEN_CHECKS).await;
        }
        Err(StoreError::other(format!(
            "the table `{}` is not ready after a minute: expected some seconds; look at its state, and try again",
            self.table
        )))
    }

    /// Checks that the table is there, so that a program says so at its start.
    ///
    /// # Errors
    ///
    /// When there is no table, no server, or no permission.
    pub async fn check_table(&self) -> Result<(), StoreError> {
        let describe = self.client.describe_table().table_name(&*self.table);
        describe
            .send()
            .await
            .map(drop)
            .map_err(|error| self.error(error))
    }

    async fn let_items_expire(&self) -> Result<(), StoreError> {
        let expiry = TimeToLiveSpecification::builder()
            .attribute_name(EXPIRES)
            .enabled(true);
        let set = self.client.update_time_to_live().table_name(&*self.table);
        let set = set.time_to_live_specification(expiry.build().map_err(StoreError::other)?);
        match set.send().await {
            Ok(_) => Ok(()),
            // It is set already.
            Err(error)
                if error
                    .message()
                    .is_some_and(|text| text.contains("already enabled")) =>
            {
                Ok(())
            }
            // Servers for tests keep their items.
            Err(error) if error.code() == Some("UnknownOperationException") => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }
}
