"""An aggregated discovery server (state of the world) on gRPC C-core.

It shares no code with Crowfly, so a misreading of the protocol that Crowfly's
own client and server share does not pass here.

Usage: ads_server.py [--port PORT]

Reads one JSON command per line on stdin:

    {"type_url": T, "version": V, "resources": [{"@type": T, ...}, ...]}

which replaces all resources of a type (proto JSON form) and sends them to each
stream that subscribes to any of them. Prints one JSON event per line:

    {"event": "listening", "port": P}
    {"event": "opened", "stream": N}
    {"event": "request", "stream": N, "type_url": .., "version_info": .., "response_nonce": ..,
     "resource_names": [..], "error_detail": null | {"code": .., "message": ..}, "node": null | {..}}
    {"event": "closed", "stream": N}

It ends with its stdin, so it never outlives the test that started it.
"""

import argparse
import itertools
import json
import os
import queue
import sys
import threading
from concurrent import futures

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf import any_pb2, json_format

# Importing a module registers its messages, so that proto JSON can name them;
# the router and the connection manager are only ever named inside a Listener.
KNOWN_TYPES = (router_pb2.Router, http_connection_manager_pb2.HttpConnectionManager)
# The field that names a resource, by type.
NAME_FIELDS = {
    "type.googleapis.com/" + message.DESCRIPTOR.full_name: field
    for message, field in (
        (listener_pb2.Listener, "name"),
        (route_pb2.RouteConfiguration, "name"),
        (cluster_pb2.Cluster, "name"),
        (endpoint_pb2.ClusterLoadAssignment, "cluster_name"),
    )
}


class Output:
    """JSON events on stdout, one per line, from any thread."""

    def __init__(self):
        self.lock = threading.Lock()

    def event(self, event, **fields):
        line = json.dumps({"event": event, **fields})
        with self.lock:
            print(line, flush=True)


class Subscription:
    """What one stream asked for, of one type."""

    def __init__(self):
        self.names = set()
        self.nonce = ""
        # Names sent since they were asked for.
        self.sent = set()


class Stream:
    """One ADS stream: its subscriptions and the responses waiting to be sent."""

    def __init__(self, number, output):
        self.number = number
        self.output = output
        self.subscriptions = {}
        self.responses = queue.Queue()
        self.nonces = itertools.count(1)

    def report(self, request):
        error = request.error_detail
        self.output.event(
            "request",
            stream=self.number,
            type_url=request.type_url,
            version_info=request.version_info,
            response_nonce=request.response_nonce,
            resource_names=list(request.resource_names),
            error_detail={"code": error.code, "message": error.message}
            if request.HasField("error_detail")
            else None,
            node=json_format.MessageToDict(request.node, preserving_proto_field_name=True)
            if request.HasField("node")
            else None,
        )

    def request(self, request, resources):
        """Takes a request in; a stale one changes nothing."""
        self.report(request)
        subscription = self.subscriptions.setdefault(request.type_url, Subscription())
        if request.response_nonce != subscription.nonce:
            return
        subscription.names = set(request.resource_names)
        subscription.sent &= subscription.names
        # Names not yet sent need an answer; an ACK or a NACK needs none.
        version, known = resources.get(request.type_url, ("", {}))
        if (subscription.names & known.keys()) - subscription.sent:
            self.send(request.type_url, version, known)

    def changed(self, type_url, version, known):
        """Sends a type's new resources if this stream subscribes to it."""
        subscription = self.subscriptions.get(type_url)
        if subscription and subscription.names:
            self.send(type_url, version, known)

    def send(self, type_url, version, known):
        subscription = self.subscriptions[type_url]
        subscription.sent = subscription.names & known.keys()
        subscription.nonce = f"{self.number}-{next(self.nonces)}"
        self.responses.put(
            discovery_pb2.DiscoveryResponse(
                type_url=type_url,
                version_info=version,
                nonce=subscription.nonce,
                resources=[known[name] for name in sorted(subscription.sent)],
            )
        )


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """Every stream, and the resources they are served; one lock over both."""

    def __init__(self, output):
        self.output = output
        self.lock = threading.Lock()
        self.numbers = itertools.count(1)
        self.streams = {}
        self.resources = {}

    def set(self, type_url, version, resources):
        known = {}
        for resource in resources:
            message = json_format.ParseDict(resource, any_pb2.Any())
            known[resource[NAME_FIELDS[type_url]]] = message
        with self.lock:
            self.resources[type_url] = (version, known)
            for stream in self.streams.values():
                stream.changed(type_url, version, known)

    def StreamAggregatedResources(self, request_iterator, context):
        with self.lock:
            stream = Stream(next(self.numbers), self.output)
            self.streams[stream.number] = stream
        self.output.event("opened", stream=stream.number)
        threading.Thread(target=self.read, args=(stream, request_iterator), daemon=True).start()
        yield from iter(stream.responses.get, None)

    def read(self, stream, requests):
        try:
            for request in requests:
                with self.lock:
                    stream.request(request, self.resources)
        except grpc.RpcError:
            pass  # the client went away
        with self.lock:
            del self.streams[stream.number]
        self.output.event("closed", stream=stream.number)
        stream.responses.put(None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    wanted = parser.parse_args().port
    output = Output()
    ads = Ads(output)
    # Without SO_REUSEPORT a port that is still taken is an error, not a race.
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(ads, server)
    port = server.add_insecure_port(f"127.0.0.1:{wanted}")
    server.start()
    output.event("listening", port=port)
    for line in sys.stdin:
        command = json.loads(line)
        ads.set(command["type_url"], command["version"], command["resources"])
    os._exit(0)  # open streams would keep the interpreter alive


if __name__ == "__main__":
    main()
