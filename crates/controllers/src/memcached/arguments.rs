//! The arguments of memcached: ours, and which of a user's are refused. Pure.
//!
//! They are read as memcached reads them, by `getopt_long`: short options may be written together and long
//! ones abbreviated, and the last of several counts. So a user's `-vm 4096` would undo ours.

use super::api::MemcachedSpec;
use super::invalid::Invalid;
use super::sizing::Sizing;

/// memcached's port.
pub(super) const PORT: i32 = 11_211;

/// Short options that take a value, as of memcached 1.6.45 (`shortopts` in `memcached.c`).
const VALUED: &str = "apsUmcluPfntDRbBIYeoN";

/// What is wrong with an option.
#[derive(Clone, Copy)]
enum Ban {
    /// A field sets it.
    Field(&'static str),
    /// It cannot work here.
    Broken(&'static str),
}
use Ban::{Broken, Field};

const FIXED: Ban = Broken("but the address is fixed: port 11211, over TCP");
const ENDS: Ban = Broken("with which memcached prints a text and ends");
const FILES: Ban = Broken("but the Pods have no volume for its file");

/// Options that are refused: short, long, and why.
const BANNED: &[(char, &str, Ban)] = &[
    ('m', "memory-limit", Field("spec.memory")),
    ('c', "conn-limit", Field("spec.connections")),
    ('u', "user", Field("spec.runAsUser")),
    ('p', "port", FIXED),
    ('U', "udp-port", FIXED),
    ('l', "listen", FIXED),
    ('s', "unix-socket", FIXED),
    ('a', "unix-mask", FIXED),
    ('d', "daemon", Broken("with which the container ends")),
    ('P', "pidfile", FILES),
    ('e', "memory-file", FILES),
    ('Y', "auth-file", FILES),
    ('Z', "enable-ssl", Broken("but TLS is not offered")),
    ('S', "enable-sasl", Broken("but authentication is not offered")),
    ('h', "help", ENDS),
    ('i', "license", ENDS),
    ('V', "version", ENDS),
];

/// Long options that are allowed, of which none is an abbreviation of one above; those that take a value.
const VALUED_LONG: &[&str] = &[
    "slab-growth-factor",
    "slab-min-size",
    "threads",
    "max-reqs-per-event",
    "listen-backlog",
    "protocol",
    "max-item-size",
    "extended",
    "napi-ids",
];

/// The arguments of a node.
///
/// # Errors
/// If the user's have one that is refused.
pub(super) fn arguments(spec: &MemcachedSpec, sizing: Sizing) -> Result<Vec<String>, Invalid> {
    check(&spec.extra_args)?;
    let ours = format!("-m {} -c {} -p {PORT} -U 0", sizing.items_mib, spec.connections);
    let ours = ours.split(' ').map(str::to_owned);
    Ok(ours.chain(spec.extra_args.iter().cloned()).collect())
}

fn check(arguments: &[String]) -> Result<(), Invalid> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let takes_next = match argument.strip_prefix("--") {
            // The end of all options.
            Some("") => return Ok(()),
            Some(long) => check_long(argument, long)?,
            None => match argument.strip_prefix('-') {
                Some(letters) => check_short(argument, letters)?,
                None => return Err(refused(argument, Broken("which is no option of memcached"))),
            },
        };
        if takes_next {
            arguments.next();
        }
    }
    Ok(())
}

/// Whether the next argument is the value of this one.
fn check_short(argument: &str, letters: &str) -> Result<bool, Invalid> {
    for (at, letter) in letters.char_indices() {
        if let Some((_, _, ban)) = BANNED.iter().find(|(short, _, _)| *short == letter) {
            return Err(refused(argument, *ban));
        }
        if VALUED.contains(letter) {
            return Ok(at + letter.len_utf8() == letters.len());
        }
    }
    Ok(false)
}

/// Whether the next argument is the value of this one.
fn check_long(argument: &str, long: &str) -> Result<bool, Invalid> {
    let (name, has_value) = match long.split_once('=') {
        Some((name, _)) => (name, true),
        None => (long, false),
    };
    // An exact name counts before an abbreviation.
    let exact = VALUED_LONG.contains(&name);
    let banned = BANNED.iter().find(|(_, banned, _)| !exact && banned.starts_with(name));
    if let Some((_, _, ban)) = banned {
        return Err(refused(argument, *ban));
    }
    let valued = VALUED_LONG.iter().any(|known| known.starts_with(name));
    Ok(valued && !has_value)
}

fn refused(argument: &str, ban: Ban) -> Invalid {
    let argument = sdk::error::foreign(argument);
    match ban {
        Field(instead) => Invalid::Argument { argument, instead },
        Broken(why) => Invalid::Unsupported { argument, why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(arguments: &[&str]) -> String {
        let arguments: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        check(&arguments).map_or_else(|invalid| invalid.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn what_memcached_understands_is_passed_on() {
        for arguments in [
            &["-v"][..],
            &["-vv", "-I", "8m"],
            &["-I8m", "-o", "modern,hashpower=20"],
            &["--max-item-size=8m", "--threads", "8"],
            &["-I", "-m"],
            &["--threads", "--memory-limit"],
            &["-k", "-M", "-F", "-X"],
            &["--disable-evictions", "--lock-memory", "--disable-cas"],
            &["--extended=modern", "--listen-backlog", "2048"],
            &["-v", "--", "-m"],
        ] {
            assert_eq!(verdict(arguments), "fine", "{arguments:?}");
        }
    }

    #[test]
    fn what_the_controller_sets_is_refused_however_it_is_written() {
        for (arguments, instead) in [
            (&["-m", "4096"][..], "spec.memory"),
            (&["-m4096"], "spec.memory"),
            (&["-vm", "4096"], "spec.memory"),
            (&["-km4096"], "spec.memory"),
            (&["--memory-limit=4096"], "spec.memory"),
            (&["--memory-l", "4096"], "spec.memory"),
            (&["--mem=4096"], "spec.memory"),
            (&["-v", "-I", "2m", "-c", "9"], "spec.connections"),
            (&["--conn-limit", "9"], "spec.connections"),
            (&["-u", "root"], "spec.runAsUser"),
            (&["-p", "1"], "port 11211"),
            (&["--port=1"], "port 11211"),
            (&["-l", "::1"], "port 11211"),
            (&["-d"], "the container ends"),
            (&["-vd"], "the container ends"),
            (&["-Z"], "TLS is not offered"),
            (&["-e", "/dev/shm/x"], "no volume"),
            (&["-Y", "/auth"], "no volume"),
            (&["-h"], "prints a text"),
            (&["stray"], "no option"),
        ] {
            let refused = verdict(arguments);
            assert!(refused.contains(instead), "{arguments:?}: {refused}");
        }
        insta::assert_snapshot!(
            verdict(&["-vm", "4096"]),
            @"spec.extraArgs has -vm, which the controller sets: remove it and use spec.memory"
        );
    }
}
