//! Whether the output of a run shows a true pass. Owns the configured pattern and where an output
//! was cut; what counts mean is the core's rule.

use everloop_core::test_evidence::{self, Output, Proof, Reading, Reference};
use regex_automata::meta::Regex;
use regex_automata::util::syntax;

/// An invalid pattern of evidence.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a regular expression: {why}")]
pub struct EvidenceError {
    pattern: String,
    why: String,
}

/// Compiles a pattern of evidence; `^` and `$` hold at every line.
pub fn evidence_pattern(pattern: &str) -> Result<Regex, EvidenceError> {
    let built = Regex::builder().syntax(syntax::Config::new().multi_line(true)).build(pattern);
    built.map_err(|e| {
        let why = e.syntax_error().map_or_else(|| e.to_string(), ToString::to_string);
        EvidenceError { pattern: pattern.to_owned(), why }
    })
}

/// Why a passed run with this output would prove nothing, and the counts in it.
pub(super) fn weigh(proof: &Proof, known: Option<&Reference>, output: &str) -> (Option<String>, Reading) {
    let reading = test_evidence::read(ends(output));
    let unmatched = proof.evidence.as_ref().and_then(|pattern| match evidence_pattern(pattern) {
        Ok(regex) if regex.is_match(output) => None,
        Ok(_) => Some(format!("nothing in its output matches `{pattern}`")),
        Err(error) => Some(error.to_string()),
    });
    (unmatched.or_else(|| test_evidence::doubt(proof, known, &reading)), reading)
}

/// The parts of an output that were kept. The line about the missing part alone is not believed: a
/// command may print it, too, but then nothing is missing.
fn ends(output: &str) -> Output<'_> {
    let marker = |line: &str| line.starts_with("… ") && line.ends_with(" bytes not kept …");
    if output.len() < super::CAPS.head_bytes as usize {
        return Output::whole(output);
    }
    let mut at = 0;
    for line in output.split_inclusive('\n') {
        if marker(line.trim_end()) {
            return Output { head: &output[..at], tail: Some(&output[at + line.len()..]) };
        }
        at += line.len();
    }
    Output::whole(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_a_pattern_over_lines() {
        let proof = Proof { evidence: Some("^all [0-9]+ good$".to_owned()), min_tests: None };
        assert_eq!(weigh(&proof, None, "x\nall 12 good\ny\n").0, None);
        assert!(weigh(&proof, None, "not all 12 good\n").0.is_some_and(|why| why.contains("matches")));
        assert!(evidence_pattern("(").unwrap_err().to_string().starts_with("`(` is not a regular expression"));
    }

    #[test]
    fn a_printed_mark_is_no_cut() {
        assert!(ends("a\n… 12 bytes not kept …\nb").tail.is_none());
        let long = format!("{}\n… 12 bytes not kept …\nb", "a".repeat(256 << 10));
        assert_eq!(ends(&long).tail, Some("b"));
    }
}
