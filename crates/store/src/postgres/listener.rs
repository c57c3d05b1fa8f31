//! Hints from other nodes ("look again"), by NOTIFY. They are only an optimisation: behind a pooler
//! in transaction mode none arrive, and a broken connection loses some, so every listener also
//! polls.

use std::time::Duration;

use futures_util::stream::{StreamExt, poll_fn};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::AsyncMessage;

use super::connection::{CONNECT_WITHIN, HubConnection, Statement, StatementEnd, dial, failed};
use super::url::Url;
use super::{Postgres, Waiter};
use crate::Error;

/// The channel of all hints of a hub.
const CHANNEL: &str = "everloop";
/// A connection without traffic is tested with a keepalive after this long.
const SILENCE: Duration = Duration::from_secs(60);
/// Unread hints; a further one means the same as those before it.
const UNREAD: usize = 64;

impl Postgres {
    /// Sends the hint to all listeners. After the commit that it is about, never in it: NOTIFY
    /// inside would end group commits.
    pub fn hint(&self, word: &str) -> Result<(), Error> {
        let statement = Statement::new("give a hint", "SELECT pg_notify('everloop', $1)").text(word);
        self.call("give a hint", async move |line: &HubConnection| line.alone(&statement).await.map(drop))
    }
}

/// Listens for hints until `heard` returns false (`Ok`) or the connection ends. Blocks this thread.
pub fn listen(url: &Url, mut heard: impl FnMut(&str) -> bool + Send) -> Result<(), Error> {
    Waiter::new()?.wait(async || {
        let (client, mut words) = connect(url).await?;
        client
            .batch_execute(&format!("LISTEN {CHANNEL}"))
            .await
            .map_err(|e| failed("listen", e, StatementEnd::Open))?;
        loop {
            match timeout(SILENCE, words.recv()).await {
                Ok(Some(word)) if heard(&word) => {}
                Ok(Some(_)) => return Ok(()),
                Ok(None) => return Err(Error::Away { doing: "listen", source: "the connection ended".into() }),
                Err(_) => {
                    let alive = timeout(CONNECT_WITHIN, client.check_connection()).await;
                    let alive = alive.map_err(|late| Error::Away { doing: "listen", source: late.into() })?;
                    alive.map_err(|e| failed("listen", e, StatementEnd::Open))?;
                }
            }
        }
    })
}

/// A connection that passes on its notifications.
async fn connect(url: &Url) -> Result<(tokio_postgres::Client, mpsc::Receiver<String>), Error> {
    let (client, mut connection, _) = dial(url).await?;
    let (said, words) = mpsc::channel(UNREAD);
    tokio::spawn(async move {
        let mut messages = poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(note) = message {
                // Full: the reader will look again anyway.
                said.try_send(note.payload().to_owned()).ok();
            }
        }
    });
    Ok((client, words))
}
