//! Command-line arguments of a server that runs alone.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::server::{Builder, Server};

/// Arguments of `leasehold apiserver`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Args {
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 6443)]
    pub port: u16,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// Name of cluster, user and context in the kubeconfig
    #[arg(long, default_value = "leasehold")]
    pub name: String,
    /// Where the kubeconfig is written
    #[arg(long, default_value = "./kubeconfig")]
    pub kubeconfig: PathBuf,
    /// Bearer token that clients must present; generated if absent
    #[arg(long)]
    pub token: Option<String>,
    /// Who may do what: AlwaysAllow lets every valid token do everything, RBAC needs Roles
    #[arg(long, value_enum, default_value_t)]
    pub authorization_mode: AuthorizationMode,
    /// Run stand-ins for Deployments, ReplicaSets, StatefulSets and Pods
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub workloads: bool,
    /// Collect garbage by owner and finish the deletion of namespaces
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub garbage_collector: bool,
}

/// How requests are authorized.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AuthorizationMode {
    /// Every valid token may do everything.
    #[default]
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// By Roles, ClusterRoles and their bindings.
    #[value(name = "RBAC")]
    Rbac,
}

impl Args {
    /// A server with these arguments.
    pub fn builder(&self) -> Builder {
        let builder = Server::builder()
            .name(&self.name)
            .bind((self.bind, self.port))
            .rbac(self.authorization_mode == AuthorizationMode::Rbac)
            .workloads(self.workloads)
            .garbage_collector(self.garbage_collector);
        match &self.token {
            Some(token) => builder.token(token),
            None => builder,
        }
    }
}
