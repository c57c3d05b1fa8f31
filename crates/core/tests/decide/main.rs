//! Tests of `decide`. One builder ([`rig::Rig`]), so that a new test is three lines.

mod accounts;
mod ending;
mod guard;
mod immune;
mod limits;
mod morning;
mod pace;
mod people;
mod persona;
mod recovery;
mod research;
mod research_findings;
mod rig;
mod stalled;
mod stuck;
mod triage;
mod turn;
mod watch;
