//! A pair of ears between a client and the gateway: it passes every byte on and notes when each try arrived, and when
//! and for how long it was refused. It knows no more of HTTP than that.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// One request as it passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try {
    pub(super) arrived: Instant,
    /// When its refusal passed, and after what time that said to come back.
    pub(super) refused: Option<(Instant, Duration)>,
}

/// The tap. Its threads end with the connections they serve, or with the test.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) address: SocketAddr,
    tries: Arc<Mutex<Vec<Try>>>,
}

impl Tap {
    /// Listens, and passes everything on to `server`.
    pub(super) fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tap = Self { address: listener.local_addr().unwrap(), tries: Arc::default() };
        let tries = tap.tries.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { return };
                let (to, from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (asked, answered) = (tries.clone(), tries.clone());
                thread::spawn(move || pass(from, to, |bytes| note_request(&asked, bytes)));
                thread::spawn(move || pass(server, client, |bytes| note_answer(&answered, bytes)));
            }
        });
        tap
    }

    /// The tries since the last call.
    pub(super) fn take_tries(&self) -> Vec<Try> {
        std::mem::take(&mut self.tries.lock().unwrap())
    }
}

/// Passes bytes on until one side is gone, looking at each piece before it goes out.
fn pass(mut from: TcpStream, mut to: TcpStream, look: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        look(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // Fails when the other side was faster.
    drop(to.shutdown(Shutdown::Write));
}

fn note_request(tries: &Mutex<Vec<Try>>, bytes: &[u8]) {
    if bytes.starts_with(b"POST ") {
        tries.lock().unwrap().push(Try { arrived: Instant::now(), refused: None });
    }
}

fn note_answer(tries: &Mutex<Vec<Try>>, bytes: &[u8]) {
    if !bytes.starts_with(b"HTTP/1.1 ") || bytes.starts_with(b"HTTP/1.1 2") {
        return;
    }
    let head = String::from_utf8_lossy(bytes).to_lowercase();
    let number = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    let exact = number("retry-after-ms:").map(Duration::from_millis);
    if let (Some(advice), Some(last)) =
        (exact.or_else(|| number("retry-after:").map(Duration::from_secs)), tries.lock().unwrap().last_mut())
    {
        last.refused = Some((Instant::now(), advice));
    }
}
