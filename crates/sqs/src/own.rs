//! The manager's own identity where it runs: AWS's own providers. Shell.

use std::time::Duration;

use aws_config::ecs::EcsCredentialsProvider;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_sqs::config::SharedHttpClient;

use super::access::OwnIdentity;

/// How long the agent of Pod Identity may take to connect and to answer.
const AGENT_TIMEOUT: Duration = Duration::from_secs(2);

/// What gives the identity: the agent of Pod Identity (which AWS's library calls ECS, because it speaks
/// the same protocol), or the metadata service of the machine.
pub(super) fn provider(identity: OwnIdentity, http: SharedHttpClient) -> SharedCredentialsProvider {
    let config = ProviderConfig::without_region().with_http_client(http);
    match identity {
        OwnIdentity::InstanceProfile => SharedCredentialsProvider::new(
            ImdsCredentialsProvider::builder().configure(&config).build(),
        ),
        OwnIdentity::PodIdentity | OwnIdentity::Environment => SharedCredentialsProvider::new(
            EcsCredentialsProvider::builder()
                .configure(&config)
                .connect_timeout(AGENT_TIMEOUT)
                .read_timeout(AGENT_TIMEOUT)
                .build(),
        ),
    }
}
