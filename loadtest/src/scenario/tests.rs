use std::collections::BTreeMap;

use super::*;

fn parse(text: &str) -> Result<Scenario, Box<toml::de::Error>> {
    toml::from_str(text).map_err(Box::new)
}

const BASIC: &str = include_str!("../../scenarios/basic.toml");

const FAIRNESS: &str = include_str!("../../scenarios/fairness.toml");

/// The scenarios in the repository, by their names.
fn all() -> BTreeMap<String, Scenario> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let folders = [root.to_owned(), format!("{root}/curves"), format!("{root}/sizing")];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = files.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let loaded = files.map(|path| Scenario::load(&path).unwrap_or_else(|e| panic!("{e}")));
    loaded.map(|scenario| (scenario.name.clone(), scenario)).collect()
}

#[test]
fn the_scenarios_in_the_repository_are_runnable_and_have_limits() {
    let all = all();
    assert_eq!(all.len(), 16, "{:?}", all.keys());
    for (name, scenario) in &all {
        if let Some(curve) = &scenario.curve {
            assert!(curve.goal.is_some(), "{name}");
            continue;
        }
        let limits = [Measure::ConvergedP99Ms, Measure::PeakRssMib, Measure::ReconcileErrors];
        assert!(limits.iter().all(|limit| scenario.slo.contains_key(limit)), "{name}");
    }
    let basic = &all["basic"];
    assert!(basic.objects.count >= 3000 && basic.fleet.clusters >= 5);
    let troubles = |name: &str| all[name].troubles.clone().unwrap();
    assert!(troubles("fairness").dead > 0 && troubles("fairness").flooded > 0);
    let dead = troubles("thousand").dead;
    assert!(dead >= 100 && all["thousand"].fleet.clusters + dead >= 1000);
    assert_eq!(all["faults"].faults.len(), 4);
    assert_eq!((all["kind"].faults.len(), all["kind"].objects.pods), (1, Some(40)));
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = BASIC
        .replace("clusters = 5 ", "clusters = 0 ")
        .replace("updates_per_second = 40.0", "updates_per_second = -1.0");
    assert_eq!(
        parse(&text).unwrap().problems(),
        [
            "fleet.clusters: found 0, allowed 1 to 10000",
            "load.updates_per_second: found -1, allowed 0 to 5000",
        ]
    );
    let text = FAIRNESS.replace("flood_per_second = 1000.0", "flood_per_second = 1e9");
    assert_eq!(
        parse(&text).unwrap().problems(),
        ["troubles.flood_per_second: found 1000000000, allowed 0 to 5000"]
    );
}

#[test]
fn huge_numbers_are_refused_wherever_they_are() {
    let goal = "\n[vary]\nreplicas = [1, 3]\ngoal = { replicas = 3, times = nan }\n";
    let text = format!("{FAIRNESS}{goal}")
        .replace("dead = 1 ", "dead = 9_000 ")
        .replace("flooded = 1 ", "flooded = 2_000 ")
        .replace("count = 500 ", "count = 200_000 \npadding = 200_000 ")
        .replace("workers = 8 ", "workers = 8 \nconfig = { identity = \"a\", budget = {} } ");
    let mut scenario = parse(&text).unwrap();
    assert_eq!(
        scenario.problems(),
        [
            "objects.padding (of all objects): found 40000000000, allowed 0 to 4000000000",
            "fleet.clusters, troubles.dead and .flooded: found 11005, allowed 1 to 10000",
            "troubles.flooded_objects (of all): found 400000, allowed 0 to 200000",
            "vary.goal.times: found NaN, allowed 0.01 to 1000",
            "fleet.config.identity: the load test gives it",
        ]
    );
    (scenario.fleet.clusters, scenario.load.updates_per_second) = (u32::MAX, f64::INFINITY);
    let problems = scenario.problems();
    for expect in ["fleet.clusters: found 4294967295,", "load.updates_per_second: found inf,"] {
        assert!(problems.iter().any(|problem| problem.starts_with(expect)), "{problems:?}");
    }
}

#[test]
fn a_folder_has_the_scenarios_whose_names_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let none = files(dir.path()).unwrap_err().to_string();
    assert!(none.ends_with(" has no scenario: no file NAME.toml"), "{none}");
    for name in ["b.toml", "a.toml", "README.md", "a.toml~"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    let found = files(dir.path()).unwrap();
    assert_eq!(found, [dir.path().join("a.toml"), dir.path().join("b.toml")]);
    let one = dir.path().join("README.md");
    assert_eq!(files(&one).unwrap(), [one]);
}

#[test]
fn names_are_no_paths() {
    let long = "a".repeat(MAX_NAME + 1);
    for name in ["../../p", "/etc/x", "", "Basic", "-a", "a-", &long] {
        let text = BASIC.replace("name = \"basic\"", &format!("name = {name:?}"));
        let problems = parse(&text).unwrap().problems();
        let [problem] = &problems[..] else { panic!("{name:?}: {problems:?}") };
        assert!(problem.starts_with(&format!("name: found {name:?}")), "{problem}");
    }
}

