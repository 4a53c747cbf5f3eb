//! What a setting can hold and how text becomes it. Each [`Kind`] refuses what it does not mean, with a hint; nothing
//! is rounded, guessed or defaulted here.

use governor_engine::policy::{FairShare, Headroom, Mode};
use std::net::SocketAddr;
use std::time::Duration;

/// The form of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// Whole number within a range, both ends included.
    Integer {
        /// Smallest value.
        min: u32,
        /// Largest value.
        max: u32,
    },
    /// Number with a unit, e.g. `30s`, `0.5s`, `1h30m`, within a range, both ends included.
    Duration {
        /// Shortest value in milliseconds.
        min_ms: u64,
        /// Longest value in milliseconds.
        max_ms: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Free text, e.g. a path or a user name.
    Text,
    /// Octal file mode as text, e.g. `0660`.
    FileMode,
    /// IP address and port, or `off`.
    Listen,
    /// Words separated by commas, or an array of strings.
    List,
    /// `off`, `max-min`, or a threshold of 1–100 percent.
    FairShare,
    /// Slots, or a percentage of capacity such as `4%`, to a tenth.
    Headroom,
    /// `observe` or `enforce`.
    Mode,
    /// Keyed hash of an org or key: 32 hexadecimal digits.
    Identity,
}

/// A setting's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// See [`Kind::Bool`].
    Bool(bool),
    /// See [`Kind::Integer`].
    Integer(u32),
    /// See [`Kind::Duration`].
    Duration(Duration),
    /// See [`Kind::Choice`], [`Kind::Text`].
    Text(String),
    /// See [`Kind::FileMode`].
    FileMode(u32),
    /// See [`Kind::Listen`]; `None` is `off`.
    Listen(Option<SocketAddr>),
    /// See [`Kind::List`].
    List(Vec<String>),
    /// See [`Kind::FairShare`].
    FairShare(FairShare),
    /// See [`Kind::Headroom`].
    Headroom(Headroom),
    /// See [`Kind::Mode`].
    Mode(Mode),
    /// See [`Kind::Identity`].
    Identity(u128),
}

/// A value as a layer wrote it, before its kind is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// `true` or `false` in TOML or JSON.
    Bool(bool),
    /// A number without a fraction, as written.
    Integer(String),
    /// A string in TOML or JSON.
    Quoted(String),
    /// Text from the environment or the command line: may stand for any type.
    Bare(String),
    /// An array of strings.
    List(Vec<String>),
    /// Anything else, by the name of its type.
    Other(&'static str),
}

impl Kind {
    /// Turns what a layer wrote into a value.
    ///
    /// # Errors
    /// One sentence that says what is expected and, where it can be guessed, how to write it.
    pub fn parse(self, raw: &Raw) -> Result<Value, String> {
        match self {
            Self::Bool => {
                let value = match raw {
                    Raw::Bool(value) => Some(*value),
                    Raw::Bare(text) => text.parse().ok(),
                    Raw::Integer(_) | Raw::Quoted(_) | Raw::List(_) | Raw::Other(_) => None,
                };
                value.map(Value::Bool).ok_or_else(|| format!("expected true or false, found {raw}"))
            }
            Self::Integer { min, max } => integer(raw, min, max).map(Value::Integer),
            Self::Duration { min_ms, max_ms } => duration(raw, min_ms, max_ms).map(Value::Duration),
            Self::Choice(words) => match text(raw) {
                Some(word) if words.contains(&word) => Ok(Value::Text(word.to_owned())),
                _ => Err(format!("expected one of {}, found {raw}", words.join(", "))),
            },
            Self::Text => text(raw)
                .map(|text| Value::Text(text.to_owned()))
                .ok_or_else(|| format!("expected text in quotes, found {raw}")),
            Self::FileMode => text(raw)
                .filter(|text| text.len() <= 4 && !text.is_empty())
                .and_then(|text| u32::from_str_radix(text, 8).ok())
                .map(Value::FileMode)
                .ok_or_else(|| format!("expected an octal file mode in quotes such as \"0660\", found {raw}")),
            Self::Listen => match text(raw) {
                Some("off") => Ok(Value::Listen(None)),
                Some(text) => text.parse().map(|address| Value::Listen(Some(address))).map_err(|_| {
                    format!("expected an address and port such as \"127.0.0.1:9464\", or \"off\", found {raw}")
                }),
                None => Err(format!("expected an address and port in quotes, or \"off\", found {raw}")),
            },
            Self::List => match raw {
                Raw::List(words) => Ok(Value::List(words.clone())),
                Raw::Bare(text) => Ok(Value::List(
                    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect(),
                )),
                Raw::Bool(_) | Raw::Integer(_) | Raw::Quoted(_) | Raw::Other(_) => {
                    Err(format!("expected an array of strings, found {raw}"))
                }
            },
            Self::FairShare => fair_share(raw).map(Value::FairShare),
            Self::Headroom => headroom(raw).map(Value::Headroom),
            Self::Mode => match text(raw) {
                Some("observe") => Ok(Value::Mode(Mode::Observe)),
                Some("enforce") => Ok(Value::Mode(Mode::Enforce)),
                _ => Err(format!("expected \"observe\" or \"enforce\", found {raw}")),
            },
            Self::Identity => text(raw).and_then(identity).map(Value::Identity).ok_or_else(|| {
                format!("expected 32 hexadecimal digits in quotes, as governorctl keys shows them, found {raw}")
            }),
        }
    }
}

