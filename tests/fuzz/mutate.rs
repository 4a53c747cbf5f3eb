//! Makes an input out of others: bytes changed, cut, doubled, joined, and numbers that like to be wrong put in. Knows no
//! format.

use support::random::Random;

/// Numbers at which lengths and counts go wrong.
const EDGES: [u32; 12] = [0, 1, 7, 8, 12, 32, 33, 127, 0x7fff_ffff, 0xffff, 0x1_0000, u32::MAX];

/// One to eight changes to one of `population`, at most `longest` bytes.
pub(crate) fn mutate(random: &mut Random, population: &[Vec<u8>], longest: usize) -> Vec<u8> {
    let mut input = random.pick(population).cloned().unwrap_or_default();
    for _ in 0..=random.below(8) {
        change(random, &mut input, population);
        input.truncate(longest);
    }
    input
}

fn change(random: &mut Random, input: &mut Vec<u8>, population: &[Vec<u8>]) {
    let at = place(random, input.len());
    match random.below(9) {
        0 => set(input, at, |byte| byte ^ (1 << (at % 8))),
        1 => {
            let value = byte(random);
            set(input, at, |_| value);
        }
        2 => input.insert(at, byte(random)),
        3 => drop(input.drain(at..(at + 1 + place(random, 8)).min(input.len()))),
        4 => input.truncate(at),
        5 => {
            let part = input[at..(at + 1 + place(random, 24)).min(input.len())].to_vec();
            let to = place(random, input.len());
            drop(input.splice(to..to, part));
        }
        6 => {
            let number = random.pick(&EDGES).copied().unwrap_or_default().to_le_bytes();
            let wide = if random.chance(50) { &number[..2] } else { &number[..] };
            let end = (at + wide.len()).min(input.len());
            drop(input.splice(at..end, wide.iter().copied()));
        }
        7 => {
            let other = random.pick(population).cloned().unwrap_or_default();
            let from = place(random, other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => input.extend_from_slice(&random.pick(population).cloned().unwrap_or_default()),
    }
}

/// An index of something `length` long, its end included.
fn place(random: &mut Random, length: usize) -> usize {
    usize::try_from(random.below(length as u64 + 1)).unwrap_or(0)
}

fn set(input: &mut [u8], at: usize, value: impl Fn(u8) -> u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte = value(*byte);
    }
}

fn byte(random: &mut Random) -> u8 {
    random.bits().to_le_bytes()[0]
}
