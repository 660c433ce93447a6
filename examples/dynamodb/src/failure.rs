//! Converts errors of the SDK into store errors.

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use tollgate::store::StoreError;

use crate::Dynamo;

impl Dynamo {
    /// Classifies the error of a read. Wrappers such as a circuit breaker or a fallback act on its
    /// kind.
    pub(crate) fn error<E>(&self, error: SdkError<E>) -> StoreError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        self.classify(error, false)
    }

    /// Classifies the error of a write. A table without capacity for writes, or whose user may only
    /// read, still answers reads, by which clients are refused: with counters, those that are known
    /// to be refused.
    pub(crate) fn write_error<E>(&self, error: SdkError<E>) -> StoreError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        self.classify(error, true)
    }

    fn classify<E>(&self, error: SdkError<E>, is_write: bool) -> StoreError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let text = DisplayErrorContext(&error).to_string();
        match &error {
            SdkError::TimeoutError(_) => StoreError::timeout(),
            SdkError::DispatchFailure(failure) if failure.is_timeout() => StoreError::timeout(),
            // No server, a closed connection, or an answer that cannot be read.
            SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => {
                StoreError::unavailable(text)
            }
            // An answer of another server, such as a proxy's page.
            SdkError::ServiceError(service) if service.err().code().is_none() => {
                StoreError::unavailable(text)
            }
            SdkError::ServiceError(service) => match service.err().code().unwrap_or_default() {
                code if is_throttled(code) => {
                    let text = format!(
                        "DynamoDB throttles the table `{}` ({code}): expected capacity for each decision; raise the table's, or lease units",
                        self.table
                    );
                    match is_write {
                        true => StoreError::unwritten(text),
                        false => StoreError::unavailable(text),
                    }
                }
                "InternalServerError" | "ServiceUnavailable" => StoreError::unavailable(text),
                "ResourceNotFoundException" => StoreError::other(format!(
                    "there is no table `{}`: expected one with the key `{}`; create it with `Dynamo::create_table`, as --create does",
                    self.table,
                    crate::item::KEY
                )),
                code if is_of_credentials(code) => {
                    let text = format!(
                        "DynamoDB rejects the credentials ({code}): expected a key that may read, write and delete items of the table `{}`; \
                         check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the policy of their user",
                        self.table
                    );
                    match is_write && code == "AccessDeniedException" {
                        true => StoreError::unwritten(text),
                        false => StoreError::other(text),
                    }
                }
                // The state of this key is too large. The table itself works.
                "ValidationException" if text.contains("size") => StoreError::unsupported(text),
                _ => StoreError::other(text),
            },
            _ => StoreError::other(text),
        }
    }
}

fn is_throttled(code: &str) -> bool {
    matches!(
        code,
        "ProvisionedThroughputExceededException" | "ThrottlingException" | "RequestLimitExceeded"
    )
}

fn is_of_credentials(code: &str) -> bool {
    matches!(
        code,
        "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "IncompleteSignatureException"
            | "MissingAuthenticationTokenException"
            | "MissingAuthenticationToken"
            | "AccessDeniedException"
            | "ExpiredTokenException"
    )
}
