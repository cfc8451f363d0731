//! Who is primary, and how that changes.

use super::*;

#[test]
fn a_manager_begins_with_a_write() {
    let observed = cluster(3);
    let Step::Remember { memory, change: Change::Begin } = decide(&observed) else { panic!() };
    assert_eq!(*memory, Memory { reign: 2, ..observed.memory });
}

#[test]
fn whole_clusters_rest() {
    for instances in 1..=5 {
        assert_eq!(after(1, &cluster(instances)), Step::Rest);
    }
}

#[test]
fn a_cluster_is_founded_on_an_empty_first_instance_only() {
    let founding = |first: &str, second: Option<&str>, is_restored| {
        let mut observed = cluster(2);
        observed.memory = Memory::default();
        observed.wanted.is_restored = is_restored;
        observed.instances[0].look = Ok(look(0, first));
        observed.instances[1].look = second.map(|set| look(1, set)).ok_or("no answer".into());
        after(1, &observed)
    };
    let founded = Some(&Change::Found);
    assert_eq!(changed(&founding("", Some(""), false)), founded);
    assert_eq!(changed(&founding("", None, false)), founded);
    assert_eq!(changed(&founding("A:1", Some(""), true)), founded);
    assert_eq!(waits(&founding("A:1", None, true)), Some(("Founding", false)));
    assert_eq!(waits(&founding("A:1", Some(""), false)), Some(("StatusLost", true)));
    assert_eq!(waits(&founding("", Some("A:1"), false)), Some(("StatusLost", true)));
}

#[test]
fn a_lost_primary_is_deposed_when_it_is_time() {
    let mut three = cluster(3);
    lose(&mut three, 0);
    assert_eq!(waits(&after(4, &three)), Some(("PrimaryDown", false)));
    assert!(matches!(changed(&after(5, &three)), Some(Change::Depose(_))));
    // The other of two could not commit alone.
    let mut two = cluster(2);
    lose(&mut two, 0);
    assert_eq!(waits(&after(29, &two)), Some(("PrimaryDown", false)));
    assert!(matches!(changed(&after(30, &two)), Some(Change::Depose(_))));
    two.wanted.when_alone = WhenAlone::Continue;
    assert!(matches!(changed(&after(5, &two)), Some(Change::Depose(_))));
    // Nobody could prove what was committed.
    lose(&mut three, 1);
    assert_eq!(waits(&after(60, &three)), Some(("QuorumLost", true)));
    let mut one = cluster(1);
    lose(&mut one, 0);
    assert_eq!(waits(&after(60, &one)), Some(("PrimaryDown", false)));
    one.instances[0].look = Ok(look(7, ""));
    assert_eq!(waits(&after(60, &one)), Some(("DataLost", true)));
}

#[test]
fn a_primary_that_nobody_reaches_is_deposed_if_that_helps() {
    let cut = |instances| {
        let mut observed = cluster(instances);
        for ordinal in 1..instances {
            change(&mut observed, ordinal, |look| {
                look.following.as_mut().unwrap().receives = Receives::Connecting;
            });
        }
        [3, 60].map(|seconds| after(seconds, &observed))
    };
    let [at_first, later] = cut(3);
    // It is looked at again soon: a person can do nothing about it.
    assert_eq!(waits(&at_first), Some(("PrimaryDown", false)));
    assert!(matches!(changed(&later), Some(Change::Depose(_))));
    assert_eq!(cut(2).each_ref().map(waits), [Some(("WritesWait", true)); 2]);
}

