//! The decision about one request: the order of the rules, what each says, and the answer in numbers.

mod admit;
mod answer;
mod caps;
mod nested;
mod overload;

pub(super) use admit::Refusal;
