//! The shell of a Service: its Tunnel, and its address.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use sdk::{Action, Context, Controller, ControllerSpec, Event, ReconcileError, Reconciler};
use sdk::{ObjectKey, controlled_by};

use crate::access::Access;
use crate::account::{defaults, watching_defaults};
use crate::api::Tunnel;
use crate::names;
use crate::service::{Step, plan, status};

/// The name of this part of the controller.
pub(super) const NAME: &str = "tunnel-service";

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
    watching_defaults(controller)
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
        if service.metadata.deletion_timestamp.is_some() {
            // The garbage collector deletes the Tunnel, and its finalizer removes the host.
            return Ok(Action::Done);
        }
        let found = ctx.get::<Tunnel>(namespace, &names::tunnel(&key.name))?;
        let defaults = defaults(ctx)?;
        let permit =
            |account: &str| self.access.permit(ctx, namespace.unwrap_or_default(), account);
        let step = plan(&service, &defaults, found.as_deref(), permit);
        match &step {
            Step::Ignore => return Ok(Action::Done),
            Step::Apply(tunnel) => {
                ctx.apply_child(&*service, (**tunnel).clone()).await?;
            }
            Step::Withdraw | Step::Refuse { .. } => {
                let ours = found.as_deref().filter(|found| controlled_by(*found, &*service));
                if let Some(found) = ours {
                    ctx.delete(found).await?;
                }
            }
            Step::Await | Step::Taken => {}
        }
        record(ctx, &service, &step, found.as_deref()).await?;
        Ok(Action::Done)
    }
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
    let told = match step {
        Step::Taken => {
            let name = names::tunnel(&service.name_any());
            let note =
                format!("Tunnel {name} is not this Service's: delete it, or rename the Service");
            Some(("NameTaken", note))
        }
        Step::Refuse { reason, message } => Some((*reason, message.clone())),
        _ => None,
    };
    if let Some((reason, note)) = told {
        ctx.publish(Event::warning(service, reason, "Provision", note)).await;
    }
    Ok(())
}
