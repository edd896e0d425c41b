"""Reads the CSDS of a control plane with the stubs of xds-protos.

Usage: csds_reader.py ADDRESS [NODE_ID]

Asks for all clients, or those with NODE_ID, by both methods. Prints one JSON object, {"fetched", "streamed"}. Each is a
list of {"node", "agent", "resources": [{"type_url", "name", "version", "config_status", "client_status", "error",
"has_config"}]}.
"""

import json
import sys

import grpc
from envoy.admin.v3 import config_dump_shared_pb2
from envoy.service.status.v3 import csds_pb2, csds_pb2_grpc


def resource(one):
    error = one.error_state
    return {
        "type_url": one.type_url,
        "name": one.name,
        "version": one.version_info,
        "config_status": csds_pb2.ConfigStatus.Name(one.config_status),
        "client_status": config_dump_shared_pb2.ClientResourceStatus.Name(one.client_status),
        "error": {"version": error.version_info, "details": error.details} if one.HasField("error_state") else None,
        # The resource has the type that the entry says, and can be read as such.
        "has_config": one.HasField("xds_config") and one.xds_config.type_url == one.type_url,
    }


def clients(response):
    return [
        {
            "node": config.node.id,
            "agent": config.node.user_agent_name,
            "resources": [resource(one) for one in config.generic_xds_configs],
        }
        for config in response.config
    ]


def main():
    address, *node_ids = sys.argv[1:]
    request = csds_pb2.ClientStatusRequest()
    for node_id in node_ids:
        request.node_matchers.add().node_id.exact = node_id
    stub = csds_pb2_grpc.ClientStatusDiscoveryServiceStub(grpc.insecure_channel(address))
    fetched = clients(stub.FetchClientStatus(request, timeout=20))
    streamed = clients(next(iter(stub.StreamClientStatus(iter([request]), timeout=20))))
    print(json.dumps({"fetched": fetched, "streamed": streamed}))


if __name__ == "__main__":
    main()
