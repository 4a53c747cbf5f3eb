//! The node's overload level: whose work it sheds on arrival, and in which order a key's requests are served (A24).

use crate::engine::Engine;
use crate::engine::admission::Refusal;
use crate::io::{Level, Origin, Priority, Reason};
use crate::policy::Mode;
use crate::waiting::park::Ask;

impl Engine {
    pub(in crate::engine) fn hear_level(&mut self, level: Level) {
        self.level = level;
        self.order_queues();
        self.announce_mode();
    }

    /// While the node is overloaded a key's newest request is served first: its oldest is the one whose client is most
    /// likely to give up.
    pub(in crate::engine) fn order_queues(&mut self) {
        let newest_first = self.level == Level::Overloaded && self.node.shed_mode == Mode::Enforce;
        for pool in &mut self.pools {
            pool.sets.serve_newest_first(newest_first);
        }
    }

    /// The level sheds work of this priority.
    pub(in crate::engine) fn level_refusal(&mut self, ask: &Ask) -> Option<(Refusal, Mode)> {
        let sheds = match ask.priority {
            Priority::Critical => false,
            Priority::Normal => self.level == Level::Overloaded,
            Priority::Sheddable => self.level >= Level::High,
        };
        sheds.then(|| (Refusal::new(Reason::Overload, Origin::Node, 529), self.node.shed_mode))
    }
}
