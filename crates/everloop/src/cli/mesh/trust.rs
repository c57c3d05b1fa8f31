//! `everloop mesh trust` and `mesh sign`: the keys whose loops this node runs and whose reports it
//! merges, and the signature of this node's own key.

use everloop_core::mesh::MeshLoop;
use everloop_core::mesh::keys::{Keyring, Listing, TrustedKey, sealed};
use everloop_engine::error::{Code, Failure};
use everloop_engine::node_keys::{FormerKey, NodeKeys};
use everloop_store::{Ledger, Postgres};
use serde_json::json;

use super::find;
use crate::cli::VerbSession;
use crate::ui::table::Table;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop mesh trust
  everloop mesh trust builder-2
  everloop mesh trust --revoke builder-2

Compare a fingerprint with what `everloop mesh trust` shows on that machine (the line `this node`) before you trust it:
anything that can write to the hub can list a key there. The trust list is this node's own; other nodes have theirs.";

/// Lists the keys of the mesh, and says which of them this node trusts.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct TrustArgs {
    /// Trust this node, key or fingerprint
    #[arg(value_name = "NODE|KEY", conflicts_with_all = ["all", "list", "revoke"])]
    named: Option<String>,
    /// Trust every key that the hub lists now
    #[arg(long, conflicts_with_all = ["list", "revoke"])]
    all: bool,
    /// List all keys and change nothing [default]
    #[arg(long, conflicts_with = "revoke")]
    list: bool,
    /// Do not trust this node, key or fingerprint any more
    #[arg(long, value_name = "NODE|KEY")]
    revoke: Option<String>,
}

/// A loop to sign.
#[derive(Debug, clap::Args)]
pub struct SignArgs {
    /// Id of the loop
    id: String,
    /// Sign without a question
    #[arg(long)]
    yes: bool,
}

pub fn trust(args: &TrustArgs, session: &VerbSession) -> Result<Code, Failure> {
    let (membership, mut hub) = session.hub()?;
    let home = session.home()?;
    let mut keys = NodeKeys::open(&home, &membership.node)?;
    keys.announce(&mut hub, FormerKey::Keep)?;
    if let Some(named) = &args.revoke {
        return revoke(named, &mut keys, session);
    }
    let listed = listed(&keys, &hub)?;
    let wanted: Vec<Listing> = match &args.named {
        Some(named) => vec![one(&listed, named)?],
        None if args.all => listed,
        None => return list(&keys, &hub, session),
    };
    let trusted = add(&mut keys, &wanted, session)?;
    home.wake();
    let lines: Vec<String> = trusted.iter().map(said).collect();
    session.ui.answer(&lines, &json!({ "trusted": trusted }))?;
    Ok(Code::Ok)
}

fn said(trusted: &TrustedKey) -> String {
    format!("node `{}` is trusted here: {}", clean(trusted.node.as_str()), trusted.key.fingerprint())
}

/// The keys that the hub lists, without those that no key signed for.
pub(super) fn listed(keys: &NodeKeys, hub: &dyn Ledger) -> Result<Vec<Listing>, Failure> {
    Ok(keys.listed(hub)?.into_iter().filter_map(|(_, listing)| listing.ok()).collect())
}

/// The listed key that a person means.
pub(super) fn one(listed: &[Listing], named: &str) -> Result<Listing, Failure> {
    let found = listed.iter().find(|listing| listing.is_named(named));
    found.cloned().ok_or_else(|| {
        Failure::usage(format!("the hub lists no node, key or fingerprint `{named}`"))
            .hint("`everloop mesh trust` shows them; a node lists its key when it joins or starts")
    })
}

/// Puts keys on the trust list.
pub(super) fn add(keys: &mut NodeKeys, wanted: &[Listing], session: &VerbSession) -> Result<Vec<TrustedKey>, Failure> {
    let trusted =
        |listing: &Listing| TrustedKey { key: listing.seal.key.clone(), node: listing.node.clone(), at: session.now() };
    let added: Vec<TrustedKey> = wanted.iter().map(trusted).collect();
    keys.change(|list| added.iter().cloned().for_each(|one| list.add(one)))?;
    Ok(added)
}

