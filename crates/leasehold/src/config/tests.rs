//! Configuration files, valid and invalid, and what is reported about them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use super::*;

const KNOWN: [&str; 2] = ["tdset", "configmonitor"];

fn env() -> Environment {
    Environment {
        dir: "/etc/l".into(),
        pod_name: None,
        zone: None,
        hostname: Some("Host-1".into()),
    }
}

fn load(text: &str) -> Result<Config, String> {
    parse(text, &env(), &KNOWN)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

const LEAST: &str = "home: {inCluster: true}\nclusters: {directory: c}\n";

#[track_caller]
fn check(extra: &str, expect: &str) {
    let found = load(&format!("{LEAST}{extra}")).map(|_| "ok".to_owned());
    assert_eq!(found.unwrap_or_else(|problems| problems), expect);
}

#[test]
fn the_example_holds_every_key_and_is_right() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/leasehold.example.yaml");
    let known: Vec<_> = controllers::all().collect();
    let config = Config::load(&path, &known).unwrap();
    assert_eq!((&*config.installation, &*config.identity), ("standalone", "replica-0"));
    assert_eq!(config.lease, sharding::LeaseTimings::default());
    assert_eq!(config.upstream, UpstreamLimits::default());
    let large = Budget { max_cache_bytes: 128 << 20, ..Budget::default() };
    let named = [("team-a.large".parse().unwrap(), large)].into();
    assert_eq!(config.budgets, Budgets { named, ..Budgets::default() });
    let own = Budget { max_objects: 500_000, max_cache_bytes: 256 << 20, ..Budget::default() };
    assert_eq!(config.clusters.kubeconfigs[1].budget, Some(own));
    assert_eq!(config.clusters.kubeconfigs.len(), 2);
    assert_eq!(config.clusters.directories.len(), 2);
    let Plugins::Listed(plugins) = &config.clusters.credential_plugins else { panic!() };
    assert_eq!(plugins[0].args.len(), 6);
    assert!(config.stamp_epochs && !config.mark_clusters);
    assert!(config.clusters.kubeconfigs[0].path.is_absolute());
    assert_eq!(config.controllers.unwrap().len(), 5);
    assert_eq!(config.otlp.unwrap().endpoint, "http://127.0.0.1:4317/");
    assert_eq!(config.cluster_labels, DEFAULT_CLUSTER_LABELS);
}

#[test]
fn as_many_clusters_as_wanted_have_metrics_of_their_own() {
    let with = |most: &str| format!("telemetry: {{metrics: {{maxClusters: {most}}}}}");
    for most in [0, 10_000] {
        let config = load(&format!("{LEAST}{}", with(&most.to_string()))).unwrap();
        assert_eq!(config.cluster_labels, most);
    }
    check(
        &with("10001"),
        "telemetry.metrics.maxClusters: found 10001; allowed: a whole number from 0 to 10000",
    );
}

#[test]
fn the_least_file_gets_defaults() {
    let config = load(LEAST).unwrap();
    assert_eq!(config.home, Home::InCluster);
    assert_eq!(config.identity, "host-1");
    assert_eq!(config.clusters.directories, [DirectorySource::new("/etc/l/c")]);
    assert_eq!(config.controllers, None);
    assert!(!config.stamp_epochs && config.mark_clusters);
    assert_eq!(config.admin, Some(SocketAddr::from(([127, 0, 0, 1], 8080)).into()));
    assert_eq!(config.shutdown_grace_period, Duration::from_secs(60));
}

