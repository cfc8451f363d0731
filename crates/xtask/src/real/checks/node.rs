//! node
use super::super::image::{Image, PAUSE};
use super::super::node::Node;
use super::super::wait::Stopwatch;
use super::Scene;
use anyhow::Result;
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let pause = Image::pack(PAUSE, &scene.tools().pause(), "", scene.dir())?;
    let node = Node::start(scene, "east", &[&pause]).await?;
    println!("up in {watch}");
    println!("{}", node.control.kubectl.run(&["get", "nodes", "-o", "wide"]).await?);
    println!(
        "{}",
        node.control
            .kubectl
            .run(&["create", "deployment", "p", "--replicas=3", "--image", PAUSE])
            .await?
    );
    println!(
        "{}",
        node.control.kubectl.run(&["rollout", "status", "deployment/p", "--timeout=60s"]).await?
    );
    println!("{}", node.control.kubectl.run(&["get", "pods", "-o", "wide"]).await?);
    println!("{}", node.control.kubectl.run(&["get", "events", "-A"]).await?);
    Ok(())
}
