//! `leasehold backup`: stores, fetches, lists and deletes backups. Controllers run it in Jobs of a
//! workload cluster, beside the database's own tools.
//!
//! Its result is on standard output and, as JSON, the message of the container's termination. It exits
//! with 0; with 1 if it may succeed when it is tried again; with 2 if its arguments are wrong; with 3
//! if it fails until somebody changes something.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use model::Clock;
use operands::backup::check::Check;
use operands::backup::report::Report;
use operands::backup::s3::{BucketStore, Keys, S3Settings};
use operands::backup::{Draft, Folder, Manifest, Store, StoreError, Vault};
use operands::schedule::Retention;

use super::say::say;
use crate::clock::SystemClock;

/// Where a container's runtime reads the message of its termination.
const TERMINATION_LOG: &str = "/dev/termination-log";
/// The longest file with a key, in bytes.
const MAX_KEY: u64 = 64 << 10;

/// The subcommands of `leasehold backup`.
#[derive(Debug, Subcommand)]
pub(super) enum BackupCommand {
    /// Store a file under a name, with a manifest beside it.
    Store(StoreArgs),
    /// Fetch a backup into a file, and verify it.
    Fetch(FetchArgs),
    /// List backups.
    List(ListArgs),
    /// Delete the backups that retention does not keep. The last one always stays.
    Prune(PruneArgs),
    /// Delete one backup. It is no error if there is none.
    Delete(DeleteArgs),
    /// Give a folder that another program made its name, unless there is one of that name.
    Move(MoveArgs),
}

/// Where backups are stored: a folder or a bucket.
#[derive(Debug, clap::Args)]
struct PlaceArgs {
    /// A folder, such as that of a mounted volume.
    #[arg(
        long,
        value_name = "FOLDER",
        env = "LEASEHOLD_BACKUP_FOLDER",
        required_unless_present = "bucket",
        conflicts_with = "bucket"
    )]
    folder: Option<PathBuf>,
    /// A bucket with S3's protocol.
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_BACKUP_BUCKET")]
    bucket: Option<String>,
    /// The folder within that place.
    #[arg(long, value_name = "PATH", env = "LEASEHOLD_BACKUP_PREFIX")]
    prefix: Option<String>,
    /// The bucket's region. Default: us-east-1.
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_BACKUP_REGION")]
    region: Option<String>,
    /// The address of the bucket's service. Default: AWS's own.
    #[arg(long, value_name = "URL", env = "LEASEHOLD_BACKUP_ENDPOINT")]
    endpoint: Option<String>,
    /// A folder with the files AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and perhaps AWS_SESSION_TOKEN and
    /// ca.crt, such as that of a mounted Secret. Default: environment variables of these names.
    #[arg(long, value_name = "FOLDER", env = "LEASEHOLD_BACKUP_CREDENTIALS")]
    credentials: Option<PathBuf>,
    /// Where the result is written as JSON.
    #[arg(long, value_name = "FILE", default_value = TERMINATION_LOG)]
    report: PathBuf,
}

/// Arguments of `leasehold backup store`.
#[derive(Debug, clap::Args)]
pub(super) struct StoreArgs {
    /// The file.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// The backup's name, such as shop/carts-2026-03-01-02-30.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Whose it is: only the same owner stores it again or deletes it.
    #[arg(long, value_name = "UID")]
    owner: String,
    /// What it is.
    #[arg(long, value_name = "KIND", default_value = "file")]
    kind: String,
    /// The version of the database.
    #[arg(long, value_name = "VERSION", default_value = "")]
    database_version: String,
    /// Check first that the file is whole.
    #[arg(long, value_enum)]
    check: Option<CheckName>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Arguments of `leasehold backup fetch`.
#[derive(Debug, clap::Args)]
pub(super) struct FetchArgs {
    /// The backup's name.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Where its content is written.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Fetch it only if this is its SHA-256.
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Check that the file is whole, beside its digest.
    #[arg(long, value_enum)]
    check: Option<CheckName>,
    /// Remove this folder first, and create the file's.
    #[arg(long, value_name = "FOLDER")]
    clear: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Arguments of `leasehold backup move`.
#[derive(Debug, clap::Args)]
pub(super) struct MoveArgs {
    /// The folder.
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
    /// Its new name, on the same volume. What has that name already stays.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Remove this folder afterwards.
    #[arg(long, value_name = "FOLDER")]
    clear: Option<PathBuf>,
    /// Where the result is written as JSON.
    #[arg(long, value_name = "FILE", default_value = TERMINATION_LOG)]
    report: PathBuf,
}

/// Arguments of `leasehold backup list`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// What their names begin with.
    #[arg(long, value_name = "TEXT", default_value = "")]
    begin: String,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Arguments of `leasehold backup prune`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("rule").required(true).multiple(true)))]