#[test]
fn an_heir_is_chosen_by_what_it_received() {
    let deposed = |received: [&str; 2]| {
        let mut observed = cluster(3);
        lose(&mut observed, 0);
        (observed.memory.primary, observed.memory.former) = (None, Some(name(0)));
        for ordinal in [1, 2] {
            let received = set(received[ordinal - 1]);
            change(&mut observed, ordinal, |look| {
                look.received = received;
                look.following.as_mut().unwrap().receives = Receives::Stopped;
            });
        }
        observed
    };
    assert_eq!(changed(&after(1, &deposed(["A:1-9", "A:1-10"]))), Some(&Change::Elect(name(2))));
    let diverged = deposed(["A:1-9,B:1", "A:1-10"]);
    assert_eq!(waits(&after(1, &diverged)), Some(("Diverged", true)));
    let mut receiving = deposed(["A:1-9", "A:1-9"]);
    change(&mut receiving, 1, |look| look.following = following(0));
    assert_eq!(after(1, &receiving), Step::tell(name(1), Order::StopReceiving));
    // It is back before anybody was chosen, and has what it was told to commit.
    let mut back = deposed(["A:1-9", "A:1-9"]);
    back.instances[0] = cluster(3).instances.remove(0);
    change(&mut back, 0, |look| {
        (look.is_writable, look.executed, look.received) = (false, set("A:1-11"), set("A:1-11"));
    });
    assert_eq!(changed(&after(1, &back)), Some(&Change::Elect(name(0))));
}

#[test]
fn an_elected_instance_is_opened_step_by_step() {
    let mut observed = cluster(2);
    observed.memory.primary = Some(name(1));
    lose(&mut observed, 0);
    let mut steps = Vec::new();
    observed.instances[0].pod = Some(PodSeen { role: Some(Role::Primary), ..PodSeen::default() });
    steps.push(after(1, &observed));
    // The server does not let it go, as when an admission webhook is down.
    observed.instances[0].pod.as_mut().unwrap().keeps_label = true;
    assert_eq!(after(1, &observed), Step::tell(name(1), Order::StopReceiving));
    observed.instances[0].pod = None;
    change(&mut observed, 1, |look| look.received = set("A:1-10"));
    steps.push(after(1, &observed));
    change(&mut observed, 1, |look| {
        look.following.as_mut().unwrap().receives = Receives::Stopped;
    });
    assert_eq!(waits(&after(1, &observed)), Some(("Opening", false)));
    change(&mut observed, 1, |look| look.executed = look.received.clone());
    steps.push(after(1, &observed));
    change(&mut observed, 1, |look| look.following = None);
    steps.push(after(1, &observed));
    change(&mut observed, 1, |look| look.waits_for = 1);
    steps.push(after(1, &observed));
    let tell = |order| Step::tell(name(1), order);
    let expected = [
        Step::Label { instance: name(0), role: None },
        tell(Order::StopReceiving),
        tell(Order::FollowNobody),
        tell(Order::WaitFor(1)),
        tell(Order::Open),
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_deposed_primary_is_closed_or_ended() {
    let mut observed = cluster(2);
    observed.memory.primary = Some(name(1));
    change(&mut observed, 1, |look| (look.is_writable, look.following) = (true, None));
    observed.instances[0].pod.as_mut().unwrap().role = None;
    assert_eq!(after(1, &observed), Step::tell(name(0), Order::Close));
    change(&mut observed, 0, |look| look.waiting = 2);
    let ended = Step::DeletePod { instance: name(0), why: Why::Deposed };
    assert_eq!(after(1, &observed), ended);
}

#[test]
fn commits_that_wait_are_looked_at_again_soon() {
    let mut kept = Kept::default();
    let mut is_doubtful = |executed: &str, pending: &str| {
        let mut observed = cluster(3);
        change(&mut observed, 0, |look| {
            (look.executed, look.pending) = (set(executed), set(pending));
            look.waiting = u32::from(!pending.is_empty());
        });
        kept.round(&mut observed);
        kept.is_doubtful()
    };
    assert!(!is_doubtful("A:1-9", ""));
    assert!(is_doubtful("A:1-9", "A:10"));
    // It was a busy moment, and the next one is another.
    assert!(!is_doubtful("A:1-10", "A:11"));
    assert!(is_doubtful("A:1-11", "A:12"));
    assert!(is_doubtful("A:1-11", "A:12"));
    assert!(!is_doubtful("A:1-12", ""));
}
