//! The way to a home cluster: by a manager's configuration file, or by one's own kubeconfig.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clusters::{OwnKubeconfig, Plugins};
use ops::{DEFAULT_NAMESPACE, HomeArgs, HomeCluster};

use crate::assemble::home_client;
use crate::clock::SystemClock;
use crate::config::{Config, Home};

/// Makes a client for the home cluster that the arguments name.
pub(super) async fn connect(args: &HomeArgs) -> anyhow::Result<HomeCluster> {
    let (client, shown, named) = match &args.config {
        Some(path) => {
            let config = Config::load_for_home(path)?;
            let client = home_client(&config, Plugins::Any, Arc::new(SystemClock)).await;
            let shown = match &config.home {
                Home::InCluster => "the cluster of this Pod".to_owned(),
                Home::Kubeconfig { path, context, .. } => {
                    shown(&OwnKubeconfig::file(path), context.as_deref())
                }
            };
            (client, shown, Some(config.namespace))
        }
        None => {
            let own = own_kubeconfig(args.kubeconfig.as_deref())?;
            let context = args.context.as_deref();
            (own.client(context, Arc::new(SystemClock)).await, shown(&own, context), None)
        }
    };
    let client = client.map_err(|unusable| anyhow::anyhow!("{}", unusable.reason()))?;
    let namespace = args.namespace.clone().or(named);
    let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    Ok(HomeCluster { client, namespace, shown })
}

/// The cluster of a context, as messages name it.
fn shown(own: &OwnKubeconfig, context: Option<&str>) -> String {
    match own.cluster(context) {
        Ok(Some((context, cluster))) => {
            let server = cluster.server.unwrap_or_default();
            format!("{server} (context {context:?} of {})", own.shown())
        }
        // Why it cannot be used is told by whoever makes a client of it.
        _ => own.shown(),
    }
}

/// The kubeconfig of whoever runs the command: that of `--kubeconfig`, of `$KUBECONFIG`, or of the home folder.
pub(super) fn own_kubeconfig(given: Option<&Path>) -> anyhow::Result<OwnKubeconfig> {
    if let Some(path) = given {
        return Ok(OwnKubeconfig::file(path));
    }
    let (variable, folder) = (std::env::var_os("KUBECONFIG"), std::env::home_dir());
    OwnKubeconfig::named(variable.as_deref(), folder.as_deref())
        .context("no kubeconfig: give --kubeconfig, or set KUBECONFIG")
}
