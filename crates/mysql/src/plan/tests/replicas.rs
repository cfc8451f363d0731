//! What becomes of the others, and of what is asked for.

use super::*;

#[test]
fn one_of_two_goes_on_alone_only_if_asked_to() {
    let mut observed = cluster(2);
    lose(&mut observed, 1);
    change(&mut observed, 0, |look| look.followers = 0);
    assert_eq!(waits(&after(60, &observed)), Some(("WritesWait", true)));
    observed.wanted.when_alone = WhenAlone::Continue;
    assert_eq!(waits(&after(19, &observed)), Some(("WritesWait", true)));
    assert_eq!(changed(&after(20, &observed)), Some(&Change::Acks(1, 0)));
    observed.memory.acks = 0;
    assert_eq!(after(20, &observed), Step::tell(name(0), Order::WaitFor(0)));
}

#[test]
fn replicas_are_upgraded_before_the_primary_and_never_downgraded() {
    let mut observed = cluster(3);
    observed.wanted.template = "new".to_owned();
    observed.wanted.version = Some("8.4.4".to_owned());
    let outdated = |ordinal| Step::DeletePod { instance: name(ordinal), why: Why::Outdated };
    assert_eq!(after(1, &observed), outdated(2));
    observed.instances[2].pod.as_mut().unwrap().template = "new".to_owned();
    assert_eq!(after(1, &observed), outdated(1));
    observed.instances[1].pod.as_mut().unwrap().template = "new".to_owned();
    assert!(matches!(changed(&after(1, &observed)), Some(Change::HandOver(_))));
    // Not while one is missing, or behind.
    change(&mut observed, 1, |look| look.received = set("A:1-8"));
    assert_eq!(waits(&after(1, &observed)), Some(("Upgrading", false)));
    observed.wanted.version = Some("8.4.2".to_owned());
    assert_eq!(waits(&after(1, &observed)), Some(("DowngradeRefused", true)));
    // Only of one instance there is no other.
    let mut one = cluster(1);
    one.wanted.template = "new".to_owned();
    assert_eq!(after(1, &one), outdated(0));
}

#[test]
fn members_that_are_too_many_keep_their_pods_until_they_are_none() {
    let mut observed = cluster(3);
    observed.wanted.instances = 2;
    assert_eq!(crate::observed::replicas("db", &observed.memory, observed.wanted.instances), 3);
    assert_eq!(after(1, &observed), Step::tell(name(2), Order::StopReceiving));
    change(&mut observed, 2, |look| {
        look.following.as_mut().unwrap().receives = Receives::Stopped;
    });
    let Step::Remember { memory, change } = after(1, &observed) else { panic!() };
    assert_eq!(change, Change::Leave(name(2)));
    observed.memory = *memory;
    assert_eq!(crate::observed::replicas("db", &observed.memory, observed.wanted.instances), 2);
    // The primary hands over before.
    let mut primary = cluster(2);
    primary.wanted.instances = 1;
    primary.instances.reverse();
    assert!(matches!(changed(&after(1, &primary)), Some(Change::HandOver(_))));
}

#[test]
fn what_waits_at_the_primary_is_not_foreign() {
    let mut observed = cluster(3);
    change(&mut observed, 0, |look| look.pending = set("A:10"));
    change(&mut observed, 1, |look| look.received = set("A:1-10"));
    assert_eq!(after(1, &observed), Step::Rest);
    change(&mut observed, 1, |look| look.received = set("A:1-9,B:1"));
    assert_eq!(after(1, &observed), Step::tell(name(1), Order::StopReceiving));
}

#[test]
fn steps_take_turns() {
    let [a, b] = [Order::Open, Order::Close].map(|order| Step::tell("db-0", order));
    let wait = Waiting::step("Joining", "");
    let all = || [wait.clone(), a.clone(), b.clone()];
    assert_eq!(next_turn(all(), None), Some(a.clone()));
    assert_eq!(next_turn(all(), Some(&a)), Some(b.clone()));
    assert_eq!(next_turn(all(), Some(&b)), Some(a.clone()));
    let stuck = Waiting::stuck("WritesWait", "");
    assert_eq!(next_turn([wait, stuck.clone()], None), Some(stuck));
}

#[test]
fn who_could_not_connect_to_the_former_primary_follows_the_next_one() {
    let mut observed = cluster(3);
    let broken = |source| Following {
        receives: Receives::Stopped,
        trouble: Some("Error reconnecting to source".to_owned()),
        ..following(source).unwrap()
    };
    change(&mut observed, 1, |look| look.following = Some(broken(2)));
    assert_eq!(after(90, &observed), Step::tell(name(1), Order::Follow(name(0))));
    // With this primary it is another matter.
    change(&mut observed, 1, |look| look.following = Some(broken(0)));
    assert!(
        matches!(changed(&after(90, &observed)), Some(Change::Leave(left)) if *left == name(1))
    );
}

/// Two instances, of which the replica lost its data.
fn emptied() -> Observed {
    let mut observed = cluster(2);
    change(&mut observed, 1, |replica| *replica = look(7, ""));
    change(&mut observed, 0, |primary| primary.followers = 0);
    observed.instances[1].pod.as_mut().unwrap().role = None;
    observed
}

#[test]
fn a_primary_whose_commits_hold_up_a_clone_makes_room() {
    let clone = Step::tell(name(1), Order::CloneFrom(name(0)));
    let mut observed = emptied();
    assert_eq!(after(20, &observed), clone, "commits may end by themselves");
    assert_eq!(after(40, &observed), Step::tell(name(0), Order::Close));
    change(&mut observed, 0, |primary| primary.waiting = 2);
    let ended = Step::DeletePod { instance: name(0), why: Why::MakesRoom };
    assert_eq!(after(40, &observed), ended);
    // The same while it is cloned already, and waits.
    observed.instances[1].look = Err(Silence { is_cloning: true, ..Silence::default() });
    assert_eq!(after(40, &observed), ended);
    // Another one acknowledges.
    let mut served = emptied();
    let third = cluster(3);
    served.instances.push(third.instances[2].clone());
    served.memory.members.push(third.memory.members[2].clone());
    served.wanted.instances = 3;
    assert_eq!(after(40, &served), clone);
}

#[test]
fn a_closed_primary_is_opened_when_who_acknowledges_has_its_data() {
    let mut observed = emptied();
    change(&mut observed, 0, |primary| primary.is_writable = false);
    assert_eq!(after(0, &observed), Step::tell(name(1), Order::CloneFrom(name(0))));
    observed.instances[1].look = Err(Silence { is_cloning: true, ..Silence::default() });
    assert_eq!(waits(&after(0, &observed)), Some(("Cloning", false)));
    // Reads go on.
    observed.instances[0].pod.as_mut().unwrap().role = None;
    let label = Step::Label { instance: name(0), role: Some(Role::Primary) };
    assert_eq!(after(0, &observed), label);
    observed.instances[1].look = Ok(look(8, "A:1-9"));
    assert_eq!(after(0, &observed), Step::tell(name(0), Order::Open));
    observed.instances[1].look = Err("it starts".into());
    assert_eq!(after(0, &observed), Step::tell(name(0), Order::Open), "it has its data, maybe");
}
