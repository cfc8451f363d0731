//! Processes as hosts: a program that does nothing stands in for chisel.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::tunnel::api::Placement;
use crate::tunnel::credentials::Credentials;
use crate::tunnel::names::{tags, tunnel_tag};

fn wanted() -> Wanted {
    let placement = Placement {
        provider: "local".to_owned(),
        endpoint: None,
        region: "here".to_owned(),
        size: "process".to_owned(),
    };
    Wanted {
        name: "leasehold-uid".to_owned(),
        tags: tags("cluster", "uid", "ns", "web-tunnel"),
        placement,
        exit: Exit { credentials: Credentials::draw().unwrap() },
        now: "2026-11-22T12:00:00Z".parse().unwrap(),
    }
}

#[tokio::test]
async fn a_host_is_made_once_found_by_its_tag_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let chisel = folder.path().join("chisel");
    fs::write(&chisel, "#!/bin/sh\nsleep 20\n").unwrap();
    fs::set_permissions(&chisel, fs::Permissions::from_mode(0o755)).unwrap();
    let hosts = Processes { folder: folder.path().join("hosts"), chisel: Some(chisel) };
    assert_eq!(hosts.list_by_tag(tunnel_tag("uid")).await.unwrap(), []);

    let made = hosts.create(wanted()).await.unwrap();
    assert_eq!((made.state, made.tunnel.as_deref()), (State::Running, Some("uid")));
    assert!(made.address.clone().unwrap().starts_with("127."));
    let again = hosts.create(wanted()).await.unwrap();
    assert_eq!(again, made);
    let found = hosts.list_by_tag(tunnel_tag("uid")).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&made));
    assert_eq!(hosts.list_by_tag(tunnel_tag("other")).await.unwrap(), []);

    for _ in 0..2 {
        hosts.delete(made.id.clone()).await.unwrap();
        assert_eq!(hosts.get(made.id.clone()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_is_missing_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = Processes { folder: folder.path().to_owned(), chisel: None };
    let failure = hosts.create(wanted()).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "local says: provider local needs the program chisel: put it into PATH, or name it in \
         LEASEHOLD_CHISEL"
    );
    let failure = Local::Forbidden.provider().err().unwrap();
    assert!(failure.message.contains("LEASEHOLD_TUNNEL_LOCAL=1"), "{failure}");
}