#[test]
fn every_problem_is_told_at_once() {
    let text = "
home: {kubeconfg: ./home, context: 7}
namespace: Leasehold
clusters:
  kubeconfigs: [{contexts: []}, {path: a, contexts: [x]}, {path: a}]
  directory: 3
  directories: [{prefix: a.b}, {path: b, prefix: b}, {path: c, prefix: b, allow: [all], maxClusters: 0}]
  credentialPlugins: [aws, {args: [1]}, {command: gke, env: [A], passEnv: x}]
controlers: {}
controllers: {tdset: {workers: four}, tdsett: {}, configmonitor: {worker: 2}}
lease: {duration: 8s, renewInterval: 8s}
drainTimeout: 60
shutdownGracePeriod: 31s
admin: {bind: localhost}
telemetry: {log: {format: yaml, filter: 'engine=loud'}, otlp: {sampleRatio: 2}}
";
    insta::assert_snapshot!(load(text).unwrap_err(), @r#"
    home.context: found 7; allowed: text
    home: names no cluster; allowed: a kubeconfig, or inCluster: true
    home.kubeconfg: unknown key; did you mean kubeconfig? Known here: inCluster, kubeconfig, context, allow
    namespace: found "Leasehold"; allowed: 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit
    clusters.kubeconfigs[0].path: missing; allowed: the path of a kubeconfig
    clusters.kubeconfigs[0].contexts: an empty list; allowed: names of contexts, or no list for every context
    clusters.kubeconfigs[2].path: the same file twice; allowed: one entry with all its contexts
    clusters.directories[0].path: missing; allowed: the path of a folder of kubeconfigs
    clusters.directories[0].prefix: found "a.b"; allowed: 1 to 31 of a-z, 0-9 and '-', beginning and ending with a letter or digit
    clusters.directories[2].prefix: the same prefix twice; allowed: one of its own for each source
    clusters.directories[2].maxClusters: found 0; allowed: a whole number from 1 to 16384
    clusters.directories[2].allow[0]: found "all"; allowed: impersonation, plainHttp, insecureTls, loopback, linkLocal
    clusters.directory: found 3; allowed: text
    clusters.credentialPlugins[0]: found "aws"; allowed: a section with keys of its own
    clusters.credentialPlugins[0].command: missing; allowed: the program, as the kubeconfig names it
    clusters.credentialPlugins[1].command: missing; allowed: the program, as the kubeconfig names it
    clusters.credentialPlugins[1].args[0]: found 1; allowed: text
    clusters.credentialPlugins[2].env: found a list of 1; allowed: a section with keys of its own
    clusters.credentialPlugins[2].passEnv: found "x"; allowed: a list
    controllers.configmonitor.worker: unknown key; did you mean workers? Known here: workers, namespaces, watchSecrets
    controllers.tdset.workers: found "four"; allowed: a whole number from 1 to 256
    controllers.tdsett: unknown controller; did you mean tdset? Known here: tdset, configmonitor
    lease.renewInterval: found 8s with a duration of 8s; allowed: less than 3750ms, so that one renewal may fail (twice the interval and a margin of 500ms must fit into the duration)
    drainTimeout: found 60; allowed: a duration from 1s to 1h, as in 500ms, 8s or 2m
    admin.bind: found "localhost"; allowed: an IP address and a port, as in 127.0.0.1:8080
    telemetry.log.format: found "yaml"; allowed: text or json
    telemetry.log.filter: found "engine=loud"; allowed: a level (error, warn, info, debug, trace) or directives like info,leasehold_engine=debug
    telemetry.otlp.endpoint: missing; allowed: a URL, as in http://127.0.0.1:4317
    telemetry.otlp.sampleRatio: found 2; allowed: a share from 0.0 to 1.0
    controlers: unknown key; did you mean controllers? Known here: home, namespace, installation, identity, capacity, zone, owner, budget, clusters, controllers, lease, upstream, fence, drainTimeout, shutdownGracePeriod, admin, probes, telemetry, journal
    "#);
}

#[test]
fn values_are_held_to_their_bounds() {
    check("controllers: {tdset: }", "ok");
    check(
        "controllers: {tdset: {workers: 0}}",
        "controllers.tdset.workers: found 0; allowed: a whole number from 1 to 256",
    );
    check("controllers: {tdset: {namespaces: [a, b, a]}}", "ok");
    check(
        "controllers: {tdset: {namespaces: []}}",
        "controllers.tdset.namespaces: found 0 names; allowed: 1 to 100, or no such key for all namespaces",
    );
    check(
        "controllers: {tdset: {namespaces: ['*']}}",
        "controllers.tdset.namespaces[0]: found \"*\"; allowed: 1 to 63 of a-z, 0-9 and '-', beginning and \
         ending with a letter or digit\ncontrollers.tdset.namespaces: found 0 names; allowed: 1 to 100, or \
         no such key for all namespaces",
    );
    check(
        "controllers: [tdset]",
        "controllers: found a list of 1; allowed: a section with keys of its own",
    );
    check(
        "lease: {duration: 2s, renewInterval: 100ms}",
        "lease.duration: found \"2s\"; allowed: a duration from 3s to 10m, as in 500ms, 8s or 2m\n\
         lease.renewInterval: found \"100ms\"; allowed: a duration from 1s to 10m, as in 500ms, 8s or 2m",
    );
    check(
        "lease: {duration: 4500ms}",
        "lease.duration: found \"4500ms\"; allowed: a whole number of seconds, as in 8s",
    );
    check("lease: {duration: 3s, renewInterval: 1s}", "ok");
    check(
        "lease: {duration: 3s}",
        "lease.renewInterval: found 2s with a duration of 3s; allowed: less than 1250ms, so that one \
         renewal may fail (twice the interval and a margin of 500ms must fit into the duration)",
    );
    check("drainTimeout: 5m", "ok");
    check(
        "admin: {bind: '0.0.0.0:8443'}",
        "admin.authorization: missing, and others can reach 0.0.0.0:8443; allowed: home or inCluster, the \
         cluster that says who may read metrics and debug views, or none for whoever reaches them",
    );
    check("admin: {bind: '0.0.0.0:8443', authorization: none}", "ok");
    check(
        "admin: {bind: '0.0.0.0:8443', authorization: home}",
        "admin.tls: missing, and others can read the tokens sent to 0.0.0.0:8443; allowed: {certificate: \
         FILE, key: FILE} or {selfSigned: true}",
    );
    check("admin: {bind: '[::]:8443', authorization: inCluster, tls: {selfSigned: true}}", "ok");
    check(
        "admin: {tls: {certificate: a.crt}, authorization: all}\nprobes: {bind: '127.0.0.1:8080'}",
        "admin.tls.certificate: not complete; allowed: {certificate: FILE, key: FILE} or {selfSigned: true}\n\
         admin.authorization: found \"all\"; allowed: home, inCluster or none\n\
         probes.bind: the address of admin.bind; allowed: one of its own",
    );
}

#[test]
fn what_may_be_asked_of_a_cluster() {
    check("upstream: {requestsPerSecond: 50, burst: 1, maxConcurrency: 100000}", "ok");
    check(
        "upstream: {requestsPerSecond: 0, burst: 1.5, maxConcurency: 3}",
        "upstream.requestsPerSecond: found 0; allowed: a whole number from 1 to 100000\n\
         upstream.burst: found 1.5; allowed: a whole number from 1 to 100000\n\
         upstream.maxConcurency: unknown key; did you mean maxConcurrency? Known here: \
         requestsPerSecond, burst, maxConcurrency, firstPause, maxPause",
    );
    check("upstream: {firstPause: 2m}", "ok");
    check(
        "upstream: {firstPause: 5s, maxPause: 500ms}",
        "upstream.maxPause: found 500ms with a firstPause of 5s; allowed: at least as much",
    );
    check(
        "upstream: {firstPause: 0s}",
        "upstream.firstPause: found \"0s\"; allowed: a duration from 100ms to 10m, as in 500ms, 8s \
         or 2m",
    );
    let config = load(&format!("{LEAST}upstream: {{firstPause: 2m, burst: 7}}")).unwrap();
    let minutes = Duration::from_secs(120);
    let expect = UpstreamLimits {
        burst: 7,
        first_pause: minutes,
        max_pause: minutes,
        ..UpstreamLimits::default()
    };
    assert_eq!(config.upstream, expect);
}

#[test]
fn home_and_clusters_are_required() {
    let found = load("{}").unwrap_err();
    assert_eq!(
        found,
        "home: missing; allowed: {kubeconfig: FILE, context: NAME, allow: [...]} or {inCluster: true}\n\
         clusters: names no cluster; allowed: at least one of inCluster, kubeconfigs, directories, \
         directory, secrets"
    );
    assert_eq!(load("").unwrap_err(), found);
    let both =
        load("home: {inCluster: true, kubeconfig: h}\nclusters: {inCluster: l}").unwrap_err();
    assert_eq!(both, "home: inCluster and a kubeconfig are given; allowed: one of them");
}

#[test]
fn budgets_are_for_each_cluster_each_source_and_all() {
    let text = "home: {inCluster: true}\nbudget: {maxObjects: 1000, maxCacheBytes: 600Mi}\nclusters:\n  \
                directories: [{path: a}, {path: b, budget: {maxCacheBytes: 1073741824}}]\n";
    let config = load(text).unwrap();
    let each = Budget { max_objects: 1000, max_cache_bytes: 600 << 20, ..Budget::default() };
    let budgets = Budgets { each, max_total_cache_bytes: 600 << 20, ..Budgets::default() };
    assert_eq!(config.budgets, budgets);
    let of_b = Budget { max_cache_bytes: 1 << 30, ..each };
    let found: Vec<_> = config.clusters.directories.iter().map(|source| source.budget).collect();
    assert_eq!(found, [None, Some(of_b)]);
    check(
        "budget: {maxObjects: 99, maxJsonBytes: 1GB}",
        "budget.maxObjects: found 99; allowed: a whole number from 100 to 10000000\n\
         budget.maxJsonBytes: found \"1GB\"; allowed: a number of bytes from 1Mi to 1Ti, as in 67108864, \
         65536Ki, 64Mi or 1Gi",
    );
    check(
        "budget: {maxTotalCacheBytes: 32Mi}",
        "budget.maxTotalCacheBytes: found 33554432 with a maxCacheBytes of 67108864; allowed: at least as much, \
         or one cluster could never use its own budget",
    );
}

#[test]
fn a_cluster_has_the_budget_that_is_written_under_its_name() {
    let text = "home: {inCluster: true}\nclusters: {directory: c}\nbudget:\n  maxObjects: 1000\n  \
                clusters: {team-a.large: {maxCacheBytes: 600Mi}}\n";
    let Budgets { each, named, max_total_cache_bytes } = load(text).unwrap().budgets;
    let large = Budget { max_cache_bytes: 600 << 20, ..each };
    assert_eq!(named, [("team-a.large".parse().unwrap(), large)].into());
    assert_eq!((each.max_objects, max_total_cache_bytes), (1000, 600 << 20));
    check(
        "budget: {clusters: {East: {}, west: {maxObject: 1000}}}",
        "budget.clusters.East: no name of a cluster; allowed: 1 to 63 of a-z, 0-9, '-' and '.', each part between \
         dots beginning and ending with a letter or digit\n\
         budget.clusters.west.maxObject: unknown key; did you mean maxObjects? Known here: maxObjects, \
         maxCacheBytes, maxJsonBytes",
    );
    check(
        "budget: {maxTotalCacheBytes: 128Mi, clusters: {east: {maxCacheBytes: 256Mi}}}",
        "budget.maxTotalCacheBytes: found 134217728 with a maxCacheBytes of 268435456; allowed: at least as much, \
         or one cluster could never use its own budget",
    );
}

#[test]
fn authors_of_secrets_may_ask_for_as_much_as_the_configuration_says() {
    let text = "home: {inCluster: true}\nbudget: {maxObjects: 1000}\nclusters:\n  secrets:\n    \
                - {selector: a}\n    \
                - {selector: b, budget: {maxObjects: 2000}, maxBudget: {maxObjects: 3000}}\n";
    let config = load(text).unwrap();
    let of = |max_objects| Budget { max_objects, ..Budget::default() };
    let found: Vec<_> = config.clusters.secrets.iter().map(|source| source.budget).collect();
    let own = SourceBudget { each: of(2000), most: of(3000) };
    assert_eq!(found, [Some(of(1000).into()), Some(own)]);
    let text = "home: {inCluster: true}\nclusters:\n  secrets: [{selector: a, maxBudget: {maxObjects: 100}}]";
    let less = "clusters.secrets[0].maxBudget.maxObjects: found 100 where each of these clusters has 200000; \
                allowed: at least as much";
    assert_eq!(load(text).unwrap_err(), less);
}

#[test]
fn an_exit_has_time_for_a_drain_and_a_lease() {
    let lease = "lease: {duration: 30s}\ndrainTimeout: 55s\n";
    check(&format!("{lease}shutdownGracePeriod: 90s"), "ok");
    check(
        &format!("{lease}shutdownGracePeriod: 89s"),
        "shutdownGracePeriod: found 89s with a drainTimeout of 55s and a Lease of 30s; allowed: at least 90s, so \
         that a drain may end and its shards be handed over",
    );
    assert_eq!(load(&format!("{LEAST}{lease}")).unwrap().shutdown_grace_period.as_secs(), 90);
}

#[test]
fn text_that_is_not_yaml_is_one_problem_with_its_place() {
    let found = load("home: {\n").unwrap_err();
    assert!(found.starts_with("is not YAML: ") && found.contains("line"), "{found}");
    let twice = load(&format!("{LEAST}home: {{inCluster: true}}\n")).unwrap_err();
    assert_eq!(
        twice,
        "is not YAML: duplicate mapping key: home not allowed here at line 3, column 1"
    );
    assert!(load("- a").unwrap_err().starts_with("found a list of 1; allowed: a section"));
}

#[test]
fn an_identity_comes_from_the_pod_or_the_host() {
    let env = |pod: Option<&str>, host: &str| Environment {
        pod_name: pod.map(str::to_owned),
        hostname: Some(host.into()),
        ..env()
    };
    let identity = |env: Environment| parse(LEAST, &env, &KNOWN).map(|config| config.identity);
    assert_eq!(identity(env(Some("leasehold-0"), "node")).unwrap(), "leasehold-0");
    assert_eq!(identity(env(None, "node")).unwrap(), "node");
    let problems = identity(env(None, "my_host")).unwrap_err();
    assert!(
        problems[0].message.contains("the host's name \"my_host\" will not do"),
        "{problems:?}"
    );
}

#[test]
fn a_file_that_is_not_there_says_so() {
    let problems = Config::load(Path::new("/nowhere/l.yaml"), &KNOWN).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "/nowhere/l.yaml has 1 problem:\n  cannot be read: No such file or directory (os error 2); \
         give an existing file with --config"
    );
}

