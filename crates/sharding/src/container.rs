//! Which container this process is in, told from what the kernel shows. Pure.
//!
//! A member names its container so that others can learn of its death ([`crate::death`]). A wrong name
//! would let them declare a live member dead, so a process names a container only if it is certain, and
//! none if it is in doubt: then its death is noticed by silence.
//!
//! # Why the name is right
//! - Pod and container come from the process's own mounts, not from its environment, which anybody may
//!   copy. The kubelet mounts a file into each container for the message of its termination. It is made for
//!   each instance of a container anew, under a random name in a folder of Pod and container
//!   (`makeMounts` in Kubernetes's `pkg/kubelet/kuberuntime/kuberuntime_container.go`):
//!   `.../pods/UID/containers/NAME/RANDOM`.
//! - The process is number 1 of its process namespace. The kernel kills all others of the namespace with it,
//!   and no program that somebody starts in a container later gets that number. So whatever runs in the
//!   container ends when this process does, and `kubectl exec` makes no second bearer of the name. Where the
//!   Pod's containers share a process namespace, or something else starts the program, nothing is named.
//! - The token goes into that file, which must be empty before. So the file of an instance has one
//!   token at most, and a token is in the file of one instance: a process draws its own.
//! - The lock is the kernel's, on a file that the kubelet mounts into every instance of each container of the
//!   Pod: `/etc/hosts`, from `.../pods/UID/etc-hosts`. The process never lets go of it, so it ends with the
//!   process and not before. A process that does not get it names no lock, nor does one whose file lies in
//!   a file system of which it is not known that this kernel alone grants its locks ([`LOCAL`]): a
//!   file server forgets locks when it does not hear of their holder.

use crate::api::MemberContainer;

/// Where Kubernetes mounts the file for the message of termination, unless a Pod says otherwise.
pub(crate) const TERMINATION_LOG: &str = "/dev/termination-log";
/// The file that all containers of a Pod have in common.
pub(crate) const HOSTS: &str = "/etc/hosts";
/// File systems whose locks are this kernel's own.
const LOCAL: [&str; 8] = ["bcachefs", "btrfs", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"];
/// The first process of a process namespace.
pub(crate) const FIRST_PROCESS: u32 = 1;
/// What the message begins with, before the token.
const MESSAGE: &str = "leasehold member ";
/// The longest part of a name, as in the definition of Members.
const MAX_PART_BYTES: usize = 63;
/// The number of digits of the random name of the file.
const RANDOM_DIGITS: usize = 8;

/// The container of the process with these mounts (as in `/proc/self/mountinfo`), on a machine that was
/// started as `boot_id`; `None` if the mounts do not show the kubelet's file.
pub(crate) fn of(mounts: &str, boot_id: &str, token: &str) -> Option<MemberContainer> {
    let (root, _) = mount_at(mounts, TERMINATION_LOG)?;
    let mut parts = root.rsplit('/');
    let (random, name, containers) = (parts.next()?, parts.next()?, parts.next()?);
    let (pod_uid, pods) = (parts.next()?, parts.next()?);
    let is_random = random.len() == RANDOM_DIGITS && random.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_random || containers != "containers" || pods != "pods" {
        return None;
    }
    let container = MemberContainer {
        pod_uid: pod_uid.to_owned(),
        name: name.to_owned(),
        boot_id: boot_id.trim().to_owned(),
        token: token.to_owned(),
        lock_id: None,
    };
    let MemberContainer { pod_uid, name, boot_id, token, lock_id: _ } = &container;
    let all_fit = [pod_uid, name, boot_id, token].into_iter().all(|part| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=MAX_PART_BYTES).contains(&part.len()) && part.bytes().all(allowed)
    });
    all_fit.then_some(container)
}

/// Whether [`HOSTS`] is the file that all containers of the Pod share, and its lock is this kernel's.
pub(crate) fn shares_hosts(mounts: &str, pod_uid: &str) -> bool {
    let shared = format!("/pods/{pod_uid}/etc-hosts");
    mount_at(mounts, HOSTS)
        .is_some_and(|(root, kind)| root.ends_with(&shared) && LOCAL.contains(&kind))
}

/// Which part of its file system a mount shows, and the kind of that: the lines are
/// `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG ...] - KIND ...`. `None` if there is no such mount, or
/// another that hides it.
fn mount_at<'a>(mounts: &'a str, wanted: &str) -> Option<(&'a str, &'a str)> {
    let mut found = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (point == wanted).then(|| (root, fields.skip_while(|field| *field != "-").nth(1)))
    });
    let (root, kind) = found.next().filter(|_| found.next().is_none())?;
    Some((root, kind.unwrap_or_default()))
}

