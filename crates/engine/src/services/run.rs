//! What `run` does besides making a loop.
//!
//! - `again`: the same command for a loop that is not over; `configured`: the loops of a file
//! - `mesh`: a loop for all nodes of the mesh

pub mod again;
pub mod configured;
pub mod mesh;
