//! The rights of logins at the hub. A leader's can do every operation, a worker's only what a node
//! does with tasks; neither can drop a table or rewrite the journal. Which kind a login is, is read
//! from the hub: it is a leader's when it may update the leader lease.

use everloop_core::mesh::rights::Rights;

use super::connection::{HubConnection, Statement};
use crate::Error;

/// Table and rights of a leader. `SELECT … FOR UPDATE` needs the right to update.
const LEADER: &[(&str, &[&str])] = &[
    ("hub", &["SELECT"]),
    ("tasks", &["SELECT", "INSERT", "UPDATE"]),
    ("shelf", &["SELECT", "INSERT"]),
    ("nodes", &["SELECT", "INSERT", "UPDATE"]),
    ("leader", &["SELECT", "INSERT", "UPDATE"]),
    ("guards", &["SELECT", "INSERT", "UPDATE"]),
    ("loops", &["SELECT", "INSERT", "UPDATE"]),
    ("docs", &["SELECT", "INSERT", "UPDATE"]),
    ("messages", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("streams", &["SELECT", "INSERT", "UPDATE"]),
    ("stream_entries", &["SELECT", "INSERT", "DELETE"]),
    ("stream_groups", &["SELECT", "INSERT", "UPDATE"]),
    ("tickets", &["SELECT", "INSERT", "UPDATE"]),
    ("journal", &["SELECT", "INSERT"]),
    ("heads", &["SELECT", "UPDATE"]),
];

/// The same for a worker. What it may write of documents, tickets and tasks is narrowed further by
/// the rules of format 6.
const WORKER: &[(&str, &[&str])] = &[
    ("hub", &["SELECT"]),
    ("tasks", &["SELECT", "UPDATE (ready_at, state, node, until, fence, failures, result, updated_at)"]),
    ("shelf", &["SELECT", "INSERT"]),
    ("nodes", &["SELECT", "INSERT", "UPDATE"]),
    ("leader", &["SELECT"]),
    ("guards", &["SELECT"]),
    ("loops", &["SELECT"]),
    ("docs", &["SELECT", "INSERT", "UPDATE"]),
    ("messages", &["SELECT"]),
    ("tickets", &["SELECT", "INSERT", "UPDATE"]),
    ("journal", &["SELECT", "INSERT"]),
    ("heads", &["SELECT", "UPDATE"]),
];

/// Functions that a node calls, with the types of their parameters. They act with the caller's
/// rights and add none.
const CALLED: &[&str] = &[
    "all_done(text)",
    "beat(bigint, text, text)",
    "claim(bigint, text, bigint, text, bigint)",
    "claim_one(bigint, text, bigint, text)",
    "finish(bigint, text[], bigint[], text[], text[])",
    "finish_one(bigint, text, bigint, text, text)",
];

fn needed(rights: Rights) -> &'static [(&'static str, &'static [&'static str])] {
    match rights {
        Rights::Leader => LEADER,
        Rights::Worker => WORKER,
    }
}

/// SQL that gives a role these rights and no others, and makes it if there is none. It can be run
/// again, also to make a leader's role a worker's.
pub fn role_sql(role: &str, rights: Rights) -> String {
    let name = format!("\"{}\"", role.replace('"', "\"\""));
    let text = format!("'{}'", role.replace('\'', "''"));
    let make =
        format!("IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = {text}) THEN CREATE ROLE {name} LOGIN; END IF;");
    let mut lines = vec![
        format!("DO $role$ BEGIN {make} END $role$; -- then in psql: \\password {name}"),
        format!("ALTER ROLE {name} SET statement_timeout = '5s';"),
        format!("REVOKE ALL ON ALL TABLES IN SCHEMA everloop FROM {name};"),
        format!("GRANT USAGE ON SCHEMA everloop TO {name};"),
    ];
    for (table, rights) in needed(rights) {
        lines.push(format!("GRANT {} ON everloop.{table} TO {name};", rights.join(", ")));
    }
    for function in CALLED {
        lines.push(format!("GRANT EXECUTE ON FUNCTION everloop.{function} TO {name};"));
    }
    lines.join("\n")
}

/// Rights that this login lacks, each as `UPDATE on tasks`. Tables that an older hub does not have
/// yet are left out.
pub(super) async fn lacking(line: &HubConnection, rights: Rights) -> Result<Vec<String>, Error> {
    let pairs = || needed(rights).iter().flat_map(|(table, rights)| rights.iter().map(move |right| (*table, *right)));
    let statement = Statement::new(
        "look at the rights",
        "SELECT w.right || ' on ' || w.name AS lacking
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY w (name, \"right\", place)
         WHERE NOT has_schema_privilege('everloop', 'USAGE')
            OR NOT CASE
                   WHEN w.right = 'EXECUTE' THEN has_function_privilege(to_regprocedure('everloop.' || w.name), w.right)
                   WHEN w.right LIKE '% (%'
                   THEN has_any_column_privilege(to_regclass('everloop.' || w.name), split_part(w.right, ' ', 1))
                   ELSE has_table_privilege(to_regclass('everloop.' || w.name), w.right) END ORDER BY place",
    );
    let names = pairs().map(|(table, _)| table).chain(CALLED.iter().copied());
    let rights = pairs().map(|(_, right)| right).chain(CALLED.iter().map(|_| "EXECUTE"));
    let statement = statement.texts(names).texts(rights);
    let rows = line.read(statement).await?;
    rows.iter().map(|row| row.try_get("lacking").map_err(super::columns::shape("a right"))).collect()
}
