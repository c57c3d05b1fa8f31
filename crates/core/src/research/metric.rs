//! The number in the output of a metric's command.

use std::collections::BTreeMap;

use serde_json::Value;

use super::MetricSpec;

/// The value that decides, and what else was printed.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricReading {
    pub value: f64,
    /// Further `METRIC name=value` lines; they are recorded and never decide about a keep.
    pub others: BTreeMap<String, f64>,
}

/// Why an output has no usable value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetricError {
    #[error("no line of the output is a number, and none reads `METRIC name=value`")]
    NoNumber,
    #[error("no line reads `METRIC {name}=value`; there are {}", .found.join(", "))]
    NoName { name: String, found: Vec<String> },
    #[error("`{text}` is no finite number")]
    NotFinite { text: String },
    #[error("the value {value} is outside of the bounds")]
    OutOfBounds { value: f64 },
    #[error("no further line reads `METRIC {name}=value`, and it counts for the frontier")]
    NoSecondary { name: String },
    #[error("the output holds no JSON with a number at `{path}`")]
    NoPath { path: String },
}

/// Reads the output of a run that ended with exit code 0.
pub fn read(output: &str, spec: &MetricSpec) -> Result<MetricReading, MetricError> {
    let mut reading = match &spec.json_path {
        Some(path) => in_json(output, path)?,
        None => match named(output)? {
            all if all.is_empty() => MetricReading { value: bare(output)?, others: BTreeMap::new() },
            all => chosen(all, spec.name.as_deref())?,
        },
    };
    if spec.json_path.is_some() && !spec.pareto.is_empty() {
        reading.others = named(output)?.into_iter().collect();
    }
    if let Some(missing) = spec.pareto.iter().find(|metric| !reading.others.contains_key(&metric.name)) {
        return Err(MetricError::NoSecondary { name: missing.name.clone() });
    }
    let inside = spec.min.is_none_or(|min| reading.value >= min) && spec.max.is_none_or(|max| reading.value <= max);
    if inside { Ok(reading) } else { Err(MetricError::OutOfBounds { value: reading.value }) }
}

fn finite(text: &str, value: f64) -> Result<f64, MetricError> {
    if value.is_finite() { Ok(value) } else { Err(MetricError::NotFinite { text: text.to_owned() }) }
}

/// The last line that is a number and nothing else.
fn bare(output: &str) -> Result<f64, MetricError> {
    let number = |line: &str| line.trim().parse::<f64>().ok().map(|value| (line.trim().to_owned(), value));
    let (text, value) = output.lines().rev().find_map(number).ok_or(MetricError::NoNumber)?;
    finite(&text, value)
}

/// All `METRIC name=value` lines, in their order; the last value of a name counts.
fn named(output: &str) -> Result<Vec<(String, f64)>, MetricError> {
    let mut all: Vec<(String, f64)> = Vec::new();
    for line in output.lines().filter_map(|line| line.trim().strip_prefix("METRIC ")) {
        let Some((name, text)) = line.split_once('=') else { continue };
        let (name, text) = (name.trim().to_owned(), text.trim());
        let Ok(value) = text.parse::<f64>() else { continue };
        let value = finite(text, value)?;
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = value,
            None => all.push((name, value)),
        }
    }
    Ok(all)
}

fn chosen(all: Vec<(String, f64)>, name: Option<&str>) -> Result<MetricReading, MetricError> {
    let at = match name {
        Some(name) => all.iter().position(|(known, _)| known == name).ok_or_else(|| MetricError::NoName {
            name: name.to_owned(),
            found: all.iter().map(|(known, _)| known.clone()).collect(),
        })?,
        None => 0,
    };
    let value = all[at].1;
    let others = all.into_iter().enumerate().filter(|(n, _)| *n != at).map(|(_, pair)| pair).collect();
    Ok(MetricReading { value, others })
}

/// The number at a path of the whole output, or of its last line that is JSON.
fn in_json(output: &str, path: &str) -> Result<MetricReading, MetricError> {
    let whole = serde_json::from_str::<Value>(output).ok();
    let line = || output.lines().rev().find_map(|line| serde_json::from_str::<Value>(line.trim()).ok());
    let found = whole.or_else(line).and_then(|json| at_path(&json, path));
    let value = found.ok_or_else(|| MetricError::NoPath { path: path.to_owned() })?;
    Ok(MetricReading { value: finite(path, value)?, others: BTreeMap::new() })
}

