//! Which Services are ours, and that an address of others is left alone.

use serde_json::{Value, json};

use super::*;

fn service(spec: Value, status: Value) -> Service {
    let mut service = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "service-uid"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        "status": status,
    });
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    serde_json::from_value(service).unwrap()
}

fn condition(status: &str) -> Value {
    json!([{
        "type": CONDITION, "status": status, "reason": "Test", "message": "",
        "lastTransitionTime": "2026-11-22T12:00:00Z",
    }])
}

fn tunnel_of(owner: &str, ip: Option<&str>) -> Tunnel {
    let mut found = Tunnel::new(
        "web-tunnel",
        choice::spec(&service(json!({}), json!({})), &Defaults::default()),
    );
    found.metadata = serde_json::from_value(json!({"name": "web-tunnel", "ownerReferences": [{
        "apiVersion": "v1", "kind": "Service", "name": "web", "uid": owner, "controller": true,
    }]}))
    .unwrap();
    let conditions = json!([{
        "type": READY, "status": "True", "reason": "Connected", "message": "",
        "lastTransitionTime": "2026-11-22T12:00:00Z",
    }]);
    found.status = Some(TunnelStatus {
        conditions: serde_json::from_value(conditions).unwrap(),
        host_status: ip.map(|_| HostStatus::Active),
        host_ip: ip.map(str::to_owned),
        ..TunnelStatus::default()
    });
    found
}

/// Defaults that claim Services without a class.
fn claiming() -> Defaults {
    let map = json!({"metadata": {}, "data": {"claimServicesWithoutClass": "true"}});
    Defaults::of(&serde_json::from_value(map).unwrap())
}

/// The step in a word, and the addresses after it.
fn check(service: &Service, found: Option<&Tunnel>, expect: &str) {
    check_with(&claiming(), service, found, expect);
}

fn check_with(defaults: &Defaults, service: &Service, found: Option<&Tunnel>, expect: &str) {
    let step = plan(service, defaults, found, |_| Ok(()));
    let word = match &step {
        Step::Ignore => "ignore",
        Step::Apply(_) => "apply",
        Step::Rejected(_) => "rejected",
        Step::Unclear(_) => "unclear",
        Step::Await => "await",
        Step::Taken => "taken",
        Step::Withdraw => "withdraw",
        Step::Refuse { .. } => "refuse",
    };
    let now = "2026-11-22T12:00:00Z".parse().unwrap();
    let ingress = status(service, &step, found, now).load_balancer.and_then(|found| found.ingress);
    let ips = ingress.into_iter().flatten().filter_map(|entry| entry.ip).collect::<Vec<_>>();
    assert_eq!(format!("{word} {}", ips.join(",")).trim_end(), expect);
}

