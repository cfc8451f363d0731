//! What the answers of a service with S3's protocol mean. Pure.

use http::StatusCode;

use super::StoreError;

/// The longest text of a service that a message quotes, in characters.
const MAX_QUOTE: usize = 300;

/// What a refusal means.
pub(super) fn refusal(
    (operation, named): (&'static str, &str),
    status: StatusCode,
    body: &str,
) -> StoreError {
    let code = element(body, "Code").unwrap_or_default();
    let message: String =
        element(body, "Message").unwrap_or_default().chars().take(MAX_QUOTE).collect();
    let answer = match (code.is_empty(), message.is_empty()) {
        (true, _) => status.to_string(),
        (false, true) => format!("{status}, {code}"),
        (false, false) => format!("{status}, {code}: {message}"),
    };
    let object = named.to_owned();
    let is_passing = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || status == StatusCode::TOO_MANY_REQUESTS
        || ["SlowDown", "RequestTimeout", "OperationAborted", "NoSuchUpload", "InvalidPart"]
            .contains(&&*code);
    if is_passing {
        let problem = format!("the service answers {answer}");
        return StoreError::Unanswered { operation, object, problem };
    }
    if status == StatusCode::NOT_FOUND && code != "NoSuchBucket" {
        return StoreError::Missing { object };
    }
    StoreError::Refused { operation, object, answer, fix: fix(status, &code) }
}

fn fix(status: StatusCode, code: &str) -> &'static str {
    match code {
        "NoSuchBucket" => "create the bucket, or correct its name in the destination",
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken" => {
            "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the destination's Secret"
        }
        "AuthorizationHeaderMalformed"
        | "PermanentRedirect"
        | "IllegalLocationConstraintException" => {
            "correct the region or the endpoint in the destination"
        }
        "RequestTimeTooSkewed" => "correct the clock of the node that runs this",
        "QuotaExceeded" | "XMinioStorageFull" => "make room in the bucket",
        _ if status == StatusCode::FORBIDDEN || status == StatusCode::UNAUTHORIZED => {
            "give the keys in the destination's Secret the right to read, write, list and delete in the bucket"
        }
        _ if status.is_redirection() => "correct the region or the endpoint in the destination",
        _ => "check bucket, endpoint and region of the destination",
    }
}

/// Whether the end of an upload succeeded: its answer begins before that is known.
pub(super) fn completed(what: (&'static str, &str), body: &str) -> Result<(), StoreError> {
    if body.contains("<CompleteMultipartUploadResult") {
        return Ok(());
    }
    Err(refusal(what, StatusCode::INTERNAL_SERVER_ERROR, body))
}

/// The text of the first element of this name.
fn element(body: &str, name: &str) -> Option<String> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.chars().filter(|c| !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_its_meaning_and_its_fix() {
        let body =
            |code: &str| format!("<Error><Code>{code}</Code><Message>No\n.</Message></Error>");
        let cases = [
            (404, "NoSuchKey", "Missing", ""),
            (404, "", "Missing", ""),
            (404, "NoSuchBucket", "DestinationRefused", "create the bucket"),
            (403, "SignatureDoesNotMatch", "DestinationRefused", "AWS_SECRET_ACCESS_KEY"),
            (403, "AccessDenied", "DestinationRefused", "the right to"),
            (301, "PermanentRedirect", "DestinationRefused", "region"),
            (400, "Whatever", "DestinationRefused", "check bucket"),
            (503, "SlowDown", "DestinationUnreachable", ""),
            (500, "", "DestinationUnreachable", ""),
            (429, "", "DestinationUnreachable", ""),
            (404, "NoSuchUpload", "DestinationUnreachable", ""),
        ];
        for (status, code, reason, fix) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let error = refusal(("store", "s3://a/b"), status, &body(code));
            assert_eq!(error.reason(), reason, "{status} {code}");
            assert_eq!(error.is_transient(), reason == "DestinationUnreachable", "{error}");
            assert!(error.to_string().contains(fix), "{error}");
        }
    }

    #[test]
    fn an_upload_may_fail_after_its_answer_began() {
        let what = ("finish the upload of", "s3://a/b");
        completed(
            what,
            "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>",
        )
        .unwrap();
        let error = completed(what, "<Error><Code>InternalError</Code></Error>").unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
}
