//! How long connections waited in one listener's accept queue, as a histogram that kernel and daemon share.
//!
//! Log-linear: every power of two of a *second* is cut into eight equal parts, from 2⁻²⁰ s (0.95 µs) to 2⁶ s. The
//! bounds are exact in binary, so a coarser histogram at powers of two is an exact sum of this one. A wait belongs to
//! the first bucket whose upper bound it does not exceed.

use bytemuck::{Pod, Zeroable};

/// Buckets: one below the first bound, 26 powers of two of eight, and one for everything longer.
pub const BUCKETS: usize = 1 + OCTAVES * PARTS + 1;

const OCTAVES: usize = 26;
/// Buckets a power of two.
const PARTS: usize = 8;
const PART_BITS: u32 = 3;
/// Bounds are whole multiples of 2⁻³⁰ s = 5⁹ / 2²¹ ns.
const UNIT_FIVES: u64 = 1_953_125;
const UNIT_TWOS: u32 = 21;
/// 2⁻²⁰ s in units is 2 to this.
const FIRST_EXPONENT: u32 = 10;
/// 2⁶ s in units is 2 to this.
const LAST_EXPONENT: u32 = 36;
/// Bits of a maximum; those above hold its interval.
const MAX_BITS: u32 = 48;
/// The longest wait that can be stored: three days.
const MAX_NS: u64 = (1 << MAX_BITS) - 1;

/// Value of the sojourn map; the key is the listener's cookie, u64. Made at a listener's first measured accept.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Sojourn {
    /// Waits by [`bucket_of`].
    pub buckets: [u64; BUCKETS],
    /// Sum of all waits, in nanoseconds.
    pub sum_ns: u64,
    /// Longest wait of the newest even interval and of the newest odd one, each a [`Longest`].
    pub longest: [u64; 2],
}

impl Sojourn {
    /// Nothing measured.
    pub const EMPTY: Self = Self { buckets: [0; BUCKETS], sum_ns: 0, longest: [0; 2] };
}

impl Default for Sojourn {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// The longest wait of one interval in one number, so that it can be compared and swapped. The daemon numbers the
/// intervals; a cell that still holds an older interval's is begun anew by the first wait that finds it so, and no
/// reader has to clear it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// The interval's number, modulo 2¹⁶.
    pub interval: u16,
    /// Nanoseconds.
    pub wait_ns: u64,
}

impl Longest {
    /// The number it is stored as. A wait of more than three days is stored as three days.
    #[inline(always)]
    #[must_use]
    pub const fn to_raw(self) -> u64 {
        let wait = if self.wait_ns > MAX_NS { MAX_NS } else { self.wait_ns };
        ((self.interval as u64) << MAX_BITS) | wait
    }

    /// Reads the number back.
    #[inline(always)]
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        let [.., low, high] = raw.to_le_bytes();
        Self { interval: u16::from_le_bytes([low, high]), wait_ns: raw & MAX_NS }
    }

    /// What a cell that holds `before` has to hold after a wait of this one; `None` when nothing changes.
    #[inline(always)]
    #[must_use]
    pub const fn raise(self, before: u64) -> Option<u64> {
        let held = Self::from_raw(before);
        if held.interval == self.interval && held.wait_ns >= self.wait_ns { None } else { Some(self.to_raw()) }
    }
}

/// The bucket of a wait; always less than [`BUCKETS`].
#[inline(always)]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the part is less than eight")]
pub const fn bucket_of(wait_ns: u64) -> usize {
    let wait = if wait_ns >> (LAST_EXPONENT + 5) != 0 { 1 << (LAST_EXPONENT + 5) } else { wait_ns };
    // Rounded up and one less: a wait that meets a bound exactly is still below it.
    let units = (wait << UNIT_TWOS).div_ceil(UNIT_FIVES);
    let units = units.saturating_sub(1);
    if units >> FIRST_EXPONENT == 0 {
        return 0;
    }
    if units >> LAST_EXPONENT != 0 {
        return BUCKETS - 1;
    }
    let exponent = 63 - units.leading_zeros();
    let part = (units >> (exponent - PART_BITS)) & (PARTS as u64 - 1);
    1 + (exponent - FIRST_EXPONENT) as usize * PARTS + part as usize
}

