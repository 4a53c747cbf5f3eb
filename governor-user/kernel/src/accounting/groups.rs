//! Listeners that share an address and port, seen as one: an SO_REUSEPORT group is as full as its fullest member. Pure.

use governor_observation::{ListenerGroup, ListenerView};

/// The groups of `listeners`, which are ordered by namespace, port and address; a lone listener is a group of one.
#[must_use]
pub fn groups(listeners: &[ListenerView]) -> Vec<ListenerGroup> {
    listeners
        .chunk_by(|a, b| (a.netns, a.port, a.address) == (b.netns, b.port, b.address))
        .filter_map(|members| members.first().map(|first| group(first, members)))
        .collect()
}

fn group(first: &ListenerView, members: &[ListenerView]) -> ListenerGroup {
    let depth: u64 = members.iter().map(|member| u64::from(member.depth)).sum();
    let deepest = members.iter().map(|member| member.depth).max().unwrap_or(0);
    let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let limits: Option<Vec<(u32, u32)>> =
        members.iter().map(|member| member.backlog.map(|backlog| (member.depth, backlog))).collect();
    let full: Option<Vec<bool>> = members.iter().map(ListenerView::is_full).collect();
    let worst = |limits: &Vec<(u32, u32)>| {
        limits.iter().map(|(depth, backlog)| utilisation(*depth, *backlog)).fold(0.0, f64::max)
    };
    ListenerGroup {
        netns: first.netns,
        address: first.address,
        port: first.port,
        members: count,
        depth,
        backlog: limits.as_ref().map(|limits| limits.iter().map(|(_, backlog)| u64::from(*backlog)).sum()),
        full: full.map(|full| full.iter().map(|full| u32::from(*full)).sum()),
        worst_utilisation: limits.as_ref().map(worst),
        skew: (depth > 0).then(|| {
            let total = f64::from(u32::try_from(depth).unwrap_or(u32::MAX));
            f64::from(deepest) * f64::from(count) / total
        }),
        cookies: members.iter().filter_map(|member| member.cookie).collect(),
    }
}

/// Fill of one queue, which holds backlog + 1, clamped to 1.
fn utilisation(depth: u32, backlog: u32) -> f64 {
    (f64::from(depth) / (f64::from(backlog) + 1.0)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(cookie: u64, port: u16, depth: u32, backlog: Option<u32>) -> ListenerView {
        ListenerView { cookie: Some(cookie), backlog, depth, ..ListenerView::bare(port) }
    }

    #[test]
    fn one_hot_socket_makes_its_group_full() {
        let rows: Vec<_> =
            [(11, 129), (12, 0), (13, 0), (14, 2)].map(|(cookie, depth)| member(cookie, 443, depth, Some(128))).into();
        let groups = groups(&rows);
        assert_eq!(groups.len(), 1);
        let group = &groups[0];
        assert_eq!((group.members, group.depth, group.backlog, group.full), (4, 131, Some(512), Some(1)));
        assert_eq!(group.worst_utilisation, Some(1.0), "not 131 of 512");
        assert!(group.skew.is_some_and(|skew| (3.9..4.0).contains(&skew)));
        assert_eq!(group.cookies, [11, 12, 13, 14]);
    }

    #[test]
    fn an_unknown_limit_leaves_fullness_unknown_and_an_empty_group_has_no_skew() {
        let groups = groups(&[member(1, 80, 0, Some(4)), member(2, 80, 0, None), member(3, 81, 5, Some(4))]);
        assert_eq!(groups.len(), 2);
        assert_eq!((groups[0].backlog, groups[0].full, groups[0].worst_utilisation), (None, None, None));
        assert_eq!((groups[0].skew, groups[1].skew, groups[1].full), (None, Some(1.0), Some(1)));
    }

    #[test]
    fn utilisation_counts_the_place_above_the_backlog() {
        for (depth, backlog, expected) in [(5, 4, 1.0), (4, 4, 0.8), (1, 0, 1.0), (0, 0, 0.0), (9, 4, 1.0)] {
            assert!((utilisation(depth, backlog) - expected).abs() < 1e-9, "{depth}/{backlog}");
        }
    }
}
