//! The replicas of a fleet, for commands that ask them: each through home's API server to the admin server of its
//! Pod, or those at some addresses, where replicas are no Pods. What one at an address says is filed under the name
//! that it gives itself.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use fleet::{AskError, Fleet, FleetMember, Way};
use futures::{FutureExt, StreamExt, stream};
use portforward::{DialError, PodPort};
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::home::{HomeArgs, HomeCluster};
use crate::names::identity_of;
use crate::output::warn;
use crate::program::Connect;

/// How many replicas are asked at once.
const AT_ONCE: usize = 8;
/// Where a replica says who it is.
const WHO: &str = "/debug/shards";

/// How replicas are asked.
#[derive(Clone, Debug, clap::Args)]
pub struct AskArgs {
    /// The port of the admin server in the replicas' Pods.
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    admin_port: u16,
    /// The admin server of the replicas' Pods speaks HTTP without TLS.
    #[arg(long)]
    plaintext: bool,
    /// The namespace of the replicas' Pods, if it is not that of Leases, Members and ShardMaps.
    #[arg(long, value_name = "NAME")]
    pod_namespace: Option<String>,
    /// The kubeconfig of the cluster with the replicas' Pods, if it is not the home cluster. Default with
    /// --pod-context: the files of $KUBECONFIG, merged, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pod_kubeconfig: Option<PathBuf>,
    /// The context of the cluster with the replicas' Pods. Default with --pod-kubeconfig: its current one.
    #[arg(long, value_name = "NAME")]
    pod_context: Option<String>,
    /// Ask those at these addresses instead of the replicas' Pods: where replicas are processes, or their ports are
    /// forwarded. May be repeated.
    #[arg(
        long, value_name = "IP:PORT", value_delimiter = ',',
        conflicts_with_all = ["admin_port", "plaintext", "pod_namespace", "pod_kubeconfig", "pod_context"],
    )]
    address: Vec<SocketAddr>,
    /// The admin servers at these addresses speak TLS; their certificates are not checked.
    #[arg(long, requires = "address")]
    tls: bool,
    /// A file with a token whose user may `get` what is asked for: `kubectl create token NAME > FILE`. See
    /// `leasehold rbac`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl AskArgs {
    /// Whether it says whom to ask, or as whom.
    pub fn is_given(&self) -> bool {
        self.has_addresses() || self.token_file.is_some()
    }

    /// Whether it says at which addresses replicas are: they are asked whatever home says.
    pub fn has_addresses(&self) -> bool {
        !self.address.is_empty()
    }

    /// The cluster and the namespace of the replicas' Pods: home's, unless these say otherwise.
    ///
    /// # Errors
    /// If there is no client for that cluster.
    pub async fn pods(&self, home: &HomeCluster, connect: Connect) -> anyhow::Result<HomeCluster> {
        let mut pods = match self.pod_cluster(&home.namespace) {
            Some(args) => {
                connect(&args).await.context("reach the cluster of the replicas' Pods")?
            }
            None => home.clone(),
        };
        if let Some(namespace) = &self.pod_namespace {
            pods.namespace.clone_from(namespace);
        }
        Ok(pods)
    }

    /// The cluster of the replicas' Pods, if that is another than home.
    fn pod_cluster(&self, namespace: &str) -> Option<HomeArgs> {
        let (kubeconfig, context) = (self.pod_kubeconfig.clone(), self.pod_context.clone());
        let is_other = kubeconfig.is_some() || context.is_some();
        let namespace = Some(namespace.to_owned());
        is_other.then_some(HomeArgs { config: None, kubeconfig, context, namespace })
    }
}

/// A replica that is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    /// The name of its process, or the address of one that does not say who it is.
    pub identity: String,
    /// The member's id, or the same address.
    pub(crate) member: String,
}

/// Who a replica is, in what it says of its shards.
#[derive(Deserialize)]
struct Who {
    member: String,
}

/// The way to the replicas of one fleet.
pub struct Replicas<'a> {
    args: &'a AskArgs,
    /// Where their Pods are.
    pods: &'a HomeCluster,
    token: Option<String>,
    /// Those at the addresses, once they were asked who they are.
    at_addresses: OnceCell<Vec<(Replica, Way)>>,
}

