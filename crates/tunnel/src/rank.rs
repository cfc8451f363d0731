//! Which Tunnels of a cluster may have a host, as long as not all may. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{Tunnel, TunnelStatus};
use crate::choice::{Defaults, InvalidTunnel};
use crate::names::READY;

/// Why a Tunnel is not ready that gets a host as soon as one may be made. One that waits for anything else, such as
/// another port, may never get one, and keeps nobody waiting.
const WAITS: [&str; 8] = [
    "AccountFull",
    "Creating",
    "ExitChanged",
    "HostLost",
    "HostStopped",
    "HostStuck",
    "Replacing",
    "TooManyHosts",
];

/// Whether a Tunnel may have a host, given all Tunnels of the cluster. Those that have one come first, then the
/// oldest that wait for one. `asks` says whether a host was requested of which the status does not tell yet.
///
/// # Errors
/// If as many others have one, or come first, as may have one.
pub(super) fn check_number<'a>(
    tunnel: &Tunnel,
    all: impl Iterator<Item = &'a Tunnel>,
    asks: impl Fn(&str) -> bool,
    defaults: &Defaults,
) -> Result<(), InvalidTunnel> {
    let max = defaults.max_hosts()?;
    let own = has_host(tunnel);
    let comes_first = |other: &&Tunnel| {
        let has = has_host(other) || other.metadata.uid.as_deref().is_some_and(&asks);
        let is_older = age(other) < age(tunnel);
        if has { !own || is_older } else { !own && is_older && waits(other) }
    };
    let others = all.filter(|other| other.metadata.uid != tunnel.metadata.uid);
    match others.filter(comes_first).count() < max {
        true => Ok(()),
        false => Err(InvalidTunnel::TooManyHosts { max }),
    }
}

/// Whether a Tunnel that is about to request a host may, given all Tunnels as the server has them now. Whoever has a
/// host or asks for one counts, of whatever age.
///
/// # Errors
/// If as many others have one as may have one.
pub(super) fn check_marks(
    tunnel: &Tunnel,
    all: &[Tunnel],
    defaults: &Defaults,
) -> Result<(), InvalidTunnel> {
    let max = defaults.max_hosts()?;
    let others = all.iter().filter(|other| other.metadata.uid != tunnel.metadata.uid);
    match others.filter(|other| has_host(other)).count() < max {
        true => Ok(()),
        false => Err(InvalidTunnel::TooManyHosts { max }),
    }
}

fn has_host(tunnel: &Tunnel) -> bool {
    tunnel.status.as_ref().is_some_and(TunnelStatus::has_host)
}

fn age(tunnel: &Tunnel) -> (Option<Time>, Option<String>) {
    (tunnel.metadata.creation_timestamp.clone(), tunnel.uid())
}

/// Whether a Tunnel without a host waits only for one; a new one may.
fn waits(tunnel: &Tunnel) -> bool {
    let conditions = tunnel.status.iter().flat_map(|status| &status.conditions);
    let reason = conditions.into_iter().find(|found| found.type_ == READY);
    tunnel.metadata.deletion_timestamp.is_none()
        && reason.is_none_or(|found| WAITS.contains(&found.reason.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::TunnelSpec;

    fn tunnel(name: &str, minute: u32, status: serde_json::Value) -> Tunnel {
        let mut tunnel = Tunnel::new(name, TunnelSpec::default());
        tunnel.metadata = serde_json::from_value(json!({
            "name": name, "uid": name, "creationTimestamp": format!("2026-11-22T12:{minute:02}:00Z"),
        }))
        .unwrap();
        tunnel.status = serde_json::from_value(status).unwrap();
        tunnel
    }

    fn says(reason: &str) -> serde_json::Value {
        json!({"conditions": [{
            "type": READY, "status": "False", "reason": reason, "message": "",
            "lastTransitionTime": "2026-11-22T12:00:00Z",
        }]})
    }

    /// Which of these may have a host.
    fn of(all: &[Tunnel], asks: &str, max: &str) -> Vec<bool> {
        let map = json!({
            "metadata": {"name": "leasehold-tunnel", "namespace": "kube-system"}, "data": {"maxHosts": max},
        });
        let defaults = Defaults::of(&serde_json::from_value(map).unwrap());
        let may = |tunnel| check_number(tunnel, all.iter(), |uid| uid == asks, &defaults).is_ok();
        all.iter().map(may).collect()
    }

    #[test]
    fn hosts_are_for_those_that_have_one_and_then_for_the_oldest() {
        let all = [
            tunnel("new", 3, json!({"hostID": "1"})),
            tunnel("old", 1, json!(null)),
            tunnel("middle", 2, says("TooManyHosts")),
        ];
        assert_eq!(of(&all, "", "0"), [false; 3]);
        assert_eq!(of(&all, "", "1"), [true, false, false]);
        assert_eq!(of(&all, "", "2"), [true, true, false]);
        assert_eq!(of(&all, "", "3"), [true; 3]);
        assert_eq!(of(&all, "", "many"), [false; 3]);
        // One that was requested a moment ago is not in the cache yet.
        assert_eq!(of(&all, "middle", "2"), [true, false, false]);
    }

    /// Two replicas let one Tunnel each mark that it asks: the later look sees both marks.
    #[test]
    fn of_two_marks_for_one_place_the_later_look_sees_both() {
        let map = json!({
            "metadata": {"name": "leasehold-tunnel", "namespace": "kube-system"}, "data": {"maxHosts": "1"},
        });
        let defaults = Defaults::of(&serde_json::from_value(map).unwrap());
        let asks = json!({"creatingSince": "2026-11-22T12:00:00Z"});
        let (old, new) = (tunnel("old", 1, asks.clone()), tunnel("new", 2, asks));
        let waits = tunnel("waits", 0, says("TooManyHosts"));
        let may = |own: &Tunnel, all: &[Tunnel]| check_marks(own, all, &defaults).is_ok();
        assert!(may(&old, &[old.clone(), waits.clone()]), "who only waits has no mark");
        let both = [old.clone(), new.clone(), waits];
        assert!(!may(&new, &both));
        assert!(!may(&old, &both), "its age is no right: the other may have looked before");
    }

    #[test]
    fn who_cannot_get_a_host_keeps_nobody_waiting() {
        for (reason, counts) in [
            ("PortReserved", false),
            ("NotPermitted", false),
            ("NameTaken", false),
            ("TokenMissing", false),
            ("QuotaExceeded", false),
            ("TooManyHosts", true),
            ("AccountFull", true),
            ("HostLost", true),
        ] {
            let mut all = [tunnel("old", 1, says(reason)), tunnel("new", 2, json!(null))];
            assert_eq!(of(&all, "", "1")[1], !counts, "{reason}");
            all[0].metadata.deletion_timestamp = all[0].metadata.creation_timestamp.clone();
            assert!(of(&all, "", "1")[1], "{reason}, and it is being deleted");
        }
    }
}