/// The recipes of `deploy/clouds`: their kubeconfigs run the programs that the chart's values allow, and no
/// other command line.
#[tokio::test]
async fn the_kubeconfigs_of_clouds_and_the_values_for_them_agree() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let dir = tempfile::tempdir().unwrap();
    let here = format!("{}/", dir.path().display());
    for (cloud, program, wrong) in [
        ("eks", "aws-iam-authenticator", ("east]", "east, --role, admin]")),
        ("gke", "gke-gcloud-auth-plugin", ("--use", "--impersonate_service_account=x, --use")),
        ("aks", "kubelogin", ("workloadidentity", "azurecli")),
    ] {
        let script =
            "#!/bin/sh\necho '{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t\"}}'\n";
        let program = dir.path().join(program);
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let values = deploy.join(format!("charts/leasehold/ci/{cloud}.yaml"));
        let values = fs::read_to_string(values).unwrap().replace("/plugins/", &here);
        let values: serde_json::Value = serde_saphyr::from_str(&values).unwrap();
        let text = format!("home: {{inCluster: true}}\nclusters: {}\n", values["clusters"]);
        let plugins = load(&text).unwrap().clusters.credential_plugins;
        let kubeconfig = fs::read_to_string(deploy.join("clouds").join(cloud)).unwrap();
        let kubeconfig: String = kubeconfig
            .replace("/plugins/", &here)
            .split_inclusive('\n')
            .filter(|line| !line.contains("certificate-authority-data"))
            .collect();
        let connect = async |text: &str| {
            let path = dir.path().join(cloud);
            fs::write(&path, text).unwrap();
            let trust = clusters::Trust { plugins: plugins.clone(), ..clusters::Trust::default() };
            let clock = Arc::new(model::ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
            let client = clusters::client_from_kubeconfig(&path, None, trust, clock).await;
            client.map(drop).map_err(|error| error.reason())
        };
        assert_eq!(connect(&kubeconfig).await, Ok(()), "{cloud}");
        let refused = connect(&kubeconfig.replace(wrong.0, wrong.1)).await.unwrap_err();
        assert!(refused.contains("credentialPlugins"), "{cloud}: {refused}");
    }
}

