//! The settings of the node as a whole: caps, and how long leases last.

use super::declare::section;
use super::form::{Mode, Text, Time};
use super::{Count, HOUR};

section! {
    /// The node as a whole.
    Node in "node" {
        /// Counted requests, granted or parked, at most; 0 disables the cap.
        cap: Count = "1000", RunTime;
        /// Parked requests of all pools at most; over it the answer is 529.
        max_parked: Count = "500", RunTime;
        /// A lease that is not renewed for this long expires.
        lease_ttl: Time<1000, HOUR> = "30s", RunTime;
        /// How long leases outlive a broken connection whose process may still live.
        session_grace: Time<0, HOUR> = "5s", RunTime;
        /// How long a lease that ends with its client outlives the client's connection.
        reclaim_grace: Time<0, HOUR> = "10s", RunTime;
        /// Whether caps of keys, orgs and classes refuse (429) or only record what they would have refused.
        caps_mode: Mode = "observe", RunTime;
        /// Class of requests that name none; empty: none.
        default_class: Text = "", RunTime;
    }
}
