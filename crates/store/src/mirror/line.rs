//! One record of the journal as a line. It carries the checksum of the record before it, so that
//! each line can be verified by itself, whatever happened to the others.

use everloop_core::ids::LoopId;
use everloop_core::journal::{self, Stored};
use everloop_core::time::Time;
use serde_json::{Value, json};

/// Stands before the event, which is copied as it is: the checksum covers its exact bytes.
const EVENT: &str = ",\"event\":";

/// The line of a record, with its newline.
pub(super) fn write(stored: &Stored, previous_sum: u32) -> String {
    let head = json!({
        "seq": stored.seq,
        "at": stored.at,
        "owner": stored.owner,
        "version": stored.version,
        "previous": previous_sum,
        "sum": stored.sum,
    });
    let head = head.to_string();
    format!("{}{EVENT}{}}}\n", head.trim_end_matches('}'), stored.body)
}

/// Reads a line (without its newline) and verifies it. `None` when it is not what was written.
pub(super) fn read(line: &str) -> Option<(Stored, u32)> {
    let (head, rest) = line.split_once(EVENT)?;
    let body = rest.strip_suffix('}')?.to_owned();
    let head: Value = serde_json::from_str(&format!("{head}}}")).ok()?;
    let small = |name: &str| head[name].as_u64().and_then(|n| u32::try_from(n).ok());
    let owner = match &head["owner"] {
        Value::Null => None,
        Value::String(id) => Some(LoopId::new(id.clone())),
        _ => return None,
    };
    let at = Time(head["at"].as_i64()?);
    let stored = Stored { seq: head["seq"].as_u64()?, at, owner, version: small("version")?, body, sum: small("sum")? };
    let previous_sum = small("previous")?;
    journal::open_after(&stored, previous_sum).ok()?;
    Some((stored, previous_sum))
}

/// The file that a record belongs to.
pub(super) fn file(at: Time) -> String {
    let (year, month, day) = date(at);
    format!("log/{year:04}-{month:02}-{day:02}.jsonl")
}

/// Year, month and day in UTC. Years are counted from March on, so that the leap day is the last
/// one.
fn date(at: Time) -> (i64, i64, i64) {
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    let days = at.0.div_euclid(DAY_MS) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use everloop_core::event::Event;

    use super::*;

    #[test]
    fn a_line_comes_back_whole_and_no_bit_flips_without_notice() {
        let note = Event::Note { text: "a, \"event\": and an ä".to_owned() };
        for owner in [None, Some(LoopId::new("k\",\"event\":"))] {
            let stored = journal::encode(7, Time(1_700_000_000_000), owner.as_ref(), &note, 99);
            let text = write(&stored, 99);
            let line = text.trim_end();
            assert_eq!(read(line), Some((stored.clone(), 99)));
            for byte in 0..line.len() {
                for bit in 0..8 {
                    let mut bytes = line.as_bytes().to_vec();
                    bytes[byte] ^= 1 << bit;
                    let same = String::from_utf8(bytes).ok().and_then(|text| read(&text));
                    assert!(same.is_none_or(|same| same == (stored.clone(), 99)), "bit {bit} of byte {byte}");
                }
            }
            assert!((0..line.len()).all(|end| !line.is_char_boundary(end) || read(&line[..end]).is_none()));
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        const DAY_MS: i64 = 86_400_000;
        let cases = [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (59 * DAY_MS, "1970-03-01"),
            (951_782_400_000, "2000-02-29"),
            (951_868_800_000, "2000-03-01"),
            (1_709_164_800_000, "2024-02-29"),
            (1_735_689_599_999, "2024-12-31"),
            (4_107_542_400_000, "2100-03-01"),
        ];
        for (at, day) in cases {
            assert_eq!(file(Time(at)), format!("log/{day}.jsonl"));
        }
    }
}
