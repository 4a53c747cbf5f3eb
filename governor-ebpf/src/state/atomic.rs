//! Cells of a map value that several CPUs write at once.
//!
//! The BPF target has the instructions, but `core::sync::atomic` offers little of them there (no
//! read-modify-write at all), so the compiler's own operations are called; for the oldest instruction set, which is the
//! one every kernel takes, they exist for 64 bits only. Loads and stores are single instructions and need
//! no order: each cell stands alone.

use core::cell::UnsafeCell;

/// A number in a map value.
#[repr(transparent)]
pub(crate) struct Cell<T>(UnsafeCell<T>);

// SAFETY: every access is one that the hardware does in one piece.
unsafe impl<T: Copy> Sync for Cell<T> {}

impl<T: Copy> Cell<T> {
    #[inline(always)]
    pub(crate) fn load(&self) -> T {
        // SAFETY: the cell is alive and aligned.
        unsafe { self.0.get().read_volatile() }
    }

    #[inline(always)]
    pub(crate) fn store(&self, value: T) {
        // SAFETY: the cell is alive and aligned.
        unsafe { self.0.get().write_volatile(value) }
    }
}

#[cfg(target_arch = "bpf")]
mod instructions {
    use crate::state::atomic::Cell;
    use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

    impl Cell<u64> {
        /// Adds to a counter.
        #[inline(always)]
        pub(crate) fn add(&self, amount: u64) {
            // SAFETY: the cell is alive and aligned.
            let _before = unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(self.0.get(), amount) };
        }

        /// Replaces `old` by `new`; gives back what is there if that is not `old`.
        #[inline(always)]
        pub(crate) fn replace(&self, old: u64, new: u64) -> Result<(), u64> {
            const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;
            // SAFETY: the cell is alive and aligned.
            let (before, replaced) = unsafe { atomic_cxchg::<u64, ORDER, ORDER>(self.0.get(), old, new) };
            if replaced { Ok(()) } else { Err(before) }
        }
    }
}

/// The same for the host, where the programs are only checked.
#[cfg(not(target_arch = "bpf"))]
mod instructions {
    use crate::state::atomic::Cell;
    use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

    impl Cell<u64> {
        /// Adds to a counter.
        pub(crate) fn add(&self, amount: u64) {
            // SAFETY: the cell is alive and aligned.
            unsafe { AtomicU64::from_ptr(self.0.get()) }.fetch_add(amount, SeqCst);
        }

        /// Replaces `old` by `new`; gives back what is there if that is not `old`.
        pub(crate) fn replace(&self, old: u64, new: u64) -> Result<(), u64> {
            // SAFETY: the cell is alive and aligned.
            unsafe { AtomicU64::from_ptr(self.0.get()) }.compare_exchange(old, new, SeqCst, SeqCst).map(drop)
        }
    }
}