impl<'a> Replicas<'a> {
    /// Those of a fleet whose Pods are at `pods`: see [`AskArgs::pods`].
    ///
    /// # Errors
    /// If the file with the token cannot be read.
    pub fn of(pods: &'a HomeCluster, args: &'a AskArgs) -> anyhow::Result<Self> {
        let token = args.token_file.as_ref().map(|path| {
            let token = std::fs::read_to_string(path);
            token.with_context(|| format!("read the token in {}", path.display()))
        });
        let token = token.transpose()?.map(|token| token.trim().to_owned());
        Ok(Self { args, pods, token, at_addresses: OnceCell::new() })
    }

    /// Whether those at some addresses are asked, whichever members are named.
    pub(crate) fn are_at_addresses(&self) -> bool {
        self.args.has_addresses()
    }

    /// The fleet, as it was read. Those at addresses are asked without it too: then it is said why there is none.
    pub(crate) fn or_without(&self, read: anyhow::Result<Fleet>) -> anyhow::Result<Option<Fleet>> {
        match read {
            Err(why) if self.are_at_addresses() => {
                let why = model::error::chain(&*why);
                warn(format_args!("{why}; those at the addresses are asked all the same"));
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// What each of these replicas answers at a path; in their order. Where there are addresses, those there are
    /// asked instead.
    pub async fn get_all<'m>(
        &self,
        members: impl IntoIterator<Item = &'m FleetMember>,
        path: &str,
    ) -> Vec<(Replica, anyhow::Result<Vec<u8>>)> {
        let asked = if self.are_at_addresses() {
            self.at_addresses.get_or_init(|| self.ask_who()).await.clone()
        } else {
            members.into_iter().map(|member| (Replica::of(member), self.to_pod(member))).collect()
        };
        self.each(asked, path).await
    }

    async fn ask_who(&self) -> Vec<(Replica, Way)> {
        let tls = self.args.tls;
        let way = |address| Way::Address { address, tls };
        let addresses = self.args.address.iter().copied();
        let unknown = addresses.map(|address| (Replica::at(address), way(address)));
        let answers = self.each(unknown.clone().collect(), WHO).await;
        let named = |((unknown, way), (_, answer)): (_, (_, anyhow::Result<Vec<u8>>))| {
            (answer.ok().and_then(|answer| Replica::named(&answer)).unwrap_or(unknown), way)
        };
        unknown.zip(answers).map(named).collect()
    }

    async fn each(
        &self,
        asked: Vec<(Replica, Way)>,
        path: &str,
    ) -> Vec<(Replica, anyhow::Result<Vec<u8>>)> {
        // In boxes, so that whoever awaits them all may be sent to another thread.
        let ask = |(replica, way): (Replica, Way)| {
            async move { (replica, self.get(&way, path).await) }.boxed()
        };
        let asked: Vec<_> = asked.into_iter().map(ask).collect();
        stream::iter(asked).buffered(AT_ONCE).collect().await
    }

    /// What a replica answers at a path.
    async fn get(&self, way: &Way, path: &str) -> anyhow::Result<Vec<u8>> {
        let client = self.pods.client.clone();
        let answer = fleet::get(client, way, path, self.token.as_deref()).await;
        let answer = answer
            .map_err(|error| anyhow::anyhow!("{}{}", model::error::chain(&error), fix(&error)))?;
        Ok(answer.to_vec())
    }

    fn to_pod(&self, member: &FleetMember) -> Way {
        let (namespace, pod) = (self.pods.namespace.clone(), member.identity.clone());
        let port = PodPort { namespace, pod, port: self.args.admin_port };
        Way::Pod { port, tls: !self.args.plaintext }
    }
}

fn fix(error: &AskError) -> &'static str {
    match error {
        AskError::Unauthorized => "; give --token-file (kubectl create token NAME)",
        AskError::Tls(_) => {
            "; if it speaks none, give --plaintext for a Pod, and no --tls for an address"
        }
        AskError::Broken(_) => {
            "; if it speaks TLS, give no --plaintext for a Pod, and --tls for an address"
        }
        AskError::Dial(DialError::Refused { source: kube::Error::Api(status), .. })
            if status.code == 404 =>
        {
            "; if the Pods are in another namespace or cluster than home, give --pod-namespace, --pod-kubeconfig or \
             --pod-context; if replicas are processes and no Pods, give --address IP:PORT for each"
        }
        _ => "",
    }
}

impl Replica {
    pub(crate) fn of(member: &FleetMember) -> Self {
        Self { identity: member.identity.clone(), member: member.member.to_string() }
    }

