//! The layout byte by byte, round trips, pages that mean harm, and what the seals promise.

use super::*;
use crate::wire::reply::{Level, cause};
use proptest::collection::vec;
use proptest::prelude::*;

fn sample() -> Signals {
    Signals {
        overload: Overload {
            level: Level::High,
            pressure: 800,
            causes: cause::ACCEPT_FILL | cause::NODE_IN_FLIGHT,
            retry_after_ms: 2000,
        },
        draining: true,
        pools_left_out: false,
        node_counted: 90,
        node_cap: 1000,
        pools: vec![
            PoolSignal {
                hash: pool_hash("chat"),
                capacity: 98,
                in_flight: 80,
                parked: 7,
                congested: true,
                unlimited: false,
            },
            PoolSignal { hash: pool_hash("embed"), capacity: 4, ..PoolSignal::default() },
        ],
    }
}

fn empty() -> Page {
    Page::from_bytes(&[0; PAGE_SIZE])
}

fn bytes_of(page: &Page) -> Vec<u8> {
    (0..WORDS).flat_map(|word| page.load(word).to_ne_bytes()).collect()
}

#[test]
fn every_field_has_its_golden_place() {
    let page = empty();
    page.sign(3);
    page.publish(&sample());
    let bytes = bytes_of(&page);
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(&bytes[..8], b"governor");
    assert_eq!((u32_at(8), u32_at(12)), (1, 3), "version, epoch");
    assert_eq!((u64_at(16), u64_at(24)), (2, 1), "sequence, heartbeat");
    assert_eq!((bytes[32], bytes[33]), (2, 1), "level, flags");
    assert_eq!(&bytes[34..36], &800_u16.to_le_bytes(), "pressure");
    assert_eq!((u32_at(36), u32_at(40), u32_at(44)), (0b101, 2000, 2), "causes, retry_after_ms, pools");
    assert_eq!((u32_at(48), u32_at(52), u64_at(56)), (90, 1000, 0), "counted, cap, reserved");
    assert_eq!(u64_at(64), pool_hash("chat"));
    assert_eq!([u32_at(72), u32_at(76), u32_at(80), u32_at(84)], [98, 80, 7, 1], "capacity, in flight, parked, flags");
    assert_eq!((u64_at(88), u64_at(96)), (0, pool_hash("embed")), "reserved, the next pool");
    assert!(bytes[128..].iter().all(|byte| *byte == 0));
}