/// What the process writes into the file for the message of termination.
pub(crate) fn message(token: &str) -> String {
    format!("{MESSAGE}{token}\n")
}

/// The token in a message of termination; `None` if it is anything but exactly such a message. Where a
/// Pod asks for it, Kubernetes shows the last lines of a container's log in place of an empty file: a line
/// of a log that happens to name another member's token must not count.
pub(crate) fn token(message: &str) -> Option<&str> {
    let token = message.strip_prefix(MESSAGE)?.strip_suffix('\n')?;
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_token && token.len() <= MAX_PART_BYTES).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "5e0b7a3c-9f5e-4b0b-8f0a-0a4f8f1f7c11\n";
    const ROOT: &str = "/lib/kubelet/pods/1c9d/containers/leasehold/0a1b2c3d";

    fn mount(root: &str, point: &str) -> String {
        format!("612 598 254:1 {root} {point} rw,relatime - ext4 /dev/vda1 rw\n")
    }

    fn found(mounts: &str) -> Option<(String, String)> {
        of(mounts, BOOT, "t1").map(|container| (container.pod_uid, container.name))
    }

    #[test]
    fn the_kubelets_mount_names_pod_and_container() {
        let others = mount("/", "/") + &mount("/x/pods/2/containers/c/00000000", "/etc/hosts");
        let container = of(&(others + &mount(ROOT, TERMINATION_LOG)), BOOT, "t1").unwrap();
        assert_eq!(
            container,
            MemberContainer {
                pod_uid: "1c9d".into(),
                name: "leasehold".into(),
                boot_id: BOOT.trim().into(),
                token: "t1".into(),
                lock_id: None,
            }
        );
    }

    #[test]
    fn in_doubt_no_container_is_named() {
        for root in [
            "/",
            "",
            "/var/lib/docker/containers/abc/termination",
            "/pods/1c9d/containers/leasehold/etc-hosts",
            "/pods/1c9d/volumes/leasehold/0a1b2c3d",
            "/pods//containers/leasehold/0a1b2c3d",
            "/pods/1c9d/containers/leasehold/0a1b2c3d//deleted",
            r"/pods/1c\0409d/containers/leasehold/0a1b2c3d",
        ] {
            assert_eq!(found(&mount(root, TERMINATION_LOG)), None, "{root:?}");
        }
        assert_eq!(found(""), None);
        assert_eq!(found(&mount(ROOT, "/dev/termination-log-2")), None);
        assert_eq!(found(&mount(ROOT, TERMINATION_LOG).repeat(2)), None, "one hides the other");
        assert_eq!(of(&mount(ROOT, TERMINATION_LOG), "", "t1"), None, "no start of the machine");
        assert_eq!(of(&mount(&"x".repeat(99), TERMINATION_LOG), BOOT, "t1"), None);
    }

    #[test]
    fn a_lock_is_on_the_file_that_the_pod_shares() {
        let hosts = |root: &str| shares_hosts(&mount(root, HOSTS), "1c9d");
        assert!(hosts("/var/lib/kubelet/pods/1c9d/etc-hosts"));
        assert!(!hosts("/var/lib/kubelet/pods/2/etc-hosts"));
        assert!(!hosts("/containers/storage/hosts"));
        let remote = mount("/x/pods/1c9d/etc-hosts", HOSTS).replace("ext4", "nfs4");
        assert!(!shares_hosts(&remote, "1c9d"), "a file server forgets locks");
        let tagged = mount("/x/pods/1c9d/etc-hosts", HOSTS).replace(" - ", " shared:1 master:2 - ");
        assert!(shares_hosts(&tagged, "1c9d"));
        let cut = mount("/x/pods/1c9d/etc-hosts", HOSTS).replace(" - ext4 /dev/vda1 rw", "");
        assert!(!shares_hosts(&cut, "1c9d"), "of an unknown kind");
        let twice = mount("/pods/1c9d/etc-hosts", HOSTS) + &mount("/x", HOSTS);
        assert!(!shares_hosts(&twice, "1c9d"), "one hides the other");
    }

    #[test]
    fn only_the_whole_message_is_a_token() {
        assert_eq!(token(&message("a1b2")), Some("a1b2"));
        for text in [
            "",
            "leasehold member \n",
            "leasehold member a1b2",
            "leasehold member a1b2\nleasehold member c3d4\n",
            "a log line\nleasehold member a1b2\n",
            "leasehold member a1b2 took the Lease of another\n",
            "The container could not be located when the pod was terminated",
        ] {
            assert_eq!(token(text), None, "{text:?}");
        }
        assert_eq!(token(&message(&"a".repeat(64))), None);
    }
}
