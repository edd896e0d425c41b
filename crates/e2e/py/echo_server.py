"""A gRPC C-core server: a backend that Crowfly's channel must get on with.

Usage: echo_server.py NAME [OPTION=INTEGER ...] [tls=FOLDER]

Options are channel arguments of C-core, such as grpc.max_concurrent_streams. With a folder the server speaks
TLS, with cert.pem and key.pem in it. It requires clients to have a certificate of a CA in ca.pem, and reads
the files for each handshake. Messages are bytes as they are, so that no code has to be generated. The methods of /e2e.Echo/:

    Unary    the request, and in the trailers what of its metadata begins with x-
    Sleep    the request, a number, after that many milliseconds
    Peak     how many Sleep calls there were at a time, at most
    Many     the numbers below the first of the request's, as long as the second says
    Join     all requests, joined
    PingPong each request, as it comes
    Fail     after the head of the response, an error with a message and with binary trailers, whatever
             may still be sent
    Refuse   the same with nothing before it
    Details  the same with `details-bin` of as many bytes as the request says
    Flaky    all requests, joined by commas; UNAVAILABLE while fewer attempts were made before than the
             number in the first says, with the rest of the first, if any, as grpc-retry-pushback-ms

Every response but that of Refuse has NAME as `hostname` in its initial metadata. SIGTERM stops the server
gracefully: open calls have GRACE seconds to end. Prints one JSON event per line:

    {"event": "listening", "port": P}
    {"event": "begun" | "cancelled"}   a Sleep call
    {"event": "attempt", "previous": A, "requests": R}   a Flaky call
    {"event": "stopped"}

It ends with its stdin, so it never outlives the test that started it.
"""

import asyncio
import json
import os
import signal
import sys
import threading

import grpc

GRACE = 1.0
MESSAGE = "it failed: 100% of »this«"
TRAILERS = (("note", "text"), ("detail-bin", bytes(range(256))))


def event(name, **fields):
    print(json.dumps({"event": name, **fields}), flush=True)


class Echo:
    def __init__(self, name):
        self.head = (("hostname", name),)
        self.sleeping = 0
        self.peak = 0

    async def unary(self, request, context):
        metadata = context.invocation_metadata()
        context.set_trailing_metadata([(key, value) for key, value in metadata if key.startswith("x-")])
        await context.send_initial_metadata(self.head)
        return request

    async def sleep(self, request, context):
        self.sleeping += 1
        self.peak = max(self.peak, self.sleeping)
        event("begun")
        try:
            await asyncio.sleep(int(request) / 1000)
        except asyncio.CancelledError:
            event("cancelled")
            raise
        finally:
            self.sleeping -= 1
        await context.send_initial_metadata(self.head)
        return request

    async def get_peak(self, _, context):
        return str(self.peak).encode()

    async def many(self, request, context):
        await context.send_initial_metadata(self.head)
        count, width = map(int, request.split())
        for number in range(count):
            yield str(number).zfill(width).encode()

    async def join(self, requests, context):
        await context.send_initial_metadata(self.head)
        return b"".join([request async for request in requests])

    async def ping_pong(self, requests, context):
        await context.send_initial_metadata(self.head)
        async for request in requests:
            yield request

    async def fail(self, _, context):
        await context.send_initial_metadata(self.head)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, MESSAGE, TRAILERS)

    async def refuse(self, _, context):
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, MESSAGE, TRAILERS)

    async def details(self, request, context):
        details = (("details-bin", bytes(int(request))),)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, MESSAGE, TRAILERS + details)

    async def flaky(self, requests, context):
        previous = dict(context.invocation_metadata()).get("grpc-previous-rpc-attempts")
        joined = b",".join([request async for request in requests])
        event("attempt", previous=previous, requests=joined.decode())
        failures, *pushback = joined.decode().split(",")[0].split()
        if int(previous or 0) < int(failures):
            trailers = tuple(("grpc-retry-pushback-ms", value) for value in pushback)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "flaky", trailers)
        await context.send_initial_metadata(self.head)
        return joined

    def handlers(self):
        return {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Sleep": grpc.unary_unary_rpc_method_handler(self.sleep),
            "Peak": grpc.unary_unary_rpc_method_handler(self.get_peak),
            "Many": grpc.unary_stream_rpc_method_handler(self.many),
            "Join": grpc.stream_unary_rpc_method_handler(self.join),
            "PingPong": grpc.stream_stream_rpc_method_handler(self.ping_pong),
            "Fail": grpc.stream_unary_rpc_method_handler(self.fail),
            "Details": grpc.unary_unary_rpc_method_handler(self.details),
            "Flaky": grpc.stream_unary_rpc_method_handler(self.flaky),
            "Refuse": grpc.stream_unary_rpc_method_handler(self.refuse),
        }


def end_with_stdin():
    sys.stdin.read()
    os._exit(0)


def credentials(folder):
    """TLS with the files of a folder, read for each handshake."""

    def read(name):
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()

    def configuration():
        pair = (read("key.pem"), read("cert.pem"))
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=read("ca.pem"))

    return grpc.dynamic_ssl_server_credentials(
        configuration(), configuration, require_client_authentication=True
    )


async def main():
    options = [("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
    folder = None
    for argument in sys.argv[2:]:
        option, value = argument.split("=", 1)
        if option == "tls":
            folder = value
        else:
            options.append((option, int(value)))
    server = grpc.aio.server(options=options)
    handlers = Echo(sys.argv[1]).handlers()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("e2e.Echo", handlers)])
    if folder is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials(folder))
    await server.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    event("listening", port=port)
    await stop.wait()
    await server.stop(GRACE)
    event("stopped")


asyncio.run(main())
