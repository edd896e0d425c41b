"""A gRPC C-core client that shows what it knows: CSDS, by grpcio-csds.

Usage: GRPC_XDS_BOOTSTRAP_CONFIG=... csds_client.py TARGET

Connects to TARGET, and prints one JSON object: {"port": P}, where it serves CSDS.

It ends with its stdin, so it never outlives the test that started it.
"""

import json
import os
import sys
from concurrent import futures

import grpc
import grpc_csds


def main():
    channel = grpc.insecure_channel(sys.argv[1])
    # No call is made: to connect is to ask for the target's resources.
    channel.subscribe(lambda _: None, try_to_connect=True)
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    grpc_csds.add_csds_servicer(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(json.dumps({"port": port}), flush=True)
    sys.stdin.read()
    os._exit(0)  # open streams would keep the interpreter alive


if __name__ == "__main__":
    main()
