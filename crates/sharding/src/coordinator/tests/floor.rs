//! Maps that are deleted and created again.

use super::*;
use crate::floor::Floor;
use crate::lease::COORDINATOR;

impl Scene {
    pub(super) fn floor(&mut self, floor: Floor) {
        let name = COORDINATOR.to_owned();
        let record = LeaseRecord::new(name, &id("m-0"), LeaseTimings::default().duration);
        self.apply(Object::Lease(LeaseRecord { floor, ..record }));
    }

    /// The epochs of maps that are created.
    fn made(&mut self) -> Vec<String> {
        let made = self.plan().writes.into_iter().filter_map(|write| match write {
            Write::Create(Object::Map(map)) => {
                let shards: Vec<_> = map.entries.values().map(show).collect();
                Some(format!("{} from {}: {}", map.cluster, map.epoch_floor, shards.join(", ")))
            }
            _ => None,
        });
        made.collect()
    }
}

fn known(epoch: u64) -> Floor {
    Floor::Known(Epoch(epoch))
}

#[test]
fn a_removed_cluster_waits_drains_and_goes_when_its_epochs_are_durable() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.floor(known(3));
    scene.map("east", "m-0@4");
    scene.check(&[]);
    scene.pass(REMOVAL_GRACE);
    scene.renew("m-0");
    scene.check(&["update east v4: g/0/1 m-0>@4"]);
    scene.map("east", "@4");
    for (floor, expect) in [
        (known(3), &[][..]),
        (Floor::Unreadable("4?".into()), &[]),
        (known(4), &["delete east v6: "]),
        (known(9), &["delete east v6: "]),
    ] {
        scene.floor(floor.clone());
        assert_eq!(scene.plan().floor, Epoch(4), "it asks for what it needs");
        assert_eq!(scene.writes(), expect, "{floor:?}");
    }
}

#[test]
fn a_cluster_that_returns_goes_on_from_its_epoch() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.map("east", "@4");
    scene.world.remove(&Target { kind: Kind::Map, name: "east".into() }, None);
    scene.check(&["create east v: g/0/1 m-0@5"]);
}

#[test]
fn a_map_deleted_by_hand_is_put_back_with_its_owners() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.floor(known(9));
    scene.map("east", "m-1@4");
    let last = Object::Map(scene.world.maps().values().next().unwrap().clone());
    scene.world.remove(&last.target(), Some(&last));
    scene.check(&["create east v: g/0/1 m-1@4"]);
}

#[test]
fn epochs_do_not_return_when_a_map_that_nobody_can_read_is_deleted() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.floor(known(3));
    scene.map("east", "m-1@9");
    let record = MapRecord::new("east".parse().unwrap());
    scene.apply(Object::Map(MapRecord { protocol: 0, ..record }));
    scene.world.remove(&Target { kind: Kind::Map, name: "east".into() }, None);
    assert_eq!(scene.made(), [""; 0], "its owner may not know of it");
    scene.pass(LeaseTimings::default().silence());
    ["m-0", "m-1"].iter().for_each(|member| scene.renew(member));
    assert_eq!(scene.made(), ["east from 9: m-1@10"]);
}

#[test]
fn a_map_that_went_unseen_begins_from_the_floor() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-1@4");
    scene.lease("m-1", Some("m-0"));
    scene.world.remove(&Target { kind: Kind::Map, name: "east".into() }, None);
    // A coordinator made epoch 4 or more durable: it has drained and deleted the map.
    scene.floor(known(4));
    assert_eq!(scene.made(), ["east from 4: m-0@5"]);
    scene.floor(known(7));
    assert_eq!(scene.made(), ["east from 7: m-0@8"]);
}

#[test]
fn no_map_is_made_while_nobody_knows_from_where() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.floor(Floor::Unreadable("none".into()));
    assert_eq!(scene.made(), [""; 0]);
    scene.floor(known(2));
    assert_eq!(scene.made(), ["east from 2: m-0@3"]);
}
