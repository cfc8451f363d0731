//! The ground on which the checks of servers stand, with plain Pods and without our controllers: images,
//! volumes, DNS, the workloads, and each fault. A fault that does nothing, or a workload that finds
//! nothing, would let those checks pass for nothing.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::faults::{address, container_id};
use crate::harness::image::{Image, PAUSE};
use crate::harness::kubectl::{self, holds};
use crate::harness::node::Node;
use crate::harness::servers::{self, ETCD, MYSQL};
use crate::harness::volumes::Volumes;
use crate::harness::wait::{self, Stopwatch};
use crate::harness::workload::Workload;
use crate::harness::{Scene, process};

const DEADLINE: Duration = Duration::from_secs(60);
const SPACE: &str = "/api/v1/namespaces/default";

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let (tools, dir) = (scene.tools(), scene.dir().join("images"));
    let pause = Image::pack(PAUSE, &tools.pause(), &[], "", &dir)?;
    let ([etcd, _], [memcached, _]) = (tools.etcd_images(), tools.memcached_images());
    let images = [&pause, &etcd, &memcached, &tools.mysql_image()];
    let mut node = Node::start(scene, "ground", &images).await?;
    node.add_dns(scene).await?;
    let volumes = Volumes::start(&node).await?;
    println!("a node with DNS and volumes is up after {watch}");

    node.control.kubectl.apply(&manifests()).await?;
    for name in ["etcd-0", "mysql-0", "memcached-0"] {
        ready(&node, name).await?;
    }
    println!("etcd, memcached and MySQL are ready after {watch}");
    let (etcd, mysql) = (service(&node, "etcd").await?, service(&node, "mysql").await?);
    let arguments = [format!("--endpoints=http://{etcd}:2379")];
    let mut register = Workload::start(scene, &node, "register", "register", &arguments)?;
    let mut bank =
        Workload::start(scene, &node, "bank", "bank", &[format!("--address={mysql}:3306")])?;
    register.writes(100, DEADLINE).await?;
    bank.writes(100, DEADLINE).await?;
    println!("the workloads write after {watch}");

    hidden(&node).await?;
    paused(&node, &mut register).await?;
    cut(&node).await?;
    killed(&node, &mut register).await?;
    grown(&node).await?;
    bank.finish("sound").await?;
    register.writes(20, DEADLINE).await?;
    lost(&node, &volumes, register).await?;
    removed(&node, &volumes).await?;
    println!("every fault did what it should after {watch}");
    Ok(())
}

async fn pod(node: &Node, name: &str) -> Result<Value> {
    let pod = kubectl::get(&node.control.client, &format!("{SPACE}/pods/{name}")).await?;
    pod.with_context(|| format!("there is no Pod {name}"))
}

async fn ready(node: &Node, name: &str) -> Result<Value> {
    let mut last = Value::Null;
    let what = format!("Pod {name} to be ready");
    let outcome = wait::until(DEADLINE, &what, async || {
        last = pod(node, name).await.unwrap_or_default();
        Ok(holds(&last, "Ready").then(|| last.clone()))
    });
    outcome.await.with_context(|| format!("last seen: {}", last["status"]))
}

async fn service(node: &Node, name: &str) -> Result<String> {
    let service = kubectl::get(&node.control.client, &format!("{SPACE}/services/{name}")).await?;
    let address = service.as_ref().and_then(|service| service["spec"]["clusterIP"].as_str());
    Ok(address.with_context(|| format!("Service {name} has no address"))?.to_owned())
}

/// The machine reaches a Pod, and no longer after it is hidden; port-forward does.
async fn hidden(node: &Node) -> Result<()> {
    let address = address(&pod(node, "memcached-0").await?)?;
    let dial = async || timeout(Duration::from_secs(2), TcpStream::connect((address, 11211))).await;
    ensure!(matches!(dial().await, Ok(Ok(_))), "the machine does not reach {address}");
    node.hide_pods()?;
    let dialled = dial().await;
    ensure!(!matches!(dialled, Ok(Ok(_))), "the machine still reaches {address}");
    println!("Pods are hidden: {dialled:?}");
    Ok(())
}

