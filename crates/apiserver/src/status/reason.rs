//! Why a request failed, in one word, and the HTTP code that goes with it.

/// The machine-readable reason of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// 400: the request makes no sense.
    BadRequest,
    /// 401: no usable credentials.
    Unauthorized,
    /// 403: not allowed.
    Forbidden,
    /// 404: no such object or resource.
    NotFound,
    /// 405: the resource has no such verb.
    MethodNotAllowed,
    /// 406: none of the accepted media types can be produced.
    NotAcceptable,
    /// 409 on create: the name is taken.
    AlreadyExists,
    /// 409 on write: the object has changed since the client read it.
    Conflict,
    /// 410: the resource version is no longer available.
    Expired,
    /// 413: the request body or patch is too large.
    RequestEntityTooLarge,
    /// 415: the body's media type is not supported.
    UnsupportedMediaType,
    /// 422: the object breaks its kind's rules.
    Invalid,
    /// 429: the client must slow down.
    TooManyRequests,
    /// 500: a defect of the server.
    InternalError,
    /// 503: not available now.
    ServiceUnavailable,
    /// 500 with a retry hint: the operation could not be finished in time.
    ServerTimeout,
    /// 504: the request ran out of time.
    Timeout,
    /// 500 without a reason, as real servers answer some mistakes of clients.
    Unknown,
}

impl Reason {
    /// The word written into `reason`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Expired => "Expired",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::ServerTimeout => "ServerTimeout",
            Self::Timeout => "Timeout",
            Self::Unknown => "",
        }
    }

    /// The HTTP status code that goes with the reason.
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Expired => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError | Self::ServerTimeout | Self::Unknown => 500,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }
}