impl Value {
    /// The value as JSON shows it.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool(value) => (*value).into(),
            Self::Integer(value) => (*value).into(),
            Self::FairShare(FairShare::EqualSplit { threshold }) => (*threshold).into(),
            Self::Headroom(Headroom::Slots(slots)) => (*slots).into(),
            Self::List(words) => words.clone().into(),
            Self::Duration(_)
            | Self::Text(_)
            | Self::FileMode(_)
            | Self::Listen(_)
            | Self::FairShare(FairShare::Off | FairShare::MaxMin { .. })
            | Self::Headroom(Headroom::PerMille(_))
            | Self::Mode(_)
            | Self::Identity(_) => self.to_string().into(),
        }
    }
}

impl core::fmt::Display for Value {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Duration(value) => f.write_str(&format_duration(*value)),
            Self::Text(text) => f.write_str(text),
            Self::FileMode(mode) => write!(f, "{mode:04o}"),
            Self::Listen(None) | Self::FairShare(FairShare::Off) => f.write_str("off"),
            Self::Listen(Some(address)) => write!(f, "{address}"),
            Self::List(words) => f.write_str(&words.join(",")),
            Self::FairShare(FairShare::EqualSplit { threshold }) => write!(f, "{threshold}"),
            Self::FairShare(FairShare::MaxMin { .. }) => f.write_str("max-min"),
            Self::Headroom(Headroom::Slots(slots)) => write!(f, "{slots}"),
            Self::Headroom(Headroom::PerMille(share)) => match (share / 10, share % 10) {
                (whole, 0) => write!(f, "{whole}%"),
                (whole, tenth) => write!(f, "{whole}.{tenth}%"),
            },
            Self::Identity(hash) => write!(f, "{hash:032x}"),
            Self::Mode(Mode::Observe) => f.write_str("observe"),
            Self::Mode(Mode::Enforce) => f.write_str("enforce"),
        }
    }
}

impl core::fmt::Display for Raw {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(digits) => f.write_str(digits),
            Self::Quoted(text) => write!(f, "{text:?}"),
            Self::Bare(text) => write!(f, "`{text}`"),
            Self::List(_) => f.write_str("an array"),
            Self::Other(name) => write!(f, "a value of type {name}"),
        }
    }
}

/// Parses `1h30m`, `0.5s`, `250ms`; a bare number is refused because its unit would be a guess.
///
/// # Errors
/// One sentence with an example.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(format!("expected a duration that is not negative, found \"{text}\""));
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("expected a duration with a unit, found \"{text}\": write \"{text}s\" or \"{text}ms\""));
    }
    let wrong = || format!("expected a duration such as \"30s\", \"0.5s\" or \"1h30m\", found \"{text}\"");
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let amount: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(amount * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = next;
    }
    Ok(total)
}

/// The shortest exact form, e.g. `1h30m`, `500ms`.
#[must_use]
pub fn format_duration(value: Duration) -> String {
    if value.is_zero() {
        return "0s".to_owned();
    }
    let mut rest = value.as_millis();
    let mut out = String::new();
    for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        if rest >= size {
            out.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    out
}

/// The keyed hash that 32 hexadecimal digits stand for.
#[must_use]
pub fn identity(digits: &str) -> Option<u128> {
    let plain = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(digits, 16).ok()).flatten()
}

/// Text of a quoted or bare value.
fn text(raw: &Raw) -> Option<&str> {
    match raw {
        Raw::Quoted(text) | Raw::Bare(text) => Some(text),
        Raw::Bool(_) | Raw::Integer(_) | Raw::List(_) | Raw::Other(_) => None,
    }
}

fn integer(raw: &Raw, min: u32, max: u32) -> Result<u32, String> {
    if let Raw::Quoted(text) = raw
        && text.parse::<u32>().is_ok()
    {
        return Err(format!("expected a number, found {raw}: write {text} without quotes"));
    }
    digits(raw)
        .and_then(|digits| digits.replace('_', "").parse::<u32>().ok())
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| format!("expected a whole number from {min} to {max}, found {raw}"))
}

fn duration(raw: &Raw, min_ms: u64, max_ms: u64) -> Result<Duration, String> {
    if let Raw::Integer(digits) = raw {
        return Err(format!("expected a duration with a unit, found {digits}: write \"{digits}s\""));
    }
    let text = text(raw).ok_or_else(|| format!("expected a duration such as \"30s\", found {raw}"))?;
    let (value, min, max) = (parse_duration(text)?, Duration::from_millis(min_ms), Duration::from_millis(max_ms));
    if !(min..=max).contains(&value) {
        let (min, max) = (format_duration(min), format_duration(max));
        return Err(format!("expected a duration from {min} to {max}, found {raw}"));
    }
    Ok(value)
}

