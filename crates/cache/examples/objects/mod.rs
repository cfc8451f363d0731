//! Synthetic objects for measurements and tests: no two alike, of the sizes seen in practice, in
//! the order of keys in which an API server writes them.
//!
//! Pods come from Deployments, [`PODS_PER_APP`] from each. What a Deployment fixes (images, names
//! of variables, probes, volumes) differs from one to the next; names, uids, addresses, digests,
//! timestamps and some variables differ from Pod to Pod.

use std::fmt::Write as _;

use fastrand::Rng;

/// Pods of one Deployment.
pub const PODS_PER_APP: usize = 20;

const WORDS: &[&str] = &[
    "account",
    "alert",
    "archive",
    "audit",
    "auth",
    "batch",
    "billing",
    "cart",
    "catalog",
    "chat",
    "checkout",
    "cluster",
    "config",
    "consumer",
    "content",
    "crawler",
    "customer",
    "dashboard",
    "delivery",
    "device",
    "digest",
    "document",
    "edge",
    "email",
    "event",
    "export",
    "feature",
    "feed",
    "file",
    "fleet",
    "forecast",
    "gateway",
    "graph",
    "history",
    "identity",
    "image",
    "import",
    "index",
    "ingest",
    "inventory",
    "invoice",
    "job",
    "ledger",
    "limit",
    "location",
    "log",
    "mail",
    "market",
    "media",
    "message",
    "metric",
    "monitor",
    "network",
    "notify",
    "offer",
    "order",
    "partner",
    "payment",
    "pipeline",
    "planner",
    "policy",
    "portal",
    "price",
    "product",
    "profile",
    "promo",
    "proxy",
    "query",
    "queue",
    "quota",
    "rating",
    "recommend",
    "refund",
    "region",
    "report",
    "review",
    "route",
    "schedule",
    "search",
    "secret",
    "session",
    "shard",
    "shipping",
    "signal",
    "source",
    "status",
    "stock",
    "storage",
    "stream",
    "supply",
    "survey",
    "sync",
    "task",
    "tenant",
    "ticket",
    "token",
    "trace",
    "track",
    "trade",
    "translate",
    "upload",
    "usage",
    "user",
    "vault",
    "video",
    "wallet",
    "warehouse",
    "webhook",
    "workflow",
    "zone",
];

/// Draws the parts of objects.
struct Draw(Rng);

impl Draw {
    fn word(&mut self) -> &'static str {
        WORDS[self.0.usize(..WORDS.len())]
    }

    fn hex(&mut self, digits: usize) -> String {
        (0..digits).map(|_| char::from_digit(self.0.u32(..16), 16).unwrap_or('0')).collect()
    }

    /// What the API server appends to a generated name.
    fn suffix(&mut self, letters: usize) -> String {
        let alphabet = b"bcdfghjklmnpqrstvwxz2456789";
        (0..letters).map(|_| char::from(alphabet[self.0.usize(..alphabet.len())])).collect()
    }

    fn uid(&mut self) -> String {
        let (a, b, c, d) = (self.hex(8), self.hex(4), self.hex(3), self.hex(3));
        format!("{a}-{b}-4{c}-a{d}-{}", self.hex(12))
    }

    fn time(&mut self) -> String {
        let (month, day) = (self.0.u8(1..=12), self.0.u8(1..=28));
        let (hour, minute, second) = (self.0.u8(..24), self.0.u8(..60), self.0.u8(..60));
        format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    fn address(&mut self) -> String {
        format!("10.{}.{}.{}", self.0.u8(..), self.0.u8(..), self.0.u8(..))
    }

    /// A variable's value: mostly settings, some endpoints, few secrets.
    fn setting(&mut self) -> String {
        match self.0.u8(..10) {
            0..3 => self.0.u32(1..100_000).to_string(),
            3..5 => ["true", "false", "info", "warn"][self.0.usize(..4)].to_owned(),
            5..9 => {
                let (service, namespace) = (self.word(), self.word());
                format!("http://{service}.{namespace}.svc.cluster.local:{}", self.0.u16(1000..9999))
            }
            _ => self.hex(24),
        }
    }
}