fn revoke(named: &str, keys: &mut NodeKeys, session: &VerbSession) -> Result<Code, Failure> {
    let own = keys.trust().node_of(keys.public()).is_some_and(|node| node.as_str() == named);
    if own || keys.public().is_named(named) {
        return Err(Failure::usage("a node always trusts its own key")
            .hint("draw another one with `everloop mesh join --new-key`, or leave: everloop mesh leave"));
    }
    let gone = keys.change(|list| list.revoke(named))?;
    if gone.is_empty() {
        return Err(
            Failure::usage(format!("`{named}` is not on the trust list")).hint("`everloop mesh trust` shows what is")
        );
    }
    session.home()?.wake();
    let said = |key: &TrustedKey| {
        format!("node `{}` is not trusted here any more: {}", clean(key.node.as_str()), key.key.fingerprint())
    };
    session.ui.answer(&gone.iter().map(said).collect::<Vec<_>>(), &json!({ "revoked": gone }))?;
    Ok(Code::Ok)
}

/// Whether this node trusts a listed key, in words.
pub(super) fn standing(keys: &NodeKeys, listing: &Listing) -> &'static str {
    let trust = keys.trust();
    match trust.node_of(&listing.seal.key) {
        Some(_) if listing.seal.key == *keys.public() => "this node",
        Some(node) if *node == listing.node => "trusted",
        Some(_) => "trusted under another name",
        None if trust.keys.iter().any(|known| known.node == listing.node) => "ANOTHER KEY is trusted",
        None => "not trusted",
    }
}

fn list(keys: &NodeKeys, hub: &Postgres, session: &VerbSession) -> Result<Code, Failure> {
    let mut table = Table::new(&["NODE", "TRUST", "FINGERPRINT"]);
    let mut all = Vec::new();
    let found = keys.listed(hub)?;
    for (node, listing) in &found {
        match listing {
            Ok(listing) => {
                let (standing, shown) = (standing(keys, listing), listing.seal.key.fingerprint());
                table.row([clean(node.as_str()), standing.to_owned(), shown.clone()]);
                all.push(json!({ "node": node, "key": listing.seal.key, "fingerprint": shown, "trust": standing }));
            }
            Err(why) => {
                table.row([clean(node.as_str()), "not valid".to_owned(), clean(why)]);
                all.push(json!({ "node": node, "trust": "not valid", "why": why }));
            }
        }
    }
    let is_listed = |known: &&TrustedKey| !found.iter().any(|(node, _)| *node == known.node);
    for known in keys.trust().keys.iter().filter(is_listed) {
        let shown = known.key.fingerprint();
        table.row([clean(known.node.as_str()), "trusted, not in the hub".to_owned(), shown.clone()]);
        all.push(json!({ "node": known.node, "key": known.key, "fingerprint": shown, "trust": "trusted" }));
    }
    session.ui.answer(&table.lines(session.ui.width()), &json!({ "keys": all }))?;
    Ok(Code::Ok)
}

/// Signs a loop as it stands in the hub: its commands and its state.
pub fn sign(args: &SignArgs, session: &VerbSession) -> Result<Code, Failure> {
    let (membership, mut hub) = session.hub()?;
    let keys = NodeKeys::open(&session.home()?, &membership.node)?;
    keys.announce(&mut hub, FormerKey::Keep)?;
    let (version, mut state) = find(&hub, &args.id)?;
    for line in commands(&state) {
        session.ui.talk(&line);
    }
    if !args.yes {
        if !session.ui.asks() {
            return Err(Failure::usage("nothing was signed: a person has to look at it")
                .hint(format!("when this is what nodes shall run: everloop mesh sign {} --yes", args.id)));
        }
        if !session.ui.agrees("sign this, so that nodes which trust your key run it?")? {
            return Ok(Code::Ok);
        }
    }
    state.sign(&keys);
    let note = format!("signed by {}", keys.public().fingerprint());
    hub.transact(session.now(), &sealed(state.save(version, &[note]), &keys))?;
    session.home()?.wake();
    let shown = keys.public().fingerprint();
    session.ui.said(&format!("loop `{}` is signed by {shown}", args.id), &json!({ "id": args.id, "key": shown }))?;
    Ok(Code::Ok)
}

/// What a node would run of a loop.
fn commands(state: &MeshLoop) -> Vec<String> {
    let wanted = &state.spec.wanted;
    let mut lines = vec![
        format!("Loop      {} ({})", clean(state.id.as_str()), clean(&state.name)),
        format!("Goal      {}", clean(&wanted.goal)),
        format!("Work      {} on {}", clean(&state.spec.branch), clean(&state.spec.remote)),
    ];
    lines.extend(wanted.workspace.setup.iter().map(|setup| format!("Setup     {}", clean(setup))));
    lines.extend(wanted.checks.iter().map(|check| format!("Check     {}", clean(&check.run))));
    for agent in wanted.agents() {
        lines.push(format!("Agent     {} {}", clean(&agent.name), clean(&agent.argv.join(" "))));
    }
    lines
}
