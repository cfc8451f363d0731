//! The replicas of a fleet, for commands that ask them: each through home's API server to the admin server of its
//! Pod, or one at an address.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use fleet::{AskError, FleetMember, Way};
use futures::{FutureExt, StreamExt, stream};
use portforward::PodPort;

use crate::home::HomeCluster;

/// How many replicas are asked at once.
const AT_ONCE: usize = 8;

/// How replicas are asked.
#[derive(Clone, Debug, clap::Args)]
pub struct AskArgs {
    /// The port of the admin server in the replicas' Pods.
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    admin_port: u16,
    /// The admin server speaks HTTP without TLS.
    #[arg(long)]
    plaintext: bool,
    /// Ask the one at this address, over HTTP without TLS, instead of the replicas' Pods.
    #[arg(long, value_name = "IP:PORT", conflicts_with_all = ["admin_port", "plaintext"])]
    address: Option<SocketAddr>,
    /// A file with a token whose user may `get` what is asked for: `kubectl create token NAME > FILE`. See
    /// `leasehold rbac`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The way to the replicas of one fleet.
pub struct Replicas<'a> {
    args: &'a AskArgs,
    home: &'a HomeCluster,
    token: Option<String>,
}

impl<'a> Replicas<'a> {
    /// Those of the fleet at `home`.
    ///
    /// # Errors
    /// If the file with the token cannot be read.
    pub fn of(home: &'a HomeCluster, args: &'a AskArgs) -> anyhow::Result<Self> {
        let token = args.token_file.as_ref().map(|path| {
            let token = std::fs::read_to_string(path);
            token.with_context(|| format!("read the token in {}", path.display()))
        });
        let token = token.transpose()?.map(|token| token.trim().to_owned());
        Ok(Self { args, home, token })
    }

    /// What a replica answers at a path.
    async fn get(&self, member: &FleetMember, path: &str) -> anyhow::Result<Vec<u8>> {
        let (namespace, pod) = (self.home.namespace.clone(), member.identity.clone());
        let port = PodPort { namespace, pod, port: self.args.admin_port };
        let tls = !self.args.plaintext;
        let way = self.args.address.map_or(Way::Pod { port, tls }, Way::Address);
        let client = self.home.client.clone();
        let answer = fleet::get(client, &way, path, self.token.as_deref()).await;
        let answer = answer.map_err(|error| {
            let fix = match &error {
                AskError::Unauthorized => "; give --token-file (kubectl create token NAME)",
                AskError::Tls(_) => "; if it speaks none, give --plaintext",
                _ => "",
            };
            anyhow::anyhow!("{}{fix}", model::error::chain(&error))
        })?;
        Ok(answer.to_vec())
    }

    /// What each of these replicas answers at a path; in their order.
    pub async fn get_all<'m>(
        &self,
        members: impl IntoIterator<Item = &'m FleetMember>,
        path: &str,
    ) -> Vec<(&'m FleetMember, anyhow::Result<Vec<u8>>)> {
        // Whoever is asked at an address is one, whatever its name.
        let most = if self.args.address.is_some() { 1 } else { usize::MAX };
        // In boxes, so that whoever awaits them all may be sent to another thread.
        let ask = |member| async move { (member, self.get(member, path).await) }.boxed();
        let asked: Vec<_> = members.into_iter().take(most).map(ask).collect();
        stream::iter(asked).buffered(AT_ONCE).collect().await
    }
}
