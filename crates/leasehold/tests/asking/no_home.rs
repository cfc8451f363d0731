//! What commands and pages say while home is down: what the replicas at given addresses know.

use crate::{Fleet, page, unpacked};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_at_addresses_are_asked_though_home_is_down() {
    let fleet = Fleet::start().await;
    let object = "east/configmaps/default/bad";
    fleet.said(object, &["its last reconcile failed for good"]).await;
    let address = fleet.addresses[0].to_string();
    let out = fleet.dir.path().join("bundle.tar.gz");
    let bundle = ["support-bundle", "--out", out.to_str().expect("UTF-8")];
    let same = "those at the addresses are asked all the same";
    for (args, code, found, told) in [
        (&["top"][..], 0, "no such bucket", same),
        (&["explain", object], 0, "its last reconcile failed for good", same),
        // Whoever asks for the health of a fleet learns that home is down.
        (&["doctor"], 3, "objects fail: east/default/bad", ""),
        (&bundle, 0, "written", "left out: fleet.json: "),
    ] {
        let output = fleet.command(&[args, &["--address", &address]].concat(), "nowhere").await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let beside = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}{beside}");
        assert!(text.contains(found) && beside.contains(told), "{args:?}: {text}{beside}");
        assert!(!text.contains("home has no shard"), "{args:?}: {text}");
        // Without addresses, there is nobody to ask.
        if code == 0 && args != bundle {
            let output = fleet.command(args, "nowhere").await;
            assert_eq!(output.status.code(), Some(1), "{args:?}");
        }
    }
    let files = unpacked(&out);
    let queues = files.iter().find(|(name, _)| name.ends_with("/queues.json"));
    assert!(queues.is_some_and(|(_, text)| text.contains("picky")), "{:?}", files.keys());

    let (_console, at, key) = fleet.console(&["--address", &address], "nowhere").await;
    for (path, expect) in [
        ("/console/queues?", "no such bucket"),
        ("/console/object?object=east/configmaps/default/bad&", "failed for good"),
        ("/console?", "HTTP/1.1 502"),
    ] {
        let text = page(at, &at.to_string(), &format!("{path}{key}")).await;
        assert!(
            text.contains(expect) && text.contains("The fleet cannot be read"),
            "{path}: {text}"
        );
    }
    fleet.stop.cancel();
}