pub(super) struct PruneArgs {
    /// What their names begin with.
    #[arg(long, value_name = "TEXT")]
    begin: String,
    /// Keep the last so many.
    #[arg(long, value_name = "COUNT", group = "rule")]
    keep: Option<usize>,
    /// Keep those that are not older than this, such as 720h.
    #[arg(long, value_name = "DURATION", value_parser = model::duration, group = "rule")]
    within: Option<Duration>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Arguments of `leasehold backup delete`.
#[derive(Debug, clap::Args)]
pub(super) struct DeleteArgs {
    /// The backup's name.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Whose it is: another owner's backup is not deleted.
    #[arg(long, value_name = "UID")]
    owner: String,
    #[command(flatten)]
    place: PlaceArgs,
}

/// A check of a file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CheckName {
    /// A snapshot by etcdctl: it ends with the SHA-256 of its content.
    EtcdSnapshot,
    /// A dump by mysqldump, compressed with gzip or not: its last line says that it is complete.
    MysqlDump,
}

impl From<CheckName> for Check {
    fn from(name: CheckName) -> Self {
        match name {
            CheckName::EtcdSnapshot => Self::EtcdSnapshot,
            CheckName::MysqlDump => Self::MysqlDump,
        }
    }
}

/// Does it, and reports.
///
/// # Errors
/// If the runtime cannot start.
pub(super) fn run(command: &BackupCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(act(command));
    let report = match done {
        Ok(backups) => {
            for found in &backups {
                say(&format!(
                    "{} {} bytes sha256:{} {}",
                    found.name, found.size, found.sha256, found.created
                ));
            }
            Report::done(backups)
        }
        Err(error) => {
            ops::warn(model::error::chain(&error));
            Report::failed(&error)
        }
    };
    let code = report.exit_code();
    tell(command.report(), &report.text());
    Ok(ExitCode::from(code))
}

/// Where nobody reads it, as on a laptop, there is no such file, and none is made in its folder.
fn tell(file: &Path, text: &str) {
    if file == Path::new(TERMINATION_LOG) && !file.exists() {
        return;
    }
    if let Err(error) = fs::write(file, text) {
        ops::warn(format_args!("write {}: {error}", file.display()));
    }
}

async fn act(command: &BackupCommand) -> Result<Vec<Manifest>, StoreError> {
    let place = match command {
        BackupCommand::Store(args) => &args.place,
        BackupCommand::Fetch(args) => &args.place,
        BackupCommand::List(args) => &args.place,
        BackupCommand::Prune(args) => &args.place,
        BackupCommand::Delete(args) => &args.place,
        BackupCommand::Move(args) => {
            move_folder(&args.from, &args.to)?;
            return clear(args.clear.as_deref()).map(|()| Vec::new());
        }
    };
    let store = place.open()?;
    let vault = Vault::new(&*store);
    let now = SystemClock.wall();
    match command {
        BackupCommand::Move(_) => Ok(Vec::new()),
        BackupCommand::Store(args) => {
            if let Some(check) = args.check {
                Check::from(check).run(&args.file).await?;
            }
            let draft = Draft {
                name: args.name.clone(),
                kind: args.kind.clone(),
                version: args.database_version.clone(),
                owner: args.owner.clone(),
            };
            vault.store(&args.file, draft, now).await.map(|stored| vec![stored])
        }
        BackupCommand::Fetch(args) => {
            clear(args.clear.as_deref())?;
            if let Some(folder) = args.file.parent().filter(|_| args.clear.is_some()) {
                fs::create_dir_all(folder).map_err(failed("create", folder))?;
            }
            let fetched = vault.fetch(&args.name, args.sha256.as_deref(), &args.file).await?;
            if let Some(check) = args.check {
                Check::from(check).run(&args.file).await?;
            }
            Ok(vec![fetched])
        }
        BackupCommand::List(args) => vault.list(&args.begin).await,
        BackupCommand::Prune(args) => prune(&vault, args, now).await,
        BackupCommand::Delete(args) => {
            vault.delete(&args.name, &args.owner).await.map(|()| Vec::new())
        }
    }
}

