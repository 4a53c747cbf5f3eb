//! Reads decision records: a segment of the daemon's archive, or the JSON of `governorctl --format json explain`, one
//! object, several, or an array of them.

use governor_api::Decision;
use governor_user::records::ring;
use serde_json::{Deserializer, Value};

/// Why a file has no records.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Neither the one nor the other.
    #[error("neither a segment of the archive of decisions nor JSON")]
    Format(#[source] serde_json::Error),
    /// It is JSON of something else.
    #[error("record {number} is no decision")]
    Record {
        /// Which, from 1.
        number: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// All records of a file's bytes, in their order.
///
/// # Errors
/// See [`ReadError`].
pub fn read(bytes: &[u8]) -> Result<Vec<Decision>, ReadError> {
    let values = match json(bytes) {
        Ok(values) => values,
        Err(error) => segment(bytes).ok_or(ReadError::Format(error))?,
    };
    let decision = |(index, value)| {
        serde_json::from_value(value).map_err(|source| ReadError::Record { number: index + 1, source })
    };
    values.into_iter().enumerate().map(decision).collect()
}

fn json(bytes: &[u8]) -> Result<Vec<Value>, serde_json::Error> {
    let mut all = Vec::new();
    for value in Deserializer::from_slice(bytes).into_iter() {
        let value: Value = value?;
        match value.as_array() {
            Some(values) => all.extend(values.iter().cloned()),
            None => all.push(value),
        }
    }
    Ok(all)
}

/// `None` if the bytes are no segment. Each record of one wraps a decision.
fn segment(bytes: &[u8]) -> Option<Vec<Value>> {
    let records = ring::records(bytes);
    let decision = |record: &Vec<u8>| serde_json::from_slice::<Value>(record).ok()?.get("decision").cloned();
    let values: Option<Vec<Value>> = records.iter().map(decision).collect();
    values.filter(|values| !values.is_empty())
}
