//! One event's ladder: the ways to observe it, best first, each attached and then proved by use before it is trusted. Keeps
//! for every way why it is not the one. Knows what can attach to what; the proof is the caller's.
//!
//! A way is never ruled out by a version. What rules it out is that the kernel has no such function, that the function has
//! another number of arguments, that the kernel refuses the program, or that the self-test is miscounted.

use crate::btf::Layouts;
use crate::programs::loader::one_line;
use aya::programs::links::FdLink;
use aya::programs::{BtfTracePoint, FEntry, FExit, KProbe, ProgramError};
use aya::sys::SyscallError;
use aya::{Btf, Ebpf};
use governor_observation::{HookCandidate, HookEvent, HookView, Tier};
use std::collections::BTreeMap;
use std::io;

/// How a program attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To a tracepoint, by its BTF.
    Tracepoint,
    /// Where a function begins.
    Entry,
    /// Where a function returns.
    Exit,
    /// To a function's first instruction, without knowing its types.
    Probe,
}

/// A program and what it attaches to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) program: &'static str,
    pub(crate) kind: Kind,
    pub(crate) target: &'static str,
    /// Arguments that the program takes the function to have, where kernels differ.
    pub(crate) arguments: Option<usize>,
    /// The way works without it, where the kernel has no such function.
    pub(crate) optional: bool,
}

/// One way to observe an event: all of its parts together, attached in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// What it is called.
    pub(crate) hook: &'static str,
    pub(crate) tier: Tier,
    pub(crate) parts: &'static [Part],
    /// What is to be said when it is the one that fires.
    pub(crate) note: &'static str,
}

impl Way {
    /// Whether it is not attached all the time, and so not here.
    pub(crate) fn is_on_demand(&self) -> bool {
        self.parts.is_empty()
    }
}

/// An event and the ways to observe it, best first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ladder {
    pub(crate) event: HookEvent,
    pub(crate) purpose: &'static str,
    pub(crate) lost_without: &'static str,
    pub(crate) ways: &'static [Way],
}

/// Every event with ways that are climbed.
pub(crate) const ALL: [Ladder; 4] = [ENQUEUE, ACCEPT, OVERFLOW_SYN, OVERFLOW_ACK];

/// What else only programs give, each by its one way; nothing polls it where they do not work.
pub(crate) const ONLY_BY_PROGRAMS: [Ladder; 2] = [SCAN, QUEUE_AGE];

impl Ladder {
    /// The outcome of its one way, which is not climbed.
    pub(crate) fn only(&self, attached: &Result<(), String>, note: &str) -> HookView {
        match attached {
            Ok(()) => {
                let mut view = self.unusable("");
                view.active = true;
                note.clone_into(&mut view.note);
                view.candidates.iter_mut().for_each(|candidate| candidate.fires = true);
                view
            }
            Err(reason) => self.unusable(reason),
        }
    }

    /// Where no program can be used at all, for one reason.
    pub(crate) fn unusable(&self, reason: &str) -> HookView {
        let candidate = |way: &Way| HookCandidate {
            hook: way.hook.to_owned(),
            tier: way.tier,
            fires: false,
            reason: reason.to_owned(),
        };
        HookView {
            event: Some(self.event),
            purpose: self.purpose.to_owned(),
            hook: self.ways.first().map(|way| way.hook.to_owned()).unwrap_or_default(),
            active: false,
            note: reason.to_owned(),
            candidates: self.ways.iter().map(candidate).collect(),
            lost_without: self.lost_without.to_owned(),
        }
    }
}

const fn entry(program: &'static str, target: &'static str) -> Part {
    Part { program, kind: Kind::Entry, target, arguments: None, optional: false }
}

const fn exit(program: &'static str, target: &'static str, arguments: usize) -> Part {
    Part { program, kind: Kind::Exit, target, arguments: Some(arguments), optional: false }
}

const fn tracepoint(program: &'static str, target: &'static str) -> Part {
    Part { program, kind: Kind::Tracepoint, target, arguments: None, optional: false }
}

const fn probe(program: &'static str, target: &'static str) -> Part {
    Part { program, kind: Kind::Probe, target, arguments: None, optional: false }
}

const fn only_way(hook: &'static str) -> Way {
    Way { hook, tier: Tier::Tracepoint, parts: &[], note: "" }
}

/// Listeners that open and close, and connections per cgroup.
pub(crate) const CONNECTIONS: Ladder = Ladder {
    event: HookEvent::Connections,
    purpose: "listeners, connections",
    lost_without: "listeners that opened and closed between ticks, connections per cgroup",
    ways: &[only_way("tp_btf/inet_sock_set_state")],
};

/// Sockets that are older than the programs, and audits.
pub(crate) const SCAN: Ladder = Ladder {
    event: HookEvent::Scan,
    purpose: "seeding, audit",
    lost_without: "connections that were open before, drift",
    ways: &[only_way("iter/tcp")],
};

/// Walks over the accept queues.
pub(crate) const QUEUE_AGE: Ladder = Ladder {
    event: HookEvent::QueueAge,
    purpose: "queue age, abandoned",
    lost_without: "age of the oldest queued connection, and those that their client reset",
    ways: &[only_way("iter/tcp scan_queues")],
};

