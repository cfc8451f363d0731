//! Impersonation: the user that the headers of a request name, and what its sender must be allowed.

use std::collections::BTreeMap;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::attributes::Attributes;
use super::user::{
    ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, service_account_groups, service_account_of,
};
use crate::status::ApiError;

const PREFIX: &str = "impersonate-";
const EXTRA: &str = "impersonate-extra-";

/// The user that the headers name, as they name it; `None` without such headers.
///
/// # Errors
/// 400 for groups, uid or extra fields without a user name.
pub fn wanted(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let texts = |name: &str| headers.get_all(name).iter().map(text).collect::<Vec<_>>();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
            extra.entry(key).or_default().push(text(value));
        }
    }
    let user = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: texts("impersonate-group"),
        extra,
    };
    if user == User::default() {
        return Ok(None);
    }
    if user.name.is_empty() {
        let shown = shown(&user);
        let why = format!("requested {shown} without impersonating a user name");
        return Err(ApiError::bad_request(why));
    }
    Ok(Some(user))
}

/// What the sender must be allowed in order to act as `user`.
pub fn demands(user: &User) -> Vec<Attributes> {
    const GROUP: &str = "authentication.k8s.io";
    let demand = |group: &str, resource: &str, sub: &str, namespace: &str, name: &str| Attributes {
        verb: "impersonate".into(),
        namespace: namespace.into(),
        group: group.into(),
        resource: resource.into(),
        subresource: sub.into(),
        name: name.into(),
        path: None,
    };
    let mut demands = vec![match service_account_of(&user.name) {
        Some((namespace, name)) => demand("", "serviceaccounts", "", namespace, name),
        None => demand("", "users", "", "", &user.name),
    }];
    if !user.uid.is_empty() {
        demands.push(demand(GROUP, "uids", "", "", &user.uid));
    }
    demands.extend(user.groups.iter().map(|group| demand("", "groups", "", "", group)));
    for (key, values) in &user.extra {
        demands.extend(values.iter().map(|value| demand(GROUP, "userextras", key, "", value)));
    }
    demands
}

/// The user with the groups that follow from its name.
pub fn completed(mut user: User) -> User {
    if let Some((namespace, _)) = service_account_of(&user.name)
        && user.groups.is_empty()
    {
        user.groups = service_account_groups(namespace);
    }
    if user.name == ANONYMOUS {
        if !user.is_in(UNAUTHENTICATED) {
            user.groups.push(UNAUTHENTICATED.into());
        }
    } else if !user.is_in(AUTHENTICATED) && !user.is_in(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.into());
    }
    user
}

fn text(value: &http::HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// A user as Go shows it.
fn shown(user: &User) -> String {
    let list = |texts: &[String]| {
        let quoted: Vec<String> = texts.iter().map(|t| format!("{t:?}")).collect();
        if quoted.is_empty() {
            "[]string(nil)".to_owned()
        } else {
            format!("[]string{{{}}}", quoted.join(", "))
        }
    };
    let extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    let extra =
        if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}}",
        user.name,
        user.uid,
        list(&user.groups)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(entries: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in entries {
            headers.append(*name, http::HeaderValue::from_static(value));
        }
        headers
    }

    fn acting(entries: &[(&'static str, &'static str)]) -> User {
        completed(wanted(&headers(entries)).unwrap().unwrap())
    }

    #[test]
    fn groups_follow_from_the_name_unless_they_are_given() {
        let account = ("impersonate-user", "system:serviceaccount:a:b");
        let jane = ("impersonate-user", "jane");
        let group = ("impersonate-group", "g");
        let nobody = ("impersonate-user", "system:anonymous");
        let accounts = ["system:serviceaccounts", "system:serviceaccounts:a"];
        let cases = [
            (vec![jane], vec![AUTHENTICATED]),
            (vec![jane, group], vec!["g", AUTHENTICATED]),
            (vec![account], vec![accounts[0], accounts[1], AUTHENTICATED]),
            (vec![account, group], vec!["g", AUTHENTICATED]),
            (vec![nobody], vec![UNAUTHENTICATED]),
        ];
        for (entries, groups) in cases {
            assert_eq!(acting(&entries).groups, groups, "{entries:?}");
        }
        assert_eq!(wanted(&headers(&[("accept", "x")])), Ok(None));
    }

    #[test]
    fn every_part_needs_a_right() {
        let user = wanted(&headers(&[
            ("impersonate-user", "system:serviceaccount:a:b"),
            ("impersonate-group", "g"),
            ("impersonate-uid", "u"),
            ("impersonate-extra-x%2fy", "z"),
        ]));
        let demands = demands(&user.unwrap().unwrap());
        let brief: Vec<_> = demands
            .iter()
            .map(|d| (d.full_resource(), d.namespace.as_str(), d.name.as_str()))
            .collect();
        let expected = [
            ("serviceaccounts".to_owned(), "a", "b"),
            ("uids".to_owned(), "", "u"),
            ("groups".to_owned(), "", "g"),
            ("userextras/x/y".to_owned(), "", "z"),
        ];
        assert_eq!(brief, expected);
    }

    #[test]
    fn a_group_alone_is_nobody() {
        let refused = wanted(&headers(&[("impersonate-group", "jane")])).unwrap_err();
        assert_eq!(
            refused.message,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"jane\"}, \
             Extra:map[string][]string(nil)} without impersonating a user name"
        );
    }
}
