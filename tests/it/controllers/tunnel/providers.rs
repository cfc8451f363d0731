//! What asks the providers, over HTTP.

use super::*;

/// Over HTTP on a loopback address, as from another process. Sockets are real, so time is not
/// paused.
#[tokio::test]
async fn the_providers_are_asked_over_http() {
    let mut machines = Machines::default();
    machines.boot = Duration::ZERO;
    let env = TestEnv::builder().start().await;
    let cloud = Cloud::new(machines, env.clock());
    let serving = cloud.serve().await.unwrap();
    for (provider, version) in [("digitalocean", "v2"), ("hetzner", "v1")] {
        let placement = tunnel::api::Placement {
            provider: provider.to_owned(),
            endpoint: Some(format!("http://{}/{version}", serving.address())),
            region: "here".to_owned(),
            size: "small".to_owned(),
            account: None,
            token_key: None,
        };
        let settings = Settings::default();
        let account = |token: &str| {
            let Settings { http, local, .. } = &settings;
            tunnel::provider::account(&placement, token, http, local).unwrap()
        };
        let tags = tunnel::names::tags("cluster", provider, "ns", "name");
        let credentials = tunnel::credentials::Credentials::draw().unwrap();
        let wanted = tunnel::provider::HostRequest {
            name: "host".to_owned(),
            tags,
            placement: placement.clone(),
            exit: tunnel::exit::Exit {
                credentials,
                ports: Vec::new(),
                archives: Default::default(),
                address: None,
                clients: 1,
            },
            ipv6: true,
            now: env.now(),
        };
        let hosts = account("secret").provider;
        let made = hosts.create(wanted).await.unwrap();
        assert!(made.ipv6.is_some_and(|address| address.segments()[7] == 1), "{made:?}");
        let tag = tunnel::names::tunnel_tag(provider);
        assert_eq!(hosts.list_by_tag(tag.clone()).await.unwrap(), std::slice::from_ref(&made));
        hosts.delete(made.id.clone()).await.unwrap();
        hosts.delete(made.id.clone()).await.unwrap();
        assert_eq!(hosts.get(made.id).await.unwrap(), None);
        let failure = account("wrong").provider.list_by_tag(tag).await.unwrap_err();
        assert_eq!(failure.obstacle().unwrap().0, "TokenRefused");
    }
}
