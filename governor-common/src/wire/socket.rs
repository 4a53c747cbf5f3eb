//! The stream socket that frames go through, as both its ends hold it: waited for by its readable side only. A runtime that
//! waits for both sides is also woken each time the peer has read something, because there is room again: one wake-up in
//! vain for every message. Room is waited for only while there is none. The one unsafe island of the wire: descriptors are
//! handed to the runtime's event loop.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A connected stream socket.
#[derive(Debug)]
pub struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    /// Takes a connected stream socket over. Whether it blocks makes no difference: nothing here waits in the kernel.
    ///
    /// # Errors
    ///
    /// The event loop refuses it.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O.
    pub fn new(stream: impl Into<OwnedFd>) -> io::Result<Self> {
        registered(stream.into(), Interest::READABLE).map(Self)
    }

    /// Reads into the front of `chunk`, which is not empty, from any thread and without waiting. 0 is the end.
    ///
    /// # Errors
    ///
    /// The socket's; `EAGAIN` when there is nothing to read.
    pub fn try_read(&self, chunk: &mut [u8]) -> rustix::io::Result<usize> {
        let (count, _) = recv(&self.0, chunk, RecvFlags::DONTWAIT)?;
        Ok(count)
    }

    /// Waits until there is something to read, and reads it into the front of `chunk`, which is not empty. 0 is the end.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub async fn read(&self, chunk: &mut [u8]) -> io::Result<usize> {
        let room = chunk.len();
        let all = |_: BorrowedFd<'_>| {
            let count = self.try_read(chunk)?;
            // What did not fill the room was all there was: no second call to find that out.
            Ok((count, count < room))
        };
        self.read_with(all).await
    }

    /// Waits until there is something to read, and lets `read` have it, which must not wait; it says what it read, and
    /// whether that was surely all there was.
    ///
    /// # Errors
    ///
    /// What `read` says, except that it would have to wait.
    pub async fn read_with<T>(
        &self,
        mut read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<(T, bool)>,
    ) -> io::Result<T> {
        loop {
            let mut ready = self.0.readable().await?;
            match read(self.as_fd()) {
                Ok((taken, all)) => {
                    if all {
                        ready.clear_ready();
                    }
                    return Ok(taken);
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes as much as there is room for, from any thread and without waiting.
    ///
    /// # Errors
    ///
    /// The socket's; `WouldBlock` when there is no room: [`writable`](Self::writable) waits for some.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    /// Waits until there is room.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left, or the event loop refuses one.
    pub async fn writable(&self) -> io::Result<()> {
        // A descriptor can be waited for once.
        let other = registered(self.as_fd().try_clone_to_owned()?, Interest::WRITABLE)?;
        drop(other.writable().await?);
        Ok(())
    }

    /// Writes all of it.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` owns a valid descriptor, always gives the same one, and nothing takes it out of the `AsyncFd`.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use tokio::time::timeout;

    fn pair() -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Socket::new(ours).unwrap(), theirs)
    }

    #[tokio::test]
    async fn what_comes_is_read_whole_in_pieces_and_up_to_the_end() {
        let (socket, theirs) = pair();
        let mut chunk = [0; 4];
        for (said, pieces) in [(&b"ab"[..], vec!["ab"]), (b"abcd", vec!["abcd"]), (b"abcdef", vec!["abcd", "ef"])] {
            io::Write::write_all(&mut &theirs, said).unwrap();
            for piece in pieces {
                let count = socket.read(&mut chunk).await.unwrap();
                assert_eq!(&chunk[..count], piece.as_bytes());
            }
            let nothing = timeout(Duration::from_millis(1), socket.read(&mut chunk)).await;
            assert!(nothing.is_err(), "there is no more");
        }
        io::Write::write_all(&mut &theirs, b"z").unwrap();
        drop(theirs);
        assert_eq!(socket.read(&mut chunk).await.unwrap(), 1);
        assert_eq!(socket.read(&mut chunk).await.unwrap(), 0, "the end shows after the last byte");
    }

    #[tokio::test]
    async fn a_writer_waits_for_room_and_for_nothing_else() {
        let (socket, theirs) = pair();
        let all = vec![7; 4 << 20];
        let reader = std::thread::spawn(move || {
            let mut heard = Vec::new();
            io::Read::read_to_end(&mut &theirs, &mut heard).map(|_| heard.len())
        });
        socket.write_all(&all).await.unwrap();
        drop(socket);
        assert_eq!(reader.join().unwrap().unwrap(), all.len());
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_an_error_and_no_signal() {
        let (socket, theirs) = pair();
        drop(theirs);
        assert_eq!(socket.try_write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
