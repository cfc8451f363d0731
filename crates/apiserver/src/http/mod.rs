//! The Kubernetes API as a tower service over `http::Request`, with no network in it.
//!
//! In data order: [`ApiService`] reads the body and asks for faults; `route` says what the path
//! names; `access` asks whether the user may do it; `options` and `negotiate` read query and
//! headers; `read`, `watch`, `write`, `delete` and `scale` serve resources; `review`, `token` and
//! `eviction` answer questions, which `question` reads; `portforward` connects to Pods, also in
//! process (`pipe`); `discovery`, `openapi` and `health` serve the
//! rest; `encode` and `answer` write the answer.

mod access;
mod admit;
mod answer;
mod delete;
mod discovery;
mod encode;
mod eviction;
mod health;
mod negotiate;
mod openapi;
mod options;
mod pipe;
mod portforward;
mod question;
mod read;
mod review;
mod route;
mod scale;
mod token;
mod watch;
mod write;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

pub(crate) use access::Identity;
pub use answer::Body;
use hyper::upgrade::OnUpgrade;
use options::Query;
use route::{Place, Route, Verb};

use crate::access::token::ISSUER;
use crate::access::user::User;
use crate::api::Api;
use crate::faults::{self, Fault};
use crate::resource::Resource;
use crate::status::ApiError;
use crate::store::Key;

/// Largest request body, in bytes.
pub const MAX_BODY: usize = 3 << 20;

/// Errors of the transport, as tower has them.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The request was dropped by a fault: the connection ends without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("connection dropped by an injected fault")]
pub struct Dropped;

/// The whole API as a service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ApiService {
    api: Arc<Api>,
}

/// A request on any path, read.
struct Asked {
    route: Route,
    query: Query,
    body: Bytes,
    user: Option<Arc<User>>,
    upgrade: Option<OnUpgrade>,
    expire: bool,
}

/// A request on a resource, with everything about it read.
pub(crate) struct Call {
    pub(crate) resource: Arc<Resource>,
    pub(crate) place: Place,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Who calls; `None` is the administrator.
    pub(crate) user: Option<Arc<User>>,
    /// The connection, if the request wants another protocol on it.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// A fault: the server acts as if it had forgotten the requested revision.
    pub(crate) expire: bool,
}

// === impl Call ===

impl Call {
    fn key(&self) -> Key {
        Key {
            namespace: self.place.namespace.clone().unwrap_or_default(),
            name: self.place.name.clone().unwrap_or_default(),
        }
    }

    /// The body's media type, without parameters.
    fn media_type(&self) -> Option<&str> {
        let value = self.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        value.split(';').next().map(str::trim)
    }

    /// The user who calls.
    fn caller(&self) -> User {
        self.user.as_deref().cloned().unwrap_or_else(User::administrator)
    }

    fn user_agent(&self) -> &str {
        header(&self.headers, USER_AGENT)
    }
}

