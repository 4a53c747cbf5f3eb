//! Frames a proxy sends.

use super::field::{
    Cursor, Malformed, malformed, name_length, parts, put_address, put_list, put_name, put_nested, put_opt_key,
    put_opt_name, put_opt_u32, put_tlv, tag,
};
use super::{MAX_CANDIDATES, PART};
use crate::wire::error::{EncodeError, ParseError};
use crate::wire::frame::{Frame, FrameRef, encode_frame};
use crate::wire::request::{
    Acquire, ClientSocket, HeldLease, Hello, Kind, MemberNews, MemberReport, Parent, Priority, Renewal, Request, TierIs,
};
use bytes::{BufMut, BytesMut};

const HELLO: u8 = 0x01;
const ACQUIRE: u8 = 0x02;
const CANCEL: u8 = 0x03;
const RELEASE: u8 = 0x04;
const RENEW: u8 = 0x05;
const MOVE: u8 = 0x06;
const MEMBER_REPORT: u8 = 0x07;
const REGISTER: u8 = 0x08;
const PING: u8 = 0x09;
const SUSPEND: u8 = 0x0a;
const RESUME: u8 = 0x0b;
const TIER_IS: u8 = 0x0c;
const CANDIDATES: u8 = 0x0d;

/// Bits of the TLV `flags`; those of later versions are ignored.
const ENDS_WITH_CLIENT: u8 = 1;
const SUSPENDED: u8 = 2;

/// `Renewal::idle_ms` of a client that does not track it.
const IDLE_UNKNOWN: u32 = u32::MAX;

/// Appends `message` as one frame with request id `request`; an `Acquire` as [`encode_acquire`] does.
///
/// # Errors
///
/// [`EncodeError`] when a list is too long; `buffer` is then as it was.
pub fn encode_request(message: &Request, request: u32, buffer: &mut BytesMut) -> Result<(), EncodeError> {
    let kind = match message {
        Request::Hello(_) => HELLO,
        Request::Acquire(acquire) => return encode_acquire(acquire, request, buffer),
        Request::Candidates { .. } => CANDIDATES,
        Request::Cancel { .. } => CANCEL,
        Request::Release { .. } => RELEASE,
        Request::Renew { .. } => RENEW,
        Request::Move { .. } => MOVE,
        Request::MemberReport(_) => MEMBER_REPORT,
        Request::Register { .. } => REGISTER,
        Request::Suspend { .. } => SUSPEND,
        Request::Resume { .. } => RESUME,
        Request::TierIs(_) => TIER_IS,
        Request::Ping => PING,
    };
    encode_frame(kind, request, buffer, |body| match message {
        Request::Hello(hello) => put_hello(body, hello),
        // Encoded above.
        Request::Acquire(_) => {}
        Request::Candidates { candidates } => put_candidates(body, candidates),
        Request::Cancel { request } => body.put_u32_le(*request),
        Request::Release { leases } => put_release(body, leases),
        Request::Renew { leases } => put_list(body, leases, |body, renewal| {
            body.put_u64_le(renewal.lease);
            // The largest value stands for "unknown"; an idle time of 49 days is close enough one millisecond short.
            body.put_u32_le(renewal.idle_ms.map_or(IDLE_UNKNOWN, |idle| idle.min(IDLE_UNKNOWN - 1)));
        }),
        Request::Move { lease } => body.put_u64_le(*lease),
        Request::MemberReport(report) => put_member_report(body, report),
        Request::Register { leases } => {
            for lease in leases {
                put_nested(body, tag::HELD, |nested| put_held(nested, lease));
            }
        }
        Request::Suspend { lease } => body.put_u64_le(*lease),
        Request::Resume { lease, max_wait_ms } => {
            body.put_u64_le(*lease);
            put_opt_u32(body, tag::MAX_WAIT_MS, *max_wait_ms);
        }
        Request::TierIs(answer) => {
            body.put_u32_le(answer.ttl_ms);
            put_opt_key(body, tag::ORG, Some(answer.org));
            put_opt_name(body, tag::CLASS, answer.class.as_deref());
        }
        Request::Ping => {}
    })
}

