//! A finalizer with closures: what must not be left behind is not, whatever fails meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use model::ObjectKey;
use sdk::{Action, Context, Controller, ReconcileError, Reconciler};

use super::{FINALIZER, MAP};

/// Keeps a record outside of the cluster for each ConfigMap; taking it back takes three attempts.
#[derive(Clone, Default)]
struct Registrar(Arc<Mutex<Vec<String>>>);

impl Registrar {
    fn note(&self, what: &str) -> usize {
        let mut notes = self.0.lock().unwrap();
        notes.push(what.to_owned());
        notes.iter().filter(|note| *note == what).count()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.0.lock().unwrap().clone();
        notes.dedup();
        notes
    }
}

impl Reconciler for Registrar {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(map) = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)? else {
            return Ok(Action::Done);
        };
        ctx.finalize(
            &*map,
            FINALIZER,
            async |map| {
                let has = map.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
                self.note(if has { "registered" } else { "registered without a finalizer" });
                Ok(Action::RequeueAfter(Duration::from_secs(60)))
            },
            async |map| {
                assert!(map.metadata.deletion_timestamp.is_some());
                match self.note("asked to remove") {
                    1 => Err(ReconcileError::transient("the registry does not answer")),
                    2 => Ok(Action::RequeueAfter(Duration::from_secs(5))),
                    _ => {
                        self.note("removed");
                        Ok(Action::Done)
                    }
                }
            },
        )
        .await
    }
}

async fn world(registrar: &Registrar) -> (TestEnv, Api<ConfigMap>) {
    let mut env = TestEnv::builder().namespace("web").start().await;
    let spec = Controller::for_kind::<ConfigMap>("registrar").namespace("web");
    env.run([spec.reconciler(registrar.clone())]);
    let maps = env.api::<ConfigMap>("web");
    (env, maps)
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_stands_before_anything_is_made_and_until_it_is_cleaned_up() {
    let registrar = Registrar::default();
    let (env, maps) = world(&registrar).await;
    // As long as the finalizer cannot be written, nothing is made.
    let refuse = || Fault::Error(ApiError::new(Reason::InternalError, "no leader"));
    env.set_faults(move |request| match (request.verb, &*request.resource) {
        ("patch", "configmaps") if request.user_agent.starts_with("leasehold/") => refuse(),
        _ => Fault::None,
    });
    env.apply(&MAP.replace("data: {x: '1', z: '2'}", "data: {}")).await;
    env.pass(Duration::from_secs(5)).await;
    assert_eq!(registrar.notes(), Vec::<String>::new());
    env.end_faults();
    env.until_object(&maps, "a", |map| map.metadata.finalizers.is_some()).await;
    env.pass(Duration::from_secs(5)).await;
    assert_eq!(registrar.notes(), ["registered"]);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    env.pass(Duration::from_secs(2)).await;
    assert!(maps.get_opt("a").await.unwrap().is_some(), "two attempts have not finished it");
    assert_eq!(registrar.notes(), ["registered", "asked to remove"]);
    env.until_gone(&maps, "a").await;
    assert_eq!(registrar.notes(), ["registered", "asked to remove", "removed"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_finalizer_is_off_cleans_up_again() {
    let registrar = Registrar::default();
    let (mut env, maps) = world(&registrar).await;
    env.apply(MAP).await;
    env.until_object(&maps, "a", |map| map.metadata.finalizers.is_some()).await;
    env.set_faults(move |request| match (request.verb, &*request.resource) {
        ("patch", "configmaps") => Fault::Drop,
        _ => Fault::None,
    });
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    env.until("it to be cleaned up", async || {
        registrar.notes().contains(&"removed".to_owned()).then_some(())
    })
    .await;
    env.stop().await;
    env.end_faults();
    assert!(maps.get_opt("a").await.unwrap().is_some());
    let before = registrar.0.lock().unwrap().len();
    let spec = Controller::for_kind::<ConfigMap>("registrar").namespace("web");
    env.run([spec.reconciler(registrar.clone())]);
    env.until_gone(&maps, "a").await;
    assert!(
        registrar.0.lock().unwrap().len() > before,
        "what is not known to be done is done again"
    );
}
