//! Credential programs.

use super::*;

#[tokio::test]
async fn a_program_is_run_before_its_token_ends_and_once_for_all_who_wait() {
    let script = Script::answering();
    script.answer(&json!({"token": "one", "expirationTimestamp": at(600)}));
    let clock = clock();
    let keeper = keeper(&clock, &script.user()).await.unwrap();
    script.answer(&json!({"token": "two", "expirationTimestamp": at(1200)}));
    clock.advance(seconds(540));
    assert_eq!(shown_and_renewed(&keeper).await, "Bearer one");
    assert_eq!(shown(&keeper).await.unwrap(), "Bearer two");
    assert_eq!(script.runs(), 2);
    // No request for a long time: the token has ended, and all wait for the same run.
    script.answer(&json!({"token": "three", "expirationTimestamp": at(9999)}));
    clock.advance(seconds(1000));
    let all = futures::future::join_all((0..20).map(|_| shown(&keeper))).await;
    assert!(all.iter().all(|token| token.as_deref() == Ok("Bearer three")), "{all:?}");
    assert_eq!(script.runs(), 3);
}

#[tokio::test]
async fn while_a_program_fails_it_is_run_less_and_less_often_and_requests_say_why() {
    let script =
        Script::new("echo >> runs; test -e answer || { echo log in >&2; exit 3; }; cat answer");
    script.answer(&json!({"token": "one", "expirationTimestamp": at(100)}));
    let clock = clock();
    let keeper = keeper(&clock, &script.user()).await.unwrap();
    fs::remove_file(script.path("answer")).unwrap();
    clock.advance(seconds(100));
    for (wait, runs) in [(0, 2), (4, 2), (1, 3), (9, 3), (1, 4)] {
        clock.advance(seconds(wait));
        let error = shown(&keeper).await.unwrap_err();
        assert!(
            error.contains("failed with exit status: 3: log in; fix: run it by hand"),
            "{error}"
        );
        assert_eq!(script.runs(), runs);
    }
    script.answer(&json!({"token": "two"}));
    clock.advance(seconds(60));
    assert_eq!(shown(&keeper).await.unwrap(), "Bearer two");
}

#[tokio::test]
async fn a_program_is_told_what_is_wanted_and_answers_in_that_version() {
    let script = Script::new(
        r#"echo "{\"status\":{\"token\":\"$NAME $1 $(echo "$KUBERNETES_EXEC_INFO" | tr '"' "'")\"}}""#,
    );
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, args: [a], \
         env: [{{name: NAME, value: v}}]}}}}",
        script.path("run").display()
    );
    let keeper = keeper(&clock(), &user).await.unwrap();
    assert_eq!(
        shown(&keeper).await.unwrap(),
        "Bearer v a {'apiVersion':'client.authentication.k8s.io/v1','kind':'ExecCredential',\
         'spec':{'interactive':false}}"
    );
}

#[tokio::test]
async fn a_program_that_wants_a_terminal_or_writes_without_end_is_refused() {
    let user = "{exec: {command: login, interactiveMode: Always}}";
    let error = keeper(&clock(), user).await.err().unwrap();
    assert!(error.contains("there is no terminal here"), "{error}");
    let error = keeper(&clock(), "{exec: {command: yes}}").await.err().unwrap();
    assert!(
        error.contains("\"yes\" gave no credential: it writes more than 131072 bytes"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_program_that_hangs_is_given_up() {
    let script = Script::new("exec sleep 1000");
    let error = keeper(&clock(), &script.user()).await.err().unwrap();
    assert!(error.contains("its credential plugin gave no answer within 15s"), "{error}");
}

#[tokio::test]
async fn a_program_that_nobody_waits_for_is_ended() {
    is_ended("exec sleep 1000 > alive").await;
}

#[tokio::test]
async fn what_a_program_began_ends_with_it() {
    is_ended("sleep 1000 > alive | cat").await;
}

/// Whether nothing of a program that has `alive` open runs on when nobody waits for it any more.
async fn is_ended(body: &str) {
    let script = Script::new(body);
    assert!(Command::new("mkfifo").arg(script.path("alive")).status().unwrap().success());
    let exec = kube::config::ExecConfig {
        command: Some(script.path("run").display().to_string()),
        ..Default::default()
    };
    let program = program::Program::new("k", exec, Environment::Whole).unwrap();
    let (opened, is_open) = tokio::sync::oneshot::channel();
    let alive = script.path("alive");
    let reader = std::thread::spawn(move || {
        // Opens when the program has opened it, and ends when no process has it open any more.
        let mut alive = fs::File::open(alive).unwrap();
        opened.send(()).unwrap();
        alive.read_to_end(&mut Vec::new()).unwrap()
    });
    tokio::select! {
        answer = program.run("k") => panic!("{answer:?}"),
        open = is_open => open.unwrap(),
    }
    assert_eq!(reader.join().unwrap(), 0);
}

/// Programs of wrappers start helpers that outlive them, with the same standard output.
#[tokio::test(start_paused = true)]
async fn a_program_that_has_ended_has_answered_whoever_keeps_its_output_open() {
    let script = Script::new("sleep 1000 & cat answer");
    script.answer(&json!({"token": "one"}));
    let exec = kube::config::ExecConfig {
        command: Some(script.path("run").display().to_string()),
        ..Default::default()
    };
    let program = program::Program::new("k", exec, Environment::Whole).unwrap();
    assert_eq!(program.run("k").await.unwrap().token.as_deref(), Some("one"));
}
