//! Connections whose end the daemon waits for: the clients of leases. User space names them by their cookie; here their
//! end is reported, once. Knows no lease.

use crate::kernel::sock::Sock;
use crate::state::error::Error;
use crate::state::maps;

/// A TCP socket closes for good: its client reset it, or both ends are through with it. Whether it has a mark or is
/// counted does not matter.
#[inline(always)]
pub(crate) fn closed(sk: Sock) -> Result<(), Error> {
    let cookie = sk.known_cookie();
    // Free places have no cookie either.
    if cookie != 0 && maps::take_leased(cookie) {
        return maps::tell_closed(cookie);
    }
    Ok(())
}
