//! Where DynamoDB is, and who asks it.

use std::env;

use aws_sdk_dynamodb::config::Credentials;
use tollgate::Error;

/// Where DynamoDB is, and who asks it.
#[derive(Clone, Debug)]
pub struct Place {
    pub(crate) endpoint: Option<String>,
    pub(crate) region: String,
    pub(crate) credentials: Credentials,
}

impl Place {
    /// DynamoDB in a region of AWS, such as `eu-central-1`.
    pub fn region(region: &str, key_id: &str, secret: &str) -> Self {
        Self {
            endpoint: None,
            region: region.to_owned(),
            credentials: Credentials::new(key_id, secret, None, None, "tollgate"),
        }
    }

    /// A server for tests with this URL, such as `http://127.0.0.1:4567`.
    pub fn local(endpoint: &str) -> Self {
        Self {
            endpoint: Some(endpoint.to_owned()),
            ..Self::region("eu-central-1", "local", "local")
        }
    }

    /// Reads `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, if it is set,
    /// `AWS_SESSION_TOKEN`.
    ///
    /// Programs on AWS that get credentials from their instance use the crate `aws-config`, and
    /// [`Dynamo::new`](crate::Dynamo::new).
    ///
    /// # Errors
    ///
    /// When one of the first three is not set.
    pub fn from_environment() -> Result<Self, Error> {
        let read = |name: &str| {
            env::var(name).map_err(|_| {
                Error::new(format!(
                    "{name} is not set: expected the region and the credentials of DynamoDB in AWS_REGION, AWS_ACCESS_KEY_ID and \
                     AWS_SECRET_ACCESS_KEY; for a local server name its URL instead, as in --endpoint http://127.0.0.1:4567"
                ))
            })
        };
        let (region, key_id) = (read("AWS_REGION")?, read("AWS_ACCESS_KEY_ID")?);
        let (secret, session) = (
            read("AWS_SECRET_ACCESS_KEY")?,
            env::var("AWS_SESSION_TOKEN").ok(),
        );
        Ok(Self {
            endpoint: None,
            region,
            credentials: Credentials::new(key_id, secret, session, None, "tollgate"),
        })
    }
}
