//! A sign of life, and what the hub answers to it: all that a node without work wants to know, in one call.

use everloop_core::ids::NodeId;
use everloop_core::time::Time;
use tokio_postgres::Row;

use super::connection::{HubConnection, Statement};
use super::{HubClock, Postgres, columns};
use crate::Error;

/// What a node hears when it gives a sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The hub's time.
    pub at: Time,
    /// End of another node's leader lease; `None` without one, or when the node itself was last.
    pub led_until: Option<Time>,
    /// The document of kind `node` about it.
    pub wish: Option<String>,
    /// Whether tasks of loops are free, now or later.
    pub waiting: bool,
    /// The last number of the journal.
    pub seq: u64,
}

impl Postgres {
    /// Says that a node is there, and what about it.
    pub fn beat(&mut self, now: Time, node: &NodeId, info: &str) -> Result<HeartbeatReply, Error> {
        let at = (self.options.clock == HubClock::Caller).then_some(now.0);
        let doing = "give a sign of life";
        let statement = Statement::new(doing, "SELECT * FROM everloop.beat($1, $2, $3)").optional_number(at);
        let statement = statement.text(node.as_str()).text(info);
        // One that comes late makes a node look alive a little longer.
        let rows = self.call(doing, async move |line: &HubConnection| line.alone(&statement).await)?;
        let heard = heard(rows.first().ok_or(Error::Away { doing, source: "it said nothing".into() })?);
        let heard = heard.map_err(columns::shape("a sign of life"))?;
        self.saw(heard.seq);
        Ok(heard)
    }
}

fn heard(row: &Row) -> Result<HeartbeatReply, tokio_postgres::Error> {
    Ok(HeartbeatReply {
        at: columns::time(row, "seen_at")?,
        led_until: row.try_get::<_, Option<i64>>("led_until")?.map(Time),
        wish: columns::optional_text(row, "wish")?,
        waiting: row.try_get("waiting")?,
        seq: columns::number(row, "seq")?,
    })
}
