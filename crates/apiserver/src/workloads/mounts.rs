//! What a container finds in the Secrets and ConfigMaps that are mounted into it, when it starts.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use serde_json::Value;

use crate::program::Start;

/// Something that is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    /// The folder in the container.
    folder: &'a str,
    /// `secrets` or `configmaps`.
    plural: &'static str,
    name: &'a str,
    optional: bool,
}

/// The contents of the files of a container, by their paths.
///
/// # Errors
/// Something that is mounted is not there, unless it is optional; a container waits for it.
pub(crate) async fn files(
    client: &Client,
    namespace: &str,
    start: &Start,
) -> kube::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for Mount { folder, plural, name, optional } in mounts(start) {
        let path = format!("/api/v1/namespaces/{namespace}/{plural}/{name}");
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(kube::core::request::Error::BuildRequest);
        let found = client.request::<Value>(request.map_err(kube::Error::BuildRequest)?).await;
        match found {
            Ok(object) => {
                let contents = contents(plural, &object).into_iter();
                files.extend(contents.map(|(file, data)| (format!("{folder}/{file}"), data)));
            }
            Err(kube::Error::Api(status)) if status.code == 404 && optional => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// Whole folders; files that are mounted alone are left out.
fn mounts(start: &Start) -> Vec<Mount<'_>> {
    let volumes = start.pod["spec"]["volumes"].as_array();
    let mounts = start.spec()["volumeMounts"].as_array().into_iter().flatten();
    mounts
        .filter(|mount| mount["subPath"].as_str().is_none_or(str::is_empty))
        .filter_map(|mount| {
            let folder = mount["mountPath"].as_str()?.trim_end_matches('/');
            let volume = volumes?.iter().find(|volume| volume["name"] == mount["name"])?;
            let (plural, source, field) = match volume["secret"].is_object() {
                true => ("secrets", &volume["secret"], "secretName"),
                false => ("configmaps", &volume["configMap"], "name"),
            };
            let (name, optional) = (source[field].as_str()?, source["optional"] == true);
            Some(Mount { folder, plural, name, optional })
        })
        .collect()
}

fn contents(plural: &str, object: &Value) -> Vec<(String, Vec<u8>)> {
    let binary = if plural == "secrets" { "data" } else { "binaryData" };
    let entries = |field: &str| object[field].as_object().into_iter().flatten();
    let decoded = entries(binary)
        .filter_map(|(file, text)| Some((file.clone(), STANDARD.decode(text.as_str()?).ok()?)));
    let plain = entries("data")
        .filter(|_| binary != "data")
        .filter_map(|(file, text)| Some((file.clone(), text.as_str()?.as_bytes().to_vec())));
    decoded.chain(plain).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_folders_of_secrets_and_config_maps_are_mounted() {
        let start = Start {
            pod: json!({"spec": {
                "containers": [{"name": "c", "volumeMounts": [
                    {"name": "s", "mountPath": "/s/"},
                    {"name": "m", "mountPath": "/m"},
                    {"name": "m", "mountPath": "/one", "subPath": "one"},
                    {"name": "other", "mountPath": "/o"},
                ]}],
                "volumes": [
                    {"name": "s", "secret": {"secretName": "keys", "optional": true}},
                    {"name": "m", "configMap": {"name": "settings"}},
                    {"name": "other", "emptyDir": {}},
                ],
            }}),
            container: "c".into(),
            claims: BTreeMap::new(),
            files: BTreeMap::new(),
            restarts: 0,
        };
        let expected = [
            Mount { folder: "/s", plural: "secrets", name: "keys", optional: true },
            Mount { folder: "/m", plural: "configmaps", name: "settings", optional: false },
        ];
        assert_eq!(mounts(&start), expected);
        let map = json!({"data": {"a": "b"}, "binaryData": {"c": "ZA=="}});
        let expected = [("c".to_owned(), b"d".to_vec()), ("a".to_owned(), b"b".to_vec())];
        assert_eq!(contents("configmaps", &map), expected);
        assert_eq!(contents("secrets", &json!({"data": {"a": "Yg=="}})).len(), 1);
    }
}
