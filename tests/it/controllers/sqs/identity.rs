//! Queues with a role that the manager assumes with its service account's token.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::testing::TestEnv;
use serde_json::json;
use sqs::environment::{AwsEnvironment, ROLE, TOKEN_FILE};

use super::super::quiet;
use super::world::{A_WHILE, Aws, NAMED, Sts, events, make, ready, says, without_secret};

const OWN: &str = "arn:aws:iam::000000000000:role/manager";

async fn by_role(env: &TestEnv, name: &str) {
    make(env, name, json!({"credentials": {"webIdentity": {"roleArn": NAMED}}})).await;
}

fn environment(file: &Path, role: &str) -> AwsEnvironment {
    let file = file.to_str().unwrap().to_owned();
    [(TOKEN_FILE, file), (ROLE, role.to_owned())].into_iter().collect()
}

fn asked(aws: &Aws) -> Vec<(String, String)> {
    aws.sts(|sts| sts.asked.clone())
}

#[tokio::test(start_paused = true)]
async fn a_role_is_assumed_once_and_again_before_its_credentials_expire() {
    let (mut env, aws) = without_secret().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, "first\n").unwrap();
    env.run([aws.controller_in(environment(&file, OWN))]);
    for name in ["orders", "returns"] {
        by_role(&env, name).await;
        ready(&env, name).await;
    }
    let expected = |token: &str| (NAMED.to_owned(), token.to_owned());
    assert_eq!(asked(&aws), [expected("first")]);
    let used = || aws.sts(|sts| sts.last_used.clone());
    assert_eq!(used().as_deref(), Some("session-1"));

    // The kubelet renews the file, and the manager reads it when it assumes the role again.
    fs::write(&file, "second").unwrap();
    env.pass(Sts::LIFETIME - Duration::from_secs(1_200)).await;
    assert_eq!(asked(&aws).len(), 1);
    env.pass(Duration::from_secs(1_199)).await;
    assert_eq!(asked(&aws), [expected("first"), expected("second")], "before it is over");
    assert_eq!(used().as_deref(), Some("session-2"));
}

#[tokio::test(start_paused = true)]
async fn the_manager_s_own_role_is_that_of_its_environment() {
    let (mut env, aws) = without_secret().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, "first").unwrap();
    env.run([aws.controller_in(environment(&file, OWN))]);
    make(&env, "orders", json!({"credentials": {"environment": {}}})).await;
    ready(&env, "orders").await;
    assert_eq!(asked(&aws), [(OWN.to_owned(), "first".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_cannot_be_renewed_serve_until_they_expire() {
    let (mut env, aws) = without_secret().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, "first").unwrap();
    env.run([aws.controller_in(environment(&file, OWN))]);
    let role = json!({"webIdentity": {"roleArn": NAMED}});
    let spec = json!({"credentials": role, "driftCheckIntervalSeconds": 30});
    make(&env, "orders", spec).await;
    ready(&env, "orders").await;
    aws.sts(|sts| sts.refuses = true);
    env.pass(Sts::LIFETIME - Duration::from_secs(120)).await;
    assert!(asked(&aws).len() > 1, "it is tried");
    assert_eq!(events(&env, "CredentialsMissing").await, [""; 0]);
    env.pass(Duration::from_secs(240)).await;
    says(&env, "orders", "Ready", "False", "CredentialsMissing").await;
}

/// It may be another one by then.
#[tokio::test(start_paused = true)]
async fn the_manager_s_own_identity_is_read_again_when_it_may_not_assume_a_role() {
    let (mut env, aws) = without_secret().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, "first").unwrap();
    env.run([aws.controller_in(environment(&file, OWN))]);
    make(&env, "own", json!({"credentials": {"environment": {}}})).await;
    ready(&env, "own").await;
    aws.sts(|sts| sts.refuses = true);
    make(&env, "orders", json!({"credentials": {"assumeRole": {"roleArn": NAMED}}})).await;
    says(&env, "orders", "Ready", "False", "CredentialsMissing").await;
    fs::write(&file, "second").unwrap();
    aws.sts(|sts| sts.refuses = false);
    ready(&env, "orders").await;
    assert!(asked(&aws).contains(&(OWN.to_owned(), "second".to_owned())), "{:?}", asked(&aws));
}

#[tokio::test(start_paused = true)]
async fn without_a_token_or_when_refused_it_waits_and_says_why() {
    let (mut env, aws) = without_secret().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let waits = async |env: &TestEnv, words: &str| {
        let held = says(env, "orders", "Ready", "False", "CredentialsMissing").await;
        let message = held.status.unwrap().conditions[0].message.clone();
        env.pass(Duration::from_secs(5)).await;
        assert!(message.contains(words), "{message}");
        quiet(env, A_WHILE).await;
    };
    env.run([aws.controller_in(AwsEnvironment::default())]);
    by_role(&env, "orders").await;
    waits(&env, "the manager's environment has no AWS_WEB_IDENTITY_TOKEN_FILE").await;
    env.stop().await;

    env.run([aws.controller_in(environment(&file, OWN))]);
    env.pass(A_WHILE).await;
    waits(&env, "the token file").await;
    fs::write(&file, "first").unwrap();
    aws.sts(|sts| sts.refuses = true);
    env.pass(A_WHILE).await;
    waits(&env, "role arn:aws:iam::000000000000:role/queues was refused: AccessDenied").await;
    let before = asked(&aws).len();
    env.pass(A_WHILE).await;
    let again = asked(&aws).len() - before;
    assert!((5..=15).contains(&again), "STS is asked once a minute or so: {again}");

    aws.sts(|sts| sts.refuses = false);
    ready(&env, "orders").await;
}
