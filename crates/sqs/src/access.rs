//! What the administrator lets Queues use beside Secrets of their own: roles, the manager's identity,
//! and addresses that are not AWS's own. Whoever may write a Queue gets nothing else of the manager's.
//! Pure.

use sdk::ClusterUid;
use sdk::access::{self, Asker, MAX_ENTRIES, at_most, check_number};
use serde::Deserialize;
use serde_json::Value;

use super::owner::Place;
use super::source::Source;

/// The keys of the configuration's section `controllers.sqs` that are this controller's own.
pub const KEYS: &[&str] = &["access", "identity", "secrets"];
/// The longest ARN, in bytes.
const MAX_ARN_BYTES: usize = 2_048;

/// The administrator's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Settings {
    /// Where the manager's own identity comes from.
    pub(super) identity: OwnIdentity,
    access: Vec<Entry>,
    /// The names of Secrets to which the manager's rights are limited: for `leasehold doctor`, which reviews these. The
    /// API server enforces it.
    #[serde(rename = "secrets")]
    _secrets: Vec<String>,
}

/// Where the manager's own identity comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum OwnIdentity {
    /// An access key, or a role and a token's file, of its environment.
    #[default]
    Environment,
    /// The agent of EKS Pod Identity, or of ECS.
    PodIdentity,
    /// The metadata service of the machine.
    InstanceProfile,
}

/// Who may use what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Entry {
    /// Names of clusters, or their uids; all of them if there are none.
    clusters: Vec<String>,
    /// Namespaces, or `*`.
    namespaces: Vec<String>,
    /// What the names of queues and of their dead-letter queues begin with; anything if there are none.
    queue_prefixes: Vec<String>,
    /// Addresses of SQS beside AWS's own.
    endpoints: Vec<String>,
    roles: Vec<Role>,
    /// Whether the manager's own identity may be used.
    own_identity: bool,
}

/// A role that may be used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Role {
    arn: String,
    /// What the role asks of whoever assumes it; it is then for `assumeRole` alone.
    external_id: Option<String>,
    /// The file of a token; the role is then assumed with it, and for `webIdentity` alone.
    token_file: Option<String>,
}

/// What a Queue asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked<'a> {
    /// Its cluster's name.
    pub cluster: &'a str,
    /// Its cluster's uid, if that is known.
    pub cluster_uid: Option<&'a str>,
    /// Its namespace.
    pub namespace: &'a str,
    /// The name of its queue.
    pub queue: &'a str,
    /// The name of its dead-letter queue, if that is not one of its namespace's own Queues: it too is used.
    pub target: Option<&'a str>,
    /// The address of SQS, if it is not AWS's own.
    pub endpoint: Option<&'a str>,
    /// Its credentials.
    pub source: Source,
}

/// The credentials that it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// Those of a Secret of its namespace.
    Secret(String),
    /// Those of a role, by the token in a file.
    WebIdentity {
        /// The role.
        role: String,
        /// The file, if it is not the manager's own.
        file: Option<String>,
    },
    /// Those of a role, by the manager's own.
    AssumeRole {
        /// The role.
        role: String,
        /// What the role asks of whoever assumes it.
        external_id: Option<String>,
    },
    /// The manager's own.
    Own,
}

/// Why a Queue may not use what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the manager's configuration lets namespace {namespace} of cluster {cluster} not use {what} for a \
     queue named {queue}: ask its administrator for an entry in controllers.sqs.access, or use a Secret \
     with spec.credentials.secretRef"
)]
pub(super) struct NotPermitted {
    what: String,
    namespace: String,
    cluster: String,
    queue: String,
}

/// Whether the settings can be used.
///
/// # Errors
/// What is wrong with them.
pub fn check(settings: &Value) -> Result<(), String> {
    let settings = Settings::parse(settings)?;
    at_most("access", settings.access.len(), MAX_ENTRIES)?;
    settings.access.iter().enumerate().try_for_each(|(index, entry)| {
        entry.check().map_err(|problem| format!("access[{index}]: {problem}"))
    })
}

impl Settings {
    /// The settings in a configuration; null for none.
    ///
    /// # Errors
    /// If they have another form.
    pub(super) fn parse(settings: &Value) -> Result<Self, String> {
        if settings.is_null() {
            return Ok(Self::default());
        }
        Self::deserialize(settings).map_err(|error| error.to_string())
    }

