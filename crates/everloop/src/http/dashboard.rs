//! The dashboard: pages for a person with a browser, on the supervisor's port.
//!
//! - here: the routes, and what stands in front of all of them
//! - `logins`: one-time links, and the browsers that used one; `link`: how `everloop ui` gets a link
//! - `pages`: the views; `actions`: what the buttons do; `feed`: what is new, for open tabs
//! - `form`: pairs of forms and addresses
//!
//! Pages are made here and need no script. The one script and the one stylesheet are our own, and the
//! policy of a page allows no other. A page shows only models of `services::views`, whose texts are
//! safe, and the templates escape them once more. A process of a turn is known by its connection and
//! gets nothing, whatever it shows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use askama::Template as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HeaderName, HeaderValue, REFERRER_POLICY, SET_COOKIE,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use everloop_agents::clock;
use everloop_core::picture::timeline;
use everloop_core::research::chart;
use everloop_engine::caller::{Caller, Peer, person};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::ServiceContext;
use everloop_engine::services::views::burn::{Burn, BurnView};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tower_http::compression::CompressionLayer;
use tower_http::set_header::SetResponseHeaderLayer;

use super::answer::{Answer, read};
use super::serve::PeerAddress;
use super::{App, text};
use crate::config::FileProjects;
use actions::ByHand;
use feed::Feed;
use form::Form;
use logins::{Logins, Visitor};

mod actions;
mod feed;
mod form;
pub mod link;
mod logins;
mod pages;

/// Each page holds a thread and a connection to the ledger.
const MAX_PAGES: usize = 8;
/// A message or a task with its prompt.
const MAX_FORM_BYTES: usize = 256 << 10;
/// Where `everloop ui` requests a login link.
pub const LINK_PATH: &str = "/ui/link";

const STYLE: &str = include_str!("../../static/dashboard.css");
const SCRIPT: &str = include_str!("../../static/dashboard.js");

/// What the dashboard remembers between requests; all of it is bounded, none of it is needed.
pub struct Dashboard {
    logins: Logins,
    burn: Arc<BurnFold>,
    feed: Arc<Feed>,
    by_hand: Arc<ByHand>,
    pages: Arc<Semaphore>,
}

impl Dashboard {
    /// Nothing yet. Needs the runtime.
    pub fn new(port: &Arc<everloop_engine::port::PortState>) -> Self {
        Self {
            logins: Logins::default(),
            burn: Arc::default(),
            feed: Feed::start(port),
            by_hand: Arc::default(),
            pages: Arc::new(Semaphore::new(MAX_PAGES)),
        }
    }
}

/// The policy of every page: nothing but our own stylesheet, script and events.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; img-src data:; style-src 'self'; script-src '{}'; connect-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
        *INTEGRITY
    );
    HeaderValue::from_str(&policy).expect("a policy is plain text")
});

/// The digest of the script, for the policy and for its element.
static INTEGRITY: LazyLock<String> = LazyLock::new(|| format!("sha256-{}", base64(&Sha256::digest(SCRIPT))));

/// All paths of the dashboard.
pub(super) fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let views = pages::routes().merge(actions::routes()).route("/logout", post(log_out));
    let views = views.layer(CompressionLayer::new()).route("/events", get(feed::events));
    let views = views.route_layer(middleware::from_fn_with_state(Arc::clone(app), visited));
    let open = Router::new()
        .route("/login/{code}", get(log_in))
        .route("/ui/style.css", get(style))
        .route("/ui/live.js", get(|| async { ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT) }));
    let links = Router::new()
        .route(LINK_PATH, post(new_link))
        .route_layer(middleware::from_fn_with_state(Arc::clone(app), super::access::with_token));
    let header = |name: HeaderName, value: HeaderValue| SetResponseHeaderLayer::overriding(name, value);
    views
        .merge(open)
        .merge(links)
        .layer(header(CONTENT_SECURITY_POLICY, POLICY.clone()))
        .layer(header(X_FRAME_OPTIONS, HeaderValue::from_static("DENY")))
        // With none at all, browsers hide the origin of our own forms.
        .layer(header(REFERRER_POLICY, HeaderValue::from_static("same-origin")))
        .route_layer(middleware::from_fn_with_state(Arc::clone(app), no_job))
}

