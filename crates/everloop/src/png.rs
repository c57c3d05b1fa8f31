//! Charts as PNG: draws an SVG with the one font that is a part of the program, so that a picture
//! looks the same on a machine without fonts. In light colours, because a picture has no reader's
//! colour scheme.
//!
//! The font is a subset of DejaVu Sans (Latin, Greek, Cyrillic, punctuation and arrows); its
//! licence stands beside it. Letters that it lacks are left out of a picture.

use everloop_engine::error::Failure;

/// Pixels per unit of the drawing: sharp on dense screens and in print.
#[cfg(feature = "png")]
const SCALE: f32 = 2.0;
#[cfg(feature = "png")]
const FONT: &[u8] = include_bytes!("png/DejaVuSans-subset.ttf");
#[cfg(feature = "png")]
const FAMILY: &str = "DejaVu Sans";

/// The picture of an SVG document.
#[cfg(feature = "png")]
pub fn png(svg: &str) -> Result<Vec<u8>, Failure> {
    use resvg::tiny_skia::{Pixmap, Transform};
    use resvg::usvg::{Options, Tree};

    let failed = |what: &str| Failure::failed(format!("cannot draw the chart as PNG: {what}"));
    let mut options = Options { font_family: FAMILY.to_owned(), ..Options::default() };
    options.fontdb_mut().load_font_data(FONT.to_vec());
    options.fontdb_mut().set_sans_serif_family(FAMILY);
    let tree = Tree::from_str(svg, &options).map_err(|e| failed(&e.to_string()))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed("it has no size"))?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| failed("it is too large"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| failed(&e.to_string()))
}

/// This build has no renderer.
#[cfg(not(feature = "png"))]
pub fn png(_svg: &str) -> Result<Vec<u8>, Failure> {
    Err(Failure::usage("this build of everloop cannot write PNG")
        .hint("build it with the feature `png`, or write the HTML page"))
}

#[cfg(all(test, feature = "png"))]
mod tests {
    use super::*;

    const SVG: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 40 20\" width=\"40\" height=\"20\">\
        <style>.a{font:12px system-ui,sans-serif}.p{fill:#fff}\
        @media (prefers-color-scheme:dark){.p{fill:#000}}</style><rect class=\"p\" width=\"40\" height=\"20\"/>";

    fn pixels(svg: &str) -> Vec<u8> {
        let drawn = png(svg).unwrap_or_else(|e| panic!("{}", e.message));
        let map = resvg::tiny_skia::Pixmap::decode_png(&drawn).expect("it was just encoded");
        assert_eq!((map.width(), map.height()), (80, 40));
        map.data().to_vec()
    }

    #[test]
    fn a_drawing_has_its_letters_without_any_font_of_the_system() {
        let empty = pixels(&format!("{SVG}</svg>"));
        assert!(empty.iter().all(|part| *part == 255), "white paper");
        let words = pixels(&format!("{SVG}<text class=\"a\" x=\"2\" y=\"14\">→ é Ω ж</text></svg>"));
        let dark = words.chunks(4).filter(|pixel| pixel[0] < 100).count();
        assert!(dark > 60, "{dark} dark pixels");
    }

    #[test]
    fn what_is_no_drawing_is_refused() {
        assert!(png("<p>").is_err_and(|e| e.message.contains("cannot draw the chart as PNG")));
    }
}
