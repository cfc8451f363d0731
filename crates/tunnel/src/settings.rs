//! Settings from the manager's environment: the only file of this controller that reads it.

use std::env;
use std::path::PathBuf;

use crate::access::Access;
use crate::probe::Probe;
use crate::provider::http::Http;
use crate::provider::local::Local;

/// Lets hosts be processes of this machine, with the value `1`.
const LOCAL: &str = "LEASEHOLD_TUNNEL_LOCAL";
/// Where such processes keep their files, instead of a folder for temporary files.
const FOLDER: &str = "LEASEHOLD_TUNNEL_DIR";
/// The rathole that they run, instead of the one in `PATH`.
const RATHOLE: &str = "LEASEHOLD_RATHOLE";
/// Likewise the haproxy, for several clients.
const HAPROXY: &str = "LEASEHOLD_HAPROXY";

/// Settings of the controllers.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The HTTP client for the providers' APIs.
    pub http: Http,
    /// Whether hosts may be processes of this machine.
    pub local: Local,
    /// How connections through Tunnels are tried.
    pub probe: Probe,
    /// Who may use which account.
    pub access: Access,
}

impl Settings {
    /// The settings of the process's environment, and of the configuration.
    pub fn from_environment(access: Access) -> Self {
        let allowed = env::var_os(LOCAL).is_some_and(|value| value == "1");
        let local = if allowed { local() } else { Local::Forbidden };
        Self { http: Http::new(), local, probe: Probe::new(), access }
    }
}

fn local() -> Local {
    let folder = env::var_os(FOLDER).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| env::temp_dir().join("leasehold-tunnels"));
    let in_path = |name: &str| {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    let program = |variable: &str, name: &str| {
        env::var_os(variable).map(PathBuf::from).or_else(|| in_path(name))
    };
    let (rathole, haproxy) = (program(RATHOLE, "rathole"), program(HAPROXY, "haproxy"));
    Local::Allowed { folder, rathole, haproxy }
}
