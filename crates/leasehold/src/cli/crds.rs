//! `leasehold crds`: the CustomResourceDefinitions as YAML.

use super::args::CrdSet;
use crate::crds::{crds, home_crds, workload_crds};

/// A stream of YAML documents, ready for `kubectl apply -f -`.
pub(super) fn yaml(set: CrdSet) -> Result<String, serde_saphyr::ser::Error> {
    let crds = match set {
        CrdSet::All => crds(),
        CrdSet::Home => home_crds(),
        CrdSet::Workload => workload_crds(),
    };
    let mut text = String::new();
    for crd in &crds {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(crd)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    use super::*;

    #[test]
    fn the_yaml_reads_back_as_the_same_definitions() {
        let text = yaml(CrdSet::All).unwrap();
        let back: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&text).unwrap();
        assert_eq!(back, crds());
        let names: Vec<_> = back.iter().filter_map(|crd| crd.metadata.name.as_deref()).collect();
        for name in
            ["shardmaps.leasehold.dev", "members.leasehold.dev", "fleetpolicies.leasehold.dev"]
        {
            assert_eq!(names.iter().filter(|found| **found == name).count(), 1, "{names:?}");
        }
    }
}
