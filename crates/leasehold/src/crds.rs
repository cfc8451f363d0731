//! The CustomResourceDefinitions of the product, and their YAML.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::args::CrdSet;

/// Every definition: those of the home cluster and those of the built-in controllers.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = home_crds();
    all.extend(workload_crds());
    all
}

/// What the home cluster needs: ShardMap and Member.
pub fn home_crds() -> Vec<CustomResourceDefinition> {
    sharding::api::crds()
}

/// What every workload cluster needs: the kinds of the built-in controllers.
pub fn workload_crds() -> Vec<CustomResourceDefinition> {
    controllers::crds()
}

/// A stream of YAML documents, ready for `kubectl apply -f -`.
pub fn yaml(set: CrdSet) -> Result<String, serde_saphyr::ser::Error> {
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
    use super::*;

    #[test]
    fn the_yaml_reads_back_as_the_same_definitions() {
        let text = yaml(CrdSet::All).unwrap();
        let back: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&text).unwrap();
        assert_eq!(back, crds());
        let names: Vec<_> = back.iter().filter_map(|crd| crd.metadata.name.as_deref()).collect();
        assert_eq!(
            names,
            [
                "shardmaps.leasehold.dev",
                "members.leasehold.dev",
                "configmonitors.magalix.com",
                "tdsets.schedule.rs",
                "tunnels.inlets.inlets.dev"
            ]
        );
    }
}