/// Refuses the processes of turns and checks: the port is no way around their rights.
async fn no_job(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let address = request.extensions().get::<PeerAddress>().copied();
    let (home, here) = (app.port.home.clone(), app.port.address);
    // The tables of the kernel are files.
    let peer = tokio::task::spawn_blocking(move || {
        address.map_or(Peer::Unknown, |PeerAddress(address)| Peer::of(&home, address, here))
    });
    match peer.await.unwrap_or(Peer::Unknown) {
        Peer::Job(name) => {
            let what = format!("this program belongs to turn {name}; the dashboard is for people");
            Answer::error(403, &what).into_response()
        }
        // The other end of a tunnel may belong to another user; the cookie decides.
        Peer::Unknown | Peer::Program => next.run(request).await,
    }
}

/// Serves browsers that logged in. A change also needs the secret of the page's form.
async fn visited(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let cookie = cookie(request.headers(), app.port.address.port());
    let Some(visitor) = cookie.and_then(|secret| app.dashboard.logins.visitor(secret, clock::boottime())) else {
        return pages::stranger();
    };
    let (mut parts, body) = request.into_parts();
    let body = if parts.method == Method::POST {
        let form = match read(body, MAX_FORM_BYTES).await {
            Ok(bytes) => Form::parse(&String::from_utf8_lossy(&bytes)),
            Err(refused) => return refused.into_response(),
        };
        let foreign =
            text(&parts.headers, "sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
        if foreign || !visitor.knows(form.get("csrf")) {
            return pages::problem(
                StatusCode::FORBIDDEN,
                "this form is not from this dashboard",
                "open the page again",
            );
        }
        parts.extensions.insert(form);
        Body::empty()
    } else {
        body
    };
    parts.extensions.insert(visitor);
    next.run(Request::from_parts(parts, body)).await
}

/// A fresh login link, for a program with the token.
async fn new_link(State(app): State<Arc<App>>) -> Response {
    match app.dashboard.logins.link(clock::boottime()) {
        Ok(code) => Answer::json(200, &serde_json::json!({ "schema_version": 1, "path": format!("/login/{code}") }))
            .into_response(),
        Err(why) => Answer::error(500, &why).into_response(),
    }
}

/// Takes a link, once. The answer is a page of its own and not a redirection, because a browser
/// sends no strict cookie along a chain that began elsewhere.
async fn log_in(State(app): State<Arc<App>>, Path(code): Path<String>) -> Response {
    match app.dashboard.logins.enter(&code, clock::boottime()) {
        Ok(secret) => {
            let name = cookie_name(app.port.address.port());
            let value =
                format!("{name}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}", logins::IDLE.as_secs());
            let page = pages::Entered {}.render().map(Html);
            let page = page.map_or_else(|e| Answer::error(500, &e.to_string()).into_response(), Html::into_response);
            ([(SET_COOKIE, value)], page).into_response()
        }
        Err(logins::Refused::TooMany) => {
            pages::problem(StatusCode::TOO_MANY_REQUESTS, "too many attempts", "wait a minute, then: everloop ui")
        }
        Err(logins::Refused::Unknown) => pages::problem(
            StatusCode::FORBIDDEN,
            "this link is over: it works once, for a minute",
            "get another one: everloop ui",
        ),
    }
}

async fn log_out(State(app): State<Arc<App>>, request: Request) -> Response {
    if let Some(visitor) = request.extensions().get::<Visitor>() {
        app.dashboard.logins.leave(visitor);
    }
    pages::problem(StatusCode::OK, "you are logged out", "log in again: everloop ui")
}

/// Our rules, and those of drawings, which stand in reports by themselves.
async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], format!("{STYLE}\n{}\n{}\n", timeline::STYLE, chart::STYLE))
}

