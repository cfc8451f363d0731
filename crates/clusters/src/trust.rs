//! What the kubeconfigs of one source may make this process do: pure.
//!
//! Whoever writes a kubeconfig says where this process connects to, what it sends there and which
//! programs it runs. A source gets no more of that than its configuration allows:
//!
//! | source | credential programs | files | [`Risk`]s |
//! |---|---|---|---|
//! | [`Trust::own`]: a person's own kubeconfig, given on the command line | all | all | all |
//! | [`Trust::default`]: a file that the configuration names, home included | those listed | all | those listed |
//! | [`Trust::stranger`]: a folder, such as a mounted Secret | none | those in its folder | those listed |

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use kube::config::{AuthInfo, Cluster, ExecConfig};

use crate::address::Reach;
use crate::risk::Risk;

/// What the kubeconfigs of one source may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The credential programs that they may run in their `exec` sections.
    pub plugins: Plugins,
    /// The risks that are taken for them. All others are refused.
    pub allowed: BTreeSet<Risk>,
    /// Whether every file that a kubeconfig names must lie in the kubeconfig's own folder once links are
    /// followed, so that no other file of this process is sent to its server.
    pub contained: bool,
}

/// Which credential programs a kubeconfig may run in its `exec` sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plugins {
    /// None.
    Never,
    /// Those listed, each as it is listed and without this process's environment.
    Listed(Vec<Plugin>),
    /// All, with this process's environment: for a person's own kubeconfig.
    Any,
}

/// A credential program that may run: by its whole command line, because `aws`, `sh` and `kubectl` do
/// anything that their arguments say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugin {
    /// The program, by the name or path that the kubeconfig uses.
    pub command: String,
    /// Its arguments, all of them in order. `*` stands for any one argument that begins with neither `-`
    /// nor `@`.
    pub args: Vec<String>,
    /// The variables that the kubeconfig may set for it, with their values; `*` for any value.
    pub env: BTreeMap<String, String>,
    /// The variables of this process that it gets, beside `PATH` and `HOME`.
    pub pass_env: BTreeSet<String>,
}

/// Stands for any argument or value.
const ANY: &str = "*";
/// The variables that a listed program gets from this process in any case: it is found and finds its
/// own files by them.
const PASSED: [&str; 2] = ["PATH", "HOME"];

impl Trust {
    /// For a person's own kubeconfig: everything is allowed, as with `kubectl`.
    pub fn own() -> Self {
        Self { plugins: Plugins::Any, allowed: Risk::ALL.into(), contained: false }
    }

    /// For kubeconfigs that others write, such as mounted Secrets.
    pub fn stranger() -> Self {
        Self { plugins: Plugins::Never, allowed: BTreeSet::new(), contained: true }
    }

    /// The same, with these risks taken as well.
    #[must_use]
    pub fn allow(mut self, risks: impl IntoIterator<Item = Risk>) -> Self {
        self.allowed.extend(risks);
        self
    }

    /// Which addresses its servers may have.
    pub(crate) fn reach(&self) -> Reach {
        let allows = |risk| self.allowed.contains(&risk);
        Reach { loopback: allows(Risk::Loopback), link_local: allows(Risk::LinkLocal) }
    }

    /// The first risk of these entries that is not allowed.
    pub(crate) fn refused(&self, cluster: &Cluster, user: Option<&AuthInfo>) -> Option<Refused> {
        let mut found = Vec::new();
        if let Some(user) = user {
            let fields = [
                ("as", user.impersonate.is_some()),
                ("as-uid", user.impersonate_uid.is_some()),
                ("as-groups", user.impersonate_groups.is_some()),
                ("as-user-extra", user.impersonate_user_extra.is_some()),
            ];
            let set = fields.into_iter().find(|(_, is_set)| *is_set);
            found.extend(set.map(|(field, _)| (Risk::Impersonation, format!("sets {field}"))));
        }
        let server = cluster.server.as_deref().unwrap_or_default();
        if let Ok(uri) = server.parse::<http::Uri>() {
            if uri.scheme() == Some(&http::uri::Scheme::HTTP) {
                found.push((Risk::PlainHttp, format!("has the server {server}")));
            }
            let outside = uri.host().and_then(|host| Reach::default().refuses_host(host));
            found.extend(outside.map(|risk| (risk, format!("has the server {server}"))));
        }
        if cluster.insecure_skip_tls_verify == Some(true) {
            found.push((Risk::InsecureTls, "sets insecure-skip-tls-verify".to_owned()));
        }
        let refused = found.into_iter().find(|(risk, _)| !self.allowed.contains(risk));
        refused.map(|(risk, what)| Refused { risk, what })
    }
}