/// Writes the frame of [`Request::Acquire`], after frames of [`Request::Candidates`] where one frame does not hold it.
///
/// # Errors
///
/// [`EncodeError`] when the names of its candidates take more than [`MAX_CANDIDATES`] bytes; `buffer` is then as it
/// was.
pub fn encode_acquire<S: AsRef<str>>(
    acquire: &Acquire<S>,
    request: u32,
    buffer: &mut BytesMut,
) -> Result<(), EncodeError> {
    let candidates = &acquire.candidates;
    let whole = encode_frame(ACQUIRE, request, buffer, |body| put_acquire(body, acquire, candidates));
    if whole.is_ok() {
        return whole;
    }
    let length = |name: &S| name_length(name.as_ref());
    let total = candidates.iter().map(length).fold(0, usize::saturating_add);
    if total > MAX_CANDIDATES {
        return Err(EncodeError { length: total });
    }
    let mut parts = parts(candidates, PART, length).peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_some() {
            encode_frame(CANDIDATES, request, buffer, |body| put_candidates(body, part))?;
        } else {
            // A receiver that does not know the frames before sees a part of the list, never none, which would mean
            // all.
            encode_frame(ACQUIRE, request, buffer, |body| put_acquire(body, acquire, part))?;
        }
    }
    Ok(())
}

/// Writes the frame of [`Request::Release`].
///
/// # Errors
///
/// As for [`encode_request`].
pub fn encode_release(leases: &[u64], request: u32, buffer: &mut BytesMut) -> Result<(), EncodeError> {
    encode_frame(RELEASE, request, buffer, |body| put_release(body, leases))
}

/// Reads what a proxy said.
///
/// # Errors
///
/// [`ParseError`], to be answered with `Error`; the session lives on.
pub fn parse_request(frame: &Frame) -> Result<Request, ParseError> {
    read_request(frame.borrowed())
}

/// The same, with the strings of an acquire in the form that the caller wants: borrowed from the frame costs no memory.
///
/// # Errors
///
/// As [`parse_request`].
pub fn read_request<'a, S>(frame: FrameRef<'a>) -> Result<Request<S>, ParseError>
where
    S: From<&'a str> + AsRef<str> + Default,
{
    let body = Cursor::new(frame.body);
    let parsed = match frame.kind {
        HELLO => hello(body),
        ACQUIRE => acquire(body),
        CANDIDATES => candidates(body),
        CANCEL => cancel(body),
        RELEASE => release(body),
        RENEW => renew(body),
        MOVE => move_away(body),
        MEMBER_REPORT => member_report(body),
        REGISTER => register(body),
        SUSPEND => suspend(body),
        RESUME => resume(body),
        TIER_IS => tier_is(body),
        PING => ping(body),
        kind => return Err(ParseError::Unknown { kind, request: frame.request }),
    };
    parsed.map_err(malformed(frame))
}

fn put_hello(body: &mut BytesMut, hello: &Hello) {
    body.put_u16_le(hello.version);
    body.put_u16_le(0);
    put_name(body, tag::NAME, &hello.name);
    if let Some(session) = hello.resume {
        put_tlv(body, tag::RESUME, &session.to_le_bytes());
    }
}

