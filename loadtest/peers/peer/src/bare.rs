//! A loop that only sends the patches of a reconcile: the least that reconciles can cost.

use std::sync::Arc;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};

use crate::bench::{self, Bench};
use crate::{Args, Tally};

/// Patches every object, `args.workers` of them at once.
///
/// # Errors
/// If a patch is refused.
pub async fn patch_all(client: &Client, args: &Args, trigger: u64) -> Result<()> {
    let api = Api::<Bench>::namespaced(client.clone(), &args.namespace);
    let tally = Arc::new(Tally::new(args.objects));
    tally.begin(trigger);
    let patches = stream::iter((0..args.objects).map(|index| {
        let (api, tally, name) = (api.clone(), Arc::clone(&tally), bench::name(index));
        // In tasks, like the reconciles of the other peers.
        tokio::spawn(async move {
            let patch = Patch::Merge(bench::patch(trigger));
            api.patch_status(&name, &PatchParams::default(), &patch).await?;
            tally.record(&name, trigger);
            anyhow::Ok(())
        })
    }));
    patches.buffer_unordered(args.workers).map(|joined| joined?).try_collect().await
}
