# greet.py
import grpc

# With generated code this is GreeterStub(channel).SayHello. A message with one short text is a tag, a length and the text.
channel = grpc.insecure_channel("xds:///hello")
say_hello = channel.unary_unary(
    "/hello.Greeter/SayHello",
    request_serializer=lambda name: bytes([10, len(name)]) + name.encode(),
    response_deserializer=lambda reply: reply[2:].decode(),
)
for _ in range(4):
    print(say_hello("Python", timeout=20, wait_for_ready=True))
