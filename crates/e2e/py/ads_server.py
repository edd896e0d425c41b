"""An aggregated discovery server (state of the world and delta) on gRPC C-core.

It shares no code with Crowfly, so a misreading of the protocol that Crowfly's
own client and server share does not pass here.

Usage: ads_server.py [--port PORT] [--without-delta] [--load-reports SECONDS]

Reads one JSON command per line on stdin:

    {"type_url": T, "version": V, "resources": [{"@type": T, ...}, ...]}

which replaces all resources of a type (proto JSON form, or its name and "@raw",
the message in hex) and sends them to each
stream that subscribes to any of them; on a delta stream, what of them changed,
and the names of those that are gone. A resource keeps its version while its
content stays. Of a type that was never set the server says nothing. Prints one
JSON event per line:

    {"event": "listening", "port": P}
    {"event": "opened", "stream": N}
    {"event": "request", "stream": N, "type_url": .., "version_info": .., "response_nonce": ..,
     "resource_names": [..], "error_detail": null | {"code": .., "message": ..}, "node": null | {..}}
    {"event": "delta_request", "stream": N, "type_url": .., "subscribe": [..], "unsubscribe": [..],
     "initial_resource_versions": {..}, "response_nonce": .., "error_detail": .., "node": ..}
    {"event": "delta_response", "stream": N, "type_url": .., "nonce": .., "versions": {..},
     "removed": [..]}
    {"event": "closed", "stream": N}

With --load-reports it takes load reports (LRS) of all clusters in this interval, and prints:

    {"event": "load_stream", "node": {..}}
    {"event": "load_report", "cluster_stats": [{..}, ..]}
    {"event": "load_stream_closed"}

It ends with its stdin, so it never outlives the test that started it.
"""

import argparse
import collections
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
from envoy.service.load_stats.v3 import lrs_pb2, lrs_pb2_grpc
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

# A resource as it travels, and the version at which it last changed.
Versioned = collections.namedtuple("Versioned", ["message", "version"])


class Output:
    """JSON events on stdout, one per line, from any thread."""

    def __init__(self):
        self.lock = threading.Lock()

    def event(self, event, **fields):
        line = json.dumps({"event": event, **fields})
        with self.lock:
            print(line, flush=True)


def error_of(request):
    """The error of a NACK."""
    if not request.HasField("error_detail"):
        return None
    return {"code": request.error_detail.code, "message": request.error_detail.message}


def node_of(request):
    """The node, which only the first request of a stream has."""
    if not request.HasField("node"):
        return None
    return json_format.MessageToDict(request.node, preserving_proto_field_name=True)


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
        self.output.event(
            "request",
            stream=self.number,
            type_url=request.type_url,
            version_info=request.version_info,
            response_nonce=request.response_nonce,
            resource_names=list(request.resource_names),
            error_detail=error_of(request),
            node=node_of(request),
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
                resources=[known[name].message for name in sorted(subscription.sent)],
            )
        )


class DeltaSubscription:
    """What one delta stream asked for, of one type."""

    def __init__(self):
        self.names = set()
        # The version the client has of each name; None: it knows of its absence.
        self.told = {}


