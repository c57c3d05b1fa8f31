//! `everloop config`: shows the values in force and their origins, checks and describes the
//! configuration.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::trust;
use serde_json::json;

use super::VerbSession;
use crate::config::{self, Config, Overrides, PROJECT_FILE, ProjectText, ResolveContext, ResolvedLoop, WithOrigin};
use crate::ui::text::count;

const HELP: &str = "Examples:
  everloop config show --origin
  everloop config check
  everloop config apply
  everloop config schema > everloop.schema.json

Later wins: built-in values, ~/.config/everloop/config.toml, everloop.toml, EVERLOOP_… variables, flags.";

/// Reads everloop.toml of this folder (or the nearest above it) and the user's own file.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct ConfigArgs {
    /// What to do with the configuration
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `config`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print the values that are in force
    Show {
        /// Only this loop [default: all]
        name: Option<String>,
        /// Show where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print the JSON Schema of everloop.toml, for editors
    Schema,
    /// Look for mistakes; exits with 7 when there are any
    Check,
    /// Put a changed everloop.toml in force for its loops, also while they run; a wrong one changes
    /// nothing
    Apply,
}

pub fn config(args: ConfigArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        What::Show { name, origin } => {
            show(name.as_deref(), if origin { WithOrigin::Yes } else { WithOrigin::No }, session)
        }
        What::Schema => {
            let schema = config::schema();
            let text = serde_json::to_string_pretty(&schema).expect("a JSON value can always be printed");
            // The schema is JSON already; wrapped, no editor could use it.
            session.ui.out(&text)?;
            Ok(Code::Ok)
        }
        What::Check => check(session),
        What::Apply => {
            session.for_a_person("change a running loop")?;
            super::run::apply(session)
        }
    }
}

pub(super) fn load(session: &VerbSession) -> Result<Config, Failure> {
    let dir = config::find(&session.dir).unwrap_or(&session.dir);
    let user = config::user_dir(|name| std::env::var(name).ok());
    Ok(config::load(dir, user.as_deref(), &Overrides::new(config::Flags::default()))?)
}

/// What is in force here: the project's file as a person accepted it, whatever it contains now.
pub(super) fn load_in_force(session: &VerbSession) -> Result<Config, Failure> {
    let file = trust::in_force(session)?;
    let user = config::user_dir(|name| std::env::var(name).ok());
    let dir = file.as_ref().map_or(session.dir.as_path(), |file| &file.root);
    let text = ProjectText::Given(file.as_ref().map(|file| file.text.clone()));
    Ok(config::load_with(dir, &text, user.as_deref(), &Overrides::new(config::Flags::default()))?)
}

/// The current time and zone, for resolving.
pub(super) fn this_moment(session: &VerbSession) -> ResolveContext {
    ResolveContext::at(session.now())
}

fn show(name: Option<&str>, with_origin: WithOrigin, session: &VerbSession) -> Result<Code, Failure> {
    let config = load(session)?;
    let moment = this_moment(session);
    let loops: Vec<ResolvedLoop> = match name {
        Some(name) => vec![config.resolve(name, &moment)?],
        None => config.check(&moment)?,
    };
    if loops.is_empty() {
        let said = format!("there is no loop in {PROJECT_FILE} here or above");
        return Err(Failure::config(said).hint("`everloop init` writes one; `everloop run` works without"));
    }
    let mut values = Vec::new();
    for one in loops {
        // Loops of one agent or account show its values once.
        values.extend(
            one.values
                .into_iter()
                .filter(|v| v.section.starts_with("loop.") || !values.contains(v))
                .collect::<Vec<_>>(),
        );
    }
    let text = config::render(&values, with_origin);
    session.ui.answer(&[text.trim_end().to_owned()], &json!({ "values": values, "files": config.files() }))?;
    Ok(Code::Ok)
}

fn check(session: &VerbSession) -> Result<Code, Failure> {
    let config = load(session)?;
    let loops = config.check(&this_moment(session))?;
    let mut warnings = Vec::new();
    for one in &loops {
        warnings.extend(one.warnings.iter().map(|w| format!("loop `{}`: {w}", one.name)));
    }
    for warning in &warnings {
        session.ui.warn(warning);
    }
    let files: Vec<String> = config.files().iter().map(|f| f.display().to_string()).collect();
    let said = match files.as_slice() {
        [] => format!("there is no {PROJECT_FILE} here or above, and no file of the user's: built-in values hold"),
        files => format!("ok: {} in {}", count(loops.len() as u64, "loop"), files.join(", ")),
    };
    let names: Vec<&str> = loops.iter().map(|l| l.name.as_str()).collect();
    session.ui.answer(&[said], &json!({ "ok": true, "files": files, "loops": names, "warnings": warnings }))?;
    Ok(Code::Ok)
}
