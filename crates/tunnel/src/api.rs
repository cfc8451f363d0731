//! The `Tunnel` resource (`inlets.inlets.dev/v1alpha1`): what users ask for and what the controller
//! reports.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tunnel from a public address to a Service of this cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "inlets.inlets.dev",
    version = "v1alpha1",
    kind = "Tunnel",
    plural = "tunnels",
    singular = "tunnel",
    category = "leasehold",
    namespaced,
    status = "TunnelStatus",
    derive = "PartialEq",
    doc = "A Tunnel gives a Service a public address on a small host of a cloud provider.",
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.serviceName"),
    printcolumn(name = "Tunnel", type_ = "string", json_path = ".status.clientDeployment"),
    printcolumn(name = "HostStatus", type_ = "string", json_path = ".status.hostStatus"),
    printcolumn(name = "HostIP", type_ = "string", json_path = ".status.hostIP"),
    printcolumn(name = "HostID", type_ = "string", json_path = ".status.hostID"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = "1"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct TunnelSpec {
    /// The Service, in the Tunnel's namespace, that gets the connections.
    #[schemars(length(min = 1, max = 63))]
    pub service_name: String,
    /// The ports to open on the host, each forwarded to the Service's port of the same number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub ports: Vec<TunnelPort>,
    /// The provider of the host: `digitalocean`, `hetzner`, or `local` for development.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's name of the host's region, such as `fra1` or `fsn1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The provider's name of the host's size, such as `s-1vcpu-512mb-10gb` or `cx23`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The Secret with the provider's token, in the Tunnel's namespace. Without it the token is the
    /// one that ConfigMap `leasehold-tunnel` names for this provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKey>,
    /// Another address of the provider's API, for a proxy or a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub endpoint: Option<String>,
    /// Whether the public address outlives the host, where the administrator allows it: it costs money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_address: Option<bool>,
    /// The image of the client that connects the cluster to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub client_image: Option<String>,
}

/// A port that is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelPort {
    /// Its number, on the host and of the Service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The protocol.
    #[serde(default)]
    pub protocol: Protocol,
}

/// A protocol that can be forwarded.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Protocol {
    /// TCP.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKey {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[serde(default = "default_key")]
    pub key: String,
}

/// The placement of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// The provider.
    pub provider: String,
    /// The API's address, if not the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The region.
    pub region: String,
    /// The size.
    pub size: String,
    /// The account that pays for it: the provider and the token's Secret, such as
    /// `digitalocean/leasehold-system/cloud`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The key of that Secret: each is another account.
    #[serde(rename = "tokenKey", default, skip_serializing_if = "Option::is_none")]
    pub token_key: Option<String>,
}

impl Placement {
    /// Whether a host that is here is where it is wanted.
    pub fn is(&self, wanted: &Self) -> bool {
        self.clone().or_account_of(wanted) == *wanted
    }

    /// The same, with what earlier versions did not record of the account.
    pub(crate) fn or_account_of(self, other: &Self) -> Self {
        let account = self.account.or_else(|| other.account.clone());
        Self { account, token_key: self.token_key.or_else(|| other.token_key.clone()), ..self }
    }
}

/// A reserved address of a Tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservedAddress {
    /// The provider's id of it.
    pub id: String,
    /// The address.
    pub ip: String,
    /// What shows that the controller wrote this: others may write a status, and some providers do not say whose an
    /// address is.
    pub seal: String,
}

/// The state of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostStatus {
    /// It is being created.
    Provisioning,
    /// It runs and has an address.
    Active,
    /// There is none, for the reason in the conditions.
    Error,
    /// It is being removed.
    Deleting,
}

/// What the controller last found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TunnelStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `provisioning`, `active`, `error` or `deleting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_status: Option<HostStatus>,
    /// The host's public address.
    #[serde(rename = "hostIP", default, skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<String>,
    /// The host's public IPv6 address, where the administrator wants one.
    #[serde(rename = "hostIPv6", default, skip_serializing_if = "Option::is_none")]
    pub host_ipv6: Option<String>,
    /// The provider's id of the host.
    #[serde(rename = "hostID", default, skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// When the host was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub host_since: Option<Time>,
    /// Since when each look has shown that the host is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub stopped_since: Option<Time>,
    /// Since when each look has shown that the host is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub starting_since: Option<Time>,
    /// The digest of what the host was told when it was made: its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_exit: Option<String>,
    /// When a host was requested that has not been seen yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub creating_since: Option<Time>,
    /// The address that outlives the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<ReservedAddress>,
    /// When an address was requested that has not been seen yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub reserving_since: Option<Time>,
    /// When a request that the provider refused is repeated, unless the spec changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub retry_at: Option<Time>,
    /// The placement of the host, which may not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The Secret of the Tunnel's namespace with the token, held by a finalizer until the host is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret: Option<String>,
    /// The Deployment that connects the Service to the host, the first of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_deployment: Option<String>,
    /// `Ready`: connections come through. `IPv6`: by the host's IPv6 address too. `Clients`: all of several clients are
    /// connected. `Managed`, if false: nothing can be done about the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sdk::schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl TunnelStatus {
    /// Whether a host exists, or may exist.
    pub(crate) fn has_host(&self) -> bool {
        self.host_id.is_some() || self.creating_since.is_some()
    }

    /// The placement of a host or an address that exists or may exist, which may differ from the desired one.
    pub(crate) fn held(&self) -> Option<&Placement> {
        let address = self.address.is_some() || self.reserving_since.is_some();
        self.placement.as_ref().filter(|_| self.has_host() || address)
    }
}

fn default_key() -> String {
    "token".to_owned()
}
