//! Secrets in the places where people put them.

use serde_json::json as value;

use super::*;

/// The part that must be gone.
const SESAME: &str = "0pen-Sesame.42";

#[test]
fn secrets_in_text_are_withheld_and_the_rest_is_kept() {
    for (line, kept) in [
        (format!("Authorization: Bearer {SESAME}"), "Authorization: "),
        (format!("dial https://alice:{SESAME}@host:6443/x"), "dial https://(withheld)@host:6443/x"),
        (format!("password={SESAME} user=bob"), " user=bob"),
        (format!("{{\"clientSecret\": \"{SESAME} and more\", \"a\": 1}}"), "\"a\": 1"),
        (format!("aws_secret_access_key = {SESAME}"), "aws_secret_access_key = (withheld)"),
        (format!("token: '{SESAME}'"), "token: (withheld)"),
        (format!("--token={SESAME}, retry"), ", retry"),
        (format!("a\n-----BEGIN PRIVATE KEY-----\n{SESAME}\n-----END PRIVATE KEY-----\nb"), "\nb"),
        (format!("a -----BEGIN PRIVATE KEY-----\n{SESAME}"), "a (withheld)"),
        (format!("seen eyJhbGciOi.{SESAME}.sig end"), " end"),
        (format!("a: 1\npassword: |\n  open\n\n  {SESAME}\nb: 2"), "\nb: 2"),
        (format!("a: 1\n  - token: >-\n      {SESAME}\nb: 2"), "\nb: 2"),
        (format!("a: 1\npassword: open and then {SESAME}\nb: 2"), "\nb: 2"),
        (format!("sent authorization: Digest {SESAME}, b=2"), ", b=2"),
        (format!(r#"{{"error": "it said {{\"password\":\"{SESAME}\"}}", "b": 2}}"#), "\"b\": 2"),
        (format!(r#"it said {{\"token\": \"a \\\"{SESAME}\", \"b\": 2}}"#), r#"\"b\": 2"#),
        (format!("<AccessKeyId>a</AccessKeyId><SecretAccessKey>{SESAME}</SecretAccessKey>"), ">a<"),
        (format!("tokens: [a, {SESAME}] b"), " b"),
        (format!("open root:{SESAME}@tcp(10.0.0.1:3306)/x"), "10.0.0.1:3306)/x"),
        (format!("run curl -u alice:{SESAME} http://host"), "http://host"),
        (format!("run mysql -p{SESAME} shop"), " shop"),
        (format!("AccountKey={SESAME};EndpointSuffix=x"), ";EndpointSuffix=x"),
        (format!("https://host/blob?sv=1&sig={SESAME}&se=2"), "&se=2"),
        (format!("smtp_pass={SESAME} b"), " b"),
        (format!("sh -c \"agent --token {SESAME} --verbose\""), " --verbose"),
        (format!(r#""args":["login","--client-secret","{SESAME}"],"b":2"#), r#""b":2"#),
        (format!(r#"it ran {{\"args\":[\"--token\",\"{SESAME}\"],\"b\":2}}"#), r#"\"b\":2"#),
        (format!(r#"x "env":{{"LICENSE":"{SESAME}"}},"b":2"#), r#""b":2"#),
        (format!(r#"env: [{{"name":"VAULT_TOKEN","value":"{SESAME}"}}] b"#), " b"),
        (format!("- name: VAULT_TOKEN\n  value: {SESAME}\n- b"), "\n- b"),
        (format!("clone https://{SESAME}@host/x"), "https://(withheld)@host/x"),
        // Texts that were cut.
        (format!(r#"a {{"client_secret":"{SESAME} rest of…"#), "a {"),
        (format!(r#"a password="{SESAME}"#), "a password="),
        (format!(r#"a password="{SESAME}\"#), "a password="),
        (format!("a token='{SESAME} more"), "a token="),
        (format!(r#"a {{"credentials":{{"user":"u","code":"{SESAME}…"#), "a {"),
        // What is within a bracket.
        (format!(r#"a {{"credentials":{{"u":"}}","code":"{SESAME}"}},"b":2}}"#), r#","b":2"#),
        (format!(r#"a secret: {{"a":"{SESAME}"}} b"#), " b"),
        (format!(r#"{{"password":["x",{{"a":1}},"{SESAME}"],"b":2}}"#), r#","b":2}"#),
        (format!(r#"x {{\"auth\": {{\"a\": \"}}{SESAME}\"}}, \"b\": 2}}"#), r#"\"b\": 2"#),
        (format!(r#"Secret {{ "password": ByteString("{SESAME}") }} b"#), " } b"),
        (format!("a: 1\ntoken: {{x: {SESAME}}}\nb: 2"), "\nb: 2"),
        (format!("a: 1\npassword: ({SESAME})\nb: 2"), "\nb: 2"),
        (format!("a: 1\npassword: |  # c\n  {SESAME}\nb: 2"), "\nb: 2"),
        (format!("env:\n- name: LICENSE\n  value: {SESAME}\nb: 2"), "\nb: 2"),
        (format!("env:\n- name: LICENSE\n  value: |\n    a\n\n    {SESAME}\nb: 2"), "\nb: 2"),
        // Names with more after the word.
        (format!(r#"{{"SecretString":"{SESAME}","b":2}}"#), r#""b":2"#),
        (format!(r#"{{"secretValue":"{SESAME}","b":2}}"#), r#""b":2"#),
        (format!("DB_PASSWORD_PROD={SESAME} b"), " b"),
        (format!("password2={SESAME} token_v2: {SESAME} secret_id={SESAME} b"), " b"),
        (format!("token-file=/run/x password={SESAME} b"), "token-file=/run/x password="),
        (format!("GET /x Cookie: theme=dark; session={SESAME}; a=b"), "GET /x Cookie: "),
        (format!("dial https://u:p@{SESAME}@host/x"), "https://(withheld)@host/x"),
        (format!("dial postgres://u:a/{SESAME}@h/db b"), "postgres://(withheld)@h/db b"),
        (format!("dial redis://:1/{SESAME}@h b"), "redis://(withheld)@h b"),
        (format!("dial https://u:a/{SESAME}@h/x b"), "https://(withheld)@h/x b"),
        // What is below a name.
        (format!("auth:\n  key: {SESAME}\nb: 2"), "\nb: 2"),
        (format!("a:\n- credentials: &x\n    one: {SESAME}\n    name: n\n- b"), "    name: n\n- b"),
        (format!("tokens:\n- {SESAME}\nb: 2"), "\nb: 2"),
        (format!("{{{{ x }}}}\nkind: Secret\ndata:\n  license: {SESAME}\nb: 2"), "\nb: 2"),
        (format!("stringData:\n  license: |\n    {SESAME}\nb: 2"), "\nb: 2"),
        (format!(r#"got {{"kind":"Secret","data":{{"a":"{SESAME}"}},"b":2}} x"#), r#""b":2} x"#),
        (format!("args:\n- --token\n- {SESAME}\nb: 2"), "\nb: 2"),
        // Pairs of other words.
        (format!("- key: DB_PASSWORD\n  value: {SESAME}\n- b"), "\n- b"),
        (format!(r#"{{"key":"password","value":"{SESAME} x"}} b"#), "} b"),
        (format!(r#"it said {{\"Name\":\"password\",\"Value\":\"{SESAME} x\"}} b"#), "} b"),
        (format!(r#"{{"id":"api-token","type":1,"stringValue":"{SESAME}"}} b"#), "} b"),
        (format!(r#"<add name="db.password" value="{SESAME} x"/> b"#), "/> b"),
        (format!("<name>s3.secret.key</name>\n<value>{SESAME}</value> b"), "</value> b"),
        // A space between them.
        (format!("machine h login bob password {SESAME} b"), "machine h login bob password "),
        (format!("it was refused with password {SESAME}, b"), " b"),
        (format!("the password is {SESAME} b"), " b"),
        (format!("ENV DB_PASSWORD {SESAME}\nENV A b"), "\nENV A b"),
        (format!("ARG API_KEY {SESAME}\nARG A b"), "\nARG A b"),
        // Flags of programs.
        (format!("run --user alice:{SESAME} http://host"), "http://host"),
        (format!("wget -ualice:{SESAME} b"), "-ualice:(withheld) b"),
        (format!(r#"["curl","-u","alice:{SESAME}","b"]"#), r#""-u","alice:(withheld)","b"]"#),
        (format!(r#"["mysql","-p{SESAME}","b"]"#), r#","b"]"#),
        (format!("run sshpass -p {SESAME} ssh h"), " ssh h"),
        (format!("run redis-cli -p 6379 -a {SESAME} ping"), "-p 6379 -a (withheld) ping"),
        (format!("docker login -u bob -p {SESAME} b"), " b"),
    ] {
        let found = text(&line);
        assert!(!found.contains(SESAME) && !found.contains("Sesame"), "{line}: {found}");
        assert!(found.contains(kept), "{line}: {found}");
    }
    for secret in [
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_0123456789abcdefghij0123",
        "abcdef.0123456789abcdef",
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==",
        "eyJhdXRocyI6eyJyIjp7ImF1dGgiOiJkWE5sY2pwdmNHVnUifX19",
        "YXBpVmVyc2lvbjogdjEKa2luZDogQ29uZmlnCnVzZXJzOiAtIHRva2VuOiBvcGVu",
        "github_pat_11AAAAAAA0abcdefghij_abcdefghijklmnop",
        "sk_live_abcdefghijklmnopqrstuvwx",
        "hooks.slack.com/services/T000/B000/open",
        "AGE-SECRET-KEY-1QQQQQQQQ",
    ] {
        assert_eq!(text(&format!("x {secret} y")), "x (withheld) y");
    }
}

#[test]
fn what_is_no_secret_stays() {
    for line in [
        "shard east/tdset/0/1 is owned by replica-0-abcde at epoch 4",
        "leasehold_cluster_up{cluster=\"east\"} 1",
        "secrets \"cluster-east\" is forbidden: cannot list resource",
        "GET https://10.0.0.1:6443/api/v1/pods?limit=500 200",
        "a token is needed",
        "kubectl get pods -A -o wide; tar -pxf file",
        "read --token-file /run/token; see https://host/a@b",
        "secretName: cluster-east, token-file=/run/token, auth_mode=(token)",
        "GET /apis/leasehold.dev/v1alpha1/namespaces/leasehold/shardmaps/abcdefghijklmnopqrst",
        "the password is wrong, a token is needed, and the secret cluster-east is not there",
        "no password for user bob; TOKEN expired. --user bob and -u 1000, -u https://host/x",
        "dial https://host:6443/a@b",
        "kind: ConfigMap\ndata:\n  a: b",
        "secret:\n  secretName: cluster-east\n\nb: 2",
        "- name: token-file\n  key: a\n  value: b",
    ] {
        assert_eq!(text(line), line);
    }
}

#[test]
fn metrics_keep_their_comments() {
    let help = "# HELP leasehold_cluster_breaker_state Whether requests pass: 0 closed\n";
    let sample = format!("failed{{error=\"password={SESAME}\"}} 1\n");
    let clean = metrics(&format!("{help}{sample}{help}"));
    assert!(clean.starts_with(help) && clean.ends_with(help), "{clean}");
    assert!(!clean.contains(SESAME) && clean.contains("failed{error="), "{clean}");
}

#[test]
fn files_in_objects_are_read_as_what_they_are() {
    let plugin = format!(
        r#"[{{"args": ["login", "--client-secret", "{SESAME}"], "env": {{"A": "{SESAME}"}}}}]"#
    );
    let config = format!("clusters:\n  credentialPlugins: {plugin}\n  kept: true\n");
    let mut object = value!({"data": {"config.yaml": config, "note": "kept: as it is"}});
    json(&mut object);
    let text = object.to_string();
    assert!(!text.contains("Sesame") && text.matches("kept").count() == 2, "{text}");
}

#[test]
fn a_file_of_several_documents_is_read_as_each_of_them() {
    let files = format!("a: kept\n---\nenv:\n- value: {SESAME}\n  name: LICENSE\n---\n# kept\n");
    let mut object =
        value!({"data": {"all.yaml": files}, "binaryData": {"kubeconfig": "YXBpVmVyc2lvbg=="}});
    json(&mut object);
    let text = object["data"]["all.yaml"].as_str().unwrap();
    assert!(!text.contains("Sesame") && text.matches("---\n").count() == 2, "{text}");
    assert!(text.starts_with("a: kept\n") && text.ends_with("# kept\n"), "{text}");
    assert_eq!(object["binaryData"]["kubeconfig"], WITHHELD);
}

#[test]
fn manifests_of_secrets_lose_their_data() {
    let yaml = format!(
        "kind: ConfigMap\ndata: {{a: kept}}\n---\nkind: Secret\nmetadata: {{name: kept}}\n\
         stringData: {{license: {SESAME}, path: {SESAME}}}\ndata:\n  name: {SESAME}\n"
    );
    let json_text = value!({"kind": "List", "items": [
        {"kind": "Secret", "data": {"a": SESAME}, "type": "kept"},
        {"kind": "SecretList", "items": [{"data": {"a": SESAME}}]},
    ]});
    let mut object = value!({"data": {"all.yaml": yaml, "a.json": format!("\n{json_text}")}});
    json(&mut object);
    let text = object.to_string();
    assert!(!text.contains("Sesame") && text.matches("kept").count() == 3, "{text}");
}

#[test]
fn pairs_and_flags_in_objects_are_known_by_each_of_their_words() {
    let mut object = value!({
        "pairs": [
            {"key": "DB_PASSWORD", "value": SESAME}, {"Name": "password", "Value": [SESAME]},
            {"id": "api-token", "stringValue": SESAME}, {"name": "kept", "value": "kept"},
        ],
        "containers": [
            {"command": ["curl", "-u", format!("alice:{SESAME}")], "args": ["--user", "kept"]},
            {"command": ["mysql"], "args": [format!("-p{SESAME}"), "--port=kept"]},
            {"image": "redis-cli:7", "args": ["-a", SESAME, "-p", "kept"]},
            {"args": ["docker", "login", "-p", format!("{SESAME} and more")]},
            {"command": ["tar"], "args": ["-pkept"]},
        ],
    });
    json(&mut object);
    let text = object.to_string();
    assert!(!text.contains("Sesame") && text.matches("kept").count() == 6, "{text}");
    assert_eq!(object["containers"][0]["command"][2], format!("alice:{WITHHELD}"));
}

#[test]
fn lines_of_a_log_that_are_json_are_read_as_such() {
    let plain = r#"2026-01-01T00:00:00Z {"level":"INFO","b":1,"a":"kept: as it is"}"#;
    let secret = format!(
        r#"2026-01-01T00:00:00Z {{"spec":{{"credentials":{{"user":"u","code":"{SESAME}"}}}},"a":[1]}}"#
    );
    let clean = log(&format!("{plain}\n{secret}\n{plain}\n"));
    let lines: Vec<&str> = clean.lines().collect();
    assert_eq!((lines[0], lines[2], lines.len()), (plain, plain, 3));
    let expect = r#"2026-01-01T00:00:00Z {"a":[1],"spec":{"credentials":(withheld)}}"#;
    assert_eq!(lines[1], expect);
    // With other text around it.
    let clean = log(&format!(
        "[INFO] wrote {{\"key\":\"password\",\"value\":\"{SESAME} x\"}} in 3ms, [2] and {{\n"
    ));
    let expect = r#"[INFO] wrote {"key":"password","value":(withheld)} in 3ms, [2] and {"#;
    assert_eq!(clean, format!("{expect}\n"));
}

#[test]
fn objects_lose_their_secrets_and_keep_their_form() {
    let mut object = value!({
        "metadata": {"name": "p", "managedFields": [1], "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SESAME, "a": "b"}},
        "spec": {
            "containers": [{
                "env": [{"name": "A", "value": SESAME},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "args": [format!("--password={SESAME}"), "--token", SESAME, "--kept", "kept"],
                "headers": [{"name": "X-Api-Key", "value": SESAME}, {"name": "A", "value": "kept"}],
            }],
            "clientSecret": SESAME, "password": 4242424242u64, "secretName": "kept",
            "tokens": [SESAME, {"x": SESAME}], "credentials": {"user": SESAME, "deep": [{"a": SESAME}]},
            "volumes": [{"secret": {"secretName": "kept", "items": [{"key": SESAME, "path": "kept"}]}}],
            "token": {"name": "kept", "key": "kept"}, "auth": {"key": SESAME, "path": {"a": SESAME}},
        },
    });
    json(&mut object);
    let text = object.to_string();
    assert!(!text.contains("Sesame") && !text.contains("4242424242"), "{object}");
    assert_eq!(text.matches("kept").count(), 8, "{object}");
    assert_eq!(object["metadata"], value!({"name": "p", "annotations": {"a": "b"}}));
    assert_eq!(object["spec"]["secretName"], "kept");
    assert_eq!(object["spec"]["containers"][0]["env"][1]["valueFrom"]["secretKeyRef"]["key"], "k");
}