fn hello<S>(mut body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let version = body.u16()?;
    body.u16()?;
    let mut hello = Hello { version, name: String::new(), resume: None };
    body.tlvs(|field, value| {
        match field {
            tag::NAME => hello.name = value.name()?,
            tag::RESUME => hello.resume = Some(value.u64()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Request::Hello(hello))
}

fn put_release(body: &mut BytesMut, leases: &[u64]) {
    put_list(body, leases, |body, lease| body.put_u64_le(*lease));
}

fn put_acquire<S: AsRef<str>>(body: &mut BytesMut, acquire: &Acquire<S>, candidates: &[S]) {
    let put_opt_name =
        |body: &mut BytesMut, tag, name: &Option<S>| put_opt_name(body, tag, name.as_ref().map(S::as_ref));
    body.put_u8(kind_code(acquire.kind));
    put_name(body, tag::POOL, acquire.pool.as_ref());
    put_opt_key(body, tag::KEY, acquire.key);
    put_opt_name(body, tag::LABEL, &acquire.label);
    put_opt_key(body, tag::ORG, acquire.org);
    put_opt_name(body, tag::ENDPOINT, &acquire.endpoint);
    put_candidates(body, candidates);
    put_opt_name(body, tag::STICKY, &acquire.sticky);
    put_opt_u32(body, tag::MAX_WAIT_MS, acquire.max_wait_ms);
    put_opt_u32(body, tag::DEADLINE_MS, acquire.deadline_ms);
    put_opt_name(body, tag::CLASS, &acquire.class);
    put_priority(body, acquire.priority);
    put_opt_name(body, tag::TRAFFIC, &acquire.traffic);
    match acquire.parent {
        Some(Parent::Child { lease }) => put_tlv(body, tag::CHILD_OF, &lease.to_le_bytes()),
        Some(Parent::Hop { lease }) => put_tlv(body, tag::HOP_OF, &lease.to_le_bytes()),
        None => {}
    }
    put_client(body, acquire.client);
    put_flags(body, if acquire.ends_with_client { ENDS_WITH_CLIENT } else { 0 });
    put_opt_name(body, tag::SITE, &acquire.site);
}

fn acquire<'a, S>(mut body: Cursor<'a>) -> Result<Request<S>, Malformed>
where
    S: From<&'a str> + AsRef<str> + Default,
{
    let mut acquire = Acquire::<S> { kind: kind(body.u8()?)?, ..Acquire::default() };
    body.tlvs(|field, value| {
        match field {
            tag::POOL => acquire.pool = value.name()?,
            tag::KEY => acquire.key = Some(value.key()?),
            tag::LABEL => acquire.label = Some(value.name()?),
            tag::ORG => acquire.org = Some(value.key()?),
            tag::ENDPOINT => acquire.endpoint = Some(value.name()?),
            tag::CANDIDATE => acquire.candidates.push(value.name()?),
            tag::STICKY => acquire.sticky = Some(value.name()?),
            tag::MAX_WAIT_MS => acquire.max_wait_ms = Some(value.u32()?),
            tag::DEADLINE_MS => acquire.deadline_ms = Some(value.u32()?),
            tag::CLASS => acquire.class = Some(value.name()?),
            tag::PRIORITY => acquire.priority = priority(value.u8()?)?,
            tag::TRAFFIC => acquire.traffic = Some(value.name()?),
            tag::CHILD_OF => acquire.parent = Some(Parent::Child { lease: value.u64()? }),
            tag::HOP_OF => acquire.parent = Some(Parent::Hop { lease: value.u64()? }),
            tag::CLIENT => acquire.client = Some(client(value.cursor())?),
            tag::FLAGS => acquire.ends_with_client = value.u8()? & ENDS_WITH_CLIENT != 0,
            tag::SITE => acquire.site = Some(value.name()?),
            _ => {}
        }
        Ok(())
    })?;
    named(acquire.pool.as_ref(), "an acquire names no pool")?;
    Ok(Request::Acquire(acquire))
}

fn put_candidates<S: AsRef<str>>(body: &mut BytesMut, candidates: &[S]) {
    for candidate in candidates {
        put_name(body, tag::CANDIDATE, candidate.as_ref());
    }
}

fn candidates<'a, S: From<&'a str>>(body: Cursor<'a>) -> Result<Request<S>, Malformed> {
    let mut candidates = Vec::new();
    body.tlvs(|field, value| {
        if field == tag::CANDIDATE {
            candidates.push(value.name()?);
        }
        Ok(())
    })?;
    Ok(Request::Candidates { candidates })
}

fn cancel<S>(mut body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let request = body.u32()?;
    body.tlvs(|_, _| Ok(()))?;
    Ok(Request::Cancel { request })
}

fn release<S>(mut body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let leases = body.list(8, Cursor::u64)?;
    body.tlvs(|_, _| Ok(()))?;
    Ok(Request::Release { leases })
}

fn renew<S>(mut body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let leases = body.list(12, |entry| {
        let lease = entry.u64()?;
        let idle = entry.u32()?;
        Ok(Renewal { lease, idle_ms: (idle != IDLE_UNKNOWN).then_some(idle) })
    })?;
    body.tlvs(|_, _| Ok(()))?;
    Ok(Request::Renew { leases })
}

fn move_away<S>(mut body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let lease = body.u64()?;
    body.tlvs(|_, _| Ok(()))?;
    Ok(Request::Move { lease })
}

fn put_member_report(body: &mut BytesMut, report: &MemberReport) {
    let (state, reset_ms) = match report.state {
        MemberNews::RateLimited { reset_ms } => (1, reset_ms),
        MemberNews::Overloaded => (2, None),
        MemberNews::Up => (3, None),
    };
    body.put_u8(state);
    put_name(body, tag::POOL, &report.pool);
    put_name(body, tag::MEMBER, &report.member);
    put_opt_u32(body, tag::RESET_MS, reset_ms);
}

fn member_report<S>(mut body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let state = body.u8()?;
    let (mut pool, mut member, mut reset_ms) = (String::new(), String::new(), None);
    body.tlvs(|field, value| {
        match field {
            tag::POOL => pool = value.name()?,
            tag::MEMBER => member = value.name()?,
            tag::RESET_MS => reset_ms = Some(value.u32()?),
            _ => {}
        }
        Ok(())
    })?;
    named(&pool, "a member report names no pool")?;
    named(&member, "a member report names no member")?;
    let state = match state {
        1 => MemberNews::RateLimited { reset_ms },
        2 => MemberNews::Overloaded,
        3 => MemberNews::Up,
        _ => return Err("a member's state is unknown"),
    };
    Ok(Request::MemberReport(MemberReport { pool, member, state }))
}

fn put_held(body: &mut BytesMut, held: &HeldLease) {
    body.put_u64_le(held.lease);
    body.put_u32_le(held.age_ms);
    body.put_u8(kind_code(held.kind));
    put_name(body, tag::POOL, &held.pool);
    put_opt_key(body, tag::KEY, held.key);
    put_opt_name(body, tag::LABEL, held.label.as_deref());
    put_opt_name(body, tag::MEMBER, held.member.as_deref());
    put_opt_key(body, tag::ORG, held.org);
    put_opt_name(body, tag::CLASS, held.class.as_deref());
    put_priority(body, held.priority);
    put_opt_name(body, tag::TRAFFIC, held.traffic.as_deref());
    put_client(body, held.client);
    let ends = if held.ends_with_client { ENDS_WITH_CLIENT } else { 0 };
    put_flags(body, ends | if held.suspended { SUSPENDED } else { 0 });
    put_opt_name(body, tag::SITE, held.site.as_deref());
}

fn register<S>(body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let mut leases = Vec::new();
    body.tlvs(|field, value| {
        if field == tag::HELD {
            leases.push(held(value.cursor())?);
        }
        Ok(())
    })?;
    Ok(Request::Register { leases })
}

fn held(mut body: Cursor<'_>) -> Result<HeldLease, Malformed> {
    let (lease, age_ms, kind) = (body.u64()?, body.u32()?, kind(body.u8()?)?);
    let mut held = HeldLease { lease, age_ms, kind, ..HeldLease::default() };
    body.tlvs(|field, value| {
        match field {
            tag::POOL => held.pool = value.name()?,
            tag::KEY => held.key = Some(value.key()?),
            tag::LABEL => held.label = Some(value.name()?),
            tag::MEMBER => held.member = Some(value.name()?),
            tag::ORG => held.org = Some(value.key()?),
            tag::CLASS => held.class = Some(value.name()?),
            tag::PRIORITY => held.priority = priority(value.u8()?)?,
            tag::TRAFFIC => held.traffic = Some(value.name()?),
            tag::CLIENT => held.client = Some(client(value.cursor())?),
            tag::FLAGS => {
                let flags = value.u8()?;
                held.ends_with_client = flags & ENDS_WITH_CLIENT != 0;
                held.suspended = flags & SUSPENDED != 0;
            }
            tag::SITE => held.site = Some(value.name()?),
            _ => {}
        }
        Ok(())
    })?;
    named(&held.pool, "a held lease names no pool")?;
    Ok(held)
}

fn put_client(body: &mut BytesMut, client: Option<ClientSocket>) {
    if let Some(client) = client {
        put_nested(body, tag::CLIENT, |nested| {
            // The kernel gives no socket the cookie 0.
            nested.put_u64_le(client.cookie.unwrap_or(0));
            put_address(nested, client.local);
            put_address(nested, client.peer);
        });
    }
}

fn client(mut body: Cursor<'_>) -> Result<ClientSocket, Malformed> {
    let cookie = body.u64()?;
    Ok(ClientSocket { cookie: (cookie != 0).then_some(cookie), local: body.address()?, peer: body.address()? })
}

fn put_flags(body: &mut BytesMut, flags: u8) {
    // Without a flag the field says nothing that its absence does not.
    if flags != 0 {
        put_tlv(body, tag::FLAGS, &[flags]);
    }
}

fn suspend<S>(mut body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let lease = body.u64()?;
    body.tlvs(|_, _| Ok(()))?;
    Ok(Request::Suspend { lease })
}

fn resume<S>(mut body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let (lease, mut max_wait_ms) = (body.u64()?, None);
    body.tlvs(|field, value| {
        if field == tag::MAX_WAIT_MS {
            max_wait_ms = Some(value.u32()?);
        }
        Ok(())
    })?;
    Ok(Request::Resume { lease, max_wait_ms })
}

fn tier_is<S>(mut body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    let (ttl_ms, mut org, mut class) = (body.u32()?, None, None);
    body.tlvs(|field, value| {
        match field {
            tag::ORG => org = Some(value.key()?),
            tag::CLASS => class = Some(value.name()?),
            _ => {}
        }
        Ok(())
    })?;
    let org = org.ok_or("a tier names no org")?;
    Ok(Request::TierIs(TierIs { org, class, ttl_ms }))
}

fn ping<S>(body: Cursor<'_>) -> Result<Request<S>, Malformed> {
    body.tlvs(|_, _| Ok(()))?;
    Ok(Request::Ping)
}

fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::Ordinary => 0,
        Kind::Reattach => 1,
        Kind::Exempt => 2,
    }
}

fn kind(code: u8) -> Result<Kind, Malformed> {
    match code {
        0 => Ok(Kind::Ordinary),
        1 => Ok(Kind::Reattach),
        2 => Ok(Kind::Exempt),
        _ => Err("a kind of work is unknown"),
    }
}

fn put_priority(body: &mut BytesMut, priority: Priority) {
    // What a peer takes for granted is left out.
    if priority != Priority::Normal {
        put_tlv(body, tag::PRIORITY, &[priority_code(priority)]);
    }
}

fn priority_code(priority: Priority) -> u8 {
    match priority {
        Priority::Critical => 0,
        Priority::Normal => 1,
        Priority::Sheddable => 2,
    }
}

fn priority(code: u8) -> Result<Priority, Malformed> {
    match code {
        0 => Ok(Priority::Critical),
        1 => Ok(Priority::Normal),
        2 => Ok(Priority::Sheddable),
        _ => Err("a priority is unknown"),
    }
}

fn named(name: &str, missing: Malformed) -> Result<(), Malformed> {
    if name.is_empty() { Err(missing) } else { Ok(()) }
}
