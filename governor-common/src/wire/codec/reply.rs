//! Frames the daemon sends.

use super::field::{Cursor, Malformed, malformed, put_list, put_opt_key, put_opt_name, put_opt_u32, put_text, tag};
use super::limits::{encode_limits, limits, more_limits, put_pools};
use crate::wire::error::{EncodeError, ParseError};
use crate::wire::frame::{Frame, FrameRef, encode_frame};
use crate::wire::reply::{ErrorCode, Grant, Level, Origin, Overload, Reply, RevokeReason, Shed, Welcome};
use bytes::{BufMut, BytesMut};

const WELCOME: u8 = 0x81;
const GRANT: u8 = 0x82;
const PARKED: u8 = 0x83;
const SHED: u8 = 0x84;
const REJECT: u8 = 0x85;
const REGISTERED: u8 = 0x86;
const REVOKE: u8 = 0x87;
const OVERLOAD: u8 = 0x88;
pub(super) const LIMITS: u8 = 0x89;
const DRAIN: u8 = 0x8a;
const ERROR: u8 = 0x8b;
const PONG: u8 = 0x8c;
const TIER_ASK: u8 = 0x8d;
const CLIENT_GONE: u8 = 0x8e;
pub(super) const MORE_LIMITS: u8 = 0x8f;

/// Appends `message` as one frame that answers `request` (0 for what answers nothing); `Limits` as several where one
/// does not hold them.
///
/// # Errors
///
/// [`EncodeError`] when a list is too long for one frame; `buffer` is then as it was.
pub fn encode_reply(message: &Reply, request: u32, buffer: &mut BytesMut) -> Result<(), EncodeError> {
    let kind = match message {
        Reply::Welcome(_) => WELCOME,
        Reply::Grant(_) => GRANT,
        Reply::Parked => PARKED,
        Reply::Shed(_) => SHED,
        Reply::Reject { .. } => REJECT,
        Reply::Registered { .. } => REGISTERED,
        Reply::Revoke { .. } => REVOKE,
        Reply::Overload(_) => OVERLOAD,
        Reply::Limits(limits) => return encode_limits(limits, request, buffer),
        Reply::MoreLimits { .. } => MORE_LIMITS,
        Reply::Drain => DRAIN,
        Reply::Error { .. } => ERROR,
        Reply::TierAsk { .. } => TIER_ASK,
        Reply::ClientGone { .. } => CLIENT_GONE,
        Reply::Pong => PONG,
    };
    encode_frame(kind, request, buffer, |body| match message {
        Reply::Welcome(welcome) => {
            body.put_u16_le(welcome.version);
            body.put_u16_le(0);
            body.put_u32_le(welcome.epoch);
            body.put_u64_le(welcome.session);
            body.put_u32_le(welcome.lease_ttl_ms);
        }
        Reply::Grant(grant) => put_grant(body, grant.lease, grant.waited_ms, grant.member.as_deref()),
        Reply::Shed(shed) => {
            body.put_u16_le(shed.status);
            body.put_u8(origin_code(shed.origin));
            body.put_u8(0);
            body.put_u32_le(shed.retry_after_ms);
            body.put_u64_le(shed.decision);
            put_text(body, tag::REASON, &shed.reason);
            put_text(body, tag::TEXT, &shed.detail);
            put_opt_u32(body, tag::QUOTA, shed.quota);
        }
        Reply::Reject { reason } => put_text(body, tag::TEXT, reason),
        Reply::Registered { leases } => put_list(body, leases, |body, (old, new)| {
            body.put_u64_le(*old);
            body.put_u64_le(*new);
        }),
        Reply::Revoke { lease, reason } => {
            body.put_u64_le(*lease);
            body.put_u8(revoke_code(*reason));
        }
        Reply::Overload(overload) => {
            body.put_u8(level_code(overload.level));
            body.put_u8(0);
            body.put_u16_le(overload.pressure);
            body.put_u32_le(overload.causes);
            body.put_u32_le(overload.retry_after_ms);
        }
        Reply::MoreLimits { pools } => put_pools(body, pools.iter().map(|pool| (pool, &pool.members[..]))),
        Reply::Error { code, message } => {
            body.put_u16_le(error_code(*code));
            put_text(body, tag::TEXT, message);
        }
        Reply::TierAsk { org } => put_opt_key(body, tag::ORG, Some(*org)),
        Reply::ClientGone { lease } => body.put_u64_le(*lease),
        // Encoded above.
        Reply::Limits(_) => {}
        Reply::Parked | Reply::Drain | Reply::Pong => {}
    })
}

