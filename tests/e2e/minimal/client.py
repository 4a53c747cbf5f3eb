"""The minimal profile of PROTOCOL.md in 70 lines. One command a line; its outcome, as an HTTP gateway would answer, as a line
of JSON.

    client.py SOCKET
    acquire POOL KEY MAX_WAIT_MS | withdraw POOL KEY MAX_WAIT_MS | release LEASE | unknown
"""
import hashlib, hmac, json, socket, struct, sys

HELLO, ACQUIRE, CANCEL, RELEASE, PING, UNKNOWN = 0x01, 0x02, 0x03, 0x04, 0x09, 0x7F
WELCOME, GRANT, PARKED, SHED, REJECT, ERROR, PONG = 0x81, 0x82, 0x83, 0x84, 0x85, 0x8B, 0x8C
NAME, POOL, KEY, MAX_WAIT, MEMBER, REASON, TEXT = 1, 3, 4, 10, 12, 15, 16
ORIGINS = "key", "org", "pool", "node", "fleet", "upstream"

session, last = socket.socket(socket.AF_UNIX), 0
session.connect(sys.argv[1])
stream = session.makefile("rb")

def send(kind, body, request=None):
    global last
    last += request is None
    session.sendall(struct.pack("<IBBHI", 8 + len(body), kind, 0, 0, last if request is None else request) + body)
    return last

def receive():
    length, kind, _, _, request = struct.unpack("<IBBHI", stream.read(12))
    return kind, request, stream.read(length - 8)

def until(request, *kinds):
    """The first frame of these kinds that answers the request; others are ignored."""
    while (frame := receive())[1] != request or frame[0] not in kinds:
        pass
    return frame

def tlv(kind, value):
    return struct.pack("<HH", kind, len(value)) + value

def tlvs(body):
    found = {}
    while body:
        kind, length = struct.unpack_from("<HH", body)
        found[kind], body = body[4 : 4 + length].decode(), body[4 + length :]
    return found

def ask(pool, key, max_wait_ms):
    key = hmac.new(b"e2e", key.encode(), hashlib.sha256).digest()[:16]
    wait = struct.pack("<I", int(max_wait_ms))
    return send(ACQUIRE, b"\0" + tlv(POOL, pool.encode()) + tlv(KEY, key) + tlv(MAX_WAIT, wait))

def answer(kind, _, body):
    if kind == GRANT:
        return {"status": 200, "lease": int.from_bytes(body[:8], "little"), "member": tlvs(body[12:])[MEMBER]}
    if kind in (REJECT, ERROR):
        found = tlvs(body[2:] if kind == ERROR else body)
        return {"status": 400, "headers": {"x-should-retry": "false"}, "message": found[TEXT]}
    status, origin, after, decision = struct.unpack_from("<HBxIQ", body)
    retry = {"x-should-retry": "false"} if status == 403 else {"retry-after": str(-(-after // 1000)), "retry-after-ms": str(after)}
    headers = {"x-governor-origin": ORIGINS[origin], "x-governor-decision": f"{decision:016x}", **retry}
    return {"status": status, "headers": headers, "reason": tlvs(body[16:])[REASON]}

until(send(HELLO, struct.pack("<HH", 2, 0) + tlv(NAME, b"minimal")), WELCOME)
for command, *rest in map(str.split, sys.stdin):
    if command == "release":
        outcome = send(RELEASE, struct.pack("<IQ", 1, int(rest[0])), request=0)
    elif command == "withdraw":
        send(CANCEL, struct.pack("<I", until(ask(*rest), PARKED)[1]))
        ping, outcome = send(PING, b""), []
        while (frame := receive())[:2] != (PONG, ping):
            outcome.append(frame[0])
    else:
        outcome = answer(*until(ask(*rest) if command == "acquire" else send(UNKNOWN, b""), GRANT, SHED, REJECT, ERROR))
    print(json.dumps(outcome), flush=True)
