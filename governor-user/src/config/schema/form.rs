//! Forms of settings as types: what a declaration says of a key's value, and the Rust type that the value is read as.

use crate::config::value::{Kind, Raw, Value};
use governor_engine::policy;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::time::Duration;

/// The form of a setting that always has a value.
pub(in crate::config) trait Type {
    /// What it is read as.
    type Value;
    /// How it is parsed and shown.
    const KIND: Kind;

    /// The value; `None` for a value of another kind.
    fn of(value: &Value) -> Option<Self::Value>;
}

/// The form of a setting.
pub(in crate::config) trait Form {
    /// What it is read as.
    type Value;
    /// How it is parsed and shown.
    const KIND: Kind;
    /// It has no built-in value and may be absent.
    const OPTIONAL: bool;

    /// What was found, or what `default` stands for.
    fn read(found: Option<&Value>, default: &'static str) -> Self::Value;
}

impl<T: Type> Form for T {
    type Value = T::Value;
    const KIND: Kind = T::KIND;
    const OPTIONAL: bool = false;

    fn read(found: Option<&Value>, default: &'static str) -> T::Value {
        found.and_then(T::of).unwrap_or_else(|| {
            let built_in = T::KIND.parse(&Raw::Bare(default.to_owned())).ok();
            built_in.as_ref().and_then(T::of).expect("a test parses every built-in value")
        })
    }
}

/// May be absent.
pub(in crate::config) struct Optional<T>(PhantomData<T>);

impl<T: Type> Form for Optional<T> {
    type Value = Option<T::Value>;
    const KIND: Kind = T::KIND;
    const OPTIONAL: bool = true;

    fn read(found: Option<&Value>, _: &'static str) -> Option<T::Value> {
        found.and_then(T::of)
    }
}

/// A whole number, both ends included.
pub(in crate::config) struct Integer<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Type for Integer<MIN, MAX> {
    type Value = u32;
    const KIND: Kind = Kind::Integer { min: MIN, max: MAX };

    fn of(value: &Value) -> Option<u32> {
        if let Value::Integer(value) = value { Some(*value) } else { None }
    }
}

/// A duration in milliseconds, both ends included.
pub(in crate::config) struct Time<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Type for Time<MIN, MAX> {
    type Value = Duration;
    const KIND: Kind = Kind::Duration { min_ms: MIN, max_ms: MAX };

    fn of(value: &Value) -> Option<Duration> {
        if let Value::Duration(value) = value { Some(*value) } else { None }
    }
}

/// One of a few words, each of which stands for a value.
pub(in crate::config) trait Words: Copy + 'static {
    /// The words.
    const WORDS: &'static [&'static str];

    /// What a word stands for; `None` for any other text.
    fn of(word: &str) -> Option<Self>;
}

/// See [`Words`].
pub(in crate::config) struct Choice<W>(PhantomData<W>);

impl<W: Words> Type for Choice<W> {
    type Value = W;
    const KIND: Kind = Kind::Choice(W::WORDS);

    fn of(value: &Value) -> Option<W> {
        if let Value::Text(word) = value { W::of(word) } else { None }
    }
}

/// Declares forms of one kind whose values are read as they are.
macro_rules! plain {
    ($($(#[doc = $doc:literal])+ $name:ident: $value:ty;)+) => {
        $(
            $(#[doc = $doc])+
            pub(in crate::config) struct $name;

            impl Type for $name {
                type Value = $value;
                const KIND: Kind = Kind::$name;

                fn of(value: &Value) -> Option<$value> {
                    if let Value::$name(value) = value { Some(value.clone()) } else { None }
                }
            }
        )+
    };
}

plain! {
    /// `true` or `false`.
    Bool: bool;
    /// Free text.
    Text: String;
    /// Octal file mode.
    FileMode: u32;
    /// Address and port, or none.
    Listen: Option<SocketAddr>;
    /// Words.
    List: Vec<String>;
    /// Rule of fair share.
    FairShare: policy::FairShare;
    /// Slots that max-min keeps.
    Headroom: policy::Headroom;
    /// Observe or enforce.
    Mode: policy::Mode;
    /// Keyed hash.
    Identity: u128;
}
