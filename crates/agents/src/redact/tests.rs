//! Known values, and samples of every shape beside look-alikes, whole and cut at every place.

use super::*;

fn secret(name: &str, value: &str) -> Secret {
    Secret { name: name.to_owned(), value: value.as_bytes().to_vec() }
}

fn stream(secrets: &[Secret], pieces: &[&[u8]]) -> String {
    let mut redactor = Redactor::new(secrets);
    let mut out = Vec::new();
    for piece in pieces {
        redactor.push(piece, &mut |b| out.extend_from_slice(b));
    }
    redactor.finish(&mut |b| out.extend_from_slice(b));
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn a_secret_is_found_wherever_it_is_cut() {
    let secrets = [secret("KEY", "sk-abcabcd"), secret("LONG", "sk-abcabcd-and-more")];
    let text = b"x sk-abcabc sk-abcabcd y sk-abcabcd-and-more zsk-abcabcd-and-mor";
    let whole = "x sk-abcabc [redacted:KEY] y [redacted:LONG] z[redacted:KEY]-and-mor";
    for a in 0..text.len() {
        for b in a..text.len() {
            assert_eq!(stream(&secrets, &[&text[..a], &text[a..b], &text[b..]]), whole, "cut at {a} and {b}");
        }
    }
    let single: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(stream(&secrets, &single), whole);
}

#[test]
fn short_values_stay_and_quoted_ones_go() {
    let secrets = [secret("SHORT", "12345"), secret("PEM", "line \"one\"\nline two\n")];
    assert_eq!(redact(&secrets, b"12345"), b"12345");
    let json = br#"{"x":"line \"one\"\nline two"}"#;
    assert_eq!(redact(&secrets, json), br#"{"x":"[redacted:PEM]"}"#);
    assert_eq!(redact(&[], b"\0\xff"), b"\0\xff");
}

/// Characters for the placeholders of the samples.
fn characters(kind: char) -> &'static [u8] {
    match kind {
        'A' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
        'h' => b"0123456789abcdef",
        'U' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
        'u' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-",
        'b' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        _ => b"123456789",
    }
}

/// The lines of a file with their placeholders filled, each with the parts that were filled in.
fn filled(file: &str) -> Vec<(String, Vec<String>)> {
    let lines = file.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.zip(1_u64..).map(|(line, number)| fill(line, number)).collect()
}

fn fill(line: &str, number: u64) -> (String, Vec<String>) {
    let mut seed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let (mut text, mut parts) = (String::new(), Vec::new());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        let inner = after.split_once('}').map(|(inner, tail)| (inner.chars().next().unwrap_or(' '), &inner[1..], tail));
        match inner.and_then(|(kind, count, tail)| Some((kind, count.parse::<usize>().ok()?, tail))) {
            Some((kind, count, tail)) if "AhUubd".contains(kind) => {
                let alphabet = characters(kind);
                let mut part: String = (0..count).map(|_| char::from(alphabet[next() % alphabet.len()])).collect();
                // Every real one of this length has a digit, and ends with neither sign.
                part.replace_range(count - 1.., "7");
                text += &part;
                parts.push(part);
                rest = tail;
            }
            _ => {
                text.push('{');
                rest = after;
            }
        }
    }
    text += rest;
    (text.replace("\\\\n", "\u{1}").replace("\\n", "\n").replace('\u{1}', "\\n"), parts)
}

#[test]
fn every_sample_is_removed_and_nothing_of_it_is_left() {
    let samples = filled(include_str!("samples.txt"));
    assert!(samples.len() >= 100, "{}", samples.len());
    let kept: Vec<String> = samples
        .iter()
        .filter_map(|(text, parts)| {
            let shown = without_secrets(text);
            // A number of an account or of a bot is no secret; all longer parts are.
            let leaks = |part: &String| part.len() >= 16 && shown.contains(part.as_str());
            (!shown.contains("[redacted:") || parts.iter().any(leaks)).then(|| format!("{text} -> {shown}"))
        })
        .collect();
    assert_eq!(kept, Vec::<String>::new());
}

#[test]
fn no_look_alike_is_touched() {
    let look_alikes = filled(include_str!("look_alikes.txt"));
    assert!(look_alikes.len() >= 100, "{}", look_alikes.len());
    let touched: Vec<String> =
        look_alikes.into_iter().map(|(text, _)| text).filter(|text| without_secrets(text) != *text).collect();
    assert_eq!(touched, Vec::<String>::new());
}

/// In two pieces, and byte by byte: the result is that of the whole.
#[test]
fn a_shape_is_found_wherever_it_is_cut() {
    for (text, _) in filled(include_str!("samples.txt")) {
        let text = format!("before {text} after\n");
        let whole = without_secrets(&text);
        for cut in (0..text.len()).step_by(5) {
            let (a, b) = text.as_bytes().split_at(cut);
            assert_eq!(stream(&[], &[a, b]), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(stream(&[], &single), whole);
    }
}

#[test]
fn a_block_without_an_end_is_bounded() {
    let begin = "-----BEGIN RSA PRIVATE KEY-----\n";
    assert_eq!(without_secrets(&format!("x {begin}abc")), "x [redacted:private key]");
    let endless = format!("{begin}{}", "MIIEpAIBAAKCAQEA\n".repeat(10_000));
    let mut redactor = Redactor::new(&[]);
    let mut out = Vec::new();
    for piece in endless.as_bytes().chunks(1000) {
        redactor.push(piece, &mut |bytes| out.extend_from_slice(bytes));
    }
    assert!(!out.is_empty(), "it is not held for ever");
    assert!(out.starts_with(b"[redacted:private key]"));
}