    /// The credentials that a Queue may use. A Secret of its own namespace and AWS's own address need
    /// nobody's leave; anything else is in one entry of the list.
    ///
    /// # Errors
    /// If no entry permits it.
    pub(super) fn grant(&self, asked: &Asked<'_>) -> Result<Grant, NotPermitted> {
        if let (Source::Secret(name), None) = (&asked.source, asked.endpoint) {
            return Ok(Grant::Secret(name.clone()));
        }
        let entries: Vec<_> = self.access.iter().filter(|entry| entry.is_for(asked)).collect();
        let granted = |entry: &&Entry| entry.grant(&asked.source);
        // Its dead-letter queue gives a Queue no other credentials than it has without one.
        let with_target = |grant: &Grant| {
            let mut same = entries.iter().filter(|entry| granted(entry).as_ref() == Some(grant));
            asked.target.is_none_or(|target| same.any(|entry| entry.permits(target)))
        };
        let grant = entries.iter().find_map(granted).filter(with_target);
        grant.ok_or_else(|| asked.not_permitted())
    }
}

impl<'a> Asked<'a> {
    /// What an object asks for.
    pub(super) fn of(
        place: &'a Place<'_>,
        queue: &'a str,
        endpoint: Option<&'a str>,
        source: Source,
    ) -> Self {
        Self {
            cluster: place.cluster_name,
            cluster_uid: place.cluster_uid.map(ClusterUid::as_str),
            namespace: &place.namespace,
            queue,
            target: None,
            endpoint,
            source,
        }
    }

    fn not_permitted(&self) -> NotPermitted {
        let source = match &self.source {
            Source::Secret(name) => format!("Secret {name}"),
            Source::AssumeRole(role) => format!("role {role} by assumeRole"),
            Source::WebIdentity { role, file: None } => format!("role {role} by webIdentity"),
            Source::WebIdentity { role, file: Some(file) } => {
                format!("role {role} with token file {file}")
            }
            Source::Own => "the manager's own identity".to_owned(),
            Source::Given => "any role".to_owned(),
        };
        let what = match self.endpoint {
            Some(endpoint) => format!("{source} at {endpoint}"),
            None => source,
        };
        let queue = match self.target {
            Some(target) => format!("{} with dead-letter queue {target}", self.queue),
            None => self.queue.to_owned(),
        };
        let [namespace, cluster] = [self.namespace, self.cluster].map(str::to_owned);
        NotPermitted { what, namespace, cluster, queue }
    }
}

impl Entry {
    fn is_for(&self, asked: &Asked<'_>) -> bool {
        let plain = |address: &str| address.trim_end_matches('/').to_owned();
        let is_endpoint =
            |endpoint: &str| self.endpoints.iter().any(|listed| plain(listed) == plain(endpoint));
        let Asked { cluster, cluster_uid, namespace, .. } = *asked;
        access::is_for(&self.clusters, &self.namespaces, &Asker { cluster, cluster_uid, namespace })
            && self.permits(asked.queue)
            && asked.endpoint.is_none_or(is_endpoint)
    }

    /// Whether a queue may have this name.
    fn permits(&self, name: &str) -> bool {
        let mut prefixes = self.queue_prefixes.iter();
        self.queue_prefixes.is_empty() || prefixes.any(|prefix| name.starts_with(prefix))
    }

    fn grant(&self, source: &Source) -> Option<Grant> {
        let mut roles = self.roles.iter();
        match source {
            Source::Secret(name) => Some(Grant::Secret(name.clone())),
            Source::WebIdentity { role, file } => {
                let found = roles.find(|listed| {
                    listed.arn == *role
                        && listed.external_id.is_none()
                        && (file.is_none() || *file == listed.token_file)
                })?;
                Some(Grant::WebIdentity { role: role.clone(), file: found.token_file.clone() })
            }
            Source::AssumeRole(role) => {
                let is_for = |listed: &&Role| listed.arn == *role && listed.token_file.is_none();
                roles.find(is_for).map(Role::assumed)
            }
            Source::Own => self.own_identity.then_some(Grant::Own),
            Source::Given => match self.roles.first() {
                Some(Role { arn, token_file: Some(file), .. }) => {
                    Some(Grant::WebIdentity { role: arn.clone(), file: Some(file.clone()) })
                }
                Some(role) => Some(role.assumed()),
                None => self.own_identity.then_some(Grant::Own),
            },
        }
    }

    fn check(&self) -> Result<(), String> {
        let lists = [
            ("clusters", &*self.clusters),
            ("queuePrefixes", &*self.queue_prefixes),
            ("endpoints", &*self.endpoints),
        ];
        access::check(&self.namespaces, &lists)?;
        check_number("roles", self.roles.len())?;
        let is_url = |url: &&String| !(url.starts_with("https://") || url.starts_with("http://"));
        if let Some(endpoint) = self.endpoints.iter().find(is_url) {
            return Err(format!("endpoints has {endpoint:?}; allowed: a URL of http or https"));
        }
        self.roles.iter().try_for_each(Role::check)
    }
}