/// What the source of a kubeconfig grants the connections of one of its contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Which addresses they may have.
    pub(crate) reach: Reach,
    /// What its credential program gets of this process's environment.
    pub(crate) environment: Environment,
    /// The kubeconfig in whose folder every file must lie; none if they may lie anywhere.
    pub(crate) within: Option<PathBuf>,
}

impl Granted {
    /// What a person's own kubeconfig may do.
    pub(crate) fn everything() -> Self {
        Self { reach: Trust::own().reach(), environment: Environment::Whole, within: None }
    }
}

/// Something that a kubeconfig does and may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) risk: Risk,
    /// What it does, in the words of the kubeconfig.
    pub(crate) what: String,
}

impl Default for Plugins {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl Plugins {
    /// What the program of an `exec` section gets of this process's environment; none if it may not run.
    pub(crate) fn allow(&self, exec: &ExecConfig) -> Option<Environment> {
        match self {
            Self::Never => None,
            Self::Listed(plugins) => {
                let plugin = plugins.iter().find(|plugin| plugin.is(exec))?;
                let passed = PASSED.into_iter().map(str::to_owned);
                Some(Environment::Named(passed.chain(plugin.pass_env.iter().cloned()).collect()))
            }
            Self::Any => Some(Environment::Whole),
        }
    }
}

/// What a credential program gets of this process's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Environment {
    /// All of it.
    Whole,
    /// These variables.
    Named(BTreeSet<String>),
}

impl Default for Environment {
    fn default() -> Self {
        Self::Named(BTreeSet::new())
    }
}

impl Plugin {
    /// Whether an `exec` section runs this and nothing else.
    fn is(&self, exec: &ExecConfig) -> bool {
        let args = exec.args.as_deref().unwrap_or_default();
        let any_arg = |arg: &str| !arg.starts_with(['-', '@']);
        let arg_fits =
            |(listed, arg): (&String, &String)| listed == arg || listed == ANY && any_arg(arg);
        let mut variables = exec.env.iter().flatten();
        let variable_fits = |variable: &HashMap<String, String>| {
            let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) else {
                return false;
            };
            self.env.get(name).is_some_and(|listed| listed == value || listed == ANY)
        };
        exec.command.as_deref() == Some(&*self.command)
            && args.len() == self.args.len()
            && self.args.iter().zip(args).all(arg_fits)
            && variables.all(variable_fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(command: &str, args: &[&str], env: &[(&str, &str)]) -> ExecConfig {
        let env: Vec<_> =
            env.iter().map(|(n, v)| serde_json::json!({"name": n, "value": v})).collect();
        let exec = serde_json::json!({"command": command, "args": args, "env": env});
        serde_json::from_value(exec).unwrap()
    }

    #[test]
    fn a_program_runs_as_it_is_listed_and_no_other_way() {
        let env = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
        };
        let plugins = Plugins::Listed(vec![Plugin {
            command: "aws".to_owned(),
            args: ["eks", "get-token", "--cluster-name", "*"].map(str::to_owned).into(),
            env: env(&[("AWS_PROFILE", "fleet"), ("AWS_REGION", "*")]),
            pass_env: ["AWS_WEB_IDENTITY_TOKEN_FILE".to_owned()].into(),
        }]);
        let good = ["eks", "get-token", "--cluster-name", "east"];
        let named = ["AWS_WEB_IDENTITY_TOKEN_FILE", "HOME", "PATH"].map(str::to_owned);
        let allowed = plugins.allow(&exec("aws", &good, &[("AWS_PROFILE", "fleet")]));
        assert_eq!(allowed, Some(Environment::Named(named.into())));
        assert!(plugins.allow(&exec("aws", &good, &[("AWS_REGION", "eu-west-1")])).is_some());
        for (command, args, env) in [
            ("/tmp/aws", &good[..], &[][..]),
            ("aws", &good[..3], &[]),
            ("aws", &["s3", "cp", "/etc/passwd", "s3://b"], &[]),
            ("aws", &["eks", "get-token", "--cluster-name", "--endpoint-url=http://h"], &[]),
            ("aws", &["eks", "get-token", "--cluster-name", "@/etc/passwd"], &[]),
            ("aws", &["eks", "get-token", "--cluster-name", "east", "--debug"], &[]),
            ("aws", &good, &[("AWS_PROFILE", "other")]),
            ("aws", &good, &[("AWS_ENDPOINT_URL", "http://h")]),
            ("aws", &good, &[("LD_PRELOAD", "/tmp/x.so")]),
        ] {
            assert_eq!(
                plugins.allow(&exec(command, args, env)),
                None,
                "{command} {args:?} {env:?}"
            );
        }
        assert_eq!(Plugins::Any.allow(&exec("x", &[], &[])), Some(Environment::Whole));
        assert_eq!(Plugins::Never.allow(&exec("x", &[], &[])), None);
    }

