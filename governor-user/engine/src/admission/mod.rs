//! The decision about one request: the order of the rules, what each says, and the answer in numbers.

pub(crate) mod admit;
pub(crate) mod answer;
pub(crate) mod caps;
pub(crate) mod judge;
pub(crate) mod nested;
pub(crate) mod overload;
pub(crate) mod retry;