/// Appends a `Grant`, as [`encode_reply`] does, of a member that is known by reference.
///
/// # Errors
///
/// Never: a grant fits a frame.
pub fn encode_grant(
    (lease, waited_ms, member): (u64, u32, Option<&str>),
    request: u32,
    buffer: &mut BytesMut,
) -> Result<(), EncodeError> {
    encode_frame(GRANT, request, buffer, |body| put_grant(body, lease, waited_ms, member))
}

fn put_grant(body: &mut BytesMut, lease: u64, waited_ms: u32, member: Option<&str>) {
    body.put_u64_le(lease);
    body.put_u32_le(waited_ms);
    put_opt_name(body, tag::MEMBER, member);
}

/// Reads what the daemon said.
///
/// # Errors
///
/// [`ParseError`]. A client ignores [`ParseError::Unknown`], and treats a malformed frame as a broken connection.
pub fn parse_reply(frame: &Frame) -> Result<Reply, ParseError> {
    read_reply(frame.borrowed())
}

/// The same, with the name in a grant in the form that the caller wants.
///
/// # Errors
///
/// As [`parse_reply`].
pub fn read_reply<'a, S: From<&'a str>>(frame: FrameRef<'a>) -> Result<Reply<S>, ParseError> {
    let body = Cursor::new(frame.body);
    let parsed = match frame.kind {
        WELCOME => welcome(body),
        GRANT => grant(body),
        PARKED => bare(body, Reply::Parked),
        SHED => shed(body),
        REJECT => text(body).map(|reason| Reply::Reject { reason }),
        REGISTERED => registered(body),
        REVOKE => revoke(body),
        OVERLOAD => overload(body),
        LIMITS => limits(body),
        MORE_LIMITS => more_limits(body),
        DRAIN => bare(body, Reply::Drain),
        ERROR => error(body),
        TIER_ASK => tier_ask(body),
        CLIENT_GONE => client_gone(body),
        PONG => bare(body, Reply::Pong),
        kind => return Err(ParseError::Unknown { kind, request: frame.request }),
    };
    parsed.map_err(malformed(frame))
}

fn welcome<S>(mut body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    let version = body.u16()?;
    body.u16()?;
    let (epoch, session, lease_ttl_ms) = (body.u32()?, body.u64()?, body.u32()?);
    bare(body, Reply::Welcome(Welcome { version, session, epoch, lease_ttl_ms }))
}

fn grant<'a, S: From<&'a str>>(mut body: Cursor<'a>) -> Result<Reply<S>, Malformed> {
    let (lease, waited_ms) = (body.u64()?, body.u32()?);
    let mut member = None;
    body.tlvs(|field, value| {
        if field == tag::MEMBER {
            member = Some(value.name()?);
        }
        Ok(())
    })?;
    Ok(Reply::Grant(Grant { lease, member, waited_ms }))
}

