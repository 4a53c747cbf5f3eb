//! Verdicts in plain words: what the numbers say in one sentence, and what to do in another.

use crate::listeners::evidence::PoolWork;
use crate::listeners::verdict::Evidence;
use crate::listeners::verdict::Verdict;
use crate::listeners::verdict::is_tracking_full;
use governor_observation::wording::{Counted, counted};
use governor_observation::{Conntrack, HalfOpen};

impl Verdict {
    /// One sentence with the numbers that led to it.
    #[must_use]
    pub fn sentence(self, evidence: &Evidence) -> String {
        match self {
            Self::Ok => match evidence.depth {
                0 => "nothing waits in the accept queue".to_owned(),
                _ => format!("{} in the accept queue", waiting(evidence)),
            },
            Self::FdExhausted => {
                let (pid, open, limit) =
                    evidence.descriptors.map_or((0, 0, 0), |found| (found.pid, found.open, found.limit));
                format!("{} and process {pid} has {open} of {limit} descriptors open: accept fails", waiting(evidence))
            }
            Self::AcceptorStalled => {
                let idle = seconds(evidence.no_accept_seconds.unwrap_or(evidence.waiting_seconds));
                format!("{} and nothing was accepted for {idle}{}", waiting(evidence), abandoned(evidence))
            }
            Self::UpstreamDown => {
                evidence.work.as_ref().and_then(|work| work.pool.as_ref()).map_or_else(String::new, |pool| {
                    format!("the upstream has failed for {}: {}", seconds(pool.down_seconds), pool.failing_members())
                })
            }
            Self::UpstreamSlow => format!("{}; {}", saturation(evidence), slowness(evidence)),
            Self::InflightSaturated => saturation(evidence),
            Self::AcceptStarved => starved(evidence),
            Self::HalfOpenPressure => half_open(evidence),
            Self::Burst => burst(evidence),
            Self::Misconfigured => match evidence.conntrack {
                Conntrack::Table { count, max } if is_tracking_full(evidence.conntrack) => {
                    format!("drops are before TCP: connection tracking full ({count} of {max})")
                }
                Conntrack::Table { .. } | Conntrack::Absent | Conntrack::Unknown => {
                    "its backlog is 0: the queue holds one connection".to_owned()
                }
            },
        }
    }

    /// One sentence on what to do.
    #[must_use]
    pub fn remedy(self, evidence: &Evidence) -> &'static str {
        match self {
            Self::Ok => "Nothing to do.",
            Self::FdExhausted => {
                "Raise the process's limit of descriptors (LimitNOFILE= of its unit) or find what it leaks; neither a longer \
                 backlog nor refusals by level help the clients that wait."
            }
            Self::AcceptorStalled => {
                "Look at the process that should accept, which governorctl listeners names: it hangs, is stopped or waits \
                 for something else; a longer backlog only stores clients that give up."
            }
            Self::UpstreamDown => {
                "Look at the upstream and the way to it: governorctl members shows the members and when their \
                 cool-downs end; neither more slots nor a longer backlog help."
            }
            Self::UpstreamSlow => {
                "Look at the upstream: governorctl members shows which members cool and how full they are; fair \
                 share keeps light keys served meanwhile."
            }
            Self::InflightSaturated => {
                "Add capacity or let the heavy keys wait: governorctl pools and governorctl keys show who holds the slots, \
                 governorctl advise what fair share would change."
            }
            Self::AcceptStarved => {
                "Accept faster: more acceptors, or less work between two accepts; a longer backlog only adds waiting."
            }
            Self::HalfOpenPressure => match evidence.namespace.half_open() {
                HalfOpen::Critical => {
                    "Set net.ipv4.tcp_syncookies=1 in this namespace, so that real clients get in; a longer backlog does \
                     not help against a flood."
                }
                HalfOpen::Quiet | HalfOpen::Burst | HalfOpen::Pressure => {
                    "Leave net.ipv4.tcp_syncookies on, real clients get in; filter the flood before it reaches the host, a \
                     longer backlog does not help."
                }
            },
            Self::Burst => {
                "Give listen() a longer backlog, or let the tuner: governorctl tune --dry-run says which; the queue drains, so a \
                 longer one turns refusals into short waits."
            }
            Self::Misconfigured if is_tracking_full(evidence.conntrack) => {
                "Raise net.netfilter.nf_conntrack_max or exempt this traffic from tracking; a longer backlog does not help."
            }
            Self::Misconfigured => "Give listen() a backlog of its own; 0 leaves room for a single connection.",
        }
    }
}

/// "3 of at most 129 connections wait".
fn waiting(evidence: &Evidence) -> String {
    let depth = evidence.depth;
    match evidence.backlog {
        Some(backlog) => {
            let wait = if depth == 1 { "waits" } else { "wait" };
            format!("{depth} of at most {} {wait}", connections(u64::from(backlog) + 1))
        }
        None => counted(depth, "connection waits", "connections wait").to_string(),
    }
}

fn connections(count: u64) -> Counted<'static> {
    counted(count, "connection", "connections")
}

fn abandoned(evidence: &Evidence) -> String {
    match evidence.abandoned {
        Some(gone) if gone > 0 => {
            format!(
                "; {}",
                counted(gone, "of them was given up by its client", "of them were given up by their clients")
            )
        }
        _ => String::new(),
    }
}

