//! A controller whose reconciles take two seconds and do nothing, built on the library.
//! `cargo xtask chaos` compares it with other managers, which are weakest when a handover comes in the
//! middle of a reconcile. With `journal` in its configuration it records each dispatch.
//!
//! ```text
//! cargo run --release -p leasehold --example slow -- --config FILE
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::core::v1::ConfigMap;
use leasehold::prelude::*;
use tokio::signal::unix::{SignalKind, signal};

const NAME: &str = "slow";
/// Where the ConfigMaps are that are reconciled.
const NAMESPACE: &str = "load";
const RECONCILE_TIME: Duration = Duration::from_secs(2);

struct Slow;

impl Reconciler for Slow {
    type Kind = ConfigMap;

    async fn reconcile(&self, _: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
        tokio::time::sleep(RECONCILE_TIME).await;
        Ok(Action::Done)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let config = Config::load(&config_file()?, &[NAME])?;
    let _telemetry = telemetry::init(&config.log, config.otlp.as_ref())?;
    let shutdown = CancellationToken::new();
    let (stop, mut terminate) = (shutdown.clone(), signal(SignalKind::terminate())?);
    tokio::spawn(async move {
        terminate.recv().await;
        stop.cancel();
    });
    let slow = Controller::for_kind::<ConfigMap>(NAME).namespace(NAMESPACE).reconciler(Slow);
    match Manager::new(config).controller(slow).run(shutdown).await? {
        Departure::HandedOver => Ok(ExitCode::SUCCESS),
        Departure::Abandoned => Ok(ExitCode::FAILURE),
    }
}

fn config_file() -> anyhow::Result<PathBuf> {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(flag), Some(file)) if flag == "--config" => Ok(file.into()),
        _ => bail!("usage: slow --config FILE"),
    }
}
