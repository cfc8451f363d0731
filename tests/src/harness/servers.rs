//! The servers that our controllers run, as images under the names that upstream gives them, and the
//! workloads that are run against them.

use std::fs;
use std::path::Path;

use super::builds::{Build, STRIPPED, go_build, module, script, words};
use super::image::{Image, Start};
use super::real_dir;

/// The versions of etcd: that from which an upgrade starts, and that to which it goes.
pub const ETCD: [&str; 2] = ["v3.6.16", "v3.7.3"];
/// The versions of memcached: that from which an upgrade starts, and that to which it goes; each is
/// that of a stable release of Debian, which changes no more.
pub const MEMCACHED: [&str; 2] = ["1.6.18", "1.6.38"];
const MEMCACHED_SUITES: [&str; 2] = ["bookworm", "trixie"];
/// MySQL's image.
pub const MYSQL: &str = "docker.io/library/mysql:latest";

/// The file of an image in the folder of its build.
pub(super) const IMAGE: &str = "image.tar";

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const ENTRYPOINT: &str = "/usr/local/bin/docker-entrypoint.sh";

/// The name of the image of a version of etcd.
pub fn etcd_image(version: &str) -> String {
    format!("gcr.io/etcd-development/etcd:{version}")
}

/// The image of a version of etcd: etcd, etcdctl and etcdutl as upstream builds and names them.
pub(super) fn etcd(version: &'static str) -> Build {
    const PROGRAMS: [(&str, &str); 3] =
        [("etcd", "server"), ("etcdctl", "etcdctl"), ("etcdutl", "etcdutl")];
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    let commands = PROGRAMS
        .map(|(name, package)| go_build(STRIPPED, name, &format!("go.etcd.io/etcd/{package}/v3")));
    let title = format!("etcd {version} and its tools (about 1 minute)");
    let folder = real_dir().join("etcd").join(minor);
    module(&title, &format!("etcd-{version}"), folder, commands.to_vec()).finished_by(move |out| {
        let programs = PROGRAMS.map(|(name, _)| out.join(name));
        let start =
            Start { entrypoint: &[], arguments: &["/usr/local/bin/etcd"], user: "", path: PATH };
        Image::pack_programs(&etcd_image(version), &programs, &start, &out.join(IMAGE))?;
        // The image has them.
        Ok(programs.iter().try_for_each(fs::remove_file)?)
    })
}

/// The name of the image of a version of memcached.
pub fn memcached_image(version: &str) -> String {
    format!("docker.io/library/memcached:{version}")
}

/// The images of both versions of memcached.
pub(super) fn memcached() -> [Build; 2] {
    [0, 1].map(|which| {
        let start = Start {
            entrypoint: &[ENTRYPOINT],
            arguments: &["memcached"],
            user: "11211:11211",
            path: PATH,
        };
        let (version, suite) = (MEMCACHED[which], MEMCACHED_SUITES[which]);
        debian("memcached", version, suite, "half a minute", memcached_image(version), start)
    })
}

/// MySQL's image.
pub(super) fn mysql() -> Build {
    let start = Start { entrypoint: &[ENTRYPOINT], arguments: &["mysqld"], user: "", path: PATH };
    // MySQL itself, not MariaDB, is in unstable only.
    debian("mysql", "latest", "sid", "1 minute", MYSQL.to_owned(), start)
}

/// The workloads: `register` for etcd, `bank` for MySQL.
pub(super) fn workloads() -> Build {
    let commands = ["register", "bank"];
    let commands = commands.map(|name| go_build(STRIPPED, name, &format!("./{name}"))).to_vec();
    module("the workloads (about 1 minute)", "workloads", real_dir().join("workloads"), commands)
}

/// The image `name` of a server from a suite's packages.
fn debian(
    server: &str,
    version: &str,
    suite: &str,
    duration: &str,
    name: String,
    start: Start<'static>,
) -> Build {
    let title = format!("an image of {server} {version} from Debian (about {duration})");
    let command = words(&["root.sh", "{out}", server, suite]);
    let folder = format!("{server}-{version}");
    script(&title, &folder, real_dir().join("servers"), command).finished_by(move |out: &Path| {
        let root = out.join("root.tar");
        Image::pack_root(&name, &root, &start, &out.join(IMAGE))?;
        Ok(fs::remove_file(root)?)
    })
}