fn starved(evidence: &Evidence) -> String {
    let mut text = waiting(evidence);
    if let Some(stands) = evidence.standing_seconds {
        text.push_str(&format!(", everybody for {} or longer", seconds(stands)));
    } else if evidence.depth > 0 {
        text.push_str(&format!(", the queue was not empty for {}", seconds(evidence.waiting_seconds)));
    } else {
        text = format!("the queue was not empty for {}", seconds(evidence.longest_wait_seconds));
    }
    if let Some(rate) = evidence.accept_rate {
        text.push_str(&format!("; {rate:.0} a second are accepted"));
        let came = evidence.enqueued.filter(|_| evidence.window_seconds >= 1.0);
        if let Some(came) = came {
            let came = f64::from(u32::try_from(came).unwrap_or(u32::MAX)) / evidence.window_seconds;
            text.push_str(&format!(", {came:.0} came in"));
        }
    }
    text + &refused(evidence)
}

fn burst(evidence: &Evidence) -> String {
    let holds = evidence.backlog.map(|backlog| u64::from(backlog) + 1);
    let is_refused = evidence.overflows.is_some_and(|refused| refused > 0);
    let mut text = match holds {
        // A queue that refused was full, however rarely its depth was read.
        Some(holds) if is_refused => format!("the accept queue of {} was full", connections(holds)),
        Some(holds) => format!("up to {} of at most {} waited", evidence.depth_max, connections(holds)),
        None => format!("up to {} waited", connections(evidence.depth_max.into())),
    };
    if let Some(drained) = evidence.drained_seconds {
        text.push_str(&format!(" and were accepted within {}", seconds(drained)));
    }
    text.push_str(&refused(evidence));
    if let (Some(backlog), Some(most)) = (evidence.backlog, evidence.somaxconn)
        && most > backlog
    {
        text.push_str(&format!("; its backlog is {backlog} although the namespace allows {most} (somaxconn)"));
    }
    text
}

fn refused(evidence: &Evidence) -> String {
    match evidence.overflows {
        Some(refused) if refused > 0 => format!(
            "; {} refused in the last {} (packets, not clients)",
            counted(refused, "attempt was", "attempts were"),
            seconds(evidence.window_seconds)
        ),
        _ => String::new(),
    }
}

fn half_open(evidence: &Evidence) -> String {
    let count = |count: Option<u64>| count.unwrap_or(0);
    let of = &evidence.namespace;
    match of.half_open() {
        HalfOpen::Critical => format!(
            "{} refused in the last 10 s and real clients with them: SYN cookies are off",
            counted(count(of.request_queue_full_drops), "SYN was", "SYNs were")
        ),
        HalfOpen::Quiet | HalfOpen::Burst | HalfOpen::Pressure => format!(
            "{} sent in the last 10 s and {} came back",
            counted(count(of.syncookies_sent), "SYN cookie was", "SYN cookies were"),
            count(of.syncookies_received)
        ),
    }
}

fn saturation(evidence: &Evidence) -> String {
    let Some(work) = &evidence.work else { return String::new() };
    match &work.pool {
        Some(pool) if pool.waiting_seconds >= work.node_full_seconds => pool.saturation(),
        _ => format!(
            "the node has had {} of at most {} for {}",
            work.counted,
            counted(work.cap, "request", "requests"),
            seconds(work.node_full_seconds)
        ),
    }
}

impl PoolWork {
    /// "the pool chat has been full for 12 s; 13 requests wait, the oldest for 0.2 s; 8 of 8 slots are held". Each number
    /// is of its own time: the pool stays full while the requests that wait for it come and go.
    #[must_use]
    pub fn saturation(&self) -> String {
        let lasts = seconds(self.waiting_seconds);
        let full = if self.in_flight >= self.capacity {
            format!("the pool {} has been full for {lasts}", self.name)
        } else {
            format!("requests have queued for the pool {} for {lasts}", self.name)
        };
        let wait = match (self.parked, self.oldest_seconds) {
            (0, _) if self.refused > 0 => {
                format!("{} refused in the last 10 s", counted(self.refused, "request was", "requests were"))
            }
            (0, _) => "no request waits now".to_owned(),
            (parked, None) => counted(parked, "request waits", "requests wait").to_string(),
            (1, Some(oldest)) => format!("1 request waits, for {}", seconds(oldest)),
            (parked, Some(oldest)) => format!("{parked} requests wait, the oldest for {}", seconds(oldest)),
        };
        let slots = counted(self.capacity, "slot", "slots");
        let held = if self.in_flight == 1 { "is" } else { "are" };
        format!("{full}; {wait}; {} of {slots} {held} held", self.in_flight)
    }

    /// "13 of 14 members of the pool chat are cooling, and the one kept in use fails too".
    #[must_use]
    pub fn failing_members(&self) -> String {
        let Self { name, cooling, usable, failing, .. } = self;
        let members = counted(*usable, "member", "members");
        if *failing == 0 {
            return format!("no member of the pool {name} cools now, and no request has ended well since");
        }
        if *cooling == 0 {
            return format!("{failing} of {members} of the pool {name} fail");
        }
        let mut text = format!("{cooling} of {members} of the pool {name} are cooling");
        if failing > cooling {
            text.push_str(", and the one kept in use fails too");
        }
        text
    }
}

fn slowness(evidence: &Evidence) -> String {
    let pool = evidence.work.as_ref().and_then(|work| work.pool.as_ref());
    let Some(pool) = pool else { return String::new() };
    match (pool.service_seconds, pool.usual_seconds) {
        (Some(now), Some(usual)) if now > usual => {
            format!("each holds its slot for {} instead of {}", seconds(now), seconds(usual))
        }
        _ => format!("{} of {} members are cooling", pool.cooling, pool.members),
    }
}

/// "1.3 s", "12 s".
#[must_use]
pub fn seconds(seconds: f64) -> String {
    if seconds < 0.01 {
        format!("{:.1} ms", seconds * 1000.0)
    } else if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{seconds:.0} s")
    }
}
