//! The way to a home cluster: by a manager's configuration file, or by one's own kubeconfig.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clusters::{OwnKubeconfig, Plugins};
use ops::{DEFAULT_NAMESPACE, HomeArgs, HomeCluster};

use crate::assemble::home_client;
use crate::builtin;
use crate::clock::SystemClock;
use crate::config::Config;

/// Makes a client for the home cluster that the arguments name.
pub(super) async fn connect(args: &HomeArgs) -> anyhow::Result<HomeCluster> {
    let (client, named) = match &args.config {
        Some(path) => {
            let config = Config::load(path, &builtin::names())?;
            let client = home_client(&config, Plugins::Any, Arc::new(SystemClock)).await;
            (client, Some(config.namespace))
        }
        None => {
            let own = own_kubeconfig(args.kubeconfig.as_deref())?;
            (own.client(args.context.as_deref(), Arc::new(SystemClock)).await, None)
        }
    };
    let client = client.map_err(|unusable| anyhow::anyhow!("{}", unusable.reason()))?;
    let namespace = args.namespace.clone().or(named);
    Ok(HomeCluster { client, namespace: namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()) })
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
