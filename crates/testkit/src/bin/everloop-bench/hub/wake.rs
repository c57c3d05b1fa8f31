//! How soon a waiting node holds a new task: through the hub, by a notification and a claim, beside
//! a plain insert, notify and claim; and on one machine, where a byte in a pipe is the
//! notification.

use std::io::{Read, Write, pipe};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use everloop_store::postgres::{Url, listen};
use everloop_store::{Ledger, OpenMode, Postgres, Sqlite};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::race::{claim, enqueue, finish};
use crate::measure::Times;
use crate::report::{BenchRow, ms, ratio, remark};
use crate::{Options, Result};

/// A notification arrives within milliseconds; a later one is lost.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

pub fn run(options: &Options, url: &str) -> Result<()> {
    let rounds = options.length.pick(300, 30);
    let (mut hub, mut plain) = (Hub::open(url)?, Plain::open(url)?);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        ours.push(hub.round(&format!("w{round}"))?);
        bare.push(plain.round(&format!("w{round}"))?);
    }
    let (ours, bare) = (Times::new(ours)?, Times::new(bare)?);
    let rows = [("p50", ours.median(), bare.median(), 1.5), ("p99", ours.p99(), bare.p99(), 2.0)];
    for (what, ours, bare, most) in rows {
        BenchRow::new(format!("hub, {what}"), ms(ours))
            .floor("plain notify", &ms(bare), ratio(ours, bare))
            .goal(&format!("<= {most}x"), ratio(ours, bare) <= most)
            .print();
    }
    let local = Times::new(local(options, rounds)?)?;
    BenchRow::new("SQLite, p50", ms(local.median()))
        .goal("<= 5 ms", local.median() <= Duration::from_millis(5))
        .print();
    remark(&format!("p99 {}", ms(local.p99())));
    Ok(())
}

/// A node that queues and one that listens.
struct Hub {
    here: Postgres,
    there: Postgres,
    hints: Receiver<()>,
}

impl Hub {
    fn open(url: &str) -> Result<Self> {
        let (told, hints) = channel();
        let address = Url::parse(url)?;
        // Ends with the process: the thread sees no end without a notification.
        std::thread::spawn(move || listen(&address, |_| told.send(()).is_ok()));
        let (here, there) = (super::open(url)?, super::open(url)?);
        // A listener that connects late misses earlier notifications.
        let end = Instant::now() + WAIT_TIMEOUT;
        while hints.recv_timeout(Duration::from_millis(20)).is_err() {
            here.hint("work")?;
            if Instant::now() > end {
                return Err("no notification arrives".into());
            }
        }
        Ok(Self { here, there, hints })
    }

    fn round(&mut self, name: &str) -> Result<Duration> {
        while self.hints.try_recv().is_ok() {}
        let start = Instant::now();
        let held = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| held(&mut self.hints, &mut self.there).map_err(|e| e.to_string()));
            enqueue(&mut self.here, name, 1)?;
            self.here.hint("work")?;
            Ok::<_, Box<dyn std::error::Error>>(waiting.join().map_err(|_| "the other node is gone")??)
        })?;
        let took = held.0 - start;
        finish(&mut self.there, &held.1)?;
        Ok(took)
    }
}

/// Waits for the notification and claims; returns the time and the operations that finish the task.
fn held(hints: &mut Receiver<()>, ledger: &mut impl Ledger) -> Result<(Instant, Vec<everloop_core::op::Op>)> {
    hints.recv_timeout(WAIT_TIMEOUT)?;
    let ops = claim(ledger, 1)?;
    Ok((Instant::now(), ops))
}

/// The same in plain SQL.
struct Plain {
    runtime: tokio::runtime::Runtime,
    here: Client,
    held: Receiver<Instant>,
}

const PLAIN_CLAIM: &str = "update raw.tasks set state = 'leased', node = 'bench', until = 90000, fence = fence + 1
     where id = any(array(select id from raw.tasks where owner is null and state in ('queued', 'leased')
                          and case state when 'queued' then ready_at else until end <= 1000
                          order by priority desc, created_at, id limit 1 for update skip locked)) returning id";

impl Plain {
    fn open(url: &str) -> Result<Self> {
        let (said, held) = channel();
        let (ready, is_ready) = channel();
        let address = url.to_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(Self::there(&address, &ready, &said)).ok()
        });
        is_ready.recv_timeout(WAIT_TIMEOUT)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let here = runtime.block_on(connect(url))?;
        Ok(Self { runtime, here, held })
    }

    /// Listens on one connection and claims on another, as nodes do.
    async fn there(url: &str, ready: &Sender<()>, said: &Sender<Instant>) -> Result<()> {
        let worker = connect(url).await?;
        let claim = worker.prepare(PLAIN_CLAIM).await?;
        let (listener, mut connection) = tokio_postgres::connect(url, NoTls).await?;
        let (told, mut hints) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) && told.send(()).is_err() {
                    return;
                }
            }
        });
        listener.batch_execute("listen raw").await?;
        ready.send(())?;
        while hints.recv().await.is_some() {
            worker.query(&claim, &[]).await?;
            said.send(Instant::now())?;
        }
        Ok(())
    }

    fn round(&mut self, name: &str) -> Result<Duration> {
        let start = Instant::now();
        let insert = format!(
            "insert into raw.tasks values ('{name}', null, 'batch', 'a task', 'do it', 0, '[]', 'bench', 'operator', 0,
                                           'queued', null, null, 0, 0, null, 1, 1)"
        );
        self.runtime.block_on(async {
            self.here.batch_execute(&insert).await?;
            self.here.batch_execute("notify raw").await
        })?;
        let took = self.held.recv_timeout(WAIT_TIMEOUT)? - start;
        let done = "update raw.tasks set state = 'done', node = null, until = null where state = 'leased'";
        self.runtime.block_on(self.here.batch_execute(done))?;
        Ok(took)
    }
}

async fn connect(url: &str) -> std::result::Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Two connections to one file; the wake of a supervisor is a pipe too.
fn local(options: &Options, rounds: u32) -> Result<Vec<Duration>> {
    let dir = tempfile::Builder::new().prefix("everloop-bench.").tempdir_in(&options.dir)?;
    let path = dir.path().join("ledger.db");
    let (mut here, mut there) = (Sqlite::open(&path, OpenMode::ReadWrite)?, Sqlite::open(&path, OpenMode::ReadWrite)?);
    let (mut wake_pipe, mut ring) = pipe()?;
    let mut all = Vec::new();
    for round in 0..rounds {
        let start = Instant::now();
        let (took, ops) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                wake_pipe.read_exact(&mut [0]).map_err(|e| e.to_string())?;
                let ops = claim(&mut there, 1).map_err(|e| e.to_string())?;
                Ok::<_, String>((start.elapsed(), ops))
            });
            enqueue(&mut here, &format!("w{round}"), 1)?;
            ring.write_all(&[0])?;
            Ok::<_, Box<dyn std::error::Error>>(waiting.join().map_err(|_| "the other connection is gone")??)
        })?;
        finish(&mut there, &ops)?;
        all.push(took);
    }
    Ok(all)
}
