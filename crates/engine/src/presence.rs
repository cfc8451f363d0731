//! What each controller watches in each cluster, and which of these kinds the cluster lacks: for
//! readiness, metrics and status. It keeps nothing alive and decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use model::{ClusterName, ControllerName, Moment, WeakMap};
use serde::Serialize;

use crate::view::{CacheView, Cached};
use informer::{Absence, Target};
use metrics::ClusterSeries;

/// A kind that a controller watches and a cluster lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AbsentSource {
    /// The controller.
    pub controller: ControllerName,
    /// The cluster.
    pub cluster: ClusterName,
    /// The kind, as `group/Kind`.
    pub kind: String,
    /// The namespace that the controller watches it in; all, if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the controller runs without it. If not, it starts nothing in the cluster until the kind
    /// is available.
    pub optional: bool,
    /// Why the cluster lacks it.
    pub absent: Absence,
    /// What the server says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The presence of every controller in each of its clusters. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Presences(Arc<Mutex<WeakMap<(ControllerName, ClusterName), CacheView>>>);

impl Presences {
    /// Lists what a controller watches in a cluster, as long as the view exists, in place of what it watched there
    /// before: what drains since an earlier engagement says nothing about the cluster.
    pub(crate) fn watch(
        &self,
        controller: &ControllerName,
        cluster: &ClusterName,
        view: &Arc<CacheView>,
    ) {
        let mut all = self.0.lock().expect("no holder of this lock panics");
        all.insert((controller.clone(), cluster.clone()), view);
    }

    /// Calls `each` for every source there is, ordered by controller and cluster.
    fn for_each(&self, mut each: impl FnMut(&ControllerName, &ClusterName, &Cached)) {
        let all = self.0.lock().expect("no holder of this lock panics");
        for ((controller, cluster), view) in all.iter() {
            view.sources().iter().for_each(|source| each(controller, cluster, source));
        }
    }

    /// The kinds that clusters lack: by the cluster's label, the controller, the kind, and whether it is
    /// optional. Clusters that share a label count as one, which lacks what any of them lacks.
    pub(crate) fn missing(
        &self,
        held: &BTreeMap<ClusterName, Arc<ClusterSeries>>,
    ) -> BTreeSet<[String; 4]> {
        let mut all = BTreeSet::new();
        self.for_each(|controller, cluster, source| {
            let Some(series) = held.get(cluster) else { return };
            if source.absence().is_some() {
                let (cluster, controller) = (series.label().to_owned(), controller.to_string());
                let (kind, optional) = (source.kind.to_string(), source.optional.to_string());
                all.insert([cluster, controller, kind, optional]);
            }
        });
        all
    }

    /// The kinds that clusters lack, ordered by controller and cluster.
    pub(crate) fn absent(&self) -> Vec<AbsentSource> {
        let mut all = Vec::new();
        self.for_each(|controller, cluster, source| {
            let Some((informer, absent)) = source.informer.as_ref().zip(source.absence()) else {
                return;
            };
            all.push(AbsentSource {
                controller: controller.clone(),
                cluster: cluster.clone(),
                kind: source.kind.to_string(),
                namespace: informer.target.scope.namespace.clone(),
                optional: source.optional,
                absent,
                error: informer.condition().error,
            });
        });
        all
    }

    /// The missing kinds that no controller needs.
    pub(crate) fn dispensable(&self) -> BTreeSet<Target> {
        let (mut optional, mut needed) = (BTreeSet::new(), BTreeSet::new());
        self.for_each(|_, _, source| {
            let Some(informer) = &source.informer else { return };
            let of = if source.optional && source.absence().is_some() {
                &mut optional
            } else {
                &mut needed
            };
            of.insert(informer.target.clone());
        });
        optional.retain(|target| !needed.contains(target));
        optional
    }

    /// The clusters of which something that a controller waits for cannot be listed or watched, with a text for
    /// people.
    pub(crate) fn unlisted(&self, now: Moment) -> BTreeMap<ClusterName, Arc<str>> {
        let mut texts = BTreeMap::new();
        // What is optional is waited for too, until it is listed or known to be lacking.
        let is_unknown = |source: &Cached| !source.is_available() && source.absence().is_none();
        self.for_each(|_, cluster, source| {
            let is_waited_for = !source.optional || is_unknown(source);
            if let Some(informer) = source.informer.as_ref().filter(|_| is_waited_for)
                && let Some(error) = informer.failure(now)
            {
                texts.entry(cluster.clone()).or_insert_with(|| {
                    Arc::from(format!("its {} cannot be listed or watched: {error}", source.kind))
                });
            }
        });
        texts
    }

    /// The clusters that lack what a controller needs, with a text for people.
    pub(crate) fn lacking(&self) -> BTreeMap<ClusterName, Arc<str>> {
        let mut texts: BTreeMap<ClusterName, (Vec<String>, BTreeSet<&str>)> = BTreeMap::new();
        for source in self.absent().into_iter().filter(|source| !source.optional) {
            let AbsentSource { controller, cluster, kind, absent, .. } = source;
            let text = format!("controller {controller} needs {kind}, which {absent}");
            let (texts, fixes) = texts.entry(cluster).or_default();
            fixes.insert(absent.fix());
            // The same of several namespaces is one.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = |(texts, fixes): (Vec<String>, BTreeSet<&str>)| -> Arc<str> {
            let fixes: Vec<&str> = fixes.into_iter().collect();
            format!("{}; fix: {}", texts.join("; "), fixes.join(", and ")).into()
        };
        texts.into_iter().map(|(cluster, of)| (cluster, text(of))).collect()
    }
}
