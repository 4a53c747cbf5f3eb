//! What the fair-share rules promise, whatever happens: each promise a test of its own, over histories at random and
//! pools of every size. Judged by what the engine shows and answers; the reference model has no part in it.

mod promises;
mod saturated;
mod watch;
