//! The daemon's end of the signal page: when it is written and what the driver puts into it. Without one (an old
//! kernel) sessions go on as they would, and receive the level by frames alone.

use crate::driver::Driver;
use crate::driver::upkeep::COMPANY;
use governor_common::signal::{PageWriter, PoolSignal, Signals, WRITE_EVERY_MS, pool_hash};
use governor_engine::time::{Duration, Instant};
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// It is written so long after the last time by whatever turn there is, so that it is in time without one.
const EVERY: Duration = Duration::from_millis(WRITE_EVERY_MS).saturating_sub(COMPANY);

/// The page of this run of the daemon.
#[derive(Debug)]
pub struct SignalPage {
    writer: PageWriter,
    /// What sessions get: it reads and cannot write.
    descriptor: Arc<OwnedFd>,
    due: Instant,
}

impl SignalPage {
    /// A page that is written first when the first session opens.
    ///
    /// # Errors
    /// The system has no sealed shared memory.
    pub fn create(epoch: u16) -> std::io::Result<Self> {
        let writer = PageWriter::create(epoch.into())?;
        let descriptor = Arc::new(writer.descriptor().try_clone_to_owned()?);
        Ok(Self { writer, descriptor, due: Instant::ZERO })
    }

    /// What goes out with `Welcome`.
    pub(crate) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.descriptor)
    }

    /// Writes it before the driver rests again.
    pub(crate) fn hurry(&mut self) {
        self.due = Instant::ZERO;
    }
}

impl Driver {
    /// When the page may be written next; never while no proxy is connected.
    pub(crate) fn page_due(&self) -> Option<Instant> {
        let page = self.parts.page.as_ref()?;
        self.connected().next().map(|_| page.due)
    }

    /// Writes the page if it is time.
    pub(crate) fn show_page(&mut self, now: Instant) {
        if self.page_due().is_none_or(|due| now < due) {
            return;
        }
        let signals = self.signals();
        if let Some(page) = &mut self.parts.page {
            page.writer.write(&signals);
            page.due = now.after(EVERY);
        }
    }

    fn signals(&self) -> Signals {
        let engine = &self.parts.engine;
        let pool = |id| {
            let (name, figures) = (engine.pool_name(id)?, engine.pool_figures(id)?);
            Some(PoolSignal {
                hash: pool_hash(name),
                capacity: figures.capacity,
                in_flight: figures.in_flight,
                parked: figures.parked,
                congested: figures.congested,
                unlimited: figures.unlimited,
            })
        };
        Signals {
            overload: self.overload(),
            draining: self.stop_by.is_some(),
            // The page counts them and says so itself.
            pools_left_out: false,
            node_counted: engine.counted(),
            node_cap: self.parts.policy.node.cap,
            pools: engine.pools().filter_map(pool).collect(),
        }
    }
}