fn fair_share(raw: &Raw) -> Result<FairShare, String> {
    if text(raw) == Some("off") {
        return Ok(FairShare::Off);
    }
    if text(raw) == Some("max-min") {
        return Ok(FairShare::MaxMin { headroom: Headroom::default() });
    }
    digits(raw)
        .and_then(|digits| digits.parse::<u8>().ok())
        .filter(|threshold| (1..=100).contains(threshold))
        .map(|threshold| FairShare::EqualSplit { threshold })
        .ok_or_else(|| format!("expected \"off\", \"max-min\" or a threshold from 1 to 100 percent, found {raw}"))
}

fn headroom(raw: &Raw) -> Result<Headroom, String> {
    let wrong = || format!("expected a number of slots, or a percentage such as \"4%\" or \"0.5%\", found {raw}");
    let Some(percent) = text(raw).and_then(|text| text.strip_suffix('%')) else {
        return digits(raw).and_then(|digits| digits.parse().ok()).map(Headroom::Slots).ok_or_else(wrong);
    };
    let (whole, tenth) = percent.split_once('.').unwrap_or((percent, "0"));
    let share = (tenth.len() == 1 && !whole.starts_with('+'))
        .then(|| Some(whole.parse::<u16>().ok()?.checked_mul(10)? + tenth.parse::<u16>().ok()?))
        .flatten();
    share.filter(|share| *share <= 1000).map(Headroom::PerMille).ok_or_else(wrong)
}

/// Digits of an unquoted number.
fn digits(raw: &Raw) -> Option<&str> {
    match raw {
        Raw::Integer(digits) | Raw::Bare(digits) => Some(digits),
        Raw::Bool(_) | Raw::Quoted(_) | Raw::List(_) | Raw::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_a_sign_they_can_have() {
        let seconds = |text| parse_duration(text).map(|value| value.as_secs_f64());
        assert_eq!(seconds("30s"), Ok(30.0));
        assert_eq!(seconds("0.5s"), Ok(0.5));
        assert_eq!(seconds("1h30m"), Ok(5400.0));
        assert_eq!(seconds("250ms"), Ok(0.25));
        for wrong in ["30", "-1s", "", "s", "1x", "1h 30m", "1..5s", "∞s", "99999999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?} must be refused");
        }
        assert!(parse_duration("30").unwrap_err().contains("\"30s\""), "the hint shows how to write it");
    }

    #[test]
    fn a_duration_is_shown_as_it_can_be_written() {
        for text in ["30s", "500ms", "1h30m", "1m1s"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(format_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn fair_share_is_off_max_min_or_a_percentage() {
        let parse = |raw: Raw| Kind::FairShare.parse(&raw);
        assert_eq!(parse(Raw::Integer("80".into())), Ok(Value::FairShare(FairShare::EqualSplit { threshold: 80 })));
        assert_eq!(parse(Raw::Bare("100".into())), Ok(Value::FairShare(FairShare::EqualSplit { threshold: 100 })));
        assert_eq!(parse(Raw::Quoted("off".into())), Ok(Value::FairShare(FairShare::Off)));
        let max_min = Value::FairShare(FairShare::MaxMin { headroom: Headroom::default() });
        assert_eq!(parse(Raw::Quoted("max-min".into())), Ok(max_min.clone()));
        assert_eq!(max_min.to_string(), "max-min");
        for wrong in ["0", "101", "-1", "80.5", "on", "maxmin"] {
            assert!(parse(Raw::Bare(wrong.into())).is_err(), "{wrong} must be refused");
        }
    }

    #[test]
    fn headroom_is_slots_or_a_percentage_and_is_shown_as_it_can_be_written() {
        let parse = |text: &str| Kind::Headroom.parse(&Raw::Bare(text.into()));
        for (text, headroom) in [
            ("4%", Headroom::PerMille(40)),
            ("0.5%", Headroom::PerMille(5)),
            ("100%", Headroom::PerMille(1000)),
            ("0", Headroom::Slots(0)),
            ("8", Headroom::Slots(8)),
        ] {
            let value = parse(text).unwrap();
            assert_eq!(value, Value::Headroom(headroom), "{text}");
            assert_eq!(value.to_string(), text);
        }
        for wrong in ["101%", "-1", "%", "4.25%", "4.%", "+4%", "1.5", "some"] {
            assert!(parse(wrong).is_err(), "{wrong} must be refused");
        }
    }

    #[test]
    fn numbers_are_whole_and_in_range() {
        let kind = Kind::Integer { min: 1, max: i32::MAX.unsigned_abs() };
        for wrong in ["-1", "0", "2147483648", "4k", "1.5"] {
            assert!(kind.parse(&Raw::Bare(wrong.into())).is_err(), "{wrong} must be refused");
        }
        assert_eq!(kind.parse(&Raw::Integer("2147483647".into())), Ok(Value::Integer(2_147_483_647)));
        assert!(kind.parse(&Raw::Quoted("5".into())).unwrap_err().contains("without quotes"));
    }
}
