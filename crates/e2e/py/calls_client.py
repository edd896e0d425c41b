"""A gRPC C-core client that makes any call: the peer that Crowfly's channel is compared with.

Usage: GRPC_XDS_BOOTSTRAP_CONFIG=... calls_client.py MOST_OPEN

Reads one call per line on stdin, as JSON:

    {"target": "xds:///svc", "authority": null, "path": "/a.A/M", "metadata": [["key", "value"]],
     "timeout": 30.0, "message": "text"}

The value of a key that ends in -bin is in hexadecimal digits. It has up to MOST_OPEN calls open at a time,
and prints one outcome per line on stdout, in the order of the calls:

    {"code": 0, "message": "text", "details": "", "cookies": ["a=b; HttpOnly"]}

The cookies are the set-cookie headers and trailers of the response.

It ends with its stdin, so it never outlives the test that started it.
"""

import json
import queue
import sys
import threading

import grpc


class Client:
    def __init__(self):
        self.channels = {}
        self.methods = {}

    def channel(self, target, authority):
        key = (target, authority)
        if key not in self.channels:
            options = [("grpc.default_authority", authority)] if authority else []
            self.channels[key] = grpc.insecure_channel(target, options)
        return self.channels[key]

    def begin(self, call):
        key = (call["target"], call["authority"], call["path"])
        if key not in self.methods:
            channel = self.channel(call["target"], call["authority"])
            self.methods[key] = channel.unary_unary(call["path"])
        metadata = [(name, bytes.fromhex(value) if name.endswith("-bin") else value) for name, value in call["metadata"]]
        return self.methods[key].future(
            call["message"].encode(), timeout=call["timeout"], metadata=metadata
        )


def outcome(future):
    error = future.exception()
    metadata = [*(future.initial_metadata() or ()), *(future.trailing_metadata() or ())]
    cookies = [value for key, value in metadata if key == "set-cookie"]
    if error is None:
        return {"code": 0, "message": future.result().decode(), "details": "", "cookies": cookies}
    return {"code": future.code().value[0], "message": "", "details": future.details(), "cookies": cookies}


def report(open_calls):
    while True:
        print(json.dumps(outcome(open_calls.get())), flush=True)


def main():
    client = Client()
    # A full queue holds the reader back, so no more calls are open than it has places.
    open_calls = queue.Queue(maxsize=int(sys.argv[1]) - 1)
    threading.Thread(target=report, args=(open_calls,), daemon=True).start()
    for line in sys.stdin:
        open_calls.put(client.begin(json.loads(line)))


if __name__ == "__main__":
    main()
