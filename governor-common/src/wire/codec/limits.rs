//! `Limits` in one frame, or in several: the capacities of all pools first, then the members.

use super::PART;
use super::field::{Cursor, Malformed, name_length, parts, put_name, put_nested, tag};
use super::reply::{LIMITS, MORE_LIMITS};
use crate::wire::error::EncodeError;
use crate::wire::frame::encode_frame;
use crate::wire::reply::{Limits, PoolLimits, Reply};
use bytes::{BufMut, BytesMut};

/// A pool with some of its members.
type Piece<'a> = (&'a PoolLimits, &'a [(String, u32)]);

/// Bytes before the TLVs of pool limits or member limits: type, length and a number.
const HEAD: usize = 8;

/// Bytes that a pool with these members takes in a `Limits`.
pub fn pool_limits_length<'a>(pool: &str, members: impl IntoIterator<Item = &'a str>) -> usize {
    let members = members.into_iter().map(|member| HEAD + name_length(member));
    members.fold(HEAD + name_length(pool), usize::saturating_add)
}

/// Appends one frame, or as many as the pools need.
pub(super) fn encode_limits(limits: &Limits, request: u32, buffer: &mut BytesMut) -> Result<(), EncodeError> {
    let fixed = |body: &mut BytesMut| {
        body.put_u32_le(limits.sessions);
        body.put_u32_le(limits.node_cap);
    };
    let whole = encode_frame(LIMITS, request, buffer, |body| {
        fixed(body);
        put_pools(body, limits.pools.iter().map(|pool| (pool, &pool.members[..])));
    });
    if whole.is_ok() {
        return whole;
    }
    let pieces = pieces(limits);
    for (index, part) in parts(&pieces, PART, length).enumerate() {
        let kind = if index == 0 { LIMITS } else { MORE_LIMITS };
        encode_frame(kind, request, buffer, |body| {
            if index == 0 {
                fixed(body);
            }
            put_pools(body, part.iter().copied());
        })?;
    }
    Ok(())
}

/// Every pool with its first member, so that a reader of the first part knows its capacity and that it has a gate; then the
/// other members.
fn pieces(limits: &Limits) -> Vec<Piece<'_>> {
    let split = |pool: &PoolLimits| pool.members.len().min(1);
    let firsts = limits.pools.iter().map(|pool| (pool, &pool.members[..split(pool)]));
    let rest = limits.pools.iter().flat_map(|pool| {
        let most = PART - HEAD - name_length(&pool.name);
        let others = &pool.members[split(pool)..];
        parts(others, most, |(name, _)| HEAD + name_length(name)).map(move |members| (pool, members))
    });
    firsts.chain(rest).collect()
}

fn length((pool, members): &Piece<'_>) -> usize {
    pool_limits_length(&pool.name, members.iter().map(|(name, _)| name.as_str()))
}

pub(super) fn put_pools<'a>(body: &mut BytesMut, pools: impl Iterator<Item = Piece<'a>>) {
    for (pool, members) in pools {
        put_nested(body, tag::POOL_LIMITS, |nested| {
            nested.put_u32_le(pool.capacity);
            put_name(nested, tag::POOL, &pool.name);
            for (member, slots) in members {
                put_nested(nested, tag::MEMBER_LIMITS, |nested| {
                    nested.put_u32_le(*slots);
                    put_name(nested, tag::MEMBER, member);
                });
            }
        });
    }
}

pub(super) fn limits<S>(mut body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    let (sessions, node_cap) = (body.u32()?, body.u32()?);
    Ok(Reply::Limits(Limits { sessions, node_cap, pools: pools(body)? }))
}

pub(super) fn more_limits<S>(body: Cursor<'_>) -> Result<Reply<S>, Malformed> {
    Ok(Reply::MoreLimits { pools: pools(body)? })
}

fn pools(body: Cursor<'_>) -> Result<Vec<PoolLimits>, Malformed> {
    let mut pools = Vec::new();
    body.tlvs(|field, value| {
        if field == tag::POOL_LIMITS {
            pools.push(pool_limits(value.cursor())?);
        }
        Ok(())
    })?;
    Ok(pools)
}

fn pool_limits(mut body: Cursor<'_>) -> Result<PoolLimits, Malformed> {
    let mut pool = PoolLimits { capacity: body.u32()?, ..PoolLimits::default() };
    body.tlvs(|field, value| {
        match field {
            tag::POOL => pool.name = value.name()?,
            tag::MEMBER_LIMITS => pool.members.push(member_limits(value.cursor())?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(pool)
}

fn member_limits(mut body: Cursor<'_>) -> Result<(String, u32), Malformed> {
    let slots = body.u32()?;
    let mut name = String::new();
    body.tlvs(|field, value| {
        if field == tag::MEMBER {
            name = value.name()?;
        }
        Ok(())
    })?;
    Ok((name, slots))
}
