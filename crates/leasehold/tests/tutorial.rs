//! The code of the tutorial is the example's, word for word, and what it promises happens.
#![cfg(all(target_os = "linux", feature = "embedded"))]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};

/// The example's own tests are run with these.
#[path = "../examples/blogpost/main.rs"]
#[expect(dead_code, reason = "its `main` is for the program")]
mod program;

const TUTORIAL: &str = include_str!("../TUTORIAL.md");
const PROGRAM: &str = include_str!("../examples/blogpost/main.rs");
const ITS_TEST: &str = include_str!("../examples/blogpost/tests.rs");
const MANIFEST: &str = include_str!("../examples/blogpost/post.yaml");

/// How long the program may take to publish a post, from its start.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// The tutorial's blocks of code in a language, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let blocks = TUTORIAL.split(&begin).skip(1);
    let code = |block: &'static str| block.split_once("\n```").map_or(block, |(code, _)| code);
    blocks.map(code).collect()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.trim().is_empty()).collect()
}

#[test]
fn the_tutorial_is_the_example_word_for_word() {
    let told: Vec<&str> = blocks("rust").into_iter().flat_map(lines).collect();
    let program: Vec<&str> = lines(PROGRAM).into_iter().chain(lines(ITS_TEST)).collect();
    assert_eq!(told, program);
    assert_eq!(blocks("yaml"), [MANIFEST.trim_end()]);
}

/// The program of the example, which cargo builds beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let profile = test.parent().and_then(Path::parent).expect("it lies in target/<profile>/deps");
    let program = profile.join("examples/blogpost");
    assert!(program.exists(), "`cargo test -p leasehold` builds {}", program.display());
    program
}

/// Ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn client(kubeconfig: &Path) -> Option<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).ok()?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.ok()?;
    Client::try_from(config).ok()
}

#[tokio::test]
async fn the_program_publishes_the_post() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let mut command = Command::new(program());
    command.arg("--write-kubeconfig").arg(&kubeconfig).args(["--for", "2m"]);
    let _running = Running(command.stdout(Stdio::null()).spawn().unwrap());
    let post: DynamicObject = serde_saphyr::from_str(MANIFEST).unwrap();
    let gvk = GroupVersionKind::gvk("iximiuz.com", "v1alpha1", "BlogPost");
    let publish = async || {
        let client = client(&kubeconfig).await?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(client, "default", &ApiResource::from_gvk(&gvk));
        let apply = PatchParams::apply("reader");
        let found = api.patch("blog-post-1", &apply, &Patch::Apply(&post)).await.ok()?;
        found.data["status"]["publishedAt"].as_str().map(str::to_owned)
    };
    let published = async {
        loop {
            if let Some(at) = publish().await {
                return at;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let at = tokio::time::timeout(PATIENCE, published).await.expect("a post is published");
    assert!(at.ends_with('Z') && at.contains('T'), "{at}");
}
