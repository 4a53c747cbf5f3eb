//! A request that leads to others. `/v1/guarded/chat/completions` has the question screened before it is answered: the
//! screening is new upstream work and takes a slot of its own as a *child*; the answer is the same work on its next *hop*
//! and runs on the slot that the request has already. Both go through the governor's layer, which knows them by
//! extensions that only code of this process can set.

use crate::answer::problem;
use crate::forward::read;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use governor_client::LeaseHandle;
use governor_client::tower::{Caller, ChildOf};
use serde_json::{Value, json};
use tower::ServiceExt;

/// The routes of the gateway as its own code calls them, past authentication.
#[derive(Clone, Debug)]
pub(crate) struct Inside(Router);

impl Inside {
    pub(crate) fn new(routes: Router) -> Self {
        Self(routes)
    }

    async fn call(&self, request: Request) -> Response {
        match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Screens, then answers.
pub(crate) async fn guarded(State(inside): State<Inside>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    let body = match read(body).await {
        Ok(body) => body,
        Err(status) => return problem(&head, status, "the request's body cannot be read"),
    };
    let (verdict, finding) = inside.call(screening(&head, &body)).await.into_parts();
    if !verdict.status.is_success() {
        // Also a refusal: without a slot for the screening there is no answer.
        return Response::from_parts(verdict, finding);
    }
    match read(finding).await.ok().and_then(|finding| is_flagged(&finding)) {
        Some(false) => {}
        Some(true) => return problem(&head, StatusCode::BAD_REQUEST, "the question was flagged"),
        None => return problem(&head, StatusCode::BAD_GATEWAY, "the question could not be screened"),
    }
    head.uri = Uri::from_static("/v1/chat/completions");
    inside.call(Request::from_parts(head, Body::from(body))).await
}

/// The question as a request for moderation, a child of the request it came with.
fn screening(head: &Parts, body: &Bytes) -> Request {
    let question = json!({"input": String::from_utf8_lossy(body)});
    let mut request = Request::new(Body::from(question.to_string()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static("/v1/moderations");
    if let Some(lease) = head.extensions.get::<LeaseHandle>() {
        request.extensions_mut().insert(ChildOf(lease.clone()));
    }
    if let Some(caller) = head.extensions.get::<Caller>() {
        request.extensions_mut().insert(caller.clone());
    }
    request
}

fn is_flagged(finding: &Bytes) -> Option<bool> {
    let finding: Value = serde_json::from_slice(finding).ok()?;
    let results = finding["results"].as_array().filter(|results| !results.is_empty())?;
    results.iter().map(|result| result["flagged"].as_bool()).try_fold(false, |any, flagged| Some(any | flagged?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_that_says_nothing_is_not_taken_for_a_pass() {
        for (finding, flagged) in [
            (r#"{"results":[{"flagged":false},{"flagged":true}]}"#, Some(true)),
            (r#"{"results":[{"flagged":false}]}"#, Some(false)),
            (r#"{"results":[]}"#, None),
            (r#"{"results":[{}]}"#, None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(is_flagged(&Bytes::from_static(finding.as_bytes())), flagged, "{finding}");
        }
    }
}
