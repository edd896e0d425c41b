"""A gRPC C-core server with the health service of gRPC's own package, grpcio-health-checking.

The method /e2e.Echo/Unary returns the request, whose messages are bytes as they are. Each line of stdin, such as
NOT_SERVING, is the health of the service e2e.Echo from then on. It is SERVING at first. Prints one JSON event:

    {"event": "listening", "port": P}

It ends with its stdin, so it never outlives the test that started it.
"""

import json
import os
import sys
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def main():
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    unary = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("e2e.Echo", {"Unary": unary})])
    servicer = health.HealthServicer()
    servicer.set("e2e.Echo", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(json.dumps({"event": "listening", "port": port}), flush=True)
    for line in sys.stdin:
        servicer.set("e2e.Echo", health_pb2.HealthCheckResponse.ServingStatus.Value(line.strip()))
    os._exit(0)


main()