#[test]
fn limits_and_faults_are_read_and_checked() {
    let more = "\n[slo]\nreconcile_errors = 0\nqueue_p99_ms = 12.5\n\n\
                [[faults]]\nat = \"20s\"\nkind = \"kill\"\nreplica = 3\n";
    let base = BASIC.split("\n[slo]").next().unwrap();
    let scenario = parse(&format!("{base}{more}")).unwrap();
    let expect = [(Measure::QueueP99Ms, 12.5), (Measure::ReconcileErrors, 0.0)];
    assert_eq!(scenario.slo, expect.into());
    assert_eq!(scenario.problems(), ["faults[0]: there is no replica 3: 3 run then"]);
    let endless = parse(&format!("{base}{}", more.replace("12.5", "15000"))).unwrap();
    assert_eq!(endless.problems()[0], "slo.queue_p99_ms: found 15000, allowed 0 to 9999");
    let negative = parse(&format!("{base}{}", more.replace("12.5", "-1"))).unwrap();
    assert!(negative.problems()[0].starts_with("slo.queue_p99_ms: found -1, allowed 0 to "));
    let unknown = parse(&format!("{base}{}", more.replace("queue_p99_ms", "queue_p98_ms")));
    assert!(unknown.unwrap_err().to_string().contains("queue_p98_ms"));
}

#[test]
fn changes_have_a_bound() {
    let long = |load: &str| BASIC.replace("duration = \"60s\"", load);
    let most = parse(&long("duration = \"400000s\"")).unwrap().problems();
    assert_eq!(most, ["load.duration (seconds): found 400000, allowed 1 to 86400"]);
    let many = long("duration = \"86400s\"").replace("second = 40.0", "second = 300.0");
    assert_eq!(
        parse(&many).unwrap().problems(),
        ["load (changes in all): found 26784000, allowed 0 to 20000000"]
    );
}

#[test]
fn curves_have_bounds() {
    let curve = "\n[curve]\nreplicas = [1, 21]\nshare = 0.01\nbalance = \"2h\"\np99_ms = 500\nfactor = 1.0\n\
                 resolution = 2.0\nsteps = 41\nothers_cores = -1\ngoal = { replicas = 5, times = 4 }\n";
    let base = BASIC.replace("updates_per_second = 40.0", "updates_per_second = 3.0");
    assert_eq!(
        parse(&format!("{base}{curve}")).unwrap().problems(),
        [
            "load (updates of a curve's first rate): found 180, allowed 200 to 20000000",
            "load.creates_per_second (of a curve): found 5, allowed 0 to 0",
            "load.deletes_per_second (of a curve): found 5, allowed 0 to 0",
            "curve.balance (seconds): found 7200, allowed 1 to 3600",
            "curve.replicas: found 21, allowed 1 to 20",
            "curve.share: found 0.01, allowed 0.05 to 1",
            "curve.factor: found 1, allowed 1.05 to 10",
            "curve.resolution: found 2, allowed 1.01 to 1",
            "curve.others_cores: found -1, allowed 0 to 1000",
            "curve.steps: found 41, allowed 2 to 40",
            "curve.goal: 5 is none of curve.replicas that the first is compared with",
            "slo: means nothing beside curve",
        ]
    );
    // What is compared with itself is always as much.
    let itself = "\n[vary]\nreplicas = [3, 1, 3]\ngoal = { replicas = 3, times = 1.0 }\n";
    assert_eq!(
        parse(&format!("{BASIC}{itself}")).unwrap().problems(),
        ["vary.goal: 3 is none of vary.replicas that the first is compared with"]
    );
}

#[test]
fn limits_of_what_is_not_measured_are_refused() {
    let more = "calm_p99_ms = 9.0\nfault_p99_ms = 9.0\nrss_growth_mib_per_hour = 3.0\n";
    let problems = parse(&format!("{BASIC}{more}")).unwrap().problems();
    let expect = [
        "slo.calm_p99_ms: nothing would be measured: it needs faults",
        "slo.fault_p99_ms: nothing would be measured: it needs faults",
        "slo.rss_growth_mib_per_hour: nothing would be measured: it needs a load of ten minutes or more",
    ];
    assert_eq!(problems, expect);
    let mut still = parse(BASIC).unwrap();
    (still.load.updates_per_second, still.load.creates_per_second) = (0.0, 0.0);
    let lacks = "slo.converged_p99_ms: nothing would be measured: it needs updates or creations in the load";
    assert_eq!(still.problems(), [lacks]);
    still.load.deletes_per_second = 0.0;
    let lag = "slo.generator_lag_p99_ms: nothing would be measured: it needs changes in the load";
    assert_eq!(still.problems(), [lacks, lag]);
}

#[test]
fn no_two_scenarios_have_one_folder() {
    let basic = parse(BASIC).unwrap();
    let fairness = parse(FAIRNESS).unwrap();
    are_distinct([&basic, &fairness]).unwrap();
    let error = are_distinct([&basic, &fairness, &basic]).unwrap_err().to_string();
    assert!(error.starts_with("two scenarios have the name basic"), "{error}");
}

#[test]
fn misspelled_keys_and_durations_are_refused() {
    assert!(parse(&BASIC.replace("replicas", "replica")).is_err());
    let error = parse(&BASIC.replace("\"60s\"", "\"soon\"")).unwrap_err().to_string();
    assert!(error.contains("\"soon\" is not a duration like 60s"), "{error}");
}
