//! Pages for people: one HTML file without scripts and without other files, in both colour schemes.
//! The parts that reports share.

/// Nothing is loaded or run even if a text were not escaped.
const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
<meta name=\"color-scheme\" content=\"light dark\">\n";

const STYLE: &str = "\
:root{--ink:#1f2328;--paper:#fff;--faint:#59636e;--line:#d1d9e0;--soft:#f6f8fa;--added:#dafbe1;--removed:#ffebe9}\
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--faint:#9198a1;--line:#3d444d;\
--soft:#151b23;--added:#12361f;--removed:#4a1a1c}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:2rem auto;\
padding:0 1rem;overflow-wrap:anywhere}h1,h2,h3{line-height:1.25}h2{margin-top:2rem}figure{margin:1rem 0}\
figcaption,.note{color:var(--faint)}dl{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.5rem}\
dt{color:var(--faint)}dd{margin:0}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}\
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem;border-bottom:1px solid var(--line);\
overflow-wrap:break-word}code{background:var(--soft);padding:.1em .3em;border-radius:.2em}\
pre{background:var(--soft);padding:.7rem;overflow-x:auto;font-size:.85rem}ins,del{text-decoration:none}\
ins{background:var(--added)}del{background:var(--removed)}summary{cursor:pointer}\
@media screen and (min-width:50rem){.columns{grid-template-columns:max-content 1fr max-content 1fr}}\
@media print{body{font-size:10.5pt;margin:0;max-width:none}h2{margin-top:1.2rem}h1,h2,h3{break-after:avoid}\
figure,tr,article,dl{break-inside:avoid}}@page{margin:15mm}";

/// A whole page; its title and body are HTML already.
pub fn page(title: &str, body: &str) -> String {
    format!(
        "{HEAD}<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         </body>\n</html>\n"
    )
}

/// A part with a heading; its body is HTML already.
pub fn section(title: &str, body: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n{body}</section>\n")
}

/// The first parts that fit together, and their number.
pub fn capped(parts: impl Iterator<Item = String>, bytes: usize) -> (String, usize) {
    let (mut out, mut shown) = (String::new(), 0);
    for part in parts {
        if out.len() + part.len() > bytes {
            break;
        }
        out.push_str(&part);
        shown += 1;
    }
    (out, shown)
}

/// A line about what the page does not show; empty when it shows everything.
pub fn left_out(count: usize, what: &str, instead: &str) -> String {
    if count == 0 { String::new() } else { format!("<p class=\"note\">{count} {what} left out; {instead}.</p>\n") }
}

/// Dollars with cents; small amounts with more digits.
pub fn dollars(microusd: u64) -> String {
    let amount = microusd as f64 / 1e6;
    if microusd == 0 || microusd >= 100_000 { format!("${amount:.2}") } else { format!("${amount:.4}") }
}
