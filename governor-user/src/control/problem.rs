//! Refusals of the control API: a status, a sentence and, where there is one, a hint. Knows no route.

use crate::node::reload::ReloadError;
use crate::node::settings::Refused;
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use governor_api as api;

/// What a route answers.
pub(super) type Answer<T> = Result<Json<T>, Problem>;

/// A refusal on its way out.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    failure: api::Failure,
}

impl Problem {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, failure: api::Failure { error: error.into(), hint: None } }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.failure.hint = Some(hint.into());
        self
    }

    pub(super) fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self.failure)).into_response()
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let status = match &refused {
            Refused::Unknown { .. } | Refused::NotOverridden { .. } => StatusCode::NOT_FOUND,
            Refused::Fixed { .. } => StatusCode::CONFLICT,
            Refused::Invalid(_) => StatusCode::BAD_REQUEST,
        };
        let problem = Self::new(status, refused.to_string());
        match refused {
            Refused::Unknown { nearest: Some(name), .. } => problem.hint(format!("did you mean \"{name}\"?")),
            Refused::Unknown { nearest: None, .. } => problem.hint("governorctl config lists every setting"),
            Refused::Fixed { .. } | Refused::NotOverridden { .. } | Refused::Invalid(_) => problem,
        }
    }
}

impl From<ReloadError> for Problem {
    fn from(error: ReloadError) -> Self {
        match error {
            ReloadError::Invalid(invalid) => {
                let message = format!("the configuration is not valid: {}", invalid.in_one_line());
                Self::new(StatusCode::BAD_REQUEST, message).hint("nothing changed: the configuration in force stays")
            }
            ReloadError::Stopping => Self::stopping(),
        }
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, rejection.body_text())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, rejection.body_text())
    }
}
