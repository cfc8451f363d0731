//! Backups in a folder: stored, fetched, listed, deleted; crashes and damage between all of it.

use std::fs;
use std::path::PathBuf;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::check::Check;
use super::report::Report;
use super::*;
use crate::schedule::Retention;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn draft(name: &str, owner: &str) -> Draft {
    let text = str::to_owned;
    Draft {
        name: text(name),
        kind: text("etcd-snapshot"),
        version: text("3.6.5"),
        owner: text(owner),
    }
}

struct Place {
    _folder: tempfile::TempDir,
    root: PathBuf,
    store: Folder,
    file: PathBuf,
}

fn place(content: &[u8]) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    fs::create_dir(&root).unwrap();
    let file = folder.path().join("snapshot.db");
    fs::write(&file, content).unwrap();
    let store = Folder::open(&root).unwrap();
    Place { _folder: folder, root, store, file }
}

/// Everything in a folder, for comparison.
fn names(root: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                names.push(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    names.sort();
    names
}

#[tokio::test]
async fn a_backup_comes_back_as_it_was() {
    let place = place(b"the content");
    let vault = Vault::new(&place.store);
    let stored = vault.store(&place.file, draft("shop/a", "uid-1"), now()).await.unwrap();
    assert_eq!((stored.size, stored.created), (11, now()));
    assert_eq!(names(&place.root), ["shop/a", "shop/a.manifest.json"]);
    let back = place.file.with_file_name("back");
    assert_eq!(vault.fetch("shop/a", None, &back).await.unwrap(), stored);
    assert_eq!(fs::read(&back).unwrap(), b"the content");
    vault.fetch("shop/a", Some(&stored.sha256), &back).await.unwrap();
    let another = vault.fetch("shop/a", Some("ab12"), &back).await.unwrap_err();
    assert!(
        another.to_string().contains("somebody has put another backup in its place"),
        "{another}"
    );
    assert_eq!(vault.list("shop/").await.unwrap(), [stored]);
    assert!(vault.list("other/").await.unwrap().is_empty());
    vault.delete("shop/a", "uid-1").await.unwrap();
    vault.delete("shop/a", "uid-1").await.unwrap();
    assert!(names(&place.root).is_empty());
    let missing = vault.fetch("shop/a", None, &back).await.unwrap_err();
    assert_eq!(missing.reason(), "Missing");
}

#[tokio::test]
async fn a_repeated_store_finds_the_first_and_another_owner_is_refused() {
    let place = place(b"first");
    let vault = Vault::new(&place.store);
    let first = vault.store(&place.file, draft("a", "uid-1"), now()).await.unwrap();
    fs::write(&place.file, b"second").unwrap();
    let again = vault.store(&place.file, draft("a", "uid-1"), now()).await.unwrap();
    assert_eq!(again, first);
    let taken = vault.store(&place.file, draft("a", "uid-2"), now()).await.unwrap_err();
    assert!(taken.to_string().contains("another owner, uid-1"), "{taken}");
    assert_eq!(vault.delete("a", "uid-2").await.unwrap_err().reason(), "NameTaken");
    assert_eq!(fs::read(place.root.join("a")).unwrap(), b"first");
}

#[tokio::test]
async fn damage_is_found_before_a_file_has_its_name() {
    let place = place(b"the content");
    let vault = Vault::new(&place.store);
    vault.store(&place.file, draft("a", "uid"), now()).await.unwrap();
    let back = place.file.with_file_name("back");
    for damage in [&b"THE content"[..], b"the", b"the content and more"] {
        fs::write(place.root.join("a"), damage).unwrap();
        let error = vault.fetch("a", None, &back).await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("Damaged", false), "{error}");
        assert!(!back.exists());
    }
    fs::write(place.root.join("a.manifest.json"), "{").unwrap();
    assert_eq!(vault.fetch("a", None, &back).await.unwrap_err().reason(), "Damaged");
    // One damaged manifest hides no other backup.
    vault.store(&place.file, draft("b", "uid"), now()).await.unwrap();
    assert_eq!(vault.list("").await.unwrap().len(), 1);
    vault.delete("a", "uid").await.unwrap();
    assert_eq!(names(&place.root), ["b", "b.manifest.json"]);
}

#[tokio::test]
async fn names_stay_in_their_folder() {
    let place = place(b"x");
    let vault = Vault::new(&place.store);
    for name in ["", "..", "../a", "/a", "a/", "a//b", ".a", "a b", "a\nb", "a.manifest.json"] {
        let error = vault.store(&place.file, draft(name, "uid"), now()).await.unwrap_err();
        assert_eq!(error.reason(), "DestinationInvalid", "{name:?}");
        assert_eq!(vault.delete(name, "uid").await.unwrap_err().reason(), "DestinationInvalid");
    }
    assert!(names(&place.root).is_empty());
}

#[tokio::test]
async fn prune_deletes_what_retention_does_not_keep() {
    let place = place(b"x");
    let vault = Vault::new(&place.store);
    for day in 1..=4 {
        let at = format!("2026-02-0{day}T00:00:00Z").parse().unwrap();
        vault.store(&place.file, draft(&format!("shop/{day}"), "uid"), at).await.unwrap();
    }
    let retention = Retention { last: Some(2), within: None };
    assert_eq!(vault.prune("shop/", retention, now()).await.unwrap(), ["shop/1", "shop/2"]);
    let left: Vec<_> = vault.list("").await.unwrap().into_iter().map(|found| found.name).collect();
    assert_eq!(left, ["shop/3", "shop/4"]);
}

/// A store whose process is killed when it begins its n-th write.
struct Killed<'a> {
    inner: &'a Folder,
    left: std::sync::atomic::AtomicUsize,
}

