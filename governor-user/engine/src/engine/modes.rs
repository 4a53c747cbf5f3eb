//! What an operator switches for the whole node: bypass and drain.

use crate::engine::Engine;

impl Engine {
    pub(in crate::engine) fn set_bypass(&mut self, on: bool) {
        self.bypass = on;
        self.wake_all();
        self.announce_mode();
    }

    /// An operator drains the node, or ends that. What waits for a slot it does not hold yet is refused.
    pub(in crate::engine) fn set_draining(&mut self, on: bool) {
        self.draining = on;
        self.announce_mode();
        if on {
            self.shed_waiting(Self::draining_refusal());
        }
    }
}