/// Connections that enter an accept queue.
pub(crate) const ENQUEUE: Ladder = Ladder {
    event: HookEvent::Enqueue,
    purpose: "enqueue, depth peak",
    lost_without: "depth peak, connections that entered and left the queue",
    ways: &[
        Way {
            hook: "fexit/inet_csk_complete_hashdance, fexit/inet_csk_reqsk_queue_add",
            tier: Tier::Trampoline,
            parts: &[
                exit("enqueue_handshake", "inet_csk_complete_hashdance", 4),
                exit("enqueue_other", "inet_csk_reqsk_queue_add", 3),
                Part { optional: true, ..entry("enqueue_moved", "inet_reqsk_clone") },
            ],
            note: "",
        },
        Way {
            hook: "tp_btf/sk_data_ready",
            tier: Tier::Tracepoint,
            parts: &[tracepoint("sk_data_ready", "sk_data_ready"), tracepoint("sk_data_ready_twin", "sk_data_ready")],
            note: "",
        },
    ],
};

/// Connections that a task takes out of one.
pub(crate) const ACCEPT: Ladder = Ladder {
    event: HookEvent::Accept,
    purpose: "accept, sojourn",
    lost_without: "exact sojourn and the acceptor's cgroup",
    ways: &[
        Way {
            hook: "fentry/__inet_accept",
            tier: Tier::Trampoline,
            parts: &[entry("accept_socket", "__inet_accept"), entry("accept_socket_twin", "__inet_accept")],
            note: "",
        },
        Way {
            hook: "fentry/security_sock_graft",
            tier: Tier::Trampoline,
            parts: &[entry("accept_graft", "security_sock_graft"), entry("accept_graft_twin", "security_sock_graft")],
            note: "",
        },
        Way {
            hook: "fexit/inet_csk_accept",
            tier: Tier::Trampoline,
            parts: &[exit("accept_queue", "inet_csk_accept", 2), exit("accept_queue_twin", "inet_csk_accept", 2)],
            note: ASLEEP,
        },
        Way {
            hook: "fexit/inet_csk_accept (four arguments)",
            tier: Tier::Trampoline,
            parts: &[exit("accept_queue_4", "inet_csk_accept", 4), exit("accept_queue_4_twin", "inet_csk_accept", 4)],
            note: ASLEEP,
        },
    ],
};

/// Of the ways that see only accepts that begin after them.
const ASLEEP: &str = "misses a task's first accept if it was asleep in it at the start";

/// SYNs refused because the queue was full.
pub(crate) const OVERFLOW_SYN: Ladder = Ladder {
    event: HookEvent::OverflowSyn,
    purpose: "overflow at SYN",
    lost_without: "overflows per listener once it dropped anything",
    ways: &[
        Way {
            hook: "fentry/tcp_conn_request",
            tier: Tier::Trampoline,
            parts: &[entry("refuse_syn", "tcp_conn_request")],
            note: "",
        },
        Way {
            hook: "cgroup_skb/ingress",
            tier: Tier::Tracepoint,
            parts: &[],
            note: "attached only while a queue is nearly full or a namespace refuses handshakes",
        },
    ],
};

/// Handshakes refused at their last packet for the same reason.
pub(crate) const OVERFLOW_ACK: Ladder = Ladder {
    event: HookEvent::OverflowAck,
    purpose: "overflow at ACK",
    lost_without: "overflows per listener once it dropped anything",
    ways: &[
        Way {
            hook: "fentry/tcp_v4_syn_recv_sock, fentry/tcp_v6_syn_recv_sock",
            tier: Tier::Trampoline,
            parts: &[entry("refuse_ack", "tcp_v4_syn_recv_sock"), entry("refuse_ack_v6", "tcp_v6_syn_recv_sock")],
            note: "",
        },
        Way {
            hook: "kprobe/tcp_v4_syn_recv_sock, kprobe/tcp_v6_syn_recv_sock",
            tier: Tier::Trampoline,
            parts: &[
                probe("refuse_ack_probe", "tcp_v4_syn_recv_sock"),
                probe("refuse_ack_v6_probe", "tcp_v6_syn_recv_sock"),
            ],
            note: "misses what is refused while its CPU is in another probe or in a map's system call",
        },
        Way {
            hook: "tp_btf/kfree_skb",
            tier: Tier::Tracepoint,
            parts: &[tracepoint("kfree_skb", "kfree_skb"), tracepoint("kfree_skb_twin", "kfree_skb")],
            note: "",
        },
    ],
};

