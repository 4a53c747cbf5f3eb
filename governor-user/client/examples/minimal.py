#!/usr/bin/env python3
"""The minimal profile of the governor's protocol (PROTOCOL.md), standard library only: asks for a slot, runs a command
while it holds one, gives it back. Exit status 75: refused for now; 65: never valid; else the command's.

    minimal.py /run/governor/proxy.sock chat team-a 5000 curl https://…
"""
import hashlib, hmac, os, socket, struct, subprocess, sys, time
HELLO, ACQUIRE, CANCEL, RELEASE = 1, 2, 3, 4
WELCOME, GRANT, SHED, REJECT, ERROR = 0x81, 0x82, 0x84, 0x85, 0x8B
NAME, POOL, KEY, MAX_WAIT, MEMBER, REASON, TEXT = 1, 3, 4, 10, 12, 15, 16


class Refused(Exception):
    """A Shed (status 429 or 529, and when to try again) or a Reject (status 400: never)."""
    def __init__(self, status, reason, detail, retry_after_ms=None):
        super().__init__(f"{status} {reason}: {detail}")
        self.status, self.reason, self.retry_after_ms = status, reason, retry_after_ms


def tlv(kind, value):
    return struct.pack("<HH", kind, len(value)) + value


def tlvs(body):
    found = {}
    while body:
        kind, length = struct.unpack_from("<HH", body)
        found[kind], body = body[4 : 4 + length], body[4 + length :]
    return found


def key_hash(secret, raw_key):
    """What stands for an API key; the raw key never crosses the socket."""
    return hmac.new(secret, raw_key, hashlib.sha256).digest()[:16]


class Governor:
    """One session, one request at a time. Leases end with it; one held for longer than 30 s needs a Renew."""
    def __init__(self, path, name):
        self.socket, self.buffer, self.request, self.withdrawn = socket.socket(socket.AF_UNIX), b"", 0, set()
        self.socket.connect(path)
        self.send(HELLO, struct.pack("<HH", 2, 0) + tlv(NAME, name.encode()))
        self.answer((WELCOME,), None)

    def send(self, kind, body):
        self.request += 1
        self.socket.sendall(struct.pack("<IBBHI", 8 + len(body), kind, 0, 0, self.request) + body)

    def frame(self, until):
        while len(self.buffer) < 12 or len(self.buffer) < 4 + int.from_bytes(self.buffer[:4], "little"):
            self.socket.settimeout(None if until is None else max(until - time.monotonic(), 0.001))
            if not (chunk := self.socket.recv(65536)):
                raise ConnectionError("the daemon closed the session")
            self.buffer += chunk
        length, kind, _, _, request = struct.unpack_from("<IBBHI", self.buffer)
        body, self.buffer = self.buffer[12 : 4 + length], self.buffer[4 + length :]
        return kind, request, body

    def answer(self, wanted, until):
        """The terminal answer to the last request. What else comes is ignored, but a slot nobody waits for."""
        asked = self.request
        while True:
            kind, request, body = self.frame(until)
            if kind == GRANT and request in self.withdrawn:
                self.release(int.from_bytes(body[:8], "little"))
            elif request == asked and kind in wanted:
                return kind, body
            elif kind == ERROR and request in (0, asked):
                raise ConnectionError(tlvs(body[2:]).get(TEXT, b"").decode())

    def acquire(self, pool, key=None, max_wait_ms=None, patience=None):
        """A lease and the member to use. After `patience` seconds the request is withdrawn: TimeoutError."""
        fields = tlv(POOL, pool.encode()) + (tlv(KEY, key) if key else b"")
        self.send(ACQUIRE, b"\0" + fields + (b"" if max_wait_ms is None else tlv(MAX_WAIT, struct.pack("<I", max_wait_ms))))
        try:
            kind, body = self.answer((GRANT, SHED, REJECT), patience and time.monotonic() + patience)
        except TimeoutError:
            self.withdrawn.add(self.request)
            self.send(CANCEL, struct.pack("<I", self.request))
            raise
        if kind == GRANT:
            return int.from_bytes(body[:8], "little"), tlvs(body[12:]).get(MEMBER, b"").decode()
        said = tlvs(body[16:] if kind == SHED else body)
        status, retry = struct.unpack_from("<HxxI", body) if kind == SHED else (400, None)
        raise Refused(status, said.get(REASON, b"rejected").decode(), said.get(TEXT, b"").decode(), retry)

    def release(self, lease):
        self.send(RELEASE, struct.pack("<IQ", 1, lease))


if __name__ == "__main__":
    path, pool, key, wait, *command = sys.argv[1:]
    governor = Governor(path, "minimal.py")
    try:
        lease, member = governor.acquire(pool, key_hash(b"secret of this node", key.encode()), int(wait))
    except Refused as refused:
        sys.exit(print(refused, file=sys.stderr) or (65 if refused.status == 400 else 75))
    status = subprocess.run(command, env={**os.environ, "GOVERNOR_MEMBER": member}).returncode
    governor.release(lease)
    sys.exit(status)