/// Calls services on a thread of their own, as the person that the cookie stands for.
async fn call<T: Send + 'static>(
    app: &App,
    service: impl FnOnce(&ServiceContext) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    // The permit stays with a call that outlives its request.
    let permit = Arc::clone(&app.dashboard.pages).acquire_owned().await;
    let context = context(app);
    let called = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        service(&context)
    });
    called.await.unwrap_or_else(|e| Err(Failure::failed("the page could not be made").because(&e)))
}

/// What a person at this dashboard gets from services.
fn context(app: &App) -> ServiceContext {
    let root = app.port.home.root().to_owned();
    let caller = Caller::Person(format!("{} (dashboard)", person()));
    ServiceContext { state_dir: Some(root.clone()), dir: root, caller, projects: Arc::new(FileProjects) }
}

/// The sums of what was used, read on beside the pages.
#[derive(Debug, Default)]
struct BurnFold {
    fold: Mutex<Option<Burn>>,
    today_microusd: AtomicU64,
}

impl BurnFold {
    /// Reads to the end of the journal, unless another thread does.
    fn read_on(&self, context: &ServiceContext) {
        let Ok(mut fold) = self.fold.try_lock() else { return };
        let now = context.now();
        if fold.as_ref().is_none_or(|burn| burn.is_old(now)) {
            *fold = Some(Burn::new(now));
        }
        let Some(burn) = fold.as_mut() else { return };
        loop {
            match burn.advance(context) {
                Ok(is_done) => {
                    self.today_microusd.store(burn.today_microusd(), Ordering::Relaxed);
                    if is_done {
                        return;
                    }
                }
                Err(failure) => {
                    tracing::debug!(error = failure.message, "the usage cannot be read");
                    return;
                }
            }
        }
    }

    /// The sums; as far as they go while another thread reads.
    fn view(&self, context: &ServiceContext) -> Result<BurnView, Failure> {
        match self.fold.try_lock() {
            Ok(fold) => match fold.as_ref() {
                Some(burn) => burn.view(context),
                None => Ok(BurnView { counting: true, ..BurnView::default() }),
            },
            Err(_) => Ok(BurnView { counting: true, ..BurnView::default() }),
        }
    }
}

/// Today's dollars as they are known; what is newer is read beside the page.
fn today(app: &App) -> u64 {
    let (burn, context) = (Arc::clone(&app.dashboard.burn), context(app));
    tokio::task::spawn_blocking(move || burn.read_on(&context));
    app.dashboard.burn.today_microusd.load(Ordering::Relaxed)
}

fn status_of(failure: &Failure) -> StatusCode {
    match failure.code {
        Code::Usage => StatusCode::BAD_REQUEST,
        Code::Away => StatusCode::SERVICE_UNAVAILABLE,
        Code::Ok
        | Code::Failed
        | Code::NotReached
        | Code::NeedsPerson
        | Code::Held
        | Code::BadConfig
        | Code::Interrupted
        | Code::Terminated => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Cookies are shared by all ports of a machine, so the port is part of the name.
fn cookie_name(port: u16) -> String {
    format!("everloop_{port}")
}

fn cookie(headers: &HeaderMap, port: u16) -> Option<&str> {
    let name = cookie_name(port);
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Standard base64 with padding; only for the digest, so no crate is worth it.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().enumerate().fold(0_u32, |word, (nth, byte)| word | u32::from(*byte) << (16 - 8 * nth));
        for place in 0..4 {
            let letter = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_browsers_read_it() {
        for (bytes, text) in [(&b"a"[..], "YQ=="), (b"ab", "YWI="), (b"abc", "YWJj"), (b"\xff\xfe\xfd\xfc", "//79/A==")]
        {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn the_cookie_of_another_port_is_not_ours() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("everloop_1=a; x=b; everloop_2=c"));
        assert_eq!((cookie(&headers, 2), cookie(&headers, 3)), (Some("c"), None));
    }

    #[test]
    fn the_script_is_short_and_changes_nothing_of_the_machine() {
        assert!(SCRIPT.lines().count() <= 300);
        for word in ["eval(", "innerHTML", "document.write", "insertAdjacentHTML", "http:", "https:"] {
            assert!(!SCRIPT.contains(word) && !STYLE.contains(word), "{word}");
        }
    }
}
