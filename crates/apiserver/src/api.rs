//! The server without its transport: store, catalog, clock, history and faults in one place,
//! shared by every request.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::attributes::Attributes;
use crate::access::authenticator::Authenticator;
use crate::access::authorizer::Authorizer;
use crate::access::bootstrap;
use crate::access::policy::{Policy, Verdict};
use crate::access::user::{MASTERS, User};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::crd;
use crate::faults::Faults;
use crate::history::History;
use crate::kinds::DEFINITIONS;
use crate::objects::{defaults, meta, prepare};
use crate::program::Processes;
use crate::resource::{Resource, table_id};
use crate::store::{Change, Key, Store, Stored, TableId, WindowLimits};

/// The namespaces that every cluster has.
const SYSTEM_NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// The most requests for connections to Pods at one time.
const MAX_FORWARDS: usize = 1024;

/// What a new [`Api`] is made of.
pub(crate) struct Settings {
    pub(crate) window: WindowLimits,
    pub(crate) clock: Clock,
    pub(crate) rng: fastrand::Rng,
    pub(crate) faults: Faults,
    /// Whether it divides lists and watches by hash on request.
    pub(crate) divides: bool,
    /// Whether requests need rights; otherwise everybody may do everything.
    pub(crate) rbac: bool,
    pub(crate) authenticator: Authenticator,
    /// What runs in Pods.
    pub(crate) processes: Processes,
    pub(crate) shutdown: CancellationToken,
}

/// The connections to Pods.
pub(crate) struct Forwards {
    /// One for each of them.
    pub(crate) slots: Arc<Semaphore>,
    /// What serves them.
    pub(crate) tasks: TaskTracker,
}

/// The state behind the requests.
pub struct Api {
    /// Objects.
    pub(crate) store: Store,
    /// Accepted writes.
    pub(crate) history: History,
    /// Faults to inject.
    pub(crate) faults: Faults,
    /// Whether it divides lists and watches by hash on request.
    pub(crate) divides: bool,
    /// Who presents which token.
    pub(crate) authenticator: Authenticator,
    /// Decides one eviction at a time, so that two do not use the same disruption.
    pub(crate) evictions: Mutex<()>,
    /// What runs in Pods.
    pub(crate) processes: Arc<Processes>,
    /// Connections to Pods.
    pub(crate) forwards: Forwards,
    /// The rights, if requests need any.
    authorizer: Option<Authorizer>,
    catalog: RwLock<Arc<Catalog>>,
    clock: Clock,
    rng: Mutex<fastrand::Rng>,
    /// How many addresses were tried for Services so far.
    addresses: AtomicU32,
    /// Ends every present watch; then another replaces it.
    watches: RwLock<CancellationToken>,
    shutdown: CancellationToken,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("revision", &self.store.revision()).finish_non_exhaustive()
    }
}

// === impl Api ===

impl Api {
    /// A server with its system namespaces, its first roles if it has rights, and nothing else.
    pub(crate) fn new(settings: Settings) -> Self {
        let store = Store::new(settings.window);
        let authorizer = settings.rbac.then(|| Authorizer::new(&store));
        let api = Self {
            store,
            history: History::default(),
            faults: settings.faults,
            divides: settings.divides,
            authenticator: settings.authenticator,
            evictions: Mutex::new(()),
            processes: Arc::new(settings.processes),
            forwards: Forwards {
                slots: Arc::new(Semaphore::new(MAX_FORWARDS)),
                tasks: TaskTracker::new(),
            },
            authorizer,
            catalog: RwLock::new(Arc::new(Catalog::build(std::iter::empty()))),
            clock: settings.clock,
            rng: Mutex::new(settings.rng),
            addresses: AtomicU32::new(0),
            watches: RwLock::new(settings.shutdown.child_token()),
            shutdown: settings.shutdown,
        };
        api.seed();
        api
    }

    fn seed(&self) {
        let namespace = |name: &&str| {
            json!({
                "kind": "Namespace", "apiVersion": "v1",
                "metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]},
            })
        };
        self.seed_objects("", "namespaces", SYSTEM_NAMESPACES.iter().map(namespace).collect());
        if self.authorizer.is_some() {
            let group = "rbac.authorization.k8s.io";
            self.seed_objects(group, "clusterroles", bootstrap::roles());
            self.seed_objects(group, "clusterrolebindings", bootstrap::bindings());
        }
    }

    fn seed_objects(&self, group: &str, plural: &str, objects: Vec<Value>) {
        let catalog = self.catalog();
        let Some(resource) = catalog.find(group, "v1", plural) else { return };
        for mut object in objects {
            prepare::for_create(&resource.info, &mut object, self.uid(), self.now());
            defaults::apply(&resource.info, &mut object);
            defaults::initial_status(&resource.info, &mut object);
            let key = key_of(&object);
            let seeded = self.store.commit(&resource.table, &key, None, Change::Put(object));
            debug_assert!(seeded.is_ok(), "an empty store takes every name");
        }
    }

