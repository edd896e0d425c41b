// A gRPC-Node client with xDS: a peer that Crowfly's control plane must serve well. It understands the
// commands `call`, `try`, `fail` and `target` of py/grpc_client.py, which says what they do.
//
// Usage: GRPC_XDS_BOOTSTRAP_CONFIG=... node grpc_client.js GRPC_JS_XDS TARGET
//
// GRPC_JS_XDS is where @grpc/grpc-js-xds is; @grpc/grpc-js is next to it.

"use strict";

const readline = require("node:readline");

const [xdsPath, target] = process.argv.slice(2);
// The client must use the copy of grpc-js in which the xDS package registers itself.
const grpc = require(require.resolve("@grpc/grpc-js", { paths: [xdsPath] }));
require(xdsPath).register();

const METHOD = "/grpc.testing.TestService/UnaryCall";
// grpc.testing.SimpleResponse.hostname, a field of bytes with a short length.
const HOSTNAME_TAG = (6 << 3) | 2;

// The hostname of an encoded SimpleResponse whose other fields are not set; empty if it has none.
function hostname(message) {
  if (message.length < 2 || message[0] !== HOSTNAME_TAG) return "";
  return message.subarray(2, 2 + message[1]).toString();
}

const open = (to) => new grpc.Client(to, grpc.credentials.createInsecure());
let client = open(target);
const bytes = (message) => message;

function call(waitForReady, timeout, request = Buffer.alloc(0)) {
  const metadata = new grpc.Metadata({ waitForReady });
  const deadline = Date.now() + timeout * 1000;
  return new Promise((resolve) => {
    const ended = (error, reply) => {
      if (error) resolve({ code: grpc.status[error.code], hostname: "", details: error.details });
      else resolve({ code: "OK", hostname: hostname(reply), details: "" });
    };
    // An empty message is a valid SimpleRequest.
    client.makeUnaryRequest(METHOD, bytes, bytes, request, metadata, { deadline }, ended);
  });
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, first, second = "10"] = line.split(/\s+/);
    if (command === "target") {
      // The old channel stays open. gRPC-Node ends its stream with the last channel, and mixes it up with
      // the stream of a channel that is opened right after.
      client = open(first);
      continue;
    }
    if (!["call", "try", "fail"].includes(command)) throw new Error(`unknown command ${line}`);
    const fails = command === "fail";
    // grpc.testing.SimpleRequest.response_status.code
    const request = fails ? Buffer.from([(7 << 3) | 2, 2, 1 << 3, Number(first)]) : undefined;
    for (let number = 0; number < Number(fails ? second : first); number += 1) {
      const timeout = fails ? 10 : Number(second);
      console.log(JSON.stringify(await call(command !== "try", timeout, request)));
    }
  }
  process.exit(0);
}

main();
