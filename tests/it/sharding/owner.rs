//! What of a member's objects goes with the configured owner, and what outlives it.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use sharding::api::Member;

use super::*;

impl Home {
    /// A member whose objects have an owner.
    async fn owned(&self) -> (Sharding, OwnerReference) {
        let accounts = Api::<ServiceAccount>::namespaced(self.server.client(), NAMESPACE);
        let account = serde_json::from_value(json!({"metadata": {"name": "leasehold"}})).unwrap();
        let account = accounts.create(&PostParams::default(), &account).await.unwrap();
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ServiceAccount".to_owned(),
            name: account.name_any(),
            uid: account.uid().unwrap(),
            ..OwnerReference::default()
        };
        let mut config = Config::new("owned", BTreeSet::from(["tdset".parse().unwrap()]), 3);
        config.owner = Some(owner.clone());
        let sharding = Sharding::spawn(
            self.server.client(),
            config,
            self.clusters.subscribe(),
            Arc::new(Unmeasured),
            self.clock.clone(),
            &prometheus::Registry::new(),
        );
        (sharding.unwrap(), owner)
    }
}

#[tokio::test(start_paused = true)]
async fn maps_and_the_coordinators_lease_have_no_owner_and_lose_that_of_an_earlier_release() {
    let home = Home::start(&["east"]).await;
    let (sharding, owner) = home.owned().await;
    home.until_maps(1).await;
    poll_until(async || !sharding.status().shards.is_empty()).await;
    let (leases, coordinator) = home.coordinator();
    let maps = Api::<ShardMap>::namespaced(home.server.client(), NAMESPACE);
    let of_lease = async |name: &str| leases.get(name).await.unwrap().owner_references().to_vec();
    let of_map = async || maps.get("east").await.unwrap().owner_references().to_vec();
    assert_eq!((of_lease(coordinator).await, of_map().await), (vec![], vec![]));
    let member = sharding.status().member;
    let lease = sharding::lease::member_lease_name(&member);
    assert_eq!(of_lease(&lease).await, std::slice::from_ref(&owner));
    let members = Api::<Member>::namespaced(home.server.client(), NAMESPACE);
    assert_eq!(
        members.get(member.as_str()).await.unwrap().owner_references(),
        std::slice::from_ref(&owner)
    );

    // As an earlier release left them.
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    leases.patch(coordinator, &PatchParams::default(), &patch).await.unwrap();
    maps.patch("east", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((of_lease(coordinator).await.len(), of_map().await.len()), (1, 1));
    // The Lease is renewed, and the map changes with the next handover.
    let other = home.replica(1);
    poll_until(async || of_lease(coordinator).await.is_empty()).await;
    drop(sharding);
    until_active(&[&other], &[1]).await;
    assert_eq!(of_map().await, []);
}
