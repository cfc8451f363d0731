//! Versions of MySQL, and which may follow which. Pure.
//!
//! What an instance runs is read from its own answer, because an image's tag may be `latest`. A tag with
//! numbers is a hint that comes earlier: it shows a downgrade before a Pod is made that cannot start.

use std::fmt;
use std::str::FromStr;

/// A version of MySQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) patch: u32,
}

/// The first version that has what the controller relies on.
pub(crate) const OLDEST: Version = Version { major: 8, minor: 4, patch: 0 };

/// Why a server or an image cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// It is MariaDB, whose replication is another.
    #[error("the server says {0:?}, and MariaDB is not supported: set spec.image to one of MySQL")]
    MariaDb(String),
    /// It says something else.
    #[error("the server says {0:?}, which is no version of MySQL: set spec.image to one of MySQL")]
    Unknown(String),
    /// It is too old.
    #[error("MySQL {0} is older than {OLDEST}: set spec.image to a later one")]
    TooOld(Version),
    /// Its data does not go back.
    #[error(
        "instances run {from}, and MySQL's data does not go back to {to}: set spec.image to one of {from} \
         or later, or restore a backup into another MySQLCluster"
    )]
    Downgrade {
        /// The highest version that an instance runs.
        from: Version,
        /// What the image's tag says.
        to: String,
    },
}

impl Unusable {
    /// The reason as a condition has it.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::MariaDb(_) => "MariaDBNotSupported",
            Self::Unknown(_) => "UnknownVersion",
            Self::TooOld(_) => "VersionTooOld",
            Self::Downgrade { .. } => "DowngradeRefused",
        }
    }
}

impl Version {
    /// Reads what a server says: `SELECT VERSION()`, as `8.4.3`, `9.7.4-1-log` or `11.4.2-MariaDB`.
    ///
    /// # Errors
    /// If that is no version of MySQL that can be used.
    pub(crate) fn said(text: &str) -> Result<Self, Unusable> {
        let shown = || text.chars().filter(|c| !c.is_control()).take(64).collect();
        if text.to_ascii_lowercase().contains("mariadb") {
            return Err(Unusable::MariaDb(shown()));
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let version: Self = text[..end].parse().map_err(|()| Unusable::Unknown(shown()))?;
        if version < OLDEST { Err(Unusable::TooOld(version)) } else { Ok(version) }
    }
}

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match numbers(text)[..] {
            [major, minor, patch] => Ok(Self { major, minor, patch }),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, patch } = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// One to three numbers between dots; nothing if a text is something else.
fn numbers(text: &str) -> Vec<u32> {
    let is_number =
        |part: &str| (1..6).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<_> = text.split('.').collect();
    if parts.len() > 3 || !parts.iter().all(|part| is_number(part)) {
        return Vec::new();
    }
    parts.iter().filter_map(|part| part.parse().ok()).collect()
}

/// The numbers in an image's tag, such as 8.4 in `mysql:8.4-oracle`; nothing if there are none.
fn tag(image: &str) -> Vec<u32> {
    let image = image.split('@').next().unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let Some((_, tag)) = last.split_once(':') else { return Vec::new() };
    numbers(tag.split('-').next().unwrap_or_default())
}

/// The version of an image, if its tag says all three numbers.
pub(crate) fn of_image(image: &str) -> Option<Version> {
    match tag(image)[..] {
        [major, minor, patch] => Some(Version { major, minor, patch }),
        _ => None,
    }
}

/// Whether instances that run `highest` may get this image, as far as its tag says. What it does not say,
/// mysqld itself refuses: it does not start on data of a later version.
///
/// # Errors
/// If the tag says that it is too old.
pub(crate) fn check_image(image: &str, highest: Option<Version>) -> Result<(), Unusable> {
    let tag = tag(image);
    let is_below = |version: Version| {
        let running = [version.major, version.minor, version.patch];
        tag[..] < running[..tag.len()]
    };
    if is_below(OLDEST) {
        let at = |index: usize| tag.get(index).copied().unwrap_or_default();
        return Err(Unusable::TooOld(Version { major: at(0), minor: at(1), patch: at(2) }));
    }
    match highest.filter(|highest| is_below(*highest)) {
        Some(from) => {
            let to: Vec<_> = tag.iter().map(u32::to_string).collect();
            Err(Unusable::Downgrade { from, to: to.join(".") })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_what_it_is() {
        for (said, expect) in [
            ("8.4.3", Ok("8.4.3")),
            ("9.7.4-1", Ok("9.7.4")),
            ("9.1.0-log", Ok("9.1.0")),
            ("8.0.40", Err("VersionTooOld")),
            ("11.4.2-MariaDB-log", Err("MariaDBNotSupported")),
            ("5.5.5-10.11.6-mariadb", Err("MariaDBNotSupported")),
            ("9.7", Err("UnknownVersion")),
            ("PostgreSQL", Err("UnknownVersion")),
            ("", Err("UnknownVersion")),
        ] {
            let found = Version::said(said).map(|version| version.to_string());
            let found = found.as_deref().map_err(Unusable::reason);
            assert_eq!(found, expect, "{said:?}");
        }
    }

    #[test]
    fn a_tag_shows_a_downgrade_as_far_as_it_says_numbers() {
        let running = Some(Version { major: 9, minor: 1, patch: 2 });
        for (image, expect) in [
            ("mysql:latest", None),
            ("mysql", None),
            ("mysql@sha256:8f1", None),
            ("registry:5000/mysql", None),
            ("mysql:9", None),
            ("mysql:9.1", None),
            ("mysql:9.1.2", None),
            ("registry:5000/a/mysql:9.2.0-oracle@sha256:8f1", None),
            ("mysql:lts", None),
            ("mysql:8.4", Some("DowngradeRefused")),
            ("mysql:9.0", Some("DowngradeRefused")),
            ("mysql:9.1.1-oraclelinux9", Some("DowngradeRefused")),
            ("mysql:8.0", Some("VersionTooOld")),
            ("mysql:5.7.44", Some("VersionTooOld")),
        ] {
            let found = check_image(image, running).err().map(|unusable| unusable.reason());
            assert_eq!(found, expect, "{image}");
        }
        assert_eq!(check_image("mysql:8.4", None), Ok(()));
        assert_eq!(of_image("mysql:9.1.1-oracle").unwrap().to_string(), "9.1.1");
        assert_eq!((of_image("mysql:9.1"), of_image("mysql:latest")), (None, None));
    }
}