impl Killed<'_> {
    fn strike(&self) -> Result<(), StoreError> {
        use std::sync::atomic::Ordering::SeqCst;
        let is_dead = self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err();
        let dead = || StoreError::Missing { object: "the process".to_owned() };
        if is_dead { Err(dead()) } else { Ok(()) }
    }
}

type Done<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

impl Store for Killed<'_> {
    fn put<'a>(
        &'a self,
        key: &'a str,
        file: &'a std::path::Path,
        digest: &'a Digest,
    ) -> Done<'a, ()> {
        async move {
            if self.strike().is_err() {
                // Half of a file, under the name that it has until it is whole.
                let half = self.inner.named(&format!(".{key}.00.partial"));
                fs::write(half, b"ha").unwrap();
            }
            self.strike()?;
            self.inner.put(key, file, digest).await
        }
        .boxed()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Vec<u8>) -> Done<'a, ()> {
        async move {
            self.strike()?;
            self.inner.write(key, bytes).await
        }
        .boxed()
    }

    fn get<'a>(&'a self, key: &'a str, file: &'a std::path::Path, limit: u64) -> Done<'a, Digest> {
        self.inner.get(key, file, limit)
    }

    fn read<'a>(&'a self, key: &'a str, limit: u64) -> Done<'a, Option<Vec<u8>>> {
        self.inner.read(key, limit)
    }

    fn size<'a>(&'a self, key: &'a str) -> Done<'a, Option<u64>> {
        self.inner.size(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Done<'a, Vec<String>> {
        self.inner.list(prefix)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Done<'a, ()> {
        async move {
            self.strike()?;
            self.inner.delete(key).await
        }
        .boxed()
    }

    fn named(&self, key: &str) -> String {
        self.inner.named(key)
    }
}

#[tokio::test]
async fn killed_at_any_write_it_leaves_a_whole_backup_or_none_and_can_be_repeated() {
    for writes in 0..4 {
        let place = place(b"the content");
        let dying = Killed { inner: &place.store, left: writes.into() };
        let first = Vault::new(&dying).store(&place.file, draft("a", "uid"), now()).await;
        let vault = Vault::new(&place.store);
        let back = place.file.with_file_name("back");
        assert_eq!(vault.fetch("a", None, &back).await.is_ok(), first.is_ok(), "{writes} writes");
        assert_eq!(vault.list("").await.unwrap().len(), usize::from(first.is_ok()));
        vault.store(&place.file, draft("a", "uid"), now()).await.unwrap();
        vault.fetch("a", None, &back).await.unwrap();
        assert_eq!(names(&place.root), ["a", "a.manifest.json"], "{writes} writes");

        let dying = Killed { inner: &place.store, left: (writes / 2).into() };
        let _ = Vault::new(&dying).delete("a", "uid").await;
        assert_eq!(vault.list("").await.unwrap().len(), usize::from(writes < 2));
        vault.delete("a", "uid").await.unwrap();
        assert!(names(&place.root).is_empty(), "{writes} writes");
    }
}

fn snapshot(content: &[u8]) -> Vec<u8> {
    let mut bytes = content.to_vec();
    bytes.extend_from_slice(ring::digest::digest(&ring::digest::SHA256, content).as_ref());
    bytes
}

fn zipped(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_file_that_is_not_whole_is_refused() {
    let whole = snapshot(&[7; 1024]);
    let mut flipped = whole.clone();
    flipped[3] ^= 1;
    let dump = b"CREATE TABLE t (a int);\n-- Dump completed on 2026-03-01  2:30:00\n".to_vec();
    let packed = zipped(&dump);
    let mut corrupt = packed.clone();
    corrupt[20] ^= 0xff;
    let cases: &[(Check, &[u8], bool)] = &[
        (Check::EtcdSnapshot, &whole, true),
        (Check::EtcdSnapshot, &flipped, false),
        (Check::EtcdSnapshot, &whole[..1024], false),
        (Check::EtcdSnapshot, &whole[..544], false),
        (Check::EtcdSnapshot, b"", false),
        (Check::EtcdSnapshot, &[0; 32], false),
        (Check::MysqlDump, &dump, true),
        (Check::MysqlDump, &packed, true),
        (Check::MysqlDump, &dump[..30], false),
        (Check::MysqlDump, &packed[..packed.len() - 9], false),
        (Check::MysqlDump, &zipped(b"CREATE TABLE t (a int);\n"), false),
        (Check::MysqlDump, &corrupt, false),
        (Check::MysqlDump, b"", false),
    ];
    for (at, (check, content, expected)) in cases.iter().enumerate() {
        let place = place(content);
        let found = check.run(&place.file).await;
        assert_eq!(found.is_ok(), *expected, "case {at}: {found:?}");
        if let Err(error) = found {
            assert_eq!(error.reason(), "Damaged", "case {at}: {error}");
        }
    }
}

#[test]
fn a_report_fits_into_a_termination_message_and_reads_back() {
    let error = StoreError::Missing { object: "x".repeat(10_000) };
    let report = Report::failed(&error);
    assert_eq!(report.exit_code(), super::report::GIVEN_UP);
    let manifest = Manifest {
        name: "x".repeat(500),
        size: 1,
        sha256: "0".repeat(64),
        kind: "k".repeat(100),
        version: "v".repeat(100),
        owner: "u".repeat(100),
        created: now(),
    };
    let listed = Report::done(vec![manifest; 100]);
    assert_eq!((listed.exit_code(), listed.count), (0, 100));
    for report in [report, listed] {
        let text = report.text();
        assert!(text.len() <= 4096, "{}", text.len());
        assert!(Report::parse(&text).is_some(), "{text}");
    }
    assert_eq!(Report::parse("killed"), None);
}