async fn prune(
    vault: &Vault<'_>,
    args: &PruneArgs,
    now: Timestamp,
) -> Result<Vec<Manifest>, StoreError> {
    let within =
        args.within.map(|within| SignedDuration::try_from(within).unwrap_or(SignedDuration::MAX));
    let retention = Retention { last: args.keep, within };
    for name in vault.prune(&args.begin, retention, now).await? {
        say(&format!("deleted {name}"));
    }
    vault.list(&args.begin).await
}

/// Removes a folder and what is in it.
fn clear(folder: Option<&Path>) -> Result<(), StoreError> {
    let Some(folder) = folder else { return Ok(()) };
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

/// One rename: after a crash there is the whole folder or none. What is in it was synced by whoever
/// wrote it.
fn move_folder(from: &Path, to: &Path) -> Result<(), StoreError> {
    if to.exists() {
        return Ok(());
    }
    fs::rename(from, to).map_err(failed("move", from))?;
    let above = to.parent().unwrap_or(Path::new("/"));
    let synced = fs::File::open(above).and_then(|folder| folder.sync_all());
    synced.map_err(failed("write", above))
}

fn failed(operation: &'static str, path: &Path) -> impl Fn(std::io::Error) -> StoreError + use<> {
    let object = path.display().to_string();
    move |source| StoreError::File { operation, object: object.clone(), source }
}

impl BackupCommand {
    fn report(&self) -> &Path {
        match self {
            Self::Store(args) => &args.place.report,
            Self::Fetch(args) => &args.place.report,
            Self::List(args) => &args.place.report,
            Self::Prune(args) => &args.place.report,
            Self::Delete(args) => &args.place.report,
            Self::Move(args) => &args.report,
        }
    }
}

impl PlaceArgs {
    fn open(&self) -> Result<Box<dyn Store>, StoreError> {
        if let Some(folder) = &self.folder {
            let folder = match self.prefix.as_deref().map(|prefix| prefix.trim_matches('/')) {
                None => Folder::open(folder)?,
                Some(prefix) => Folder::within(folder, prefix)?,
            };
            return Ok(Box::new(folder));
        }
        let settings = S3Settings {
            bucket: self.bucket.clone().unwrap_or_default(),
            prefix: self.prefix.clone(),
            region: self.region.clone(),
            endpoint: self.endpoint.clone(),
            keys: self.keys()?,
            authority: self.secret("ca.crt")?,
        };
        Ok(Box::new(BucketStore::open(&settings, || SystemClock.wall())?))
    }

    fn keys(&self) -> Result<Option<Keys>, StoreError> {
        let id = self.secret("AWS_ACCESS_KEY_ID")?;
        let secret = self.secret("AWS_SECRET_ACCESS_KEY")?;
        match (id, secret) {
            (Some(id), Some(secret)) => {
                Ok(Some(Keys { id, secret, token: self.secret("AWS_SESSION_TOKEN")? }))
            }
            (None, None) if self.credentials.is_none() => Ok(None),
            _ => Err(StoreError::Invalid {
                what: "the destination's Secret".to_owned(),
                problem: "give it both keys, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            }),
        }
    }

    /// A value of the mounted Secret, or of the environment.
    fn secret(&self, name: &str) -> Result<Option<String>, StoreError> {
        let Some(folder) = &self.credentials else {
            return Ok(std::env::var(name).ok().filter(|value| !value.is_empty()));
        };
        let file = folder.join(name);
        let invalid = |problem| StoreError::Invalid {
            what: format!("key {name} of the destination's Secret"),
            problem,
        };
        match fs::metadata(&file) {
            Ok(found) if found.len() > MAX_KEY => return Err(invalid("it is longer than 64 KiB")),
            Ok(_) => {}
            Err(_) => return Ok(None),
        }
        let text = fs::read_to_string(&file).map_err(|_| invalid("it is no text"))?;
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: BackupCommand,
    }

    fn run_line(line: &str, folder: &Path) -> (bool, Report) {
        let report = folder.join("report");
        let line = line.replace("HERE", folder.to_str().unwrap());
        let words = std::iter::once("backup").chain(line.split_whitespace());
        let report_option = format!("--report={}", report.display());
        let words = words.chain(std::iter::once(report_option.as_str()));
        let parsed = Line::try_parse_from(words).unwrap();
        let code = run(&parsed.command).unwrap();
        let text = fs::read_to_string(report).unwrap();
        (format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS), Report::parse(&text).unwrap())
    }

    #[test]
    fn a_backup_is_stored_listed_fetched_pruned_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        fs::create_dir(here.join("place")).unwrap();
        fs::write(here.join("dump.sql"), "-- Dump completed on 2026-03-01\n").unwrap();
        let place = "--folder HERE/place --prefix mysql";
        let store =
            format!("store --file HERE/dump.sql --check mysql-dump --owner uid {place} --name");
        for name in ["shop/a", "shop/b"] {
            let (done, report) = run_line(&format!("{store} {name}"), here);
            assert!(done && report.backups[0].name == name, "{report:?}");
        }
        assert!(here.join("place/mysql/shop/a").exists());
        let (done, report) = run_line(&format!("list {place}"), here);
        assert_eq!((done, report.count), (true, 2));
        let (done, _) = run_line(&format!("fetch --name shop/a --file HERE/back {place}"), here);
        assert!(done && fs::read(here.join("back")).unwrap().starts_with(b"-- Dump"));
        let (done, report) = run_line(&format!("prune --begin shop/ --keep 1 {place}"), here);
        assert_eq!((done, report.count), (true, 1));
        let (done, _) = run_line(&format!("delete --name shop/b --owner uid {place}"), here);
        assert!(done && !here.join("place/mysql/shop/b").exists());
    }

    #[test]
    fn a_folder_gets_its_name_once() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let stage = |text: &str| {
            fs::create_dir_all(here.join("stage/data")).unwrap();
            fs::write(here.join("stage/data/file"), text).unwrap();
        };
        let line = "move --from HERE/stage/data --to HERE/data --clear HERE/stage";
        for text in ["first", "second"] {
            stage(text);
            assert!(run_line(line, here).0);
            assert!(!here.join("stage").exists());
        }
        assert_eq!(fs::read(here.join("data/file")).unwrap(), b"first");
        // Killed after the rename: the stage without the data is left.
        fs::create_dir_all(here.join("stage")).unwrap();
        assert!(run_line(line, here).0 && !here.join("stage").exists());
        fs::remove_dir_all(here.join("data")).unwrap();
        assert!(!run_line(line, here).0, "nothing was staged");
    }

    #[test]
    fn a_failure_says_why_and_whether_to_try_again() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        fs::write(here.join("torn.db"), "torn").unwrap();
        let (done, report) = run_line(
            "store --file HERE/torn.db --check etcd-snapshot --owner uid --name a --folder HERE",
            here,
        );
        assert_eq!(
            (done, report.reason.as_deref(), report.transient),
            (false, Some("Damaged"), false)
        );
        let (_, report) = run_line("list --folder HERE/absent", here);
        assert_eq!(report.reason.as_deref(), Some("Missing"));
        let (_, report) = run_line("list --bucket carts --credentials HERE", here);
        assert!(report.message.unwrap().contains("AWS_ACCESS_KEY_ID"));
        Line::try_parse_from(["backup", "list"]).unwrap_err();
        Line::try_parse_from(["backup", "prune", "--folder", "/x", "--begin", "a"]).unwrap_err();
    }
}
