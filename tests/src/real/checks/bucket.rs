//! `leasehold backup` at a bucket of moto: a file of two parts is stored, listed, fetched and verified; another
//! owner neither replaces nor deletes it; what retention does not keep goes, and a file that was changed
//! in the bucket is not restored.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::moto::Moto;
use crate::harness::Scene;
use crate::harness::wait::Stopwatch;

/// More than one part of an upload, in bytes.
const SIZE: usize = 70 << 20;
/// The exit code of what fails until somebody changes something.
const GIVEN_UP: i32 = 3;

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let moto = Moto::start(scene).await?;
    moto.ask(
        "s3.create_bucket(Bucket='dumps', CreateBucketConfiguration={'LocationConstraint': 'eu-west-1'})",
    )?;
    let (original, copy) = (scene.dir().join("original"), scene.dir().join("copy"));
    let content: Vec<u8> = (0..SIZE).map(|place| (place * 31 % 251) as u8).collect();
    fs::write(&original, &content)?;
    let place = Place { scene, port: moto.port };
    let watch = Stopwatch::start();

    for (name, owner) in [("shop/1", "a"), ("shop/2", "a"), ("other/1", "b")] {
        let stored = place.run(&["store", "--name", name, "--owner", owner], Some(&original))?;
        ensure!(stored.status.success(), "{stored:?}");
        ensure!(place.report()?["backups"][0]["size"] == SIZE, "{}", place.report()?);
    }
    let parts = moto.ask("print(s3.head_object(Bucket='dumps', Key='all/shop/1')['ETag'])")?;
    ensure!(parts.contains("-2"), "it was not uploaded in two parts: {parts}");
    println!("stored three times {} MiB after {watch}", SIZE >> 20);

    place.refuses(&["store", "--name", "shop/1", "--owner", "b"], Some(&original))?;
    place.refuses(&["delete", "--name", "shop/1", "--owner", "b"], None)?;
    let again = place.run(&["store", "--name", "shop/1", "--owner", "a"], Some(&original))?;
    ensure!(again.status.success(), "its owner may repeat it: {again:?}");
    println!("another owner is refused after {watch}");

    let fetched = place.run(&["fetch", "--name", "shop/1"], Some(&copy))?;
    ensure!(fetched.status.success(), "{fetched:?}");
    ensure!(fs::read(&copy)? == content, "what was fetched is not what was stored");
    moto.ask("s3.put_object(Bucket='dumps', Key='all/shop/1', Body=b'x' * 73400320)")?;
    fs::remove_file(&copy)?;
    place.refuses(&["fetch", "--name", "shop/1"], Some(&copy))?;
    ensure!(!copy.exists(), "a changed backup has a file");
    println!("fetched what was stored, and refused what was changed, after {watch}");

    let pruned = place.run(&["prune", "--begin", "shop/", "--keep", "1"], None)?;
    ensure!(pruned.status.success(), "{pruned:?}");
    let listed = place.run(&["list"], None)?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: Vec<_> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(names == ["other/1", "shop/2"], "listed are {names:?}");
    for (name, owner) in [("other/1", "b"), ("shop/2", "a"), ("shop/2", "a")] {
        let deleted = place.run(&["delete", "--name", name, "--owner", owner], None)?;
        ensure!(deleted.status.success(), "{deleted:?}");
    }
    let left = moto.ask("print(s3.list_objects_v2(Bucket='dumps').get('Contents', []))")?;
    ensure!(left == "[]", "left are {left}");
    let open = moto.ask("print(s3.list_multipart_uploads(Bucket='dumps').get('Uploads', []))")?;
    ensure!(open == "[]", "uploads that never ended: {open}");
    println!("pruned and deleted after {watch}");

    moto.ask("s3.delete_bucket(Bucket='dumps')")?;
    place.refuses(&["list"], None)?;
    Ok(())
}

/// The bucket, for `leasehold backup`.
struct Place<'a> {
    scene: &'a Scene,
    port: u16,
}

impl Place<'_> {
    fn run(&self, words: &[&str], file: Option<&Path>) -> Result<Output> {
        let mut command = Command::new(self.scene.tools().leasehold());
        command.arg("backup").args(words);
        if let Some(file) = file {
            command.arg("--file").arg(file);
        }
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        command
            .args(["--bucket", "dumps", "--prefix", "all", "--region", "eu-west-1"])
            .args(["--endpoint", &endpoint])
            .arg("--report")
            .arg(self.scene.dir().join("report"))
            .envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")])
            .stdin(Stdio::null());
        command.output().with_context(|| format!("run leasehold backup {words:?}"))
    }

    /// What a Job would say.
    fn report(&self) -> Result<Value> {
        Ok(serde_json::from_str(&fs::read_to_string(self.scene.dir().join("report"))?)?)
    }

    fn refuses(&self, words: &[&str], file: Option<&Path>) -> Result<()> {
        let output = self.run(words, file)?;
        let (code, report) = (output.status.code(), self.report()?);
        ensure!(code == Some(GIVEN_UP), "{words:?} ends with {code:?}: {output:?}");
        ensure!(report["message"].is_string(), "{words:?} says nothing: {report}");
        Ok(())
    }
}
