//! The shell of a Service: its Tunnel, and its address.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, ResourceExt};
use sdk::refusal::refused;
use sdk::{
    Action, ApplyOptions, Context, Controller, ControllerSpec, Event, ReconcileError, Reconciler,
};
use sdk::{ObjectKey, controlled_by, spread};

use crate::access::Access;
use crate::account::{defaults, watching_defaults};
use crate::api::Tunnel;
use crate::names;
use crate::service::{Step, plan, status, told, unforwarded};

/// The name of this part of the controller.
pub(super) const NAME: &str = "tunnel-service";
/// When a Tunnel that the server refuses is tried again: what refuses it may be a quota or another's webhook.
const AGAIN: Duration = Duration::from_secs(300);

/// Reconciles Services.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceReconciler {
    access: Access,
}

/// The controller of Services.
pub(super) fn controller(workers: usize, access: Access) -> ControllerSpec {
    let controller = Controller::for_kind::<Service>(NAME)
        .part_of(crate::NAME)
        .owns::<Tunnel>()
        // A Tunnel of others that has our name is not our child: its Service waits for it to go.
        .watches::<Tunnel>(|tunnel, _| {
            vec![(tunnel.namespace(), tunnel.spec.service_name.clone())]
        });
    watching_defaults(controller, &access)
        .group(crate::GROUP)
        .field_manager(crate::FIELD_MANAGER)
        .workers(workers)
        .reconciler(ServiceReconciler { access })
}

impl Reconciler for ServiceReconciler {
    type Kind = Service;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(service) = ctx.get::<Service>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let name = names::tunnel(&key.name);
        let mut found = ctx.get::<Tunnel>(namespace, &name)?;
        let defaults = defaults(ctx, &self.access)?;
        let permit =
            |account: &str| self.access.permit(ctx, namespace.unwrap_or_default(), account);
        let mut step = plan(&service, &defaults, found.as_deref(), permit);
        if matches!(step, Step::Apply(_)) && found.is_none() {
            // The cache may lack one that others made a moment ago.
            let tunnels = Api::<Tunnel>::namespaced(ctx.client(), namespace.unwrap_or_default());
            found = tunnels.get_opt(&name).await?.map(Arc::new);
            step = plan(&service, &defaults, found.as_deref(), permit);
        }
        match &step {
            Step::Ignore => return Ok(Action::Done),
            Step::Apply(tunnel) => {
                let tunnel = (**tunnel).clone();
                if let Err(error) = apply(ctx, &service, found.as_deref(), tunnel).await {
                    step = Step::Rejected(refused(error)?);
                }
            }
            Step::Withdraw | Step::Refuse { .. } => {
                let ours = found.as_deref().filter(|found| controlled_by(*found, &*service));
                if let Some(found) = ours {
                    ctx.delete(found).await?;
                }
            }
            Step::Await | Step::Taken | Step::Rejected(_) | Step::Unclear(_) => {}
        }
        record(ctx, &service, &step, found.as_deref()).await?;
        Ok(match step {
            Step::Rejected(_) => Action::RequeueAfter(spread(AGAIN, &*service)),
            _ => Action::Done,
        })
    }
}

/// Applies the Service's Tunnel: the one that was found by its uid, and without force where none was. So what others
/// wrote since is a conflict.
async fn apply(
    ctx: &Context,
    service: &Service,
    found: Option<&Tunnel>,
    mut tunnel: Tunnel,
) -> Result<Tunnel, ReconcileError> {
    tunnel.metadata.uid = found.and_then(ResourceExt::uid);
    sdk::set_controller(service, &mut tunnel).map_err(ReconcileError::terminal)?;
    ctx.apply_with(&tunnel, ApplyOptions::default().force(found.is_some())).await
}

/// Writes address and condition if they say something new.
async fn record(
    ctx: &Context,
    service: &Service,
    step: &Step,
    found: Option<&Tunnel>,
) -> Result<(), ReconcileError> {
    let status = status(service, step, found, ctx.now());
    let before = service.status.clone().unwrap_or_default();
    let ingress = |status: &k8s_openapi::api::core::v1::ServiceStatus| {
        status.load_balancer.as_ref().and_then(|balancer| balancer.ingress.clone())
    };
    if before.conditions == status.conditions && ingress(&before) == ingress(&status) {
        return Ok(());
    }
    let updated = Service { status: Some(status), ..service.clone() };
    ctx.update_status(&updated).await?;
    let news = match step {
        Step::Taken | Step::Refuse { .. } | Step::Rejected(_) | Step::Unclear(_) => {
            told(&updated).map(|told| (&*told.reason, told.message.clone()))
        }
        Step::Apply(_) => {
            let told = unforwarded(service);
            let mut known = before.conditions.iter().flatten();
            let is_new = !told.is_empty() && !known.any(|known| known.message.ends_with(&told));
            is_new.then(|| ("PortsNotForwarded", told.trim_start_matches("; ").to_owned()))
        }
        _ => None,
    };
    if let Some((reason, note)) = news {
        ctx.publish(Event::warning(service, reason, "Provision", note)).await;
    }
    Ok(())
}
