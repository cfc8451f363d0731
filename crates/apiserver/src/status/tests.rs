//! The texts and codes of Status answers.

use super::*;
use crate::kinds;

fn kind(plural: &str) -> KindInfo {
    kinds::builtin().into_iter().find(|k| k.plural == plural).unwrap()
}

#[test]
fn texts_are_the_ones_clients_match_on() {
    let cases = [
        (ApiError::not_found(&kind("configmaps"), "a"), 404, "configmaps \"a\" not found"),
        (
            ApiError::already_exists(&kind("deployments"), "a"),
            409,
            "deployments.apps \"a\" already exists",
        ),
        (
            ApiError::conflict(&kind("configmaps"), "a"),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
             please apply your changes to the latest version and try again",
        ),
        (ApiError::too_old(3, 9), 410, "too old resource version: 3 (9)"),
    ];
    for (error, code, message) in cases {
        assert_eq!((error.code, error.message.as_str()), (code, message));
    }
}

#[test]
fn one_invalid_field_stands_alone_and_several_stand_in_brackets() {
    let one = FieldError::invalid("spec.a", "x", "must be y");
    let two = FieldError::required("spec.b", "");
    let deployment = kind("deployments");
    assert_eq!(
        ApiError::invalid(&deployment, "d", std::slice::from_ref(&one)).message,
        "Deployment.apps \"d\" is invalid: spec.a: Invalid value: \"x\": must be y"
    );
    assert_eq!(
        ApiError::invalid(&deployment, "d", &[one, two]).message,
        "Deployment.apps \"d\" is invalid: [spec.a: Invalid value: \"x\": must be y, spec.b: Required value]"
    );
}

#[test]
fn a_status_names_the_object_and_leaves_out_what_is_empty() {
    let status = ApiError::not_found(&kind("configmaps"), "a").to_status();
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));
    assert_eq!(status["code"], 404);
}
