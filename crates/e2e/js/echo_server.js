// A gRPC-Node server: a backend that Crowfly's channel must get on with. It does what py/echo_server.py
// does, which says what that is.
//
// Usage: node echo_server.js GRPC_JS NAME [OPTION=INTEGER ...]
//
// GRPC_JS is where @grpc/grpc-js is; options are channel options of it.

"use strict";

const [grpcJs, name, ...settings] = process.argv.slice(2);
const grpc = require(grpcJs);

const GRACE_MS = 1000;
const MESSAGE = "it failed: 100% of »this«";

const event = (name, fields) => console.log(JSON.stringify({ event: name, ...fields }));

function head() {
  const metadata = new grpc.Metadata();
  metadata.set("hostname", name);
  return metadata;
}

function failure() {
  const metadata = new grpc.Metadata();
  metadata.set("note", "text");
  metadata.set("detail-bin", Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)));
  return { code: grpc.status.FAILED_PRECONDITION, details: MESSAGE, metadata };
}

let sleeping = 0;
let peak = 0;

function sleep(call, callback) {
  sleeping += 1;
  peak = Math.max(peak, sleeping);
  event("begun");
  const timer = setTimeout(() => {
    sleeping -= 1;
    call.sendMetadata(head());
    callback(null, call.request);
  }, Number(call.request));
  call.on("cancelled", () => {
    clearTimeout(timer);
    sleeping -= 1;
    event("cancelled");
  });
}

function unary(call, callback) {
  call.sendMetadata(head());
  const trailers = new grpc.Metadata();
  for (const key of Object.keys(call.metadata.getMap())) {
    if (!key.startsWith("x-")) continue;
    for (const value of call.metadata.get(key)) trailers.add(key, value);
  }
  callback(null, call.request, trailers);
}

function many(call) {
  call.sendMetadata(head());
  const [count, width] = String(call.request).split(" ").map(Number);
  let number = 0;
  const goOn = () => {
    while (number < count) {
      const hasRoom = call.write(Buffer.from(String(number).padStart(width, "0")));
      number += 1;
      if (!hasRoom) {
        call.once("drain", goOn);
        return;
      }
    }
    call.end();
  };
  goOn();
}

function join(call, callback) {
  call.sendMetadata(head());
  const requests = [];
  call.on("data", (request) => requests.push(request));
  call.on("end", () => callback(null, Buffer.concat(requests)));
}

function pingPong(call) {
  call.sendMetadata(head());
  call.on("data", (request) => call.write(request));
  call.on("end", () => call.end());
  // A caller that is gone is no reason to go too.
  call.on("error", () => {});
}

const bytes = (message) => message;
const method = (name, requestStream, responseStream) => ({
  path: `/e2e.Echo/${name}`,
  requestStream,
  responseStream,
  requestSerialize: bytes,
  requestDeserialize: bytes,
  responseSerialize: bytes,
  responseDeserialize: bytes,
});

const service = {
  Unary: method("Unary", false, false),
  Sleep: method("Sleep", false, false),
  Peak: method("Peak", false, false),
  Many: method("Many", false, true),
  Join: method("Join", true, false),
  PingPong: method("PingPong", true, true),
  Fail: method("Fail", true, false),
  Refuse: method("Refuse", true, false),
  Details: method("Details", false, false),
};

const handlers = {
  Unary: unary,
  Sleep: sleep,
  Peak: (call, callback) => callback(null, Buffer.from(String(peak))),
  Many: many,
  Join: join,
  PingPong: pingPong,
  Fail: (call, callback) => {
    call.sendMetadata(head());
    callback(failure());
  },
  Refuse: (call, callback) => callback(failure()),
  Details: (call, callback) => {
    const error = failure();
    error.metadata.set("details-bin", Buffer.alloc(Number(call.request)));
    callback(error);
  },
};

function stop(server) {
  const force = setTimeout(() => server.forceShutdown(), GRACE_MS);
  server.tryShutdown(() => {
    clearTimeout(force);
    event("stopped");
    process.exit(0);
  });
}

const options = { "grpc.max_receive_message_length": -1 };
for (const setting of settings) {
  const [option, value] = setting.split("=");
  options[option] = Number(value);
}
const server = new grpc.Server(options);
server.addService(service, handlers);
const insecure = grpc.ServerCredentials.createInsecure();
server.bindAsync("127.0.0.1:0", insecure, (error, port) => {
  if (error) throw error;
  event("listening", { port });
});
process.on("SIGTERM", () => stop(server));
process.stdin.resume().on("end", () => process.exit(0));
