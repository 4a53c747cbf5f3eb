//! An allocator that counts for the thread it serves: calls, and bytes in use. The one unsafe island of the engine's
//! tests; the engine itself forbids unsafe code.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Counts, and leaves the work to the system.
#[derive(Debug)]
pub(crate) struct Counting;

/// Allocations this thread made since it began. Growing a block is one.
pub(crate) fn calls() -> u64 {
    CALLS.get()
}

/// Bytes this thread has allocated and not freed, as asked for; negative when it freed what others allocated.
pub(crate) fn bytes() -> i64 {
    BYTES.get()
}

fn took(bytes: usize) {
    CALLS.set(CALLS.get() + 1);
    BYTES.set(BYTES.get().saturating_add_unsigned(bytes as u64));
}

fn gave(bytes: usize) {
    BYTES.set(BYTES.get().saturating_sub_unsigned(bytes as u64));
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promises are the system's conditions, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        gave(layout.size());
        took(size);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}
