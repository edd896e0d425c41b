#!/usr/bin/env python3
"""Makes the stories in this folder: header lists of our own, encoded by the `hpack` package.

    python3 -m venv venv && venv/bin/pip install hpack==4.1.0
    venv/bin/python crates/http2/tests/hpack/make.py

The package shares no code with crowfly-http2, so a misreading of RFC 7541 there shows here. A story is
what one side of a connection sends, block by block, in several encodings:

    story NAME
    encoding LABEL        one for each, in the order of the wires below
    block                 a header list; then its fields, and its wires
    NAME<tab>VALUE        a field; bytes that are not printable ASCII as \\xNN
    = HEX                 the block in one of the encodings

The result is the same on every run.
"""

import pathlib
import random

from hpack import Encoder, HeaderTuple, NeverIndexedHeaderTuple

SECRET = {"authorization", "cookie", "set-cookie"}


class Encoding:
    """How a story is put on the wire."""

    def __init__(self, label, huffman=True, sizes=()):
        self.label = label
        self.huffman = huffman
        # (before which block, to which size) the table changes.
        self.sizes = sizes

    def wires(self, blocks):
        encoder = Encoder()
        for number, block in enumerate(blocks):
            for at, size in self.sizes:
                if at == number:
                    encoder.header_table_size = size
            kind = lambda name: NeverIndexedHeaderTuple if name in SECRET else HeaderTuple
            fields = [kind(name)(name.encode(), value) for name, value in block]
            yield encoder.encode(fields, huffman=self.huffman)


ENCODINGS = [
    Encoding("huffman"),
    Encoding("plain", huffman=False),
    Encoding("no table", sizes=[(0, 0)]),
    Encoding("small table", sizes=[(0, 200)]),
    Encoding("table that shrinks and grows", sizes=[(2, 100), (3, 0), (3, 4096), (6, 64), (8, 1000)]),
]


def text(value):
    return value.encode() if isinstance(value, str) else value


def block(*fields, **more):
    fields = list(fields) + [(name.replace("_", "-"), value) for name, value in more.items()]
    return [(name, text(value)) for name, value in fields]


def b64(rng, length):
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return "".join(rng.choice(alphabet) for _ in range(length))


def token(rng, length):
    return "".join(rng.choice("0123456789abcdef") for _ in range(length))


def date(rng):
    return "Mon, %02d Nov 2026 %02d:%02d:%02d GMT" % (
        rng.randint(1, 28), rng.randint(0, 23), rng.randint(0, 59), rng.randint(0, 59))


def grpc_requests(rng):
    methods = ["/shop.v1.Cart/Add", "/shop.v1.Cart/Get", "/shop.v1.Payments/Charge", "/grpc.health.v1.Health/Check"]
    for number in range(12):
        fields = block(
            (":method", "POST"), (":scheme", "http"), (":authority", "payments.shop:50051"),
            (":path", rng.choice(methods)), ("te", "trailers"), ("content-type", "application/grpc"),
            ("user-agent", "example-client/1.%d" % (number // 5)))
        if number % 2:
            fields += block(("grpc-timeout", "%dm" % rng.randint(1, 20_000)))
        if number % 3 == 0:
            fields += block(("authorization", "Bearer " + b64(rng, 120)))
        fields += block(("x-request-id", token(rng, 32)), ("grpc-trace-bin", b64(rng, 39)))
        yield fields


def grpc_answers(rng):
    for number in range(12):
        yield block((":status", "200"), ("content-type", "application/grpc"),
                    ("grpc-accept-encoding", "identity,deflate,gzip"), ("date", date(rng)))
        yield block(("grpc-status", "0"), ("x-served-by", "backend-%d" % (number % 4)))


def grpc_failures(rng):
    for number in range(10):
        code = rng.randint(1, 16)
        yield block((":status", "200"), ("content-type", "application/grpc+proto"),
                    ("grpc-status", str(code)),
                    ("grpc-message", "no such item: caf%C3%A9 " + token(rng, rng.randint(0, 60))),
                    ("grpc-status-details-bin", b64(rng, rng.choice([12, 200, 1_000]))))


def web_answers(rng):
    statuses = ["200", "204", "206", "301", "302", "304", "400", "404", "500", "502", "503"]
    kinds = ["text/html; charset=utf-8", "application/json", "image/svg+xml", "text/css"]
    for number in range(16):
        fields = block((":status", rng.choice(statuses)), ("server", "example"), ("date", date(rng)),
                       ("content-type", rng.choice(kinds)), ("content-length", str(rng.randint(0, 99_999))),
                       ("cache-control", rng.choice(["no-cache", "public, max-age=31536000", "private"])),
                       ("etag", '"%s"' % token(rng, 16)), ("vary", "accept-encoding"))
        if number % 3 == 0:
            fields += block(("set-cookie", "session=%s; path=/; httponly" % b64(rng, 64)),
                            ("set-cookie", "theme=dark; path=/"))
        if number % 4 == 0:
            fields += block(("strict-transport-security", "max-age=63072000"), ("location", "https://example.com/" + token(rng, 8)),
                            ("alt-svc", 'h3=":443"; ma=86400'))
        yield fields


def web_requests(rng):
    for number in range(12):
        fields = block((":method", rng.choice(["GET", "POST", "HEAD", "OPTIONS"])), (":scheme", "https"),
                       (":authority", rng.choice(["example.com", "cdn.example.com"])),
                       (":path", rng.choice(["/", "/index.html", "/a/%s?b=%d" % (token(rng, 6), number)])),
                       ("accept", "*/*"), ("accept-encoding", "gzip, deflate"), ("accept-language", "en,de;q=0.5"),
                       ("user-agent", "Browser/9.0 (Example; x86_64)"), ("referer", "https://example.com/"))
        if number % 2:
            fields += block(("cookie", "session=" + b64(rng, 64)), ("cookie", "theme=dark"))
        yield fields


def odd_values(rng):
    """Empty values, every byte that a value may have, long ones, and names again and again."""
    yield block((":status", "200"), ("x-empty", ""), ("x-space", "a b  c"), ("x-tab", "a\tb"))
    yield block((":status", "200"), ("x-bytes", bytes(range(0x20, 0x7f)) + bytes(range(0x80, 0x100))))
    for length in [126, 127, 128, 255, 4_058, 4_059]:
        yield block((":status", "200"), ("x-long", b64(rng, length)), ("x-after", "still here"))
    for _ in range(5):
        yield block((":status", "200"), *[("x-%d" % rng.randint(0, 90), token(rng, 4)) for _ in range(40)])


def line(name, value):
    escaped = "".join(
        chr(byte) if 0x20 <= byte < 0x7f and byte != 0x5c else "\\x%02x" % byte for byte in value)
    return "%s\t%s" % (name, escaped)


def main():
    stories = [grpc_requests, grpc_answers, grpc_failures, web_answers, web_requests, odd_values]
    for number, make in enumerate(stories):
        name = make.__name__.replace("_", "-")
        blocks = list(make(random.Random(number)))
        wires = list(zip(*(encoding.wires(blocks) for encoding in ENCODINGS)))
        lines = ["story " + name] + ["encoding " + encoding.label for encoding in ENCODINGS]
        for fields, encoded in zip(blocks, wires):
            lines.append("block")
            lines += [line(*field) for field in fields]
            lines += ["= " + wire.hex() for wire in encoded]
        file = pathlib.Path(__file__).parent / (name + ".txt")
        file.write_text("\n".join(lines) + "\n")


main()
