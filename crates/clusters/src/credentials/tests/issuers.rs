//! Issuers that say more than they should.

use super::*;

#[tokio::test]
async fn of_an_issuer_that_says_much_little_is_kept() {
    // Shown, each of these takes six bytes.
    let much = "\u{7f}".repeat(100_000);
    let answer = move |_: &str, _: &str, _: &str| {
        (StatusCode::OK, json!({"issuer": much, "token_endpoint": ""}))
    };
    let server = Server::start(None, Box::new(answer)).await;
    let user = format!(
        "{{auth-provider: {{name: oidc, config: {{idp-issuer-url: 'http://{}', client-id: c, \
         refresh-token: r}}}}}}",
        server.address
    );
    let mut info: AuthInfo = serde_saphyr::from_str(&user).unwrap();
    let granted = Granted::everything();
    let source = CredentialSource::of("k", &mut info, &granted, &Turns::new([1; 3]));
    let error = source.unwrap().obtain("k", &*clock()).await.err().unwrap();
    assert!(error.to_string().contains("another issuer"), "{error}");
    assert!(error.to_string().len() < 1_000, "{} bytes", error.to_string().len());
}
