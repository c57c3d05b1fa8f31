//! The rights of a node in the hub: it can do every operation and can neither drop a table nor
//! rewrite the journal.

use super::connection::{HubConnection, Statement};
use crate::Error;

/// Table and rights. `SELECT … FOR UPDATE` needs the right to update.
const NEEDED: &[(&str, &[&str])] = &[
    ("hub", &["SELECT"]),
    ("tasks", &["SELECT", "INSERT", "UPDATE"]),
    ("shelf", &["SELECT", "INSERT"]),
    ("nodes", &["SELECT", "INSERT", "UPDATE"]),
    ("leader", &["SELECT", "INSERT", "UPDATE"]),
    ("guards", &["SELECT", "INSERT", "UPDATE"]),
    ("loops", &["SELECT", "INSERT", "UPDATE"]),
    ("docs", &["SELECT", "INSERT", "UPDATE"]),
    ("messages", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
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

/// SQL that makes a role with only the rights that a node needs.
pub fn role_sql(role: &str) -> String {
    let name = format!("\"{}\"", role.replace('"', "\"\""));
    let mut lines = vec![
        format!("CREATE ROLE {name} LOGIN; -- then in psql: \\password {name}"),
        format!("ALTER ROLE {name} SET statement_timeout = '5s';"),
        format!("GRANT USAGE ON SCHEMA everloop TO {name};"),
    ];
    for (table, rights) in NEEDED {
        lines.push(format!("GRANT {} ON everloop.{table} TO {name};", rights.join(", ")));
    }
    for function in CALLED {
        lines.push(format!("GRANT EXECUTE ON FUNCTION everloop.{function} TO {name};"));
    }
    lines.join("\n")
}

/// Rights that this login lacks, each as `UPDATE on tasks`. Tables that an older hub does not have
/// yet are left out.
pub(super) async fn lacking(line: &HubConnection) -> Result<Vec<String>, Error> {
    let pairs = || NEEDED.iter().flat_map(|(table, rights)| rights.iter().map(move |right| (*table, *right)));
    let statement = Statement::new(
        "look at the rights",
        "SELECT w.right || ' on ' || w.name AS lacking
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY w (name, \"right\", place)
         WHERE NOT has_schema_privilege('everloop', 'USAGE')
            OR NOT CASE w.right
                   WHEN 'EXECUTE' THEN has_function_privilege(to_regprocedure('everloop.' || w.name), w.right)
                   ELSE has_table_privilege(to_regclass('everloop.' || w.name), w.right) END ORDER BY place",
    );
    let names = pairs().map(|(table, _)| table).chain(CALLED.iter().copied());
    let rights = pairs().map(|(_, right)| right).chain(CALLED.iter().map(|_| "EXECUTE"));
    let statement = statement.texts(names).texts(rights);
    let rows = line.read(statement).await?;
    rows.iter().map(|row| row.try_get("lacking").map_err(super::columns::shape("a right"))).collect()
}
