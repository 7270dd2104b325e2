"""One clinic, in a process of its own: it opens its file, has its policy, and answers requests.

`clinics` starts it as `python -m eigenmesh.reports.demo.clinic`, and asks on standard input.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import Any, BinaryIO

LENGTH = struct.Struct("<Q")


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next message, None at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    body = stream.read(size)
    return body if len(body) == size else None


def write_frame(stream: BinaryIO, body: bytes) -> None:
    """Send a message."""
    stream.write(LENGTH.pack(len(body)) + body)
    stream.flush()


def main() -> None:
    """Answer requests until nobody asks any more."""
    # Standard output carries replies: what a library prints goes elsewhere.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    host = _host(json.loads(sys.argv[1]))
    write_frame(replies, b"ready")
    while (request := read_frame(sys.stdin.buffer)) is not None:
        write_frame(replies, host.handle(request))


def _host(order: dict[str, Any]) -> Any:
    import eigenmesh as em
    from eigenmesh.connect import site_at
    from eigenmesh.runtime.host import Host
    from eigenmesh.runtime.message import KINDS

    names = tuple(order["names"])
    name = names[order["place"]]
    policy = em.Policy(allow=KINDS - set(order["forbids"]))
    site = site_at("rows", name, order["file"], {name: policy}, {"id_column": order["id_column"]})
    return Host(site, order["place"], names)


if __name__ == "__main__":
    main()