    fn at(address: SocketAddr) -> Self {
        Self { identity: address.to_string(), member: address.to_string() }
    }

    /// By what it says of its shards; nothing while it reads its clusters and home.
    fn named(answer: &[u8]) -> Option<Self> {
        let Who { member } = serde_json::from_slice::<Option<Who>>(answer).ok()??;
        // It becomes the name of a file.
        let member: model::MemberId = member.parse().ok()?;
        Some(Self { identity: identity_of(member.as_str()).to_owned(), member: member.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_replica_is_known_by_its_own_word() {
        let named = |text: &str| Replica::named(text.as_bytes()).map(|r| (r.identity, r.member));
        let of = ("replica-1".to_owned(), "replica-1-abcde".to_owned());
        assert_eq!(named(r#"{"member": "replica-1-abcde", "shards": []}"#), Some(of));
        for nobody in ["null", "", r#"{"member": "../../etc"}"#] {
            assert_eq!(named(nobody), None, "{nobody}");
        }
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        ask: AskArgs,
    }

    fn parsed(line: &str) -> Result<AskArgs, clap::Error> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        Line::try_parse_from(["ask"].into_iter().chain(words)).map(|line| line.ask)
    }

    #[tokio::test]
    async fn pods_may_be_in_another_namespace_or_cluster_than_home() {
        fn cluster(shown: &str, namespace: &str) -> HomeCluster {
            type Answer = Result<http::Response<kube::client::Body>, &'static str>;
            let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
                std::future::ready(Answer::Err("nobody asks"))
            });
            let client = kube::Client::new(nobody, "default");
            HomeCluster { client, namespace: namespace.to_owned(), shown: shown.to_owned() }
        }
        let home = cluster("home", "leases");
        // What it is called with is in its name.
        let connect: Connect = |args| {
            let found = cluster(&args.flags(), args.namespace.as_deref().unwrap_or_default());
            Box::pin(async { Ok(found) })
        };
        for (line, shown, namespace) in [
            ("", "home", "leases"),
            ("--pod-namespace apps", "home", "apps"),
            ("--pod-context work", " --context work --namespace leases", "leases"),
            (
                "--pod-kubeconfig k --pod-namespace apps",
                " --kubeconfig k --namespace leases",
                "apps",
            ),
        ] {
            let ask = parsed(line).unwrap();
            let pods = ask.pods(&home, connect).await.unwrap();
            assert_eq!(
                (pods.shown.as_str(), pods.namespace.as_str()),
                (shown, namespace),
                "{line}"
            );
        }
    }

    #[test]
    fn tls_is_said_of_addresses_and_its_absence_of_pods() {
        for (line, is_right) in [
            ("--address 127.0.0.1:8443 --tls", true),
            ("--address 127.0.0.1:8443", true),
            ("--tls", false),
            ("--plaintext --pod-namespace apps", true),
            ("--address 127.0.0.1:8443 --plaintext", false),
        ] {
            assert_eq!(parsed(line).is_ok(), is_right, "{line}");
        }
    }

    #[test]
    fn who_is_no_pod_is_asked_at_an_address() {
        let port = PodPort { namespace: "ns".into(), pod: "replica-0".into(), port: 8443 };
        let refused = |code| {
            let status =
                Status::failure("pods \"replica-0\" not found", "NotFound").with_code(code);
            let source = kube::Error::Api(status.boxed());
            AskError::Dial(DialError::Refused { port: port.clone(), source })
        };
        assert!(fix(&refused(404)).contains("--address"));
        assert!(fix(&refused(404)).contains("--pod-namespace"));
        assert_eq!(fix(&refused(403)), "");
    }
}
