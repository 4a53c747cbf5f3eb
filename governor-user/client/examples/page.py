#!/usr/bin/env python3
"""Reads the governor's signal page (PROTOCOL.md), standard library only, and prints it as JSON, once a line of input.

    page.py /run/governor/proxy.sock chat
"""
import fcntl, json, mmap, os, socket, struct, sys

F_GET_SEALS, F_SEAL_SHRINK = 1034, 2


def page_of(path):
    """The mapped page, and the session it came with; the page outlives both session and daemon."""
    session = socket.socket(socket.AF_UNIX)
    session.connect(path)
    session.sendall(struct.pack("<IBBHIHHHH7s", 23, 1, 0, 0, 1, 2, 0, 1, 7, b"page.py"))
    _, descriptors, _, _ = socket.recv_fds(session, 65536, 1)
    size, seals = os.fstat(descriptors[0]).st_size, fcntl.fcntl(descriptors[0], F_GET_SEALS)
    assert size >= 4096 and seals & F_SEAL_SHRINK, "memory that could vanish is not mapped"
    page = mmap.mmap(descriptors[0], 4096, mmap.MAP_SHARED, mmap.PROT_READ)
    assert page[:8] == b"governor" and struct.unpack_from("=I", page, 8) == (1,), "not a page of version 1"
    return page, session


def read(page):
    """A copy that belongs together. The interpreter loads in order on x86; elsewhere two fences are missing here."""
    for _ in range(1000):
        (before,) = struct.unpack_from("=Q", page, 16)
        copy = page[:]
        if before % 2 == 0 and struct.unpack_from("=Q", page, 16) == (before,):
            return copy
    raise TimeoutError("the page is being written for ever: its writer died")


def pool_hash(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def shown(page, names):
    copy = read(page)
    names = {pool_hash(name): name for name in names}
    level, flags, pressure, causes, retry_after_ms, count = struct.unpack_from("=BBHIII", copy, 32)
    pools = (struct.unpack_from("=QIIII", copy, 64 + 32 * n) for n in range(min(count, 32)))
    return {
        "epoch": struct.unpack_from("=I", copy, 12)[0],
        "heartbeat": struct.unpack_from("=Q", copy, 24)[0],
        "level": ["normal", "elevated", "high", "overloaded"][level],
        "pressure": pressure,
        "causes": causes,
        "retry_after_ms": retry_after_ms,
        "node": struct.unpack_from("=II", copy, 48),
        "pools": {
            names.get(hash, f"{hash:016x}"): {"capacity": capacity, "in_flight": used, "parked": parked, "congested": bool(f & 1)}
            for hash, capacity, used, parked, f in pools
        },
    }


if __name__ == "__main__":
    page, session = page_of(sys.argv[1])
    for _ in sys.stdin:
        print(json.dumps(shown(page, sys.argv[2:])), flush=True)
