//! `test-peer NETNS`: makes sockets in a network namespace on orders from stdin, one a line, each answered by a number.
//! A process of its own, so that it can be in a cgroup of its own and has its own descriptors.

mod serve;
mod spoof;
mod style;
mod track;

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, SocketFlags, SocketType, accept, bind, connect, ipproto, listen, socket_with, sockopt,
    },
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, LinkNameSpaceType, move_into_link_name_space, remove_capability_from_bounding_set},
};
use std::{
    collections::BTreeMap,
    error::Error,
    fs, io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
    time::Duration,
};
use support::options;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Default)]
struct Sockets {
    listeners: BTreeMap<u16, TcpListener>,
    /// Members of SO_REUSEPORT groups, in the order they were made.
    members: Vec<OwnedFd>,
    connections: Vec<OwnedFd>,
    styles: style::Styles,
    servers: serve::Servers,
}

#[expect(clippy::print_stdout, reason = "answers go to stdout")]
fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let namespace = arguments.next().ok_or(
        "usage: test-peer NETNS | test-peer --worker COUNT | test-peer --without-programs|--without-sight COMMAND…",
    )?;
    if namespace == "--without-programs" {
        return Err(without(&[CapabilitySet::BPF, CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN], arguments));
    }
    if namespace == "--without-sight" {
        return Err(without(&[CapabilitySet::SYS_PTRACE], arguments));
    }
    if namespace == "--worker" {
        return style::work(arguments.next().ok_or("--worker needs a COUNT")?.parse()?);
    }
    // `-`: where it was started.
    if namespace != "-" {
        move_into_link_name_space(fs::File::open(namespace)?.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    let most = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: most.maximum, ..most })?;
    let mut sockets = Sockets::default();
    for order in io::stdin().lines() {
        match sockets.obey(&order?) {
            Ok(number) => println!("{number}"),
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}

/// Becomes a command that lacks these rights: to load programs, or to look into other processes. Returns only if that fails.
fn without(rights: &[CapabilitySet], mut command: impl Iterator<Item = String>) -> Box<dyn Error> {
    for right in rights {
        if let Err(error) = remove_capability_from_bounding_set(*right) {
            return error.into();
        }
    }
    match command.next() {
        Some(program) => Command::new(program).args(command).exec().into(),
        None => "a COMMAND is missing".into(),
    }
}

impl Sockets {
    fn obey(&mut self, order: &str) -> Outcome<usize> {
        match order.split(' ').collect::<Vec<_>>()[..] {
            ["listen", address, backlog] => self.listen(address.parse()?, backlog.parse()?),
            ["listen-mptcp", address, backlog] => {
                let address = address.parse()?;
                self.listen_on(socket_of(address, ipproto::MPTCP)?, address, backlog.parse()?)
            }
            ["listen-deferred", address, backlog] => {
                let address = address.parse()?;
                let socket = socket(address)?;
                options::defer_accept(&socket)?;
                self.listen_on(socket, address, backlog.parse()?)
            }
            ["listen-fast", address, backlog, most] => {
                let address = address.parse()?;
                let socket = socket(address)?;
                options::fast_open(&socket, most.parse()?)?;
                self.listen_on(socket, address, backlog.parse()?)
            }
            ["connect-fast", address, port, count] => {
                let target = SocketAddr::new(address.parse()?, port.parse()?);
                for _ in 0..count.parse::<usize>()? {
                    let socket = socket(target.ip())?;
                    options::fast_open_connect(&socket)?;
                    connect(&socket, &target)?;
                    // This is what sends the SYN.
                    rustix::io::write(&socket, b"x")?;
                    self.connections.push(socket);
                }
                Ok(count.parse()?)
            }
            ["say", first, count] => {
                let (first, count) = (first.parse::<usize>()?, count.parse::<usize>()?);
                let speakers = self.connections.get(first..first + count).ok_or("no such connections")?;
                for connection in speakers {
                    rustix::io::write(connection, b"x")?;
                }
                Ok(count)
            }
            ["spoof", port, count] => {
                spoof::syns(port.parse()?, count.parse()?)?;
                Ok(count.parse()?)
            }
            ["track", count] => Ok(track::fill(count.parse()?)?),
            ["hear", what, port] => {
                hear(what, self.listeners.get(&port.parse()?).ok_or("no such listener")?)?;
                Ok(0)
            }
            ["hear-member", what, place] => {
                hear(what, self.members.get(place.parse::<usize>()?).ok_or("no such member")?)?;
                Ok(0)
            }
            ["relisten", port, backlog] => {
                listen(self.listeners.get(&port.parse()?).ok_or("no such listener")?, backlog.parse()?)?;
                Ok(0)
            }
            ["group", address, backlog, count] => self.group(address.parse()?, backlog.parse()?, count.parse()?),
            ["accept-by", style, port, count] => {
                let listener = self.listeners.get(&port.parse()?).ok_or("no such listener")?;
                self.styles.begin(style, listener, count.parse()?)
            }
            ["accepted"] => {
                let accepted = self.styles.finish()?;
                self.connections.extend(accepted);
                Ok(0)
            }
            ["close", "member"] => {
                self.members.remove(0);
                Ok(0)
            }
            ["connect", address, port, count] => {
                let target = SocketAddr::new(address.parse()?, port.parse()?);
                for _ in 0..count.parse::<usize>()? {
                    self.connections.push(TcpStream::connect(target)?.into());
                }
                Ok(count.parse()?)
            }
            ["begin", address, port, count] => {
                let target = SocketAddr::new(address.parse()?, port.parse()?);
                for _ in 0..count.parse::<usize>()? {
                    self.begin(target)?;
                }
                Ok(count.parse()?)
            }
            ["accept", port, count] => {
                let listener = self.listeners.get(&port.parse()?).ok_or("no such listener")?;
                for _ in 0..count.parse::<usize>()? {
                    self.connections.push(listener.accept()?.0.into());
                }
                Ok(count.parse()?)
            }
            ["serve", port, rate] => {
                let listener = self.listeners.get(&port.parse()?).ok_or("no such listener")?;
                self.servers.serve(listener.try_clone()?, rate.parse()?);
                Ok(0)
            }
            ["serve-group", rate] => {
                for member in &self.members {
                    self.servers.serve(TcpListener::from(member.try_clone()?), rate.parse()?);
                }
                Ok(self.members.len())
            }
            ["burst", address, port, count] => {
                serve::burst(SocketAddr::new(address.parse()?, port.parse()?), count.parse()?)
            }
            ["load", address, port, per_second, seconds] => {
                let target = SocketAddr::new(address.parse()?, port.parse()?);
                serve::load(target, per_second.parse()?, Duration::from_secs(seconds.parse()?))
            }
            ["accept-member", count] => {
                let member = self.members.first().ok_or("no member")?;
                for _ in 0..count.parse::<usize>()? {
                    self.connections.push(accept(member)?);
                }
                Ok(count.parse()?)
            }
            ["connect-mptcp", address, port, count] => {
                let target = SocketAddr::new(address.parse()?, port.parse()?);
                for _ in 0..count.parse::<usize>()? {
                    let socket = socket_of(target.ip(), ipproto::MPTCP)?;
                    connect(&socket, &target)?;
                    self.connections.push(socket);
                }
                Ok(count.parse()?)
            }
            ["starve", port, count] => self.starve(port.parse()?, count.parse()?),
            ["reset", "connections"] => {
                for connection in &self.connections {
                    sockopt::set_socket_linger(connection, Some(Duration::ZERO))?;
                }
                self.connections.clear();
                Ok(0)
            }
            ["close", "connections"] => {
                self.connections.clear();
                Ok(0)
            }
            ["close", "all"] => {
                *self = Self::default();
                Ok(0)
            }
            _ => Err("unknown order".into()),
        }
    }

    fn listen(&mut self, address: IpAddr, backlog: i32) -> Outcome<usize> {
        self.listen_on(socket(address)?, address, backlog)
    }

    fn listen_on(&mut self, socket: OwnedFd, address: IpAddr, backlog: i32) -> Outcome<usize> {
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, false)?;
        }
        bind(&socket, &SocketAddr::new(address, 0))?;
        listen(&socket, backlog)?;
        let listener = TcpListener::from(socket);
        let port = listener.local_addr()?.port();
        self.listeners.insert(port, listener);
        Ok(port.into())
    }

    fn group(&mut self, address: IpAddr, backlog: i32, count: usize) -> Outcome<usize> {
        let mut port = 0;
        for _ in 0..count {
            let member = socket(address)?;
            sockopt::set_socket_reuseport(&member, true)?;
            bind(&member, &SocketAddr::new(address, port))?;
            listen(&member, backlog)?;
            let listener = TcpListener::from(member);
            port = listener.local_addr()?.port();
            self.members.push(listener.into());
        }
        Ok(port.into())
    }

    /// Tries to accept without a descriptor to spare; how often the kernel refused for that.
    fn starve(&self, port: u16, count: usize) -> Outcome<usize> {
        let listener = self.listeners.get(&port).ok_or("no such listener")?;
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before })?;
        let refused = (0..count).filter(|_| accept(listener).err() == Some(Errno::MFILE)).count();
        setrlimit(Resource::Nofile, before)?;
        Ok(refused)
    }

    fn begin(&mut self, target: SocketAddr) -> Outcome<()> {
        let socket = socket(target.ip())?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        match connect(&socket, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.connections.push(socket);
        Ok(())
    }
}

fn hear(what: &str, listener: &impl AsFd) -> io::Result<()> {
    if what == "syns" { options::hear_syns_only(listener) } else { options::hear_all(listener) }
}

fn socket(address: IpAddr) -> io::Result<OwnedFd> {
    socket_of(address, ipproto::TCP)
}

fn socket_of(address: IpAddr, protocol: Protocol) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(protocol))?)
}
