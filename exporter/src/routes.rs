//! What each address answers.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Response, StatusCode};

use crate::heartbeat::Heartbeat;
use crate::http::{Refusal, Secrets};
use crate::page::{Exposition, Page};
use crate::{explain, status};

/// How long the pipeline may stand still before it counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// The exposition format that is served, whatever is asked for.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

const ROUTES: &str = "/metrics /status /status/pods/UID /compat/dcgm /readyz /livez /";

const INDEX: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Warpmeter</title></head><body>
<h1>Warpmeter</h1>
<ul>
<li><a href=\"/metrics\">metrics</a>: for Prometheus</li>
<li><a href=\"/status\">status</a>: sources, GPUs and pods as JSON; at /status/pods/UID where the figures of one pod come from</li>
<li><a href=\"/readyz\">readyz</a>: whether the figures can be relied on, and if not, why</li>
<li><a href=\"/livez\">livez</a>: whether the pipeline moves</li>
</ul>
</body></html>
";

/// Who asks, and what must be brought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client<'a> {
    /// The request's headers.
    pub(crate) headers: &'a HeaderMap,
    /// What guards the figures.
    pub(crate) secrets: &'a Secrets,
    /// Whether the connection's client has shown a certificate.
    pub(crate) certified: bool,
}

/// Answers a request for the current `page`. The bodies of answers to HEAD are left out by the server.
pub(crate) async fn answer(
    method: &Method,
    path: &str,
    client: Client<'_>,
    page: Arc<Page>,
    heartbeat: &Heartbeat,
) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    // Whether the daemon lives and is ready is told to everybody: probes of the kubelet can hold no secret, and the
    // answers name sources and GPUs, but no pod and no amount.
    let of_pod = path.strip_prefix("/status/pods/");
    if (matches!(path, "/metrics" | "/status" | "/compat/dcgm") || of_pod.is_some())
        && let Some(refusal) = client.secrets.refusal(client.headers, client.certified)
    {
        return refuse(refusal);
    }
    if let Some(name) = of_pod {
        return pod(&page, name);
    }
    match path {
        "/metrics" | "/compat/dcgm" => {
            let exposition = if path == "/metrics" { Some(page.metrics()) } else { page.dcgm() };
            match (exposition, stalled(heartbeat)) {
                (Some(exposition), None) => metrics(client.headers, exposition).await,
                // Old figures would read as GPUs that do nothing; a failed scrape reads as what it is.
                (Some(_), Some(why)) => plain(StatusCode::SERVICE_UNAVAILABLE, why),
                (None, _) => plain(StatusCode::NOT_FOUND, "not switched on; set [http] compat_dcgm = true\n"),
            }
        }
        "/livez" => match stalled(heartbeat) {
            None => plain(StatusCode::OK, "alive\n"),
            Some(why) => plain(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        "/readyz" => ready(&page, heartbeat),
        "/status" => match status::json(page.view(), page.reasons(), heartbeat.uptime()) {
            Ok(json) => respond(StatusCode::OK, JSON, json),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        },
        "/" => respond(StatusCode::OK, HTML, INDEX),
        _ => plain(StatusCode::NOT_FOUND, format!("not here; there are: {ROUTES}\n")),
    }
}

fn pod(page: &Page, name: &str) -> Response<Full<Bytes>> {
    match explain::find(page.view(), name) {
        Err(why) => plain(StatusCode::NOT_FOUND, format!("{why}\n")),
        Ok(pod) => match explain::json(page.view(), pod) {
            Ok(json) => respond(StatusCode::OK, JSON, json),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        },
    }
}

fn refuse(refusal: Refusal) -> Response<Full<Bytes>> {
    let (status, why, challenge) = match refusal {
        Refusal::Certificate => {
            (StatusCode::FORBIDDEN, "show a certificate by a CA of [http] client_ca\n", None)
        }
        Refusal::NoToken => {
            let why = "send the token of [http] token_file as `Authorization: Bearer TOKEN`\n";
            (StatusCode::UNAUTHORIZED, why, Some("Bearer realm=\"warpmeter\""))
        }
        Refusal::WrongToken => {
            let challenge = "Bearer realm=\"warpmeter\", error=\"invalid_token\"";
            (StatusCode::UNAUTHORIZED, "not the token of [http] token_file\n", Some(challenge))
        }
    };
    let mut response = plain(status, why);
    if let Some(challenge) = challenge {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    response
}

async fn metrics(headers: &HeaderMap, exposition: &Exposition) -> Response<Full<Bytes>> {
    let gzip = if accepts_gzip(headers) { exposition.gzip().await } else { None };
    let compressed = gzip.is_some();
    let mut response = respond(StatusCode::OK, EXPOSITION, gzip.unwrap_or_else(|| exposition.text()));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if compressed {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn ready(page: &Page, heartbeat: &Heartbeat) -> Response<Full<Bytes>> {
    let reasons = page.reasons().iter().map(|reason| format!("{reason}\n"));
    let reasons: String = stalled(heartbeat).into_iter().chain(reasons).collect();
    if reasons.is_empty() {
        plain(StatusCode::OK, "ready\n")
    } else {
        plain(StatusCode::SERVICE_UNAVAILABLE, reasons)
    }
}

fn stalled(heartbeat: &Heartbeat) -> Option<String> {
    let age = heartbeat.age();
    (age > DEAD_AFTER).then(|| format!("the pipeline has stood still for {} s\n", age.as_secs()))
}

/// Whether any `Accept-Encoding` names gzip (or anything) with a weight above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let listed = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for item in listed.flat_map(|value| value.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default();
        let refused = parts.any(is_zero_weight);
        if coding.eq_ignore_ascii_case("gzip") {
            return !refused;
        }
        any |= coding == "*" && !refused;
    }
    any
}

fn is_zero_weight(parameter: &str) -> bool {
    parameter
        .split_once('=')
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .and_then(|(_, weight)| weight.trim().parse::<f32>().ok())
        .is_some_and(|weight| weight <= 0.0)
}

fn plain(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    respond(status, TEXT, body)
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::catalogue::Level;
    use crate::encode::Encoder;

    fn accepts(value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap());
        accepts_gzip(&headers)
    }

    #[test]
    fn gzip_is_served_only_where_it_is_accepted() {
        for yes in ["gzip", "GZIP", "deflate, gzip;q=0.5", "*", "br;q=1.0, *;q=0.1", "gzip ; q=1"] {
            assert!(accepts(yes), "{yes}");
        }
        for no in ["", "identity", "gzip;q=0", "gzip; q=0.000", "*;q=0", "x-gzip-like", "*, gzip;q=0"] {
            assert!(!accepts(no), "{no}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
    #[test]
    fn a_pipeline_that_stands_still_is_dead_and_its_figures_are_not_repeated() {
        let view = Arc::new(warpmeter_core::view::View::default());
        let page = Arc::new(Page::new(Arc::new(Mutex::new(Encoder::new(Level::Standard))), view, Vec::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let status = |path: &str, heartbeat: &Heartbeat| {
            let (headers, secrets) = (HeaderMap::new(), Secrets::default());
            let client = Client { headers: &headers, secrets: &secrets, certified: false };
            let answer = answer(&Method::GET, path, client, Arc::clone(&page), heartbeat);
            runtime.block_on(answer).status().as_u16()
        };
        let heartbeat = Heartbeat::aged(DEAD_AFTER + Duration::from_secs(1));
        for path in ["/metrics", "/livez", "/readyz"] {
            assert_eq!(status(path, &heartbeat), 503, "{path}");
        }
        assert_eq!(status("/status", &heartbeat), 200, "a person may still look");
        heartbeat.clone().beat();
        for path in ["/metrics", "/livez", "/readyz"] {
            assert_eq!(status(path, &heartbeat), 200, "{path}");
        }
    }
}