/// One container's names and settings, as its Deployment fixes them.
struct Container {
    name: String,
    image: String,
    digest: String,
    env: Vec<(String, String)>,
    port: u16,
    memory_mi: u16,
}

fn container(draw: &mut Draw, name: &str, variables: usize) -> Container {
    let (group, image) = (draw.word(), draw.word());
    Container {
        name: name.to_owned(),
        image: format!(
            "registry.example/{group}/{image}:v1.{}.{}",
            draw.0.u8(..40),
            draw.0.u8(..9)
        ),
        digest: draw.hex(64),
        env: (0..variables)
            .map(|_| (format!("{}_{}", draw.word(), draw.word()).to_uppercase(), draw.setting()))
            .collect(),
        port: draw.0.u16(3000..9999),
        memory_mi: draw.0.u16(1..32) * 64,
    }
}

/// A Deployment's own container, and the sidecar that the platform puts beside each, in one of a
/// few versions.
fn containers(app: &mut Draw) -> [Container; 2] {
    let name = app.word();
    let main = container(app, name, 20);
    let version = app.0.u64(1..5);
    [main, container(&mut Draw(Rng::with_seed(version)), "telemetry-agent", 26)]
}

/// What several Pods share, and what one has for itself.
struct Names {
    namespace: String,
    app: String,
    hash: String,
    owner: String,
    pod: String,
}