class DeltaStream:
    """One delta ADS stream. Subscriptions are by name; "*" is not understood."""

    def __init__(self, number, output):
        self.number = number
        self.output = output
        self.subscriptions = {}
        self.responses = queue.Queue()
        self.nonces = itertools.count(1)

    def report(self, request):
        self.output.event(
            "delta_request",
            stream=self.number,
            type_url=request.type_url,
            subscribe=list(request.resource_names_subscribe),
            unsubscribe=list(request.resource_names_unsubscribe),
            initial_resource_versions=dict(request.initial_resource_versions),
            response_nonce=request.response_nonce,
            error_detail=error_of(request),
            node=node_of(request),
        )

    def request(self, request, resources):
        """Takes a request in; what it subscribes to, known or not, needs an answer."""
        self.report(request)
        subscription = self.subscriptions.get(request.type_url)
        if subscription is None:
            # Only the first request of a type says what the client has.
            subscription = self.subscriptions[request.type_url] = DeltaSubscription()
            subscription.told = dict(request.initial_resource_versions)
        else:
            for name in request.resource_names_subscribe:
                subscription.told.pop(name, None)
        subscription.names |= set(request.resource_names_subscribe)
        subscription.names -= set(request.resource_names_unsubscribe)
        for name in request.resource_names_unsubscribe:
            subscription.told.pop(name, None)
        if request.type_url in resources:
            self.changed(request.type_url, *resources[request.type_url])

    def changed(self, type_url, version, known):
        """Sends what the client does not have yet, and the names of what is gone."""
        subscription = self.subscriptions.get(type_url)
        if subscription is None:
            return
        current = {
            name: known[name].version if name in known else None for name in subscription.names
        }
        news = {
            name: new
            for name, new in sorted(current.items())
            if name not in subscription.told or subscription.told[name] != new
        }
        if not news:
            return
        subscription.told.update(news)
        nonce = f"{self.number}-{next(self.nonces)}"
        versions = {name: new for name, new in news.items() if new is not None}
        removed = [name for name, new in news.items() if new is None]
        self.output.event(
            "delta_response",
            stream=self.number,
            type_url=type_url,
            nonce=nonce,
            versions=versions,
            removed=removed,
        )
        self.responses.put(
            discovery_pb2.DeltaDiscoveryResponse(
                type_url=type_url,
                system_version_info=version,
                nonce=nonce,
                resources=[
                    discovery_pb2.Resource(
                        name=name, version=new, resource=known[name].message
                    )
                    for name, new in versions.items()
                ],
                removed_resources=removed,
            )
        )


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """Every stream, and the resources they are served; one lock over both."""

    def __init__(self, output, speaks_delta):
        self.output = output
        self.speaks_delta = speaks_delta
        self.lock = threading.Lock()
        self.numbers = itertools.count(1)
        self.streams = {}
        self.resources = {}

    def set(self, type_url, version, resources):
        _, before = self.resources.get(type_url, ("", {}))
        known = {}
        for resource in resources:
            if "@raw" in resource:
                raw = bytes.fromhex(resource["@raw"])
                message = any_pb2.Any(type_url=type_url, value=raw)
            else:
                message = json_format.ParseDict(resource, any_pb2.Any())
            name = resource[NAME_FIELDS[type_url]]
            same = name in before and before[name].message == message
            known[name] = before[name] if same else Versioned(message, version)
        with self.lock:
            self.resources[type_url] = (version, known)
            for stream in self.streams.values():
                stream.changed(type_url, version, known)

    def StreamAggregatedResources(self, request_iterator, context):
        yield from self.serve(Stream, request_iterator)

    def DeltaAggregatedResources(self, request_iterator, context):
        if not self.speaks_delta:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no delta here")
        yield from self.serve(DeltaStream, request_iterator)

    def serve(self, protocol, request_iterator):
        with self.lock:
            stream = protocol(next(self.numbers), self.output)
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


class Lrs(lrs_pb2_grpc.LoadReportingServiceServicer):
    """Takes load reports, and prints them as they come."""

    def __init__(self, output, interval):
        self.output = output
        self.interval = interval

    def StreamLoadStats(self, request_iterator, context):
        first = next(request_iterator)
        if first.cluster_stats:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "load in the first request")
        self.output.event("load_stream", node=node_of(first))
        response = lrs_pb2.LoadStatsResponse(send_all_clusters=True)
        response.load_reporting_interval.FromMilliseconds(int(self.interval * 1000))
        yield response
        for request in request_iterator:
            stats = [
                json_format.MessageToDict(cluster, preserving_proto_field_name=True)
                for cluster in request.cluster_stats
            ]
            self.output.event("load_report", cluster_stats=stats)
        self.output.event("load_stream_closed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--without-delta", action="store_true")
    parser.add_argument("--load-reports", type=float)
    arguments = parser.parse_args()
    output = Output()
    ads = Ads(output, speaks_delta=not arguments.without_delta)
    # Without SO_REUSEPORT a port that is still taken is an error, not a race.
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(ads, server)
    if arguments.load_reports is not None:
        lrs = Lrs(output, arguments.load_reports)
        lrs_pb2_grpc.add_LoadReportingServiceServicer_to_server(lrs, server)
    port = server.add_insecure_port(f"127.0.0.1:{arguments.port}")
    server.start()
    output.event("listening", port=port)
    for line in sys.stdin:
        command = json.loads(line)
        ads.set(command["type_url"], command["version"], command["resources"])
    os._exit(0)  # open streams would keep the interpreter alive


if __name__ == "__main__":
    main()
