//! What a raise comes to: what bounds it, what speaks against it, and what it would be. Words only; `policy` decides.

/// What bounds a raise from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// `net.core.somaxconn` of the socket's namespace; `None`: unknown, and no number is guessed.
    pub somaxconn: Option<u32>,
    /// It may be raised.
    pub raise_somaxconn: bool,
    /// How many connections more than its owner asked for the memory budget leaves for this listener.
    pub room: u32,
}

/// What kept a raise below what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// More would wait longer than the longest wait.
    Rate,
    /// The namespace's somaxconn.
    Somaxconn,
    /// The memory budget.
    Memory,
    /// The configured most.
    Max,
}

impl Limit {
    /// Stable name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Somaxconn => "somaxconn",
            Self::Memory => "memory",
            Self::Max => "max",
        }
    }
}

/// Why a longer queue would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// It does not drain: more room only means longer waits.
    StandingQueue,
    /// Nothing is accepted.
    AcceptorStalled,
    /// The acceptor has no descriptors left.
    DescriptorsExhausted,
    /// What fills up is the table of half-open connections.
    HalfOpenPressure,
}

impl Hindrance {
    /// As a clause.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StandingQueue => "the queue stands: a longer one only means longer waits",
            Self::AcceptorStalled => "nothing is accepted: a longer queue only stores what nobody takes",
            Self::DescriptorsExhausted => "the acceptor has no descriptors left",
            Self::HalfOpenPressure => "half-open connections press: a longer queue does not help",
        }
    }
}

/// What the last burst that asked for more room led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The backlog it should get; `None`: as it is.
    pub to: Option<u32>,
    /// What it would get without bounds.
    pub wanted: Option<u32>,
    /// The bound that decided.
    pub limit: Option<Limit>,
    /// Why, in one clause.
    pub reason: String,
}