#[test]
fn who_asks_and_whose_address_it_is() {
    let theirs = json!({"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}]}});
    let ours =
        json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}, "conditions": condition("True")});
    let late =
        json!({"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}]}, "conditions": condition("False")});
    let active = tunnel_of("service-uid", Some("1.2.3.4"));
    let pending = tunnel_of("service-uid", None);
    let class = |class: &str| json!({"loadBalancerClass": class});

    check(&service(json!({}), json!({})), None, "apply");
    check(&service(json!({}), json!({})), Some(&active), "apply 1.2.3.4");
    check(&service(json!({}), ours.clone()), Some(&active), "apply 1.2.3.4");
    check(&service(json!({}), ours.clone()), Some(&pending), "apply");
    check(&service(class(CLASS), theirs.clone()), None, "apply 9.9.9.9");
    check(&service(class("example.com/other"), theirs.clone()), None, "ignore 9.9.9.9");
    check(&service(json!({"type": "ClusterIP"}), json!({})), None, "ignore");
    // Somebody else serves it, before or after we began.
    check(&service(json!({}), theirs), None, "ignore 9.9.9.9");
    check(&service(json!({}), late), Some(&pending), "withdraw 9.9.9.9");
    check(&service(json!({"type": "ClusterIP"}), ours.clone()), Some(&active), "withdraw");
    // Its deletion waits for others.
    let mut ending = service(json!({}), ours);
    ending.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    check(&ending, Some(&active), "withdraw");
    let ranges = json!({"loadBalancerSourceRanges": ["203.0.113.0/24"]});
    check(&service(ranges, json!({})), Some(&active), "refuse");
    let another = tunnel_of("another-uid", None);
    check(&service(json!({}), json!({})), Some(&another), "taken");
}

/// What was taken on stays, although nothing is said of Services without a class any more.
#[test]
fn a_service_without_a_class_stays_until_others_serve_it() {
    let unsaid = Defaults::default();
    let (active, pending) =
        (tunnel_of("service-uid", Some("1.2.3.4")), tunnel_of("service-uid", None));
    let served = |ip: &str, told: &str| json!({"loadBalancer": {"ingress": [{"ip": ip}]}, "conditions": condition(told)});
    let check = |status, found, expect| {
        check_with(&unsaid, &service(json!({}), status), found, expect);
    };
    check(json!({}), None, "ignore");
    check(served("1.2.3.4", "True"), Some(&active), "apply 1.2.3.4");
    check(served("1.2.3.4", "True"), Some(&pending), "apply");
    check(json!({"conditions": condition("False")}), Some(&pending), "apply");
    check(json!({"conditions": condition("False")}), Some(&active), "apply 1.2.3.4");
    check(served("9.9.9.9", "False"), Some(&pending), "withdraw 9.9.9.9");
}

/// The second address is for who asks for it, once connections come through it, and never alone.
#[test]
fn who_gets_an_ipv6_address() {
    let dual = || service(json!({"ipFamilyPolicy": "PreferDualStack"}), json!({}));
    let said = |mut found: Tunnel, type_: &str, status: &str| {
        let told = json!({
            "type": type_, "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": "2026-11-22T12:00:00Z",
        });
        let of = found.status.as_mut().unwrap();
        of.host_ipv6 = Some("2a01:4f8::1".to_owned());
        of.conditions.retain(|condition| condition.type_ != type_);
        of.conditions.push(serde_json::from_value(told).unwrap());
        found
    };
    let active = || tunnel_of("service-uid", Some("1.2.3.4"));
    let both = said(active(), IPV6, "True");
    check(&dual(), Some(&both), "apply 1.2.3.4,2a01:4f8::1");
    check(&service(json!({}), json!({})), Some(&both), "apply 1.2.3.4");
    check(&dual(), Some(&said(active(), IPV6, "False")), "apply 1.2.3.4");
    check(&dual(), Some(&said(active(), "Other", "True")), "apply 1.2.3.4");
    check(&dual(), Some(&said(both.clone(), READY, "False")), "apply");
    let step = Step::Apply(Box::new(both.clone()));
    let status = status(&dual(), &step, Some(&both), "2026-11-22T12:00:00Z".parse().unwrap());
    assert!(status.conditions.unwrap()[0].message.ends_with("at 1.2.3.4 and 2a01:4f8::1"));
    let ingress = status.load_balancer.unwrap().ingress.unwrap();
    assert!(ingress.iter().all(|entry| entry.ip_mode.as_deref() == Some("Proxy")));
}

#[test]
fn a_refused_change_takes_no_address_away() {
    let rejected = Step::Rejected("too many ports".to_owned());
    let now = "2026-11-22T12:00:00Z".parse().unwrap();
    for (ip, expect) in [(Some("1.2.3.4"), "True"), (None, "False")] {
        let found = tunnel_of("service-uid", ip);
        let status = status(&service(json!({}), json!({})), &rejected, Some(&found), now);
        let told = status.conditions.unwrap().remove(0);
        assert_eq!((&*told.reason, &*told.status), ("Rejected", expect));
        assert!(told.message.contains("too many ports"), "{}", told.message);
        let ingress = status.load_balancer.unwrap().ingress;
        assert_eq!(ingress.and_then(|mut list| list.remove(0).ip).as_deref(), ip);
    }
}

/// A mistyped default would remove every host, and no other could be made.
#[test]
fn region_and_size_of_the_defaults_are_those_of_new_hosts() {
    let map = json!({"metadata": {}, "data": {
        "claimServicesWithoutClass": "true", "provider": "hetzner", "region": "r", "size": "s",
    }});
    let defaults = Defaults::of(&serde_json::from_value(map).unwrap());
    let with = |provider: &str, host: Option<&str>| {
        let mut found = tunnel_of("service-uid", None);
        found.spec.provider = Some(provider.to_owned());
        found.spec.region = Some("fsn1".to_owned());
        found.status.as_mut().unwrap().host_id = host.map(str::to_owned);
        found
    };
    let (none, large) = (json!({}), json!({"leasehold.dev/tunnel-size": "large"}));
    for (annotations, found, expect) in [
        (&none, with("hetzner", Some("1")), (Some("fsn1"), None)),
        (&large, with("hetzner", Some("1")), (Some("fsn1"), Some("large"))),
        (&none, with("hetzner", None), (Some("r"), Some("s"))),
        (&none, with("digitalocean", Some("1")), (Some("r"), Some("s"))),
    ] {
        let mut service = service(json!({}), json!({}));
        service.metadata.annotations = serde_json::from_value(annotations.clone()).unwrap();
        let step = plan(&service, &defaults, Some(&found), |_| Ok(()));
        let Step::Apply(desired) = step else { panic!("it is ours") };
        let asked = (desired.spec.region.as_deref(), desired.spec.size.as_deref());
        assert_eq!(asked, expect, "{annotations} {:?}", found.spec.provider);
    }
}

/// Nothing is made for it, and what serves goes on: `False` may be meant as `false`, and nobody knows.
#[test]
fn an_annotation_without_a_meaning_is_told_and_changes_nothing() {
    let ours =
        json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}, "conditions": condition("True")});
    let active = tunnel_of("service-uid", Some("1.2.3.4"));
    for (key, value, expect) in [
        ("leasehold.dev/tunnel", "False", "unclear"),
        ("leasehold.dev/tunnel", "no", "unclear"),
        ("leasehold.dev/tunnel-stable-address", "True", "unclear"),
        ("leasehold.dev/tunnel-stable-adress", "true", "unclear"),
        ("leasehold.dev/tunnel-token-secret-key", "password", "unclear"),
        ("leasehold.dev/tunnel", "true", "apply"),
        ("leasehold.dev/tunnel-stable-address", "true", "apply"),
        ("leasehold.dev/tunnel-stable-address", "", "apply"),
    ] {
        let annotated = |status: Value| {
            let mut service = service(json!({}), status);
            service.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
            service
        };
        check(&annotated(json!({})), None, expect);
        check(&annotated(ours.clone()), Some(&active), &format!("{expect} 1.2.3.4"));
        // Another class is another's matter, whatever it says.
        let mut theirs = annotated(json!({}));
        theirs.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".to_owned());
        check(&theirs, None, "ignore");
    }
    let mut service = service(json!({}), ours);
    service.metadata.annotations = Some([(OPT.to_owned(), "False".to_owned())].into());
    let step = plan(&service, &claiming(), Some(&active), |_| Ok(()));
    let status = status(&service, &step, Some(&active), "2026-11-22T12:00:00Z".parse().unwrap());
    let told = status.conditions.unwrap().remove(0);
    assert_eq!((&*told.reason, &*told.status), ("InvalidAnnotation", "True"));
    let message = "annotation leasehold.dev/tunnel is \"False\": write \"true\" or \"false\"; it serves 1.2.3.4 as before";
    assert_eq!(told.message, message);
}

#[test]
fn a_tunnel_that_goes_is_waited_for() {
    let mut going = tunnel_of("service-uid", Some("1.2.3.4"));
    going.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-11-22T12:00:00Z")).unwrap());
    let ours =
        json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}, "conditions": condition("True")});
    check(&service(json!({}), ours), Some(&going), "await");
}