fn header(headers: &HeaderMap, name: http::HeaderName) -> &str {
    headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

// === impl ApiService ===

impl ApiService {
    pub(crate) fn new(api: Arc<Api>) -> Self {
        Self { api }
    }

    /// The user who presents a token to the server itself.
    pub(crate) fn user_of(&self, token: &str) -> Option<User> {
        let (api, wanted) = (&self.api, [ISSUER.to_owned()]);
        let found = api.authenticator.authenticate(&api.store, token, &wanted, api.now());
        found.ok().map(|found| found.user)
    }

    async fn serve<B>(self, request: Request<B>) -> Result<Response<Body>, BoxError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let route = Route::parse(parts.uri.path());
        let fault = self.api.faults.decide(|| seen(&parts, &route, &query));
        match &fault {
            Fault::Drop => return Err(Dropped.into()),
            Fault::Error(error) => return Ok(answer::error(error)),
            Fault::Delay(time) => tokio::time::sleep(*time).await,
            Fault::None | Fault::DropAnswer | Fault::Expire => {}
        }
        let user = match access::user(&self.api, &parts, &route, &query) {
            Ok(user) => user,
            Err(error) => {
                discard(body).await;
                return Ok(answer::error(&error));
            }
        };
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(e) if e.is::<LengthLimitError>() => return Ok(answer::error(&too_large())),
            Err(e) => return Err(e),
        };
        let expire = matches!(fault, Fault::Expire);
        let asked = Asked { route, query, body, user, upgrade, expire };
        let answer = self.dispatch(parts, asked).await;
        if matches!(fault, Fault::DropAnswer) {
            return Err(Dropped.into());
        }
        Ok(answer.unwrap_or_else(|e| answer::error(&e)))
    }

    async fn dispatch(
        &self,
        parts: http::request::Parts,
        asked: Asked,
    ) -> Result<Response<Body>, ApiError> {
        let Asked { route, query, body, user, upgrade, expire } = asked;
        if let Route::Resource(place) = route {
            let catalog = self.api.catalog();
            let Some(resources) = catalog.version(&place.group, &place.version) else {
                return Ok(not_found());
            };
            let resource = resources.iter().find(|r| r.info.plural == place.plural);
            let resource = resource.ok_or_else(ApiError::no_such_resource)?.clone();
            let headers = parts.headers;
            let call = Call { resource, place, query, headers, body, user, upgrade, expire };
            return self.call(&parts.method, call).await;
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let catalog = self.api.catalog();
        Ok(match route {
            Route::Health => health::probe(parts.uri.path(), &query),
            Route::Version => health::version(),
            Route::CoreVersions => discovery::core_versions(&catalog, &parts.headers),
            Route::Groups => discovery::groups(&catalog, &parts.headers),
            Route::Group(name) => discovery::group(&catalog, &name).unwrap_or_else(not_found),
            Route::GroupVersion(group, version) => {
                discovery::version(&catalog, &group, &version).unwrap_or_else(not_found)
            }
            Route::OpenApi2 => openapi::v2(&catalog, &parts.headers)?,
            Route::OpenApi3Index => openapi::index(&catalog),
            Route::OpenApi3(path) => openapi::v3(&catalog, &path).unwrap_or_else(not_found),
            Route::Unknown | Route::Resource(_) => not_found(),
        })
    }

    async fn call(&self, method: &Method, call: Call) -> Result<Response<Body>, ApiError> {
        let api = &self.api;
        let verb = Verb::of(method, &call.place, call.query.is_watch());
        if !call.resource.info.stored {
            return review::answer(api, &call, verb);
        }
        check_scope(&call)?;
        let verb = verb.ok_or_else(ApiError::method_not_allowed)?;
        if call.resource.info.namespaced
            && call.place.namespace.is_none()
            && matches!(verb, Verb::Create | Verb::DeleteCollection)
        {
            return Err(ApiError::method_not_allowed());
        }
        match call.place.subresource.as_deref() {
            Some("scale") => return scale::scale(api, &call, verb),
            Some("token") if call.resource.info.is("", "serviceaccounts") => {
                return token::answer(api, &call, verb);
            }
            Some("eviction") if call.resource.info.is("", "pods") => {
                return eviction::answer(api, &call, verb);
            }
            Some("portforward") if call.resource.info.is("", "pods") => {
                return portforward::answer(api, method, &call, verb);
            }
            Some(sub) if !has_subresource(&call.resource, sub) => {
                return Err(ApiError::no_such_resource());
            }
            Some(_) if !matches!(verb, Verb::Get | Verb::Update | Verb::Patch) => {
                return Err(ApiError::method_not_allowed());
            }
            _ => {}
        }
        match verb {
            Verb::Get => read::get(api, &call).await,
            Verb::List => read::list(api, &call).await,
            Verb::Watch => watch::watch(api, &call).await,
            Verb::Create => write::create(api, &call),
            Verb::Update => write::update(api, &call),
            Verb::Patch => write::patch(api, &call),
            Verb::Delete => delete::delete(api, &call),
            Verb::DeleteCollection => delete::delete_collection(api, &call).await,
        }
    }
}

/// Objects of namespaced kinds must be named in a namespace, and others must not.
fn check_scope(call: &Call) -> Result<(), ApiError> {
    let (namespaced, given) = (call.resource.info.namespaced, call.place.namespace.is_some());
    let fits = if namespaced { given || call.place.name.is_none() } else { !given };
    if fits { Ok(()) } else { Err(ApiError::no_such_resource()) }
}

fn has_subresource(resource: &Resource, name: &str) -> bool {
    match name {
        "status" => resource.info.status,
        "finalize" => resource.info.is("", "namespaces"),
        _ => false,
    }
}

/// What a fault hook sees.
fn seen(parts: &http::request::Parts, route: &Route, query: &Query) -> faults::Request {
    let mut request = faults::Request {
        verb: match parts.method {
            Method::GET => "get",
            Method::POST => "post",
            Method::PUT => "put",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "other",
        },
        path: parts.uri.path().to_owned(),
        user_agent: header(&parts.headers, USER_AGENT).to_owned(),
        ..faults::Request::default()
    };
    if let Route::Resource(place) = route {
        if let Some(verb) = Verb::of(&parts.method, place, query.is_watch()) {
            request.verb = verb.as_str();
        }
        request.group = place.group.clone();
        request.resource = place.plural.clone();
        request.subresource = place.subresource.clone().unwrap_or_default();
        request.namespace = place.namespace.clone().unwrap_or_default();
        request.name = place.name.clone().unwrap_or_default();
    }
    request
}

/// The answer to a request without a usable token.
pub(crate) async fn unauthorized<B>(body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    discard(body).await;
    answer::error(&ApiError::unauthorized())
}

/// Reads the body of a refused request, within the limit. Over HTTP/2, an answer before the end of
/// the body resets the stream, and some clients then do not see the answer.
async fn discard<B>(body: B)
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(Limited::new(body, MAX_BODY));
    while let Some(Ok(_)) = body.frame().await {}
}

/// The answer for a path that is not served, without a Status.
fn not_found() -> Response<Body> {
    answer::typed(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n")
}

fn too_large() -> ApiError {
    ApiError::too_large(format!("Request entity too large: limit is {MAX_BODY}"))
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if pipe::needed(&request) {
            return Box::pin(pipe::serve(self.clone(), request));
        }
        Box::pin(self.clone().serve(request))
    }
}
