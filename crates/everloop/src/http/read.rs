//! `GET /api/VERB` and `GET /api/VERB/LOOP`: the JSON of a verb that reads. Needs the token.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use everloop_engine::caller::Caller;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::ServiceContext;

use super::App;
use super::answer::Answer;
use crate::config::FileProjects;
use crate::readings::{READINGS, Reading};

/// The name of a client of HTTP among callers.
pub(super) const CLIENT: &str = "http";

/// The paths of all verbs that read; the last part names a loop.
pub(super) fn routes() -> Router<Arc<App>> {
    READINGS.iter().fold(Router::new(), |routes, reading| {
        let handler = get(move |State(app): State<Arc<App>>, owner: Option<Path<String>>| {
            read(app, reading, owner.map(|Path(word)| word))
        });
        let path = format!("/api/{}", reading.name);
        routes.route(&format!("{path}/{{loop}}"), handler.clone()).route(&path, handler)
    })
}

/// Services read files and run git, so each call gets a thread. A call that outlives its request
/// keeps its permit, so that slow disks do not collect threads.
async fn read(app: Arc<App>, reading: &'static Reading, owner: Option<String>) -> Answer {
    let permit = Arc::clone(&app.reads).acquire_owned().await;
    let root = app.port.home.root().to_owned();
    let called = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let (caller, projects) = (Caller::client(CLIENT), Arc::new(FileProjects));
        // A client on the other end of a socket is in no folder: loops are meant by name.
        let context = ServiceContext { state_dir: Some(root.clone()), dir: root, caller, projects };
        (reading.read)(&context, owner.as_deref())
    });
    match called.await {
        Ok(Ok(text)) => Answer::text("application/json", format!("{text}\n")),
        Ok(Err(failure)) => refused(&failure),
        Err(e) => Answer::error(500, &e.to_string()),
    }
}

pub(super) fn refused(failure: &Failure) -> Answer {
    let status = match failure.code {
        Code::Usage => 400,
        Code::Away => 503,
        Code::Ok
        | Code::Failed
        | Code::NotReached
        | Code::NeedsPerson
        | Code::Held
        | Code::BadConfig
        | Code::Interrupted
        | Code::Terminated => 500,
    };
    Answer::failure(status, failure)
}