impl Role {
    fn assumed(&self) -> Grant {
        Grant::AssumeRole { role: self.arn.clone(), external_id: self.external_id.clone() }
    }

    fn check(&self) -> Result<(), String> {
        let Self { arn, external_id, token_file } = self;
        if !arn.starts_with("arn:") || arn.contains('*') || arn.len() > MAX_ARN_BYTES {
            return Err(format!("roles has {arn:?}; allowed: the ARN of a role"));
        }
        match (external_id, token_file) {
            // AssumeRoleWithWebIdentity has no external id.
            (Some(_), Some(_)) => {
                Err(format!("role {arn} has externalId and tokenFile; allowed: one of them"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::owner::tests::place;
    use super::*;

    const SHOP: &str = "arn:aws:iam::1:role/shop";
    const WEB: &str = "arn:aws:iam::1:role/web";

    fn settings() -> Settings {
        let settings = json!({"access": [
            {
                "clusters": ["east", "c-9"], "namespaces": ["shop"], "queuePrefixes": ["shop-"],
                "roles": [{"arn": SHOP, "externalId": "x-1"}, {"arn": WEB, "tokenFile": "/t"}],
            },
            {"namespaces": ["dev"], "endpoints": ["http://moto:5000"], "ownIdentity": true},
        ]});
        check(&settings).unwrap();
        Settings::parse(&settings).unwrap()
    }

    #[test]
    fn only_what_the_list_has_may_be_used() {
        let secret = || Source::Secret("aws".to_owned());
        let role = |arn: &str| Source::AssumeRole(arn.to_owned());
        let web = |arn: &str, file: Option<&str>| Source::WebIdentity {
            role: arn.to_owned(),
            file: file.map(str::to_owned),
        };
        let assumed =
            || Some(Grant::AssumeRole { role: SHOP.to_owned(), external_id: Some("x-1".into()) });
        let by_token =
            || Some(Grant::WebIdentity { role: WEB.to_owned(), file: Some("/t".to_owned()) });
        let moto = Some("http://moto:5000/");
        for (cluster, namespace, queue, endpoint, source, expect) in [
            // A Secret of one's own at AWS needs no leave, another address does.
            ("west", "any", "q", None, secret(), Some(Grant::Secret("aws".to_owned()))),
            ("west", "any", "q", moto, secret(), None),
            ("west", "dev", "q", moto, secret(), Some(Grant::Secret("aws".to_owned()))),
            ("west", "dev", "q", Some("http://169.254.169.254"), secret(), None),
            // A role for these namespaces, clusters and names alone.
            ("east", "shop", "shop-q", None, role(SHOP), assumed()),
            ("west", "shop", "shop-q", None, role(SHOP), None),
            ("east", "dev", "shop-q", None, role(SHOP), None),
            ("east", "shop", "pay-q", None, role(SHOP), None),
            ("east", "shop", "shop-q", moto, role(SHOP), None),
            ("east", "shop", "shop-q", None, role("arn:aws:iam::1:role/admin"), None),
            // A token's file is the administrator's choice.
            ("east", "shop", "shop-q", None, web(WEB, None), by_token()),
            ("east", "shop", "shop-q", None, web(WEB, Some("/t")), by_token()),
            ("east", "shop", "shop-q", None, web(WEB, Some("/etc/passwd")), None),
            // Nobody falls back to the manager's identity.
            ("east", "shop", "shop-q", None, Source::Own, None),
            ("east", "dev", "q", None, Source::Own, Some(Grant::Own)),
            ("east", "shop", "shop-q", None, Source::Given, assumed()),
            ("east", "dev", "q", None, Source::Given, Some(Grant::Own)),
            ("east", "other", "q", None, Source::Given, None),
        ] {
            let cluster_uid = (cluster == "renamed").then_some("c-9");
            let target = None;
            let asked = Asked { cluster, cluster_uid, namespace, queue, target, endpoint, source };
            assert_eq!(settings().grant(&asked).ok(), expect, "{asked:?}");
            // A dead-letter queue is used too.
            for (target, also) in [("shop-dead", expect.clone()), ("pay-dead", None)] {
                if let ("shop-q", Some(_)) = (queue, &expect) {
                    let asked = Asked { target: Some(target), ..asked.clone() };
                    assert_eq!(settings().grant(&asked).ok(), also, "{asked:?}");
                }
            }
        }
        let (cluster, cluster_uid, endpoint) = ("renamed", Some("c-9"), None);
        let (namespace, queue, target, source) = ("shop", "shop-q", None, Source::Given);
        let asked = Asked { cluster, cluster_uid, namespace, queue, target, endpoint, source };
        assert_eq!(settings().grant(&asked).ok(), assumed(), "by its uid");
        let nothing = Settings::default().grant(&asked).unwrap_err().to_string();
        assert!(
            nothing.contains("namespace shop of cluster renamed not use any role"),
            "{nothing}"
        );
    }

    /// A look with a role of another account would find no queue.
    #[test]
    fn a_dead_letter_queue_changes_no_credentials() {
        let settings = json!({"access": [
            {"namespaces": ["shop"], "queuePrefixes": ["shop-"], "roles": [{"arn": SHOP}]},
            {"namespaces": ["*"], "roles": [{"arn": WEB}]},
        ]});
        let settings = Settings::parse(&settings).unwrap();
        let place = place("c-1", "shop", "orders");
        let shop = Grant::AssumeRole { role: SHOP.to_owned(), external_id: None };
        for (target, expect) in
            [(None, Some(&shop)), (Some("shop-dead"), Some(&shop)), (Some("pay-dead"), None)]
        {
            let asked = Asked { target, ..Asked::of(&place, "shop-q", None, Source::Given) };
            assert_eq!(settings.grant(&asked).ok().as_ref(), expect, "{target:?}");
        }
    }

    #[test]
    fn a_role_is_used_in_the_way_it_is_listed_for() {
        let by_id = json!({"arn": SHOP, "externalId": "x-1"});
        let by_token = json!({"arn": SHOP, "tokenFile": "/t"});
        for roles in [[&by_id, &by_token], [&by_token, &by_id]] {
            let settings = json!({"access": [{"namespaces": ["shop"], "roles": roles}]});
            let settings = Settings::parse(&settings).unwrap();
            let place = place("c-1", "shop", "orders");
            let grant = |source| settings.grant(&Asked::of(&place, "q", None, source)).unwrap();
            let (role, external_id) = (SHOP.to_owned(), Some("x-1".to_owned()));
            let assumed = Grant::AssumeRole { role, external_id };
            assert_eq!(grant(Source::AssumeRole(SHOP.to_owned())), assumed);
            for file in [None, Some("/t".to_owned())] {
                let source = Source::WebIdentity { role: SHOP.to_owned(), file };
                let (role, file) = (SHOP.to_owned(), Some("/t".to_owned()));
                assert_eq!(grant(source), Grant::WebIdentity { role, file });
            }
        }
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused() {
        let entry = |more: Value| {
            let mut entry = json!({"namespaces": ["a"]});
            entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"access": [entry]})
        };
        for (settings, expect) in [
            (json!({"identity": "machine"}), "unknown variant `machine`"),
            (json!({"acces": []}), "unknown field `acces`"),
            (json!({"access": [{"roles": []}]}), "access[0]: namespaces is missing"),
            (entry(json!({"endpoints": ["moto"]})), "allowed: a URL of http or https"),
            (entry(json!({"roles": [{"arn": "admin"}]})), "allowed: the ARN of a role"),
            (
                entry(json!({"roles": [{"arn": WEB, "tokenFile": "/t", "externalId": "x"}]})),
                "allowed: one of them",
            ),
            (entry(json!({"clusters": [""]})), "clusters has an item that is empty or too long"),
            (
                entry(json!({"queuePrefixes": [""]})),
                "queuePrefixes has an item that is empty or too long",
            ),
            (entry(json!({"queuePrefixes": ["shop-*"]})), "allowed: no patterns"),
            (entry(json!({"clusters": ["*"]})), "allowed: no patterns"),
            (entry(json!({"namespaces": ["shop-*"]})), "allowed: no patterns"),
            (
                entry(json!({"roles": [{"arn": "arn:aws:iam::1:role/*"}]})),
                "allowed: the ARN of a role",
            ),
            (
                entry(json!({"endpoints": ["e".repeat(2_049)]})),
                "endpoints has an item that is empty or too long",
            ),
            (entry(json!({"namespaces": vec!["a"; 201]})), "at most 200"),
            (entry(json!({"roles": vec![json!({"arn": WEB}); 201]})), "at most 200"),
            (
                json!({"access": vec![json!({"namespaces": ["a"]}); MAX_ENTRIES + 1]}),
                "access has 501 items; allowed: at most 500",
            ),
        ] {
            let problem = check(&settings).unwrap_err();
            assert!(problem.contains(expect), "{problem}");
        }
        assert_eq!(check(&Value::Null), Ok(()));
    }
}