#[test]
fn a_controller_that_was_left_out_of_this_build_is_no_unknown_one() {
    let with = "controllers: {sqs: {access: []}, sqss: {}}\n";
    check(
        with,
        "controllers.sqs: this program was built without it; build it with the feature sqs, or with \
         controllers for all of them, or take it out here\n\
         controllers.sqss: unknown controller; known here: tdset, configmonitor",
    );
    let with = format!("{LEAST}controllers: {{sqs: {{access: []}}, tdset: {{}}}}\n");
    let read = parse::read(&with, &env(), &KNOWN, &["sqs"]).unwrap();
    let names: Vec<_> = read.controllers.unwrap().into_keys().collect();
    assert_eq!(names, ["tdset".parse().unwrap()]);
}

/// A value that the chart takes and the program does not would show only in a Pod that does not start.
#[test]
fn the_chart_takes_no_value_that_the_program_refuses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/charts/leasehold");
    let schema = fs::read_to_string(root.join("values.schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let agree = |pointer: &str, section: &str, good: &[&str], bad: &[&str]| {
        let pattern = schema.pointer(&format!("{pointer}/pattern")).unwrap().as_str().unwrap();
        let pattern = regex::Regex::new(pattern).unwrap();
        for (value, expect) in
            good.iter().map(|value| (value, true)).chain(bad.iter().map(|value| (value, false)))
        {
            let quoted = serde_json::Value::from(*value).to_string();
            let read = load(&format!("{LEAST}{}", section.replace("VALUE", &quoted)));
            assert_eq!(
                (pattern.is_match(value), read.is_ok()),
                (expect, expect),
                "{value}: {read:?}"
            );
        }
    };
    agree(
        "/properties/log/properties/filter",
        "telemetry: {log: {filter: VALUE}}",
        &[
            "info",
            "warn,leasehold_engine=debug",
            "off",
            "a::b=trace,[span]=info",
            "info,h2",
            "a[{b=1}]=warn",
        ],
        &["bogus=x=y", "engine=loud", "info,,x=y"],
    );
    agree(
        "/definitions/bytes/anyOf/1",
        "budget: {maxTotalCacheBytes: 1Ti, maxCacheBytes: VALUE}",
        &["1048576", "1048577", "1024Ki", "9999Ki", "1Mi", "64Mi", "1Gi", "512Gi", "1Ti"],
        &["1Ki", "1048575", "1023Ki", "0Mi", "2Ti", "1.5Gi", "64M", ""],
    );
    for key in ["firstPause", "maxPause"] {
        agree(
            "/definitions/pause",
            &format!("upstream: {{{key}: VALUE}}"),
            if key == "firstPause" {
                &["100ms", "500ms", "0.5s", "1s", "2.5s"]
            } else {
                &["60s", "600s", "10m", "1.5m", "600000ms"]
            },
            &["1ms", "99ms", "0.05s", "0s", "601s", "11m", "1", "s", "1..5s", "600001ms"],
        );
    }
    agree(
        "/definitions/name",
        "installation: VALUE",
        &["prod", "prod.eu", "a-b.c-1"],
        &["prod..eu", "a-", "a-.b", ".a", "A"],
    );
    let controllers = &schema["properties"]["controllers"]["properties"];
    for (name, settings) in controllers.as_object().unwrap() {
        let most = settings["properties"]["namespaces"]["maxItems"].as_u64().unwrap();
        for (count, expect) in [(most, true), (most + 1, false)] {
            let names: Vec<_> = (0..count).map(|number| format!("n{number}")).collect();
            let config = format!("{LEAST}controllers: {{tdset: {{namespaces: {names:?}}}}}");
            assert_eq!(load(&config).is_ok(), expect, "{name}: {count} namespaces");
        }
    }
    agree(
        "/properties/otlp/properties/endpoint",
        "telemetry: {otlp: {endpoint: VALUE}}",
        &[
            "http://127.0.0.1:4317",
            "https://otel.example:4317/",
            "http://[::1]:4317",
            "http://o:1/p",
        ],
        &["http://", "http://otel.example", "otel:4317", "ftp://a:1", "http://:4317"],
    );
}
