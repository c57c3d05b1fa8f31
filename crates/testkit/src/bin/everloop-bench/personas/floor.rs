//! The floor under a wake: bare SQLite and a pipe.

use std::io::{Read, Write};
use std::time::Instant;

use crate::measure::Times;
use crate::scene::{Project, Scene};
use crate::{Options, Result};

/// The least that a signal over the disk costs: a row, a pipe, and the row taken.
pub struct Floor {
    scene: Scene,
}

impl Floor {
    pub fn new(options: &Options) -> Result<Self> {
        Ok(Self { scene: Scene::new(options, Project::Plain)? })
    }

    pub fn times(&self, samples: usize) -> Result<Times> {
        let file = self.scene.path("floor.db");
        let (mut reader, mut writer) = std::io::pipe()?;
        let conn = rusqlite::Connection::open(&file)?;
        let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;";
        conn.execute_batch(settings)?;
        conn.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT)")?;
        let (taken, done) = std::sync::mpsc::channel();
        let taker = rusqlite::Connection::open(&file)?;
        taker.execute_batch(settings)?;
        let take = move || {
            let find = "SELECT id FROM rows ORDER BY id";
            let id: i64 = taker.query_row(find, (), |row| row.get(0))?;
            taker.execute("DELETE FROM rows WHERE id = ?1", [id]).map(|_| Instant::now())
        };
        std::thread::spawn(move || while reader.read_exact(&mut [0]).is_ok() && taken.send(take()).is_ok() {});
        let mut all = Vec::with_capacity(samples);
        for _ in 0..samples {
            let begun = Instant::now();
            conn.execute("INSERT INTO rows (body) VALUES ('the deploy to eu failed')", ())?;
            writer.write_all(b".")?;
            let at = done.recv()??;
            all.push(at.duration_since(begun));
        }
        Times::new(all)
    }
}
