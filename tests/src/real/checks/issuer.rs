//! Without a stored token: a cluster trusts the issuer of the home's ServiceAccount tokens, and a replica
//! works there with its Pod's own token, by the kubeconfig of `deploy/clouds/issuer`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use crate::harness::control_plane::{ControlPlane, Spec};
use crate::harness::home::NAMESPACE;
use crate::harness::manager::{self, Manager};
use crate::harness::{Scene, audit, home, kubectl, wait};

const DEADLINE: Duration = Duration::from_secs(60);
const ISSUER: &str = "https://home.example.test";
/// The replica's ServiceAccount in the home cluster.
const ACCOUNT: &str = "leasehold";
/// The example's Deployments.
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/temp/deployments";

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let home = ControlPlane::start(scene, &Spec { issuer: ISSUER, ..Spec::local("home") }).await?;
    home::install(&home.kubectl).await?;
    home.kubectl.run(&["--namespace", NAMESPACE, "create", "serviceaccount", ACCOUNT]).await?;
    let public = "--clusterrole=system:service-account-issuer-discovery";
    let everybody = "--group=system:unauthenticated";
    home.kubectl.run(&["create", "clusterrolebinding", "issuer", public, everybody]).await?;

    let trust = format!("--authentication-config={}", trust(scene, &home)?.display());
    let flags: &[&str] = &[&trust];
    let south = ControlPlane::start(scene, &Spec { flags, ..Spec::local("south") }).await?;
    home::install_crds(&south.kubectl).await?;
    let user = format!("home:system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    manager::grant(&south.kubectl, "tdset", &user).await?;
    south.kubectl.run(&["create", "namespace", "temp"]).await?;
    south.kubectl.apply_path(&xtask::root().join("examples/tdset.yaml")).await?;

    let token = scene.dir().join("token");
    let issue = async |audience: &str| -> Result<()> {
        let audience = format!("--audience={audience}");
        let arguments = ["--namespace", NAMESPACE, "create", "token", ACCOUNT, &audience];
        Ok(fs::write(&token, home.kubectl.run(&arguments).await?.trim())?)
    };
    let recipe = recipe(scene, &south, &token.display().to_string())?;
    issue("another").await?;
    let stranger = kubectl::client(&recipe, "south").await?;
    let refused = kubectl::list(&stranger, DEPLOYMENTS).await;
    ensure!(
        refused.is_err_and(|error| format!("{error:#}").contains("Unauthorized")),
        "a token for another audience is no user there"
    );
    issue("fleet").await?;
    let more = json!({
        "controllers": {"tdset": {}},
        "clusters": {"kubeconfigs": [{"path": recipe, "allow": ["loopback"]}]},
    });
    let mut managers = vec![Manager::start(scene, "replica-0", &home, &[], &more)?];
    manager::settled(&home.client, 1, &mut managers).await?;
    wait::until(DEADLINE, "the Deployment of the example", async || {
        managers[0].check_alive()?;
        let found = kubectl::list(&south.client, DEPLOYMENTS).await?;
        Ok((!found.is_empty()).then_some(()))
    })
    .await?;
    managers[0].leave().await?;
    let events = audit::read(&south.audit_log())?;
    let denied = audit::denied(&events, &user);
    ensure!(denied.is_empty(), "the replica lacks rights: {}", denied.join("\n  "));
    println!("{} requests as {user}, none denied", audit::answered(&events, &user));
    Ok(())
}

/// How `south` is told to trust the home's issuer.
fn trust(scene: &Scene, home: &ControlPlane) -> Result<PathBuf> {
    let authority = fs::read_to_string(home.pki("ca.crt"))?;
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": ISSUER,
                "discoveryURL": format!("{}/.well-known/openid-configuration", home.server()),
                "audiences": ["fleet"],
                "certificateAuthority": authority,
            },
            "claimMappings": {"username": {"claim": "sub", "prefix": "home:"}},
        }],
    });
    let path = scene.dir().join("authentication.yaml");
    fs::write(&path, config.to_string())?;
    Ok(path)
}

/// The kubeconfig of the recipe, for `cluster` and with the token at `token`.
fn recipe(scene: &Scene, cluster: &ControlPlane, token: &str) -> Result<PathBuf> {
    let recipe = fs::read_to_string(xtask::root().join("deploy/clouds/issuer"))?;
    let data = "certificate-authority-data: ";
    let shown = recipe.split(data).nth(1).and_then(|rest| rest.lines().next());
    let recipe = recipe
        .replace("https://south.example.com:6443", cluster.server())
        .replace(
            shown.context("no authority in the recipe")?,
            &BASE64.encode(fs::read(cluster.pki("ca.crt"))?),
        )
        .replace("/var/run/leasehold/identity/token", token);
    let path = scene.dir().join("issuer.kubeconfig");
    fs::write(&path, recipe)?;
    Ok(path)
}
