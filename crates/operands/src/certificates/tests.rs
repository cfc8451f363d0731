//! Authorities and leaves, through Secrets and time.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::judge::Reason;
use super::*;

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn secret(name: &str, data: std::collections::BTreeMap<String, ByteString>) -> Secret {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("shop".to_owned()),
        ..ObjectMeta::default()
    };
    Secret { metadata, data: Some(data), ..Secret::default() }
}

fn spec(dns: &[&str], usage: Usage) -> LeafSpec {
    LeafSpec {
        common_name: "carts-0".to_owned(),
        dns: dns.iter().map(|name| (*name).to_owned()).collect(),
        ips: BTreeSet::from(["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]),
        usage,
        valid: DAY * 90,
    }
}

fn read(found: &Secret, now: Timestamp) -> Result<Option<Authority>, CertificateError> {
    authority_of("shop/carts-ca", Some(found), [], now)
}

#[test]
fn a_leaf_is_kept_until_something_is_wrong_with_it() {
    let authority = Authority::create("carts", now()).unwrap();
    let wanted = spec(&["carts-0.carts", "*.carts.shop.svc"], Usage::Both);
    let leaf = authority.issue(&wanted, now()).unwrap();
    let kept = secret("carts-0", leaf.data());
    let due = leaf.renewal();
    assert!(due > now() + DAY * 59 && due < now() + DAY * 60, "{due}");

    let other = Authority::create("carts", now()).unwrap();
    let renewed = authority.renew(now() + DAY).unwrap();
    let names = spec(&["carts-0.carts"], Usage::Both);
    let usage = LeafSpec { usage: Usage::Server, ..wanted.clone() };
    let person = LeafSpec { common_name: "root".to_owned(), ..wanted.clone() };
    let cases: &[(&Authority, &LeafSpec, Timestamp, Verdict)] = &[
        (&authority, &wanted, now(), Verdict::Keep(due)),
        (&authority, &wanted, due, Verdict::Issue(Reason::Due)),
        (&authority, &wanted, now() + DAY * 90, Verdict::Issue(Reason::Expired)),
        (&authority, &wanted, now() - DAY, Verdict::Issue(Reason::Expired)),
        (&other, &wanted, now(), Verdict::Issue(Reason::OtherAuthority)),
        (&renewed, &wanted, now(), Verdict::Issue(Reason::OtherAuthority)),
        (&authority, &names, now(), Verdict::Issue(Reason::OtherNames)),
        (&authority, &usage, now(), Verdict::Issue(Reason::OtherNames)),
        (&authority, &person, now(), Verdict::Issue(Reason::OtherNames)),
    ];
    for (authority, spec, at, expected) in cases {
        assert_eq!(judge(Some(&kept), authority, spec, *at).unwrap(), *expected, "{at}");
    }
    let absent = Verdict::Issue(Reason::Absent);
    assert_eq!(judge(None, &authority, &wanted, now()).unwrap(), absent);
    let empty = secret("carts-0", Default::default());
    assert_eq!(judge(Some(&empty), &authority, &wanted, now()).unwrap(), absent);
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_secret_key_and_fix() {
    let authority = Authority::create("carts", now()).unwrap();
    let wanted = spec(&["carts"], Usage::Server);
    let leaf = authority.issue(&wanted, now()).unwrap();
    let change = |key: &str, value: Option<&[u8]>| {
        let mut data = leaf.data();
        data.remove(key);
        data.extend(value.map(|value| (key.to_owned(), ByteString(value.to_vec()))));
        let error = judge(Some(&secret("carts-0", data)), &authority, &wanted, now());
        error.unwrap_err().to_string()
    };
    let fix = "delete the Secret, and a new certificate is issued";
    let other = authority.issue(&wanted, now()).unwrap();
    let cases = [
        (PRIVATE_KEY, None, "Secret shop/carts-0 has no key tls.key"),
        (CERTIFICATE, Some(&b"junk"[..]), "key tls.crt of Secret shop/carts-0 cannot be read"),
        (CERTIFICATE, Some(&b"\xff"[..]), "key tls.crt of Secret shop/carts-0 cannot be read"),
        (PRIVATE_KEY, Some(&b"junk"[..]), "key tls.key of Secret shop/carts-0 cannot be read"),
        (PRIVATE_KEY, Some(other.key.as_bytes()), "do not belong together"),
    ];
    for (key, value, expected) in cases {
        let message = change(key, value);
        assert!(message.contains(expected) && message.contains(fix), "{message}");
    }
}

#[test]
fn an_authority_is_created_only_where_nothing_was_issued() {
    let place = "shop/carts-ca";
    assert!(authority_of(place, None, [], now()).unwrap().is_none());
    let authority = Authority::create("carts", now()).unwrap();
    let leaf = authority.issue(&spec(&["carts"], Usage::Server), now()).unwrap();
    let leaf = secret("carts-0", leaf.data());
    let lost = authority_of(place, None, [&leaf], now()).unwrap_err();
    assert!(matches!(&lost, CertificateError::Lost { .. }), "{lost}");
    assert!(lost.to_string().contains("shop/carts-0"), "{lost}");
    let kept = secret("carts-ca", authority.data());
    let back = read(&kept, now()).unwrap().unwrap();
    assert_eq!(back.certificate(), authority.certificate());
    let expired = read(&kept, now() + DAY * 4000).unwrap_err();
    assert!(matches!(expired, CertificateError::Expired { .. }), "{expired}");
    let empty = read(&secret("carts-ca", Default::default()), now()).unwrap_err();
    assert!(matches!(empty, CertificateError::Missing { .. }), "{empty}");
    let leaf = secret("carts-ca", leaf.data.unwrap());
    assert!(matches!(read(&leaf, now()).unwrap_err(), CertificateError::NoAuthority { .. }));
}

#[test]
fn a_renewed_authority_signs_as_the_one_before() {
    let authority = Authority::create("carts", now()).unwrap();
    let later = authority.renewal();
    let renewed = authority.renew(later).unwrap();
    assert_ne!(renewed.certificate(), authority.certificate());
    assert!(renewed.renewal() > later);
    let wanted = spec(&["carts"], Usage::Server);
    let old = pem::facts(&authority.issue(&wanted, now()).unwrap().certificate).unwrap();
    let new = pem::facts(&renewed.issue(&wanted, later).unwrap().certificate).unwrap();
    for leaf in [&old, &new] {
        assert!(leaf.is_signed_by(authority.facts()) && leaf.is_signed_by(renewed.facts()));
    }
}

#[test]
fn a_leaf_ends_with_its_authority_and_a_bad_name_is_refused() {
    let authority = Authority::create("carts", now()).unwrap();
    let long = LeafSpec { valid: DAY * 36500, ..spec(&["carts"], Usage::Client) };
    let leaf = authority.issue(&long, now()).unwrap();
    assert_eq!(leaf.not_after, authority.facts().not_after);
    let error = authority.issue(&spec(&["cärts"], Usage::Client), now()).unwrap_err();
    assert!(matches!(error, CertificateError::Name { .. }), "{error}");
    let name = "x".repeat(100);
    let cut = LeafSpec { common_name: name, ..spec(&["carts"], Usage::Client) };
    let cut_leaf = secret("carts-0", authority.issue(&cut, now()).unwrap().data());
    assert!(matches!(judge(Some(&cut_leaf), &authority, &cut, now()).unwrap(), Verdict::Keep(_)));
}

#[test]
fn private_keys_are_not_printed() {
    let authority = Authority::create("carts", now()).unwrap();
    let leaf = authority.issue(&spec(&["carts"], Usage::Client), now()).unwrap();
    assert!(!format!("{authority:?} {leaf:?}").contains("PRIVATE"));
}