/// Nothing is acknowledged while etcd's processes are stopped.
async fn paused(node: &Node, register: &mut Workload) -> Result<()> {
    let etcd = container_id(&pod(node, "etcd-0").await?, "etcd")?;
    node.pause_container(&etcd)?;
    let before = register.report()?.acknowledged;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = register.report()?.acknowledged;
    // Some were acknowledged, and not counted, before it stopped.
    ensure!(after < before + 50, "{} writes were acknowledged by a stopped server", after - before);
    node.resume_container(&etcd)?;
    register.writes(50, DEADLINE).await
}

/// Another Pod no longer reaches one that is cut off, nor does it reach the other; the kubelet does.
async fn cut(node: &Node) -> Result<()> {
    let (from, to) = (pod(node, "mysql-0").await?, pod(node, "memcached-0").await?);
    let target = address(&to)?;
    ensure!(reaches(node, &from, target).await?, "Pods do not reach each other");
    for victim in [target, address(&from)?] {
        node.cut(victim)?;
        ensure!(!reaches(node, &from, target).await?, "{victim} is not cut off");
        node.mend(victim)?;
        ensure!(reaches(node, &from, target).await?, "{victim} is still cut off");
    }
    node.cut(target)?;
    let mut forward = node.control.kubectl.command();
    let port = process::free_port()?;
    forward.args(["port-forward", "memcached-0", &format!("{port}:11211")]);
    let mut forward = forward.stdout(std::process::Stdio::null()).spawn()?;
    wait::until(DEADLINE, "port-forward to a Pod that is cut off", async || {
        Ok(version(port).await.ok().map(|version| println!("memcached says {version}")))
    })
    .await?;
    forward.kill().await?;
    node.mend(target)?;
    Ok(())
}

/// What memcached behind a local port says its version is.
async fn version(port: u16) -> Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let exchange = async {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        connection.write_all(b"version\r\n").await?;
        let mut answer = [0; 64];
        let bytes = connection.read(&mut answer).await?;
        ensure!(answer[..bytes].starts_with(b"VERSION "), "not memcached");
        Ok(String::from_utf8_lossy(&answer[..bytes]).trim().to_owned())
    };
    timeout(Duration::from_secs(2), exchange).await?
}

/// Whether a Pod with a shell opens a connection to memcached in another.
async fn reaches(node: &Node, from: &Value, to: Ipv4Addr) -> Result<bool> {
    let script = format!("timeout 2 bash -c 'exec 3<>/dev/tcp/{to}/11211' && echo open || true");
    let arguments = ["exec", kubectl::name(from), "-c", "mysql", "--", "sh", "-c", &script];
    Ok(node.control.kubectl.run(&arguments).await?.contains("open"))
}

/// A server that is killed comes back with its data.
async fn killed(node: &Node, register: &mut Workload) -> Result<()> {
    node.kill_container(&container_id(&pod(node, "etcd-0").await?, "etcd")?)?;
    register.writes(50, DEADLINE).await
}

/// A volume grows when its claim asks for more.
async fn grown(node: &Node) -> Result<()> {
    let path = format!("{SPACE}/persistentvolumeclaims/data-mysql-0");
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    kubectl::merge(&node.control.client, &path, &more).await?;
    wait::until(DEADLINE, "a volume to grow", async || {
        let found = kubectl::get(&node.control.client, &path).await?.unwrap_or_default();
        Ok((found["status"]["capacity"]["storage"] == "2Gi").then_some(()))
    })
    .await
}

