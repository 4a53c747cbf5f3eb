//! Many readers, one writer, no lock: a sequence number that is odd while the writer writes, and that readers compare
//! before and after. All accesses are relaxed atomics between fences, so that no word is ever torn and the fences alone
//! carry the proof. Knows words and nothing of what they say; the model check runs this same code on simulated memory.

use core::hint::spin_loop;
use core::sync::atomic::Ordering;

/// Words that are shared.
pub(super) trait Memory {
    /// The word that holds the sequence number.
    const SEQUENCE: usize;

    /// Relaxed; 0 beyond the end.
    fn load(&self, word: usize) -> u64;

    /// Relaxed; nothing beyond the end.
    fn store(&self, word: usize, value: u64);

    /// Acquire or release.
    fn fence(&self, order: Ordering);
}

/// Changes words by `fill` so that a reader sees all of it or none.
pub(super) fn write<M: Memory>(memory: &M, fill: impl FnOnce(&M)) {
    // Even also when what was here before was not ours.
    let before = memory.load(M::SEQUENCE) & !1;
    memory.store(M::SEQUENCE, before.wrapping_add(1));
    // A reader that sees a word of `fill` sees the odd number too.
    memory.fence(Ordering::Release);
    fill(memory);
    // A reader that sees the even number sees every word of `fill` too.
    memory.fence(Ordering::Release);
    memory.store(M::SEQUENCE, before.wrapping_add(2));
}

/// What `take` made of words that belong together; `None` if a writer was at it each time. `take` also sees words that
/// do not belong together, and its result is then thrown away.
#[inline]
pub(super) fn read<M: Memory, T>(memory: &M, attempts: usize, take: impl Fn(&M) -> T) -> Option<T> {
    for _ in 0..attempts {
        let before = memory.load(M::SEQUENCE);
        if before & 1 == 0 {
            memory.fence(Ordering::Acquire);
            let taken = take(memory);
            memory.fence(Ordering::Acquire);
            if memory.load(M::SEQUENCE) == before {
                return Some(taken);
            }
        }
        spin_loop();
    }
    None
}

#[cfg(test)]
mod model {
    use super::*;
    use loom::model::Builder;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, fence};
    use loom::thread;

    /// A sequence number and two words that are always written alike; the fences can be left out.
    struct Simulated {
        words: [AtomicU64; 3],
        fenced: bool,
    }

    impl Memory for Simulated {
        const SEQUENCE: usize = 0;

        fn load(&self, word: usize) -> u64 {
            self.words[word].load(Ordering::Relaxed)
        }

        fn store(&self, word: usize, value: u64) {
            self.words[word].store(value, Ordering::Relaxed);
        }

        fn fence(&self, order: Ordering) {
            if self.fenced {
                fence(order);
            }
        }
    }

    /// Runs every interleaving, and every value a load may see, of a writer that writes `writes` times and a reader.
    fn check(fenced: bool, writes: u64) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let words = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
            let memory = Arc::new(Simulated { words, fenced });
            let shared = Arc::clone(&memory);
            let writer = thread::spawn(move || {
                for value in 1..=writes {
                    write(&*shared, |memory| [1, 2].into_iter().for_each(|word| memory.store(word, value)));
                }
            });
            if let Some((one, other)) = read(&*memory, 2, |memory| (memory.load(1), memory.load(2))) {
                assert_eq!(one, other, "a torn read");
            }
            writer.join().unwrap();
            assert_eq!(read(&*memory, 1, |memory| memory.load(2)), Some(writes), "the last write is seen in the end");
        });
    }

    #[test]
    fn no_order_of_memory_tears_a_read() {
        check(true, 2);
    }

    #[test]
    #[should_panic(expected = "a torn read")]
    fn the_model_finds_the_tear_when_the_fences_are_left_out() {
        check(false, 2);
    }
}
