//! Who makes a request, and what that user may do.
//!
//! In data order: [`authenticator`] tells the user of a token, which [`token`] signs and reads;
//! [`impersonation`] reads the user that a request names instead; [`attributes`] says what the
//! request does; [`policy`] decides by the rules of RBAC, from the objects that [`authorizer`]
//! reads from the store; [`bootstrap`] has the objects of a new cluster. Everything is pure except
//! reading the store and the making of a key.
//!
//! # Bounds
//! Tokens are at most [`token::MAX_TOKEN`] bytes long and have at most [`token::MAX_AUDIENCES`]
//! audiences; a reviewed user has at most [`MAX_GROUPS`] groups.
//!
//! # Known limits
//! Other than a real server, this one
//! - signs tokens with a key of its own that no client can verify by (HS256, and no
//!   `/openid/v1/jwks`);
//! - binds tokens to Pods, Secrets and Nodes, and not to webhook configurations;
//! - has no Node authorizer, and knows only the `impersonate` verb, without the constrained forms
//!   (`impersonate:user-info` and others);
//! - lets whoever may write Roles and bindings grant more than they hold (no check for the verbs
//!   `escalate` and `bind`);
//! - does not aggregate ClusterRoles, as that is the work of a controller, and starts with four of
//!   the default ClusterRoles only ([`bootstrap`]);
//! - decides without the selectors of a request, as RBAC does.

pub mod attributes;
pub mod authenticator;
pub mod authorizer;
pub mod bootstrap;
pub mod impersonation;
pub mod policy;
pub mod token;
pub mod user;

/// The most groups of a user that a review asks about.
pub const MAX_GROUPS: usize = 1024;
