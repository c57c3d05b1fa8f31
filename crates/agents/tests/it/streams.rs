//! What the parsers make of recorded output of the real programs, of limits, of lines that resemble
//! limits, and of garbage.

mod fixtures;
mod fuzz;
mod invocations;
mod limits;
mod look_alikes;
mod mutate;
mod odd;
mod otlp;
mod replay;
mod steps;
