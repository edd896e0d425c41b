// greet.js
const grpc = require("@grpc/grpc-js");
require("@grpc/grpc-js-xds").register();

// With generated code this is client.sayHello. A message with one short text is a tag, a length and the text.
const encode = (name) => Buffer.concat([Buffer.from([10, name.length]), Buffer.from(name)]);
const decode = (reply) => reply.subarray(2).toString();
const client = new grpc.Client("xds:///hello", grpc.credentials.createInsecure());
const metadata = new grpc.Metadata({ waitForReady: true });

function greet(calls) {
  if (calls === 0) return client.close();
  const options = { deadline: Date.now() + 20000 };
  client.makeUnaryRequest("/hello.Greeter/SayHello", encode, decode, "Node", metadata, options, (error, reply) => {
    if (error) throw error;
    console.log(reply);
    greet(calls - 1);
  });
}

greet(4);
