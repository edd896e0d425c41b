"""A gRPC C-core client: the peer that Crowfly's control plane must serve well.

Usage: GRPC_XDS_BOOTSTRAP_CONFIG=... grpc_client.py TARGET

Reads one command per line on stdin and prints one JSON object per line on stdout:

    call N [TIMEOUT]   N unary calls, one after the other; one line per result:
                       {"code": "OK", "hostname": "b1", "details": ""}
    try N [TIMEOUT]    the same, but they do not wait for ready: they fail if
                       they cannot be sent
    session N [TIMEOUT] the same as call, with the cookie that an earlier answer
                       to this command set
    fail CODE N        N unary calls that ask the backend for this status code;
                       one line per result
    load RPS SECONDS   so many calls a second, up to 256 at a time, which do not
                       wait for ready; one line in the end:
                       {"calls": 20000, "failed": 1, "first": "UNAVAILABLE: ..."}
    target TARGET      from now on calls go over a new channel, to TARGET; prints
                       nothing

With XDS_CREDENTIALS set, its channel has the security that clusters ask for.

It ends with its stdin, so it never outlives the test that started it.
"""

import json
import os
import sys
import threading
import time

import grpc
import grpc.experimental

METHOD = "/grpc.testing.TestService/UnaryCall"
# grpc.testing.SimpleResponse.hostname; the messages are so small that reading
# the wire format is shorter than generating code for them.
HOSTNAME_FIELD = 6
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Well under what gRPC allows a cluster (gRFC A32).
MOST_OPEN = 256


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


def hostname(message):
    """The hostname of an encoded SimpleResponse; empty if it has none."""
    at, found = 0, b""
    while at < len(message):
        tag, at = varint(message, at)
        kind = tag & 7
        if kind == VARINT:
            _, at = varint(message, at)
        elif kind == BYTES:
            length, at = varint(message, at)
            if tag >> 3 == HOSTNAME_FIELD:
                found = message[at : at + length]
            at += length
        elif kind in (FIXED32, FIXED64):
            at += 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind} in a SimpleResponse")
    return found.decode()


def call(unary_call, timeout, wait_for_ready, request=b""):
    try:
        # An empty message is a valid SimpleRequest.
        reply = unary_call(request, timeout=timeout, wait_for_ready=wait_for_ready)
    except grpc.RpcError as error:
        return {"code": error.code().name, "hostname": "", "details": error.details()}
    return {"code": "OK", "hostname": hostname(reply), "details": ""}


class Session:
    """A caller that sends back the cookie that it was given."""

    def __init__(self, unary_call):
        self.unary_call = unary_call
        self.cookie = None

    def __call__(self, request, **settings):
        metadata = [("cookie", self.cookie)] if self.cookie else None
        reply, call = self.unary_call.with_call(request, metadata=metadata, **settings)
        for key, value in call.initial_metadata():
            if key == "set-cookie":
                self.cookie = value.split(";")[0]
        return reply


def load(unary_call, rps, seconds):
    count = rps * seconds
    failures = []
    free = threading.Semaphore(MOST_OPEN)

    def ended(future):
        if future.code() != grpc.StatusCode.OK:
            failures.append(f"{future.code().name}: {future.details()}")
        free.release()

    start = time.monotonic()
    for number in range(count):
        early = start + number / rps - time.monotonic()
        if early > 0:
            time.sleep(early)
        free.acquire()
        future = unary_call.future(b"", timeout=10.0, wait_for_ready=False)
        future.add_done_callback(ended)
    for _ in range(MOST_OPEN):
        free.acquire()
    return {"calls": count, "failed": len(failures), "first": next(iter(failures), None)}


def open_channel(target):
    if "XDS_CREDENTIALS" in os.environ:
        fallback = grpc.experimental.insecure_channel_credentials()
        credentials = grpc.xds_channel_credentials(fallback)
        return grpc.secure_channel(target, credentials)
    return grpc.insecure_channel(target)


def main():
    channel = open_channel(sys.argv[1])
    unary_call = channel.unary_unary(METHOD)
    session = Session(unary_call)
    for line in sys.stdin:
        command, first, *rest = line.split()
        if command == "target":
            channel.close()
            channel = open_channel(first)
            unary_call = channel.unary_unary(METHOD)
            session = Session(unary_call)
            continue
        if command == "load":
            print(json.dumps(load(unary_call, int(first), int(rest[0]))), flush=True)
            continue
        if command == "fail":
            # grpc.testing.SimpleRequest.response_status.code
            request = bytes([7 << 3 | BYTES, 2, 1 << 3 | VARINT, int(first)])
            for _ in range(int(rest[0])):
                print(json.dumps(call(unary_call, 10.0, True, request)), flush=True)
            continue
        if command not in ("call", "try", "session"):
            raise ValueError(f"unknown command {line!r}")
        timeout = float(rest[0]) if rest else 10.0
        for _ in range(int(first)):
            result = call(session if command == "session" else unary_call, timeout, command != "try")
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
