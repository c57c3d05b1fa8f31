//! apalis: fills its queue, drains it, prints the seconds that took.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use tokio::sync::Notify;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Shared state of the jobs: how many are done, and the signal for the last one.
#[derive(Clone)]
struct Count {
    done: Arc<AtomicUsize>,
    jobs: usize,
    last: Arc<Notify>,
}

async fn job(_: usize, count: Data<Count>) -> Result<(), BoxDynError> {
    if count.done.fetch_add(1, Ordering::Relaxed) + 1 == count.jobs {
        count.last.notify_one();
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().collect();
    let [_, url, _, batch, jobs] = args.as_slice() else { return Err("url, what, batch and jobs".into()) };
    let (batch, jobs): (usize, usize) = (batch.parse()?, jobs.parse()?);
    let pool = PgPool::connect(url).await?;
    PostgresStorage::setup(&pool).await?;
    let mut backend = PostgresStorage::new(&pool).with_config(Config::default().queue("job").batch_size(batch));
    let all: Vec<usize> = (0..jobs).collect();
    for chunk in all.chunks(1000) {
        backend.push_bulk(chunk.to_vec()).await?;
    }
    let count = Count { done: Arc::default(), jobs, last: Arc::default() };
    let last = count.last.clone();
    let worker = WorkerBuilder::new("worker").backend(backend).data(count).concurrency(batch).build(job);
    let start = Instant::now();
    let working = tokio::spawn(worker.run());
    last.notified().await;
    while done(&pool).await? < jobs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("{}", start.elapsed().as_secs_f64());
    working.abort();
    Ok(())
}

/// Jobs that are recorded as done.
async fn done(pool: &PgPool) -> Result<usize, Failure> {
    let row: (i64,) = sqlx::query_as("select count(*) from apalis.jobs where status = 'Done'").fetch_one(pool).await?;
    Ok(row.0 as usize)
}