/// A server whose volume is lost forgets what it acknowledged, and the workload finds out.
async fn lost(node: &Node, volumes: &Volumes, register: Workload) -> Result<()> {
    let etcd = container_id(&pod(node, "etcd-0").await?, "etcd")?;
    node.pause_container(&etcd)?;
    volumes.erase("default", "data-etcd-0").await?;
    node.kill_container(&etcd)?;
    wait::until(DEADLINE, "etcd to run again", async || {
        let again = container_id(&pod(node, "etcd-0").await?, "etcd");
        Ok(again.is_ok_and(|again| again != etcd).then_some(()))
    })
    .await?;
    ready(node, "etcd-0").await?;
    let error = register.finish("linearizable").await;
    let error = error.err().context("the workload did not notice that all data was lost")?;
    ensure!(format!("{error:#}").contains("no order of its"), "another error: {error:#}");
    println!("a lost volume is noticed");
    Ok(())
}

/// When a claim goes, so does its folder.
async fn removed(node: &Node, volumes: &Volumes) -> Result<()> {
    let folder = volumes.folder("default", "data-etcd-0").await?;
    let kubectl = &node.control.kubectl;
    kubectl.run(&["delete", "statefulset", "etcd", "--cascade=foreground"]).await?;
    kubectl.run(&["delete", "pvc", "data-etcd-0"]).await?;
    wait::until(
        DEADLINE,
        "the volume's folder to go",
        async || Ok((!folder.exists()).then_some(())),
    )
    .await
}

fn manifests() -> String {
    let etcd = json!({
        "image": servers::etcd_image(ETCD[0]),
        "command": [
            "etcd", "--data-dir=/var/lib/etcd/data", "--listen-client-urls=http://0.0.0.0:2379",
            "--advertise-client-urls=http://etcd-0.etcd-peers.default.svc:2379",
            "--initial-advertise-peer-urls=http://etcd-0.etcd-peers.default.svc:2380",
            "--listen-peer-urls=http://0.0.0.0:2380", "--name=etcd-0",
            "--initial-cluster=etcd-0=http://etcd-0.etcd-peers.default.svc:2380",
        ],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 2379}, "periodSeconds": 1},
    });
    let mysql = json!({
        "image": MYSQL, "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "[ -d /var/lib/mysql/data ] || mysqld --initialize-insecure --datadir=/var/lib/mysql/data; \
            [ -f /var/lib/mysql/init ] || echo \"RENAME USER root@localhost TO root@'%';\" >/var/lib/mysql/init; \
            exec mysqld --datadir=/var/lib/mysql/data --init-file=/var/lib/mysql/init --mysqlx=OFF"],
        "readinessProbe": {"tcpSocket": {"port": 3306}, "periodSeconds": 1},
    });
    let memcached = json!({
        "image": servers::memcached_image(servers::MEMCACHED[0]),
        "args": ["-m", "64"],
        "readinessProbe": {"tcpSocket": {"port": 11211}, "periodSeconds": 1},
    });
    let mut all = Vec::new();
    for (name, port, user, folder, container) in [
        ("etcd", 2379, 65_532, "/var/lib/etcd", etcd),
        ("mysql", 3306, 999, "/var/lib/mysql", mysql),
        ("memcached", 11211, 11_211, "/data", memcached),
    ] {
        let labels = json!({"app": name});
        let services = [(name.to_owned(), Value::Null), (format!("{name}-peers"), json!("None"))];
        all.extend(services.map(|(service, address)| {
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": service},
                "spec": {
                    "selector": labels, "clusterIP": address, "ports": [{"port": port}],
                    "publishNotReadyAddresses": true,
                },
            })
        }));
        let mut container = container;
        container["name"] = name.into();
        container["volumeMounts"] = json!([{"name": "data", "mountPath": folder}]);
        container["securityContext"] = json!({
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        });
        all.push(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
            "spec": {
                "serviceName": format!("{name}-peers"), "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "containers": [container], "terminationGracePeriodSeconds": 5,
                        "securityContext": {
                            "runAsUser": user, "runAsGroup": user, "fsGroup": user, "runAsNonRoot": true,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                    },
                },
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }],
            },
        }));
    }
    all.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")
}
