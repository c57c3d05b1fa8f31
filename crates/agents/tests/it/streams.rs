//! What the parsers make of recorded output of the real programs, of limits, of lines that look like limits and are
//! none, and of garbage.

mod fixtures;
mod fuzz;
mod invocations;
mod limits;
mod look_alikes;
mod mutate;
mod odd;
mod otlp;
mod replay;