#[test]
fn pools_go_by_the_published_hash() {
    assert_eq!(pool_hash(""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(pool_hash("a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(pool_hash("foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn what_was_written_is_read() {
    let page = empty();
    page.publish(&sample());
    assert_eq!(page.read(), Ok(sample()));
    assert_eq!(page.overload(), Ok(sample().overload));
    assert_eq!(page.pool(pool_hash("embed")), Ok(Some(sample().pools[1])));
    assert_eq!(page.pool(pool_hash("other")), Ok(None));
    page.publish(&Signals::default());
    assert_eq!((page.read(), page.heartbeat()), (Ok(Signals::default()), 2));
}

#[test]
fn slots_are_scarce_where_somebody_waits_or_nearly_all_are_taken() {
    let pool = |capacity, in_flight, parked| PoolSignal { capacity, in_flight, parked, ..PoolSignal::default() };
    let page = empty();
    for (pools, left_out, scarce) in [
        (vec![], false, false),
        (vec![pool(10, 8, 0), pool(100, 0, 0)], false, false),
        (vec![pool(10, 8, 0), pool(100, 90, 0)], false, true),
        (vec![pool(10, 0, 1)], false, true),
        (vec![PoolSignal { unlimited: true, ..pool(0, 5, 0) }], false, false),
        // Its members are off, or all of them cool.
        (vec![pool(0, 5, 0)], false, true),
        (vec![], true, true),
    ] {
        page.publish(&Signals { pools: pools.clone(), pools_left_out: left_out, ..Signals::default() });
        assert_eq!(page.is_scarce(), Ok(scarce), "{pools:?}");
    }
}

#[test]
fn pools_that_do_not_fit_are_said_to_be_left_out() {
    let page = empty();
    let pools = (0..40).map(|hash| PoolSignal { hash, ..PoolSignal::default() }).collect();
    page.publish(&Signals { pools, ..Signals::default() });
    let read = page.read().unwrap();
    assert_eq!((read.pools.len(), read.pools_left_out), (PAGE_POOLS, true));
}

#[test]
fn a_writer_that_died_while_writing_leaves_a_busy_page_and_no_endless_loop() {
    let page = empty();
    page.publish(&sample());
    page.store(at::SEQUENCE, 5);
    assert_eq!(page.read(), Err(Unreadable::Busy));
    assert_eq!(page.overload(), Err(Unreadable::Busy));
    assert_eq!(page.pool(1), Err(Unreadable::Busy));
}

proptest! {
    #[test]
    fn any_signals_come_back_as_they_went(
        (level, pressure, causes, retry_after_ms) in (0_u8..4, 0_u16..=1000, any::<u32>(), any::<u32>()),
        (draining, node_counted, node_cap) in any::<(bool, u32, u32)>(),
        pools in vec(any::<(u64, u32, u32, u32, (bool, bool))>(), 0..PAGE_POOLS),
    ) {
        let overload = Overload { level: level_of(level).unwrap(), pressure, causes, retry_after_ms };
        let pools = pools.into_iter().map(|(hash, capacity, in_flight, parked, (congested, unlimited))| PoolSignal {
            hash, capacity, in_flight, parked, congested, unlimited,
        });
        let pools = pools.collect();
        let signals = Signals { overload, draining, pools_left_out: false, node_counted, node_cap, pools };
        let page = empty();
        page.publish(&signals);
        prop_assert_eq!(page.overload(), Ok(signals.overload));
        prop_assert_eq!(page.read(), Ok(signals));
    }

    #[test]
    fn arbitrary_pages_never_panic_and_never_loop(
        mut bytes in vec(any::<u8>(), PAGE_SIZE),
        even: bool,
        level in 0_u8..6,
    ) {
        // Else nearly all of them are busy or have no level.
        bytes[16] = if even { bytes[16] & !1 } else { bytes[16] };
        bytes[32] = level;
        let page = Page::from_bytes(bytes.as_slice().try_into().unwrap());
        match page.read() {
            Ok(signals) => prop_assert!(signals.pools.len() <= PAGE_POOLS && signals.overload.pressure <= 1000),
            Err(Unreadable::Busy) => prop_assert!(!even && bytes[16] & 1 == 1),
            Err(Unreadable::Nonsense) => prop_assert!(level > 3),
        }
        prop_assert_eq!(page.overload().err(), page.read().err());
        prop_assert!(page.pool(0).is_ok() || bytes[16] & 1 == 1);
        prop_assert_eq!((page.heartbeat(), page.version()), (page.load(at::HEARTBEAT), None));
    }
}

#[cfg(feature = "map")]
mod mapped {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
    use rustix::io::Errno;
    use std::io::Write;
    use std::sync::atomic::AtomicBool;

    fn file(bytes: &[u8], seals: SealFlags) -> std::fs::File {
        let descriptor = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let mut file = std::fs::File::from(descriptor);
        file.write_all(bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn a_proxy_reads_what_the_daemon_writes() {
        let mut writer = PageWriter::create(7).unwrap();
        let reader = PageReader::map(writer.descriptor()).unwrap();
        assert_eq!((reader.epoch(), reader.heartbeat()), (7, 0));
        writer.write(&sample());
        assert_eq!((reader.read(), reader.heartbeat()), (Ok(sample()), 1));
        drop(writer);
        assert_eq!(reader.read(), Ok(sample()), "the memory outlives its writer");
    }

    #[test]
    fn the_page_can_neither_shrink_nor_be_written_by_who_gets_it() {
        let writer = PageWriter::create(1).unwrap();
        let descriptor = writer.descriptor();
        let seals = fcntl_get_seals(descriptor).unwrap();
        assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL));
        assert_eq!(rustix::io::write(descriptor, b"x"), Err(Errno::BADF), "it was opened for reading");
        // The seals stop a process that opens the file anew for writing.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&descriptor));
        let again = std::fs::File::options().read(true).write(true).open(path).unwrap();
        assert_eq!(ftruncate(&again, 0), Err(Errno::PERM));
        assert_eq!(rustix::io::write(&again, b"x"), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(&again, SealFlags::WRITE), Err(Errno::PERM), "nor can the seals be changed");
    }

    #[test]
    fn what_could_vanish_under_a_reader_is_not_mapped() {
        let page = bytes_of(&{
            let page = empty();
            page.sign(1);
            page
        });
        let newer = [&page[..8], &2_u32.to_ne_bytes(), &page[12..]].concat();
        let shrink = SealFlags::SHRINK;
        assert!(PageReader::map(file(&page, shrink)).is_ok());
        assert!(matches!(PageReader::map(file(&page, SealFlags::GROW)), Err(MapError::NotSealed)));
        assert!(matches!(PageReader::map(file(&page[..100], shrink)), Err(MapError::Short { size: 100 })));
        assert!(matches!(PageReader::map(file(&[0; PAGE_SIZE], shrink)), Err(MapError::NotAPage)));
        assert!(matches!(PageReader::map(file(&newer, shrink)), Err(MapError::Version { version: 2 })));
        let socket = std::os::unix::net::UnixStream::pair().unwrap().0;
        assert!(PageReader::map(socket).is_err());
    }

    #[test]
    fn readers_on_other_threads_never_see_half_a_write() {
        let mut writer = PageWriter::create(1).unwrap();
        let reader = PageReader::map(writer.descriptor()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..20_000 {
                    let pool =
                        PoolSignal { hash: n.into(), capacity: n, in_flight: n, parked: n, ..PoolSignal::default() };
                    let overload = Overload { causes: n, retry_after_ms: n, ..Overload::default() };
                    let pools = vec![pool; PAGE_POOLS];
                    writer.write(&Signals { overload, node_counted: n, node_cap: n, pools, ..Signals::default() });
                }
                over.store(true, Ordering::Release);
            });
            while !over.load(Ordering::Acquire) {
                let Ok(read) = reader.read() else { continue };
                let n = read.overload.causes;
                let alike = |pool: &PoolSignal| pool.hash == u64::from(n) && pool.capacity == n && pool.parked == n;
                assert!(read.node_cap == n && read.overload.retry_after_ms == n && read.pools.iter().all(alike));
            }
        });
    }
}