    #[test]
    fn each_risk_is_refused_unless_it_is_allowed() {
        let cluster = |more: &str| -> Cluster {
            let text = format!("{{\"server\": \"https://host:6443\"{more}}}");
            serde_json::from_str(&text).unwrap()
        };
        let server = |server: &str| Cluster { server: Some(server.to_owned()), ..cluster("") };
        let user = |field: &str, value: serde_json::Value| -> AuthInfo {
            serde_json::from_value(serde_json::json!({ field: value })).unwrap()
        };
        let (list, map) = (serde_json::json!(["system:masters"]), serde_json::json!({"a": ["b"]}));
        for (risk, cluster, user) in [
            (Risk::Impersonation, cluster(""), Some(user("as", "admin".into()))),
            (Risk::Impersonation, cluster(""), Some(user("as-uid", "1".into()))),
            (Risk::Impersonation, cluster(""), Some(user("as-groups", list))),
            (Risk::Impersonation, cluster(""), Some(user("as-user-extra", map))),
            (Risk::PlainHttp, server("http://host:8080"), None),
            (Risk::PlainHttp, server("HTTP://host:8080"), None),
            (Risk::InsecureTls, cluster(", \"insecure-skip-tls-verify\": true"), None),
            (Risk::Loopback, server("https://127.0.0.1:6443"), None),
            (Risk::Loopback, server("https://localhost:6443"), None),
            (Risk::Loopback, server("https://[::1]:6443"), None),
            (Risk::LinkLocal, server("https://169.254.169.254"), None),
        ] {
            let found = Trust::default().refused(&cluster, user.as_ref());
            assert_eq!(found.map(|refused| refused.risk), Some(risk), "{cluster:?}");
            let others = Risk::ALL.into_iter().filter(|other| *other != risk);
            let found = Trust::stranger().allow(others).refused(&cluster, user.as_ref());
            assert_eq!(found.map(|refused| refused.risk), Some(risk), "{cluster:?}");
            assert_eq!(Trust::default().allow([risk]).refused(&cluster, user.as_ref()), None);
            assert_eq!(Trust::own().refused(&cluster, user.as_ref()), None);
            assert_eq!(risk.to_string().parse(), Ok(risk));
        }
        assert_eq!(Trust::stranger().refused(&cluster(""), Some(&AuthInfo::default())), None);
    }
}
