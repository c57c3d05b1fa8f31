//! Pictures and pages for people, as text. The same drawings are in reports and, through a
//! renderer, in PNG files.
//!
//! - [`scale`]: the range of an axis and its round labels
//! - [`svg`]: elements, coordinates, figures and escaped texts
//! - [`timeline`]: bars over time, a lane for each loop; [`matrix`]: checks over turns;
//!   [`growth`]: a sum over time
//! - [`document`]: headings, tables and lists, as HTML, Markdown or text
//! - [`page`]: the frame and the common parts of an HTML page

pub mod document;
pub mod growth;
pub mod matrix;
pub mod page;
pub mod scale;
pub mod svg;
pub mod timeline;
