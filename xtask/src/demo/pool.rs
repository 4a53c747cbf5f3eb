//! The size of the demonstrated pool: what the provider has, what the governor's configuration says, what the gateway
//! assumes without it. One place, so that the three agree.

/// The governor's name for it.
pub(super) const NAME: &str = "chat";

/// Accounts of the provider.
pub(super) const ACCOUNTS: u32 = 14;

/// Slots of each account.
pub(super) const SLOTS: u32 = 8;

/// Slots of each account that ordinary requests do not get.
pub(super) const RESERVE: u32 = 1;

/// Slots of each account for ordinary requests.
pub(super) const ORDINARY: u32 = SLOTS - RESERVE;

/// The account that starts to refuse half-way.
pub(super) const COOLED: &str = "acct-03";

/// Backlog of the gateway's listener.
pub(super) const BACKLOG: u32 = 1024;