fn shed<S>(mut body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    let (status, origin) = (body.u16()?, origin(body.u8()?)?);
    body.u8()?;
    let (retry_after_ms, decision) = (body.u32()?, body.u64()?);
    let (mut reason, mut detail, mut quota) = (String::new(), String::new(), None);
    body.tlvs(|field, value| {
        match field {
            tag::REASON => reason = value.text()?,
            tag::TEXT => detail = value.text()?,
            tag::QUOTA => quota = Some(value.u32()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Reply::Shed(Shed { status, origin, reason, retry_after_ms, decision, detail, quota }))
}

fn registered<S>(mut body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    let leases = body.list(16, |entry| Ok((entry.u64()?, entry.u64()?)))?;
    bare(body, Reply::Registered { leases })
}

fn revoke<S>(mut body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    let (lease, reason) = (body.u64()?, revoke_reason(body.u8()?)?);
    bare(body, Reply::Revoke { lease, reason })
}

fn overload<S>(mut body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    let level = level_of(body.u8()?).ok_or("a level is unknown")?;
    body.u8()?;
    let (pressure, causes, retry_after_ms) = (body.u16()?, body.u32()?, body.u32()?);
    bare(body, Reply::Overload(Overload { level, pressure, causes, retry_after_ms }))
}

fn error<S>(mut body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    let code = match body.u16()? {
        1 => ErrorCode::Unsupported,
        2 => ErrorCode::Malformed,
        3 => ErrorCode::Handshake,
        4 => ErrorCode::Denied,
        _ => return Err("an error code is unknown"),
    };
    text(body).map(|message| Reply::Error { code, message })
}

fn tier_ask<S>(body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    let mut org = None;
    body.tlvs(|field, value| {
        if field == tag::ORG {
            org = Some(value.key()?);
        }
        Ok(())
    })?;
    org.map(|org| Reply::TierAsk { org }).ok_or("a question about a tier names no org")
}

fn client_gone<S>(mut body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    let lease = body.u64()?;
    bare(body, Reply::ClientGone { lease })
}

/// A message whose only TLV of interest is its text.
fn text(body: Cursor<'_>) -> Result<String, Malformed> {
    let mut text = String::new();
    body.tlvs(|field, value| {
        if field == tag::TEXT {
            text = value.text()?;
        }
        Ok(())
    })?;
    Ok(text)
}

/// A message that defines no TLV; those of later versions are skipped.
fn bare<S>(body: Cursor<'_>, reply: Reply<S>) -> Result<Reply<S>, Malformed> {
    body.tlvs(|_, _| Ok(()))?;
    Ok(reply)
}

fn origin_code(origin: Origin) -> u8 {
    match origin {
        Origin::Key => 0,
        Origin::Org => 1,
        Origin::Pool => 2,
        Origin::Node => 3,
        Origin::Fleet => 4,
        Origin::Upstream => 5,
    }
}

fn origin(code: u8) -> Result<Origin, Malformed> {
    match code {
        0 => Ok(Origin::Key),
        1 => Ok(Origin::Org),
        2 => Ok(Origin::Pool),
        3 => Ok(Origin::Node),
        4 => Ok(Origin::Fleet),
        5 => Ok(Origin::Upstream),
        _ => Err("an origin is unknown"),
    }
}

fn revoke_code(reason: RevokeReason) -> u8 {
    match reason {
        RevokeReason::Expired => 1,
        RevokeReason::Operator => 2,
        RevokeReason::PoolGone => 3,
        RevokeReason::Unknown => 4,
        RevokeReason::Reclaimed => 5,
    }
}

fn revoke_reason(code: u8) -> Result<RevokeReason, Malformed> {
    match code {
        1 => Ok(RevokeReason::Expired),
        2 => Ok(RevokeReason::Operator),
        3 => Ok(RevokeReason::PoolGone),
        4 => Ok(RevokeReason::Unknown),
        5 => Ok(RevokeReason::Reclaimed),
        _ => Err("a reason to revoke is unknown"),
    }
}

/// The level as the wire and the signal page have it.
pub(crate) fn level_code(level: Level) -> u8 {
    match level {
        Level::Normal => 0,
        Level::Elevated => 1,
        Level::High => 2,
        Level::Overloaded => 3,
    }
}

/// The level of a code; `None` if none has it.
pub(crate) fn level_of(code: u8) -> Option<Level> {
    match code {
        0 => Some(Level::Normal),
        1 => Some(Level::Elevated),
        2 => Some(Level::High),
        3 => Some(Level::Overloaded),
        _ => None,
    }
}

fn error_code(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::Unsupported => 1,
        ErrorCode::Malformed => 2,
        ErrorCode::Handshake => 3,
        ErrorCode::Denied => 4,
    }
}