    /// Whether requests need rights.
    pub(crate) fn has_rights(&self) -> bool {
        self.authorizer.is_some()
    }

    /// The policy by which requests are decided; `None` if everything is allowed.
    pub(crate) fn policy(&self) -> Option<Arc<Policy>> {
        self.authorizer.as_ref().map(|authorizer| authorizer.policy(&self.store))
    }

    /// Whether a user may do something.
    pub(crate) fn authorize(&self, user: &User, attributes: &Attributes) -> Verdict {
        match &self.authorizer {
            Some(authorizer) if !user.is_in(MASTERS) => {
                authorizer.policy(&self.store).authorize(user, attributes)
            }
            _ => Verdict { allowed: true, reason: String::new() },
        }
    }

    /// What is served now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The wall clock.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// A new uid.
    pub(crate) fn uid(&self) -> String {
        let bytes = self.rng().u128(..).to_le_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// The random source.
    pub(crate) fn rng(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next address to try for a Service, from 0 on.
    pub(crate) fn next_address(&self) -> u32 {
        self.addresses.fetch_add(1, Ordering::Relaxed)
    }

    /// Cancelled when present watches must end.
    pub(crate) fn watch_token(&self) -> CancellationToken {
        self.watches.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Cancelled when everything must end.
    pub(crate) fn shutdown_token(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Ends every watch; clients may start new ones.
    pub(crate) fn close_watches(&self) {
        let next = self.shutdown.child_token();
        let mut watches = self.watches.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *watches, next).cancel();
    }

    /// Applies a changed definition: to its status, and to what is served.
    pub(crate) fn definition_changed(&self, name: &str) {
        let key = Key { namespace: String::new(), name: name.to_owned() };
        let table = definitions();
        while let Some(current) = self.store.get(&table, &key) {
            let mut definition = current.to_value();
            let status = crd::status(&definition, self.names_taken(&definition), self.now());
            if definition["status"] == status {
                break;
            }
            definition["status"] = status;
            if self.store.commit(&table, &key, Some(&current), Change::Put(definition)).is_ok() {
                break;
            }
        }
        self.rebuild_catalog();
    }

    fn names_taken(&self, definition: &Value) -> Option<String> {
        let spec = &definition["spec"];
        let (group, names) = (spec["group"].as_str()?, &spec["names"]);
        let catalog = self.catalog();
        let short = names["shortNames"].as_array().into_iter().flatten();
        let holder =
            |name: &str| catalog.holder(group, name).filter(|h| h.plural != names["plural"]);
        [&names["plural"], &names["singular"]]
            .into_iter()
            .chain(short)
            .filter_map(Value::as_str)
            .find_map(|name| holder(name).map(|_| format!("\"{name}\" is already in use")))
    }

    fn rebuild_catalog(&self) {
        let mut guard = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        let listed = self.store.list(&definitions(), None, None, None);
        let objects = listed.map(|snapshot| snapshot.items).unwrap_or_default();
        let definitions: Vec<Value> = objects.iter().map(|o| o.to_value()).collect();
        *guard = Arc::new(Catalog::build(definitions.iter()));
    }

    /// Removes what a deleted definition leaves behind: its objects, then its kind.
    pub(crate) fn definition_removed(&self, definition: &Value) {
        for resource in crd::resources(definition) {
            let Ok(snapshot) = self.store.list(&resource.table, None, None, None) else { continue };
            for object in snapshot.items {
                self.drop_instance(&resource, object);
            }
        }
        self.rebuild_catalog();
        self.close_watches();
    }

    /// Removes an object whose kind is gone, since nobody could remove its finalizers any more.
    fn drop_instance(&self, resource: &Resource, mut object: Arc<Stored>) {
        let key = key_of(&object.to_value());
        loop {
            let last = Change::Delete(object.to_value());
            if self.store.commit(&resource.table, &key, Some(&object), last).is_ok() {
                return;
            }
            match self.store.get(&resource.table, &key) {
                Some(newer) => object = newer,
                None => return,
            }
        }
    }

    /// The `Namespace` object.
    pub(crate) fn namespace(&self, name: &str) -> Option<Arc<Stored>> {
        let key = Key { namespace: String::new(), name: name.to_owned() };
        self.store.get(&table_id("", "namespaces"), &key)
    }
}

/// The table of definitions.
pub(crate) fn definitions() -> TableId {
    table_id("apiextensions.k8s.io", DEFINITIONS)
}

/// The key of an object, from its metadata.
pub(crate) fn key_of(object: &Value) -> Key {
    Key { namespace: meta(object, "namespace").into(), name: meta(object, "name").into() }
}