fn at_path(json: &Value, path: &str) -> Option<f64> {
    let step = |json: &Value, key: &str| match json {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?).cloned(),
        json => json.get(key).cloned(),
    };
    path.split('.').try_fold(json.clone(), |json, key| step(&json, key))?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::Direction;
    use crate::research::pareto::SecondaryMetric;
    use crate::research::tests_support::metric;

    fn value(output: &str) -> Result<f64, String> {
        read(output, &metric()).map(|r| r.value).map_err(|e| e.to_string())
    }

    #[test]
    fn outputs_and_their_values() {
        for (output, expected) in [
            ("12.5\n", Some(12.5)),
            ("warming up\n3 runs\n 7.25 \n", Some(7.25)),
            ("1\n2\n3\n", Some(3.0)),
            ("1\n2\ntotal: 9\n", Some(2.0)),
            ("-1e-3", Some(-0.001)),
            ("METRIC latency_ms=4.5\nMETRIC size=10\n99\n", Some(4.5)),
            ("METRIC a=1\nMETRIC a=2\n", Some(2.0)),
            ("METRIC broken\nMETRIC x=?\n8\n", Some(8.0)),
            ("", None),
            ("no number\n", None),
            ("NaN\n", None),
            ("inf\n", None),
            ("METRIC a=nan\n5\n", None),
        ] {
            assert_eq!(value(output).ok(), expected, "{output:?}: {:?}", value(output));
        }
        assert!(value("NaN").unwrap_err().contains("no finite number"));
    }

    #[test]
    fn a_name_or_a_path_decides_and_the_others_are_recorded() {
        let mut spec = metric();
        spec.name = Some("size".to_owned());
        let reading = read("METRIC time=4\nMETRIC size=10\n", &spec).unwrap();
        assert_eq!((reading.value, reading.others["time"]), (10.0, 4.0));
        assert!(read("METRIC time=4\n", &spec).unwrap_err().to_string().contains("there are time"));
        spec.json_path = Some("results.1.mean".to_owned());
        let json = r#"{"results": [{"mean": 1}, {"mean": 2.5}]}"#;
        assert_eq!(read(json, &spec).map(|r| r.value), Ok(2.5));
        assert_eq!(read(&format!("building\n{json}\n"), &spec).map(|r| r.value), Ok(2.5));
        for wrong in ["{}", "not json", r#"{"results": [{}, {"mean": "2"}]}"#] {
            assert!(matches!(read(wrong, &spec), Err(MetricError::NoPath { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_further_metric_that_counts_has_to_be_there() {
        let size = SecondaryMetric { name: "size".to_owned(), direction: Direction::Lower };
        let spec = MetricSpec { pareto: vec![size], ..metric() };
        assert_eq!(read("METRIC time=4\nMETRIC size=10\n", &spec).map(|r| r.others["size"]), Ok(10.0));
        for wrong in ["METRIC time=4\n", "4\n", "METRIC size=4\n"] {
            let said = read(wrong, &spec).unwrap_err().to_string();
            assert!(said.contains("`METRIC size=value`"), "{wrong}: {said}");
        }
        let spec = MetricSpec { json_path: Some("mean".to_owned()), ..spec };
        let reading = read("METRIC size=10\n{\"mean\": 2.5}\n", &spec).unwrap();
        assert_eq!((reading.value, reading.others["size"]), (2.5, 10.0));
    }

    #[test]
    fn a_value_outside_of_the_bounds_is_an_error() {
        let spec = MetricSpec { min: Some(0.0), max: Some(10.0), ..metric() };
        assert_eq!(read("10", &spec).map(|r| r.value), Ok(10.0));
        assert_eq!(read("-1", &spec), Err(MetricError::OutOfBounds { value: -1.0 }));
        assert_eq!(read("10.5", &spec), Err(MetricError::OutOfBounds { value: 10.5 }));
    }

    #[test]
    fn a_flood_is_read() {
        let flood = format!("{}\n4.5\n", "x ".repeat(400_000));
        assert_eq!(value(&flood), Ok(4.5));
    }
}