/// The index-th Pod: about 8 KB, and 14.9 KB with `managedFields`.
pub fn pod(index: usize) -> String {
    // All Pods of a Deployment begin with the same draws.
    let mut app = Draw(Rng::with_seed(1 + (index / PODS_PER_APP) as u64));
    let mut own = Draw(Rng::with_seed(!(index as u64)));
    let containers = containers(&mut app);
    let name = format!("{}-{}", app.word(), app.word());
    let hash = app.suffix(10);
    let names = Names {
        namespace: format!("{}-{}", app.word(), ["prod", "stage", "dev"][app.0.usize(..3)]),
        pod: format!("{name}-{hash}-{}", own.suffix(5)),
        app: name,
        hash,
        owner: app.uid(),
    };
    let mut text = String::with_capacity(15_000);
    text.push_str(r#"{"apiVersion":"v1","kind":"Pod","metadata":"#);
    pod_metadata(&mut text, &names, &containers, &mut app, &mut own);
    pod_spec(&mut text, &names, &containers, &mut app, &mut own);
    pod_status(&mut text, &containers, &mut own);
    text.push('}');
    text
}

fn put(text: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = text.write_fmt(args);
}

/// Writes formatted text to the end of a `String`.
macro_rules! put {
    ($text:expr, $($args:tt)*) => { put($text, format_args!($($args)*)) };
}

fn pod_metadata(
    text: &mut String,
    names: &Names,
    containers: &[Container],
    app: &mut Draw,
    own: &mut Draw,
) {
    let Names { namespace, app: name, hash, owner, pod } = names;
    put!(
        text,
        r#"{{"annotations":{{"checksum/config":"{}","cni.example/podIPs":"{}/32","kubectl.kubernetes.io/restartedAt":"{}","prometheus.io/port":"{}","prometheus.io/scrape":"true"}},"#,
        app.hex(64),
        own.address(),
        app.time(),
        containers[0].port
    );
    put!(
        text,
        r#""creationTimestamp":"{}","generateName":"{name}-{hash}-","generation":1,"labels":{{"app.kubernetes.io/instance":"{name}","app.kubernetes.io/name":"{}","app.kubernetes.io/version":"1.{}.0","pod-template-hash":"{hash}","team":"{}"}},"#,
        own.time(),
        app.word(),
        app.0.u8(..30),
        app.word()
    );
    put!(text, r#""managedFields":{},"#, managed_fields(containers, own));
    put!(
        text,
        r#""name":"{pod}","namespace":"{namespace}","ownerReferences":[{{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"{name}-{hash}","uid":"{owner}"}}],"resourceVersion":"{}","uid":"{}"}},"#,
        own.0.u32(10_000_000..99_999_999),
        own.uid()
    );
}

fn managed_fields(containers: &[Container], own: &mut Draw) -> String {
    let mut fields = String::from(
        r#"[{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{}},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/instance":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\""#,
    );
    put!(&mut fields, r#"{}\"}}":{{}}}}}},"f:spec":{{"f:containers":{{"#, own.uid());
    for (index, container) in containers.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        put!(
            &mut fields,
            r#"{comma}"k:{{\"name\":\"{}\"}}":{{".":{{}},"f:env":{{".":{{}}"#,
            container.name
        );
        for (name, _) in &container.env {
            put!(
                &mut fields,
                r#","k:{{\"name\":\"{name}\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}}"#
            );
        }
        fields.push_str(r#"},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:readinessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{},"f:volumeMounts":{".":{},"k:{\"mountPath\":\"/etc/app\"}":{".":{},"f:mountPath":{},"f:name":{},"f:readOnly":{}}}}"#);
    }
    put!(
        &mut fields,
        r#"}},"f:dnsPolicy":{{}},"f:enableServiceLinks":{{}},"f:restartPolicy":{{}},"f:schedulerName":{{}},"f:securityContext":{{}},"f:serviceAccount":{{}},"f:serviceAccountName":{{}},"f:terminationGracePeriodSeconds":{{}},"f:volumes":{{".":{{}},"k:{{\"name\":\"config\"}}":{{".":{{}},"f:configMap":{{".":{{}},"f:defaultMode":{{}},"f:name":{{}}}},"f:name":{{}}}}}}}}}},"manager":"kube-controller-manager","operation":"Update","time":"{}"}}"#,
        own.time()
    );
    put!(
        &mut fields,
        r#",{{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:annotations":{{"f:cni.example/podIPs":{{}},"f:cni.example/network":{{}}}}}},"f:spec":{{"f:tolerations":{{}},"f:initContainers":{{".":{{}},"k:{{\"name\":\"telemetry-agent\"}}":{{".":{{}},"f:args":{{}},"f:image":{{}},"f:imagePullPolicy":{{}},"f:name":{{}},"f:resources":{{".":{{}},"f:limits":{{".":{{}},"f:cpu":{{}},"f:memory":{{}}}},"f:requests":{{".":{{}},"f:cpu":{{}},"f:memory":{{}}}}}},"f:restartPolicy":{{}},"f:securityContext":{{".":{{}},"f:allowPrivilegeEscalation":{{}},"f:capabilities":{{".":{{}},"f:drop":{{}}}},"f:readOnlyRootFilesystem":{{}},"f:runAsNonRoot":{{}}}},"f:terminationMessagePath":{{}},"f:terminationMessagePolicy":{{}}}}}}}}}},"manager":"telemetry-injector","operation":"Update","time":"{}"}}"#,
        own.time()
    );
    put!(
        &mut fields,
        r#",{{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:status":{{"f:conditions":{{"k:{{\"type\":\"ContainersReady\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}},"k:{{\"type\":\"Initialized\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}},"k:{{\"type\":\"Ready\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}}}},"f:containerStatuses":{{}},"f:hostIP":{{}},"f:phase":{{}},"f:podIP":{{}},"f:podIPs":{{".":{{}},"k:{{\"ip\":\"{}\"}}":{{".":{{}},"f:ip":{{}}}}}},"f:startTime":{{}}}}}},"manager":"kubelet","operation":"Update","subresource":"status","time":"{}"}}]"#,
        own.address(),
        own.time()
    );
    fields
}

fn pod_spec(
    text: &mut String,
    names: &Names,
    containers: &[Container],
    app: &mut Draw,
    own: &mut Draw,
) {
    let token = format!("kube-api-access-{}", own.suffix(5));
    text.push_str(r#""spec":{"containers":["#);
    for (index, container) in containers.iter().enumerate() {
        let Container { name, image, env, port, memory_mi, .. } = container;
        let comma = if index == 0 { "" } else { "," };
        put!(
            text,
            r#"{comma}{{"env":[{{"name":"POD_IP","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"status.podIP"}}}}}},{{"name":"INSTANCE_ID","value":"{}"}}"#,
            own.hex(16)
        );
        for (name, value) in env {
            put!(text, r#",{{"name":"{name}","value":"{value}"}}"#);
        }
        put!(
            text,
            r#"],"image":"{image}","imagePullPolicy":"IfNotPresent","livenessProbe":{{"failureThreshold":3,"httpGet":{{"path":"/livez","port":{port},"scheme":"HTTP"}},"periodSeconds":10,"successThreshold":1,"timeoutSeconds":{}}},"name":"{name}","ports":[{{"containerPort":{port},"protocol":"TCP"}}],"readinessProbe":{{"failureThreshold":3,"httpGet":{{"path":"/readyz","port":{port},"scheme":"HTTP"}},"periodSeconds":5,"successThreshold":1,"timeoutSeconds":1}},"resources":{{"limits":{{"memory":"{memory_mi}Mi"}},"requests":{{"cpu":"{}m","memory":"{memory_mi}Mi"}}}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","volumeMounts":[{{"mountPath":"/etc/app","name":"config","readOnly":true}},{{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"{token}","readOnly":true}}]}}"#,
            app.0.u8(1..9),
            app.0.u16(1..20) * 50
        );
    }
    let account = app.word();
    put!(
        text,
        r#"],"dnsPolicy":"ClusterFirst","enableServiceLinks":true,"nodeName":"ip-10-0-{}-{}.eu-central-1.compute.internal","preemptionPolicy":"PreemptLowerPriority","priority":0,"restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{{"fsGroup":{}}},"serviceAccount":"{account}","serviceAccountName":"{account}","terminationGracePeriodSeconds":30,"#,
        own.0.u8(..4),
        own.0.u8(..60),
        app.0.u16(1000..3000)
    );
    put!(
        text,
        r#""tolerations":[{{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300}},{{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}}],"volumes":[{{"configMap":{{"defaultMode":420,"name":"{}-config"}},"name":"config"}},{{"name":"{token}","projected":{{"defaultMode":420,"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"items":[{{"key":"ca.crt","path":"ca.crt"}}],"name":"kube-root-ca.crt"}}}},{{"downwardAPI":{{"items":[{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.namespace"}},"path":"namespace"}}]}}}}]}}}}]}},"#,
        names.app
    );
}

fn pod_status(text: &mut String, containers: &[Container], own: &mut Draw) {
    let (ready, started, ip) = (own.time(), own.time(), own.address());
    text.push_str(r#""status":{"conditions":["#);
    for (index, kind) in
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .into_iter()
            .enumerate()
    {
        let comma = if index == 0 { "" } else { "," };
        let since = if index == 1 || index == 4 { &started } else { &ready };
        put!(
            text,
            r#"{comma}{{"lastProbeTime":null,"lastTransitionTime":"{since}","status":"True","type":"{kind}"}}"#
        );
    }
    text.push_str(r#"],"containerStatuses":["#);
    for (index, container) in containers.iter().enumerate() {
        let Container { name, image, digest, .. } = container;
        let comma = if index == 0 { "" } else { "," };
        let repository =
            image.rsplit_once(':').map_or(image.as_str(), |(repository, _)| repository);
        put!(
            text,
            r#"{comma}{{"containerID":"containerd://{}","image":"{image}","imageID":"{repository}@sha256:{digest}","lastState":{{}},"name":"{name}","ready":true,"restartCount":{},"started":true,"state":{{"running":{{"startedAt":"{}"}}}}}}"#,
            own.hex(64),
            own.0.u8(..3),
            own.time()
        );
    }
    put!(
        text,
        r#"],"hostIP":"10.0.{}.{}","phase":"Running","podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],"qosClass":"Burstable","startTime":"{started}"}}"#,
        own.0.u8(..4),
        own.0.u8(..60)
    );
}

/// The index-th custom resource: about 2.3 KB without `managedFields`.
pub fn custom(index: usize) -> String {
    let mut own = Draw(Rng::with_seed(!(index as u64) ^ 0x5eed));
    let mut app = Draw(Rng::with_seed(7 + (index / PODS_PER_APP) as u64));
    let (team, owner) = (app.word(), app.uid());
    let namespace = format!("{}-{}", team, ["prod", "stage", "dev"][app.0.usize(..3)]);
    let (word, port) = (own.word(), own.0.u16(3000..9999));
    let name = format!("{word}-{}", own.suffix(6));
    let mut text = String::with_capacity(3_000);
    put!(
        &mut text,
        r#"{{"apiVersion":"schedule.rs/v1","kind":"TDSet","metadata":{{"annotations":{{"meta.helm.sh/release-name":"{team}","meta.helm.sh/release-namespace":"{namespace}"}},"creationTimestamp":"{}","generation":{},"labels":{{"app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/part-of":"{team}","tier":"{}"}},"managedFields":[{{"apiVersion":"schedule.rs/v1","fieldsType":"FieldsV1","fieldsV1":{{"f:spec":{{"f:container":{{"f:image":{{}},"f:port":{{}}}},"f:defaultReplica":{{}},"f:schedulingConfig":{{}}}}}},"manager":"helm","operation":"Update","time":"{}"}},{{"apiVersion":"schedule.rs/v1","fieldsType":"FieldsV1","fieldsV1":{{"f:status":{{"f:conditions":{{}},"f:observedGeneration":{{}},"f:replicas":{{}}}}}},"manager":"leasehold","operation":"Update","subresource":"status","time":"{}"}}],"#,
        own.time(),
        own.0.u8(1..9),
        ["front", "back"][own.0.usize(..2)],
        own.time(),
        own.time()
    );
    put!(
        &mut text,
        r#""name":"{name}","namespace":"{namespace}","ownerReferences":[{{"apiVersion":"platform.example/v1","blockOwnerDeletion":true,"controller":true,"kind":"Tenant","name":"{team}","uid":"{owner}"}}],"resourceVersion":"{}","uid":"{}"}},"spec":{{"container":{{"image":"registry.example/{}/{word}:v{}.{}.0","port":{port}}},"defaultReplica":{},"schedulingConfig":["#,
        own.0.u32(10_000_000..99_999_999),
        own.uid(),
        app.word(),
        own.0.u8(1..9),
        own.0.u8(..40),
        own.0.u8(1..6)
    );
    let slots = 24;
    for slot in 0..slots {
        let comma = if slot == 0 { "" } else { "," };
        put!(
            &mut text,
            r#"{comma}{{"endTime":{},"replica":{},"startTime":{slot}}}"#,
            slot + 1,
            own.0.u8(1..12)
        );
    }
    let since = own.time();
    put!(
        &mut text,
        r#"]}},"status":{{"conditions":[{{"lastTransitionTime":"{since}","message":"the Deployment has as many replicas as the schedule asks for","observedGeneration":2,"reason":"Scaled","status":"True","type":"Ready"}},{{"lastTransitionTime":"{}","message":"the schedule covers the whole day","observedGeneration":2,"reason":"Complete","status":"True","type":"Covered"}}],"lastScaleTime":"{since}","observedGeneration":2,"replicas":{},"selector":"app={name}"}}}}"#,
        own.time(),
        own.0.u8(1..12)
    );
    text
}
