//! `everloop research import`: the table of another tool in a few lines.

use std::path::Path;

use everloop_core::research::row::short;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::research::import as service;

use super::VerbSession;
use crate::ui::text::clean;

pub fn import(session: &mut VerbSession, file: &Path) -> Result<Code, Failure> {
    let found = service::import(&session.dir.join(file))?;
    let best = match &found.best {
        Some(row) => {
            let value = row.value.map_or_else(|| "-".to_owned(), short);
            format!("best: {value} in experiment {}: {}", row.number, clean(&row.description))
        }
        None => "no kept row has a value".to_owned(),
    };
    let way = found.direction.map_or_else(String::new, |way| format!(", {} is better", way.label()));
    let text = format!(
        "{} rows, {} kept{way}\n{best}\nlet a run know what was tried: everloop research \"GOAL\" … --history {}",
        found.rows,
        found.keeps,
        clean(&file.display().to_string())
    );
    session.ui.said(&text, &found)?;
    Ok(Code::Ok)
}