/// Upper bound of a bucket in units of 2⁻³⁰ s; `None` for the last, which has none.
const fn upper_bound_units(bucket: usize) -> Option<u64> {
    if bucket == 0 {
        return Some(1 << FIRST_EXPONENT);
    }
    if bucket >= BUCKETS - 1 {
        return None;
    }
    let (octave, part) = ((bucket - 1) / PARTS, (bucket - 1) % PARTS);
    Some((((PARTS + 1 + part) as u64) << (FIRST_EXPONENT - PART_BITS)) << octave)
}

/// The longest wait, in whole nanoseconds, that belongs to a bucket; `None` for the last, which has no bound.
#[must_use]
pub const fn upper_bound_ns(bucket: usize) -> Option<u64> {
    match upper_bound_units(bucket) {
        Some(units) => Some((units * UNIT_FIVES) >> UNIT_TWOS),
        None => None,
    }
}

/// Upper bound of a bucket in seconds, exactly; `None` for the last, which has none.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "at most four significant bits")]
pub fn upper_bound_seconds(bucket: usize) -> Option<f64> {
    upper_bound_units(bucket).map(|units| units as f64 / f64::from(1 << 30))
}

super::plain!(Sojourn, 1_704);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_ends_where_the_next_begins() {
        for bucket in 0..BUCKETS - 1 {
            let bound = upper_bound_ns(bucket).unwrap();
            assert_eq!(bucket_of(bound), bucket, "{bound} ns");
            assert_eq!(bucket_of(bound + 1), bucket + 1, "{bound} ns and one more");
        }
    }

    #[test]
    fn a_bucket_is_found_as_by_looking_through_the_bounds() {
        let mut wait = 1_u64;
        while wait < 200_000_000_000 {
            #[expect(clippy::cast_precision_loss, reason = "far below 2⁵³")]
            let seconds = wait as f64 / 1e9;
            let found = (0..BUCKETS).find(|&bucket| upper_bound_seconds(bucket).is_none_or(|bound| seconds <= bound));
            assert_eq!(Some(bucket_of(wait)), found, "{wait} ns");
            wait += 1 + wait / 97;
        }
    }

    #[test]
    fn bounds_are_powers_of_two_of_a_second_in_eight_parts() {
        assert_eq!(upper_bound_seconds(0), Some(2_f64.powi(-20)));
        assert_eq!(upper_bound_seconds(8), Some(2_f64.powi(-19)));
        assert_eq!(upper_bound_seconds(1 + 8 * 20), Some(1.125));
        assert_eq!(upper_bound_seconds(BUCKETS - 2), Some(64.0));
        assert_eq!((upper_bound_seconds(BUCKETS - 1), upper_bound_ns(BUCKETS - 1)), (None, None));
    }

    #[test]
    fn the_shortest_and_the_longest_waits_have_buckets() {
        assert_eq!((bucket_of(0), bucket_of(953), bucket_of(954)), (0, 0, 1));
        assert_eq!((bucket_of(64_000_000_000), bucket_of(64_000_000_001)), (BUCKETS - 2, BUCKETS - 1));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_longest_wait_begins_anew_with_each_interval() {
        let longest = |interval, wait_ns| Longest { interval, wait_ns };
        assert_eq!(longest(7, 5).raise(0), Some(longest(7, 5).to_raw()));
        assert_eq!(longest(7, 5).raise(longest(7, 9).to_raw()), None);
        assert_eq!(longest(7, 5).raise(longest(5, 9).to_raw()), Some(longest(7, 5).to_raw()));
        assert_eq!(longest(7, 9).raise(longest(7, 5).to_raw()), Some(longest(7, 9).to_raw()));
        assert_eq!(Longest::from_raw(longest(u16::MAX, u64::MAX).to_raw()), longest(u16::MAX, MAX_NS));
    }
}