/// Links by the name of their program in the object.
pub(crate) type NamedLinks = Vec<(&'static str, FdLink)>;

/// What came of a ladder.
#[derive(Debug)]
pub(crate) struct Climbed {
    pub(crate) view: HookView,
    /// The way that fires.
    pub(crate) fires: Option<&'static Way>,
    pub(crate) links: NamedLinks,
}

/// What is needed to attach anything.
pub(crate) struct Ground<'a, 'b> {
    pub(crate) object: &'a mut Ebpf,
    pub(crate) btf: &'a Btf,
    pub(crate) kernel: &'a Layouts<'b>,
    /// Ways of better tiers than this are left out.
    pub(crate) best: Tier,
    /// Ways that cannot work, by their name, and why.
    pub(crate) barred: BTreeMap<&'static str, String>,
}

impl Ground<'_, '_> {
    /// Tries the ways in order, until one attaches and `prove` has nothing against it.
    pub(crate) fn climb(
        &mut self,
        ladder: &'static Ladder,
        mut prove: impl FnMut(&mut Ebpf, &Way) -> Result<(), String>,
    ) -> Climbed {
        let mut candidates = Vec::new();
        for way in ladder.ways {
            let links = self.attach(way).and_then(|links| prove(self.object, way).map(|()| links));
            let candidate = |fires, reason| HookCandidate { hook: way.hook.to_owned(), tier: way.tier, fires, reason };
            match links {
                Ok(links) => {
                    candidates.push(candidate(true, String::new()));
                    return Climbed { view: view(ladder, Some(way), candidates), fires: Some(way), links };
                }
                Err(reason) => candidates.push(candidate(false, reason)),
            }
        }
        Climbed { view: view(ladder, None, candidates), fires: None, links: Vec::new() }
    }

    fn attach(&mut self, way: &Way) -> Result<NamedLinks, String> {
        if way.tier > self.best {
            return Err(format!("not tried: at most the {} tier is asked for", self.best));
        }
        if let Some(reason) = self.barred.get(way.hook) {
            return Err(reason.clone());
        }
        way.parts.iter().try_for_each(|part| part.fits(self.kernel))?;
        let mut links = Vec::new();
        for part in way.parts {
            match self.attach_part(part) {
                Ok(link) => links.push((part.program, link)),
                Err(_absent) if part.optional => {}
                Err(reason) => return Err(reason),
            }
        }
        Ok(links)
    }

    fn attach_part(&mut self, part: &Part) -> Result<FdLink, String> {
        let program = self.object.program_mut(part.program).ok_or("the object has no such program")?;
        let attached = match part.kind {
            Kind::Tracepoint => <&mut BtfTracePoint>::try_from(program).and_then(|program| {
                program.load(part.target, self.btf)?;
                let link = program.attach()?;
                program.take_link(link).map(FdLink::from)
            }),
            Kind::Entry => <&mut FEntry>::try_from(program).and_then(|program| {
                program.load(part.target, self.btf)?;
                let link = program.attach()?;
                program.take_link(link).map(FdLink::from)
            }),
            Kind::Exit => <&mut FExit>::try_from(program).and_then(|program| {
                program.load(part.target, self.btf)?;
                let link = program.attach()?;
                program.take_link(link).map(FdLink::from)
            }),
            Kind::Probe => <&mut KProbe>::try_from(program).and_then(|program| {
                program.load()?;
                let link = program.attach(part.target, 0)?;
                let link = program.take_link(link)?;
                FdLink::try_from(link).map_err(|error| ProgramError::IOError(io::Error::other(error)))
            }),
        };
        attached.map_err(|error| refusal(&error))
    }
}

impl Part {
    /// Whether this kernel has what it attaches to, in the shape that the program takes it to have.
    fn fits(&self, kernel: &Layouts<'_>) -> Result<(), String> {
        if self.kind == Kind::Tracepoint || self.optional {
            return Ok(());
        }
        let actual = kernel.function_arguments(self.target).map_err(|error| error.to_string())?;
        match self.arguments {
            Some(expected) if expected != actual => {
                Err(format!("this kernel's {} has {actual} arguments instead of {expected}", self.target))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// `ENOTSUPP`, which has no name in user space: what a kernel says to a trampoline that it cannot build.
const NOT_SUPPORTED: i32 = 524;

/// The kernel's refusal on one line. A bare EPERM says nothing; the capabilities were looked at before.
fn refusal(error: &ProgramError) -> String {
    let line = one_line(error);
    if let ProgramError::SyscallError(SyscallError { io_error, .. }) = error
        && io_error.raw_os_error() == Some(NOT_SUPPORTED)
    {
        return "this kernel builds no trampoline for a function with so many arguments".to_owned();
    }
    let denied = |error: &io::Error| error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error());
    if let ProgramError::LoadError { io_error, .. } = error
        && denied(io_error)
    {
        return format!("{line}: a security policy of this host forbids it, the capabilities are there");
    }
    line
}

fn view(ladder: &Ladder, fires: Option<&Way>, candidates: Vec<HookCandidate>) -> HookView {
    let said = |candidate: &HookCandidate| format!("{}: {}", candidate.hook, candidate.reason);
    let reasons = || candidates.iter().map(said).collect::<Vec<_>>().join("; ");
    HookView {
        event: Some(ladder.event),
        purpose: ladder.purpose.to_owned(),
        hook: fires.or_else(|| ladder.ways.first()).map_or("", |way| way.hook).to_owned(),
        active: fires.is_some(),
        note: fires.map_or_else(reasons, |way| way.note.to_owned()),
        candidates,
        lost_without: ladder.lost_without.to_owned(),
    }
}
