//! `iter/tcp` once more, for the accept queues alone. The kernel visits a namespace's listeners before anything else, so
//! the scan ends at the first socket that does not listen and costs what the listeners cost, however many connections
//! there are. Each listener is visited under its lock: nothing leaves its queue meanwhile.

use crate::hooks::scan::{Context, full_socket, write_record};
use crate::state::queue;
use governor_common::abi::QueueRecord;
use governor_ebpf::transition::state;

/// Goes on to the next socket.
const GO_ON: i32 = 0;
/// Ends the read that runs; the kernel hands over what was written and begins the next one at this socket.
const END: i32 = 1;

#[inline(always)]
pub(crate) fn handle(ctx: *const Context) -> i32 {
    // SAFETY: the context of an iterator program.
    let context = unsafe { ctx.read() };
    if context.is_end() {
        return GO_ON;
    }
    // Requests and TIME_WAIT, which are no full sockets, come after the listeners too.
    let Some(sk) = full_socket(&context) else { return END };
    if sk.state() != state::LISTEN {
        return END;
    }
    let depth = sk.depth();
    if depth != 0 {
        let queue::Walk { walked, abandoned, oldest_ns } = queue::walk(sk);
        write_record(&context, &QueueRecord { cookie: sk.cookie(), oldest_ns, depth, walked, abandoned, _pad: 0 });
    }
    GO_ON
}
