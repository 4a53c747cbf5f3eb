//! The last tier: listeners from `/proc/<task>/net/tcp` and `tcp6`, which need no right and no kernel option. They show
//! the depth only; the backlog is unknown (the field beside it is always 0), never 0. Whether an IPv6 listener also
//! takes IPv4 is not shown here either.

use crate::rows::{Id, Row};
use ::procfs::{
    FromBufReadSI, ProcError, current_system_info,
    net::{TcpNetEntries, TcpState},
};
use governor_observation::Protocol;
use std::{
    fs,
    io::{self, BufRead, BufReader},
    path::Path,
};

/// Why a table could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcfsError {
    /// The file is not there or not readable.
    #[error("cannot read the socket table")]
    Io(#[from] io::Error),
    /// The file does not have the documented form.
    #[error("the socket table has an unknown form")]
    Parse(#[from] ProcError),
}

/// The listeners of the network namespace that the task with this folder below `/proc` lives in.
///
/// # Errors
/// When the IPv4 table is unreadable or either is malformed. A host without IPv6 has no second table.
pub(crate) fn listeners(task: &Path) -> Result<Vec<Row>, ProcfsError> {
    let mut rows = parse(BufReader::new(fs::File::open(task.join("net/tcp"))?))?;
    match fs::File::open(task.join("net/tcp6")) {
        Ok(table) => rows.extend(parse(BufReader::new(table))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    Ok(rows)
}

/// Listeners come first in the table; reading stops where they end, whatever number of connections follow.
fn parse(mut table: impl BufRead) -> Result<Vec<Row>, ProcfsError> {
    let mut head = Vec::new();
    table.read_until(b'\n', &mut head)?;
    loop {
        let line_start = head.len();
        table.read_until(b'\n', &mut head)?;
        if !is_listener(&head[line_start..]) {
            head.truncate(line_start);
            break;
        }
    }
    let entries = TcpNetEntries::from_buf_read(&head[..], current_system_info())?;
    Ok(entries.0.into_iter().filter(|entry| entry.state == TcpState::Listen).map(row).collect())
}

/// `sl local_address rem_address st …`: state 0A.
fn is_listener(line: &[u8]) -> bool {
    line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).nth(3) == Some(b"0A")
}

fn row(entry: ::procfs::net::TcpNetEntry) -> Row {
    Row {
        id: Id::Inode(entry.inode),
        inode: entry.inode,
        address: entry.local_address.ip(),
        port: entry.local_address.port(),
        depth: entry.rx_queue,
        backlog: None,
        drops: None,
        cgroup: None,
        protocol: Protocol::Tcp,
        abandoned: None,
        oldest_ns: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

    const HEADER: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[test]
    fn depth_is_hexadecimal_addresses_are_in_host_order_and_the_backlog_is_unknown() {
        let table = format!(
            "{HEADER}   0: 0100007F:1F41 00000000:0000 0A 00000000:00000005 00:00000000 00000000     0        0 77 1\n   \
             1: 0100007F:1F42 00000000:0000 0A 00000000:0000000A 00:00000000 00000000     0        0 78 1\n   \
             2: 0100007F:1F43 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 79 1\n"
        );
        if cfg!(target_endian = "big") {
            return;
        }
        let rows = parse(table.as_bytes()).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].address, rows[0].port), (IpAddr::from([127, 0, 0, 1]), 8001));
        assert_eq!((rows[0].depth, rows[0].backlog, rows[1].depth), (5, None, 10));
        assert_eq!(rows[0].id, Id::Inode(77));
    }

    #[test]
    fn a_malformed_table_is_an_error_and_not_an_empty_one() {
        let table = format!("{HEADER}   0: 0100007F 00000000:0000 0A x\n");
        assert!(parse(table.as_bytes()).is_err());
    }

    #[test]
    fn an_empty_table_is_empty() {
        assert_eq!(parse(HEADER.as_bytes()).unwrap(), []);
        assert_eq!(parse(&b""[..]).unwrap(), []);
    }

    #[test]
    fn the_kernel_shows_the_depth_of_an_own_listener() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let _queued = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let rows = listeners(Path::new("/proc/thread-self")).unwrap();
        let mine: Vec<_> = rows.iter().filter(|row| row.port == port).collect();
        assert_eq!((mine.len(), mine[0].depth), (1, 1));
    }
}
