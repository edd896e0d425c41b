// A gRPC-Go client with xDS: a peer that Crowfly's control plane must serve well. It understands the
// commands `call`, `try`, `fail` and `target` of py/grpc_client.py, which says what they do.
//
// Usage: GRPC_XDS_BOOTSTRAP_CONFIG=... grpc_client TARGET
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	method = "/grpc.testing.TestService/UnaryCall"
	// grpc.testing.SimpleResponse.hostname and grpc.testing.SimpleRequest.response_status.
	hostnameField = 6
	statusField   = 7
	patience      = 10.0
)

// The codes as the other clients spell them.
var codes = []string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

type result struct {
	Code     string `json:"code"`
	Hostname string `json:"hostname"`
	Details  string `json:"details"`
}

func open(target string) *grpc.ClientConn {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return conn
}

// An Empty keeps fields that it does not know, so it can carry messages for which there is no code.
func call(conn *grpc.ClientConn, request []byte, timeout float64, waitForReady bool) result {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(timeout*float64(time.Second)))
	defer cancel()
	sent, reply := new(emptypb.Empty), new(emptypb.Empty)
	sent.ProtoReflect().SetUnknown(request)
	if err := conn.Invoke(ctx, method, sent, reply, grpc.WaitForReady(waitForReady)); err != nil {
		found := status.Convert(err)
		return result{Code: codes[found.Code()], Details: found.Message()}
	}
	return result{Code: "OK", Hostname: hostname(reply.ProtoReflect().GetUnknown())}
}

func hostname(message []byte) string {
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			log.Fatal(protowire.ParseError(length))
		}
		message = message[length:]
		if number == hostnameField && kind == protowire.BytesType {
			text, _ := protowire.ConsumeString(message)
			return text
		}
		length = protowire.ConsumeFieldValue(number, kind, message)
		if length < 0 {
			log.Fatal(protowire.ParseError(length))
		}
		message = message[length:]
	}
	return ""
}

func failing(code int) []byte {
	inner := protowire.AppendTag(nil, 1, protowire.VarintType)
	inner = protowire.AppendVarint(inner, uint64(code))
	request := protowire.AppendTag(nil, statusField, protowire.BytesType)
	return protowire.AppendBytes(request, inner)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	conn := open(os.Args[1])
	results := json.NewEncoder(os.Stdout)
	calls := func(count int, request []byte, timeout float64, waitForReady bool) {
		for range count {
			if err := results.Encode(call(conn, request, timeout, waitForReady)); err != nil {
				log.Fatal(err)
			}
		}
	}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		words := strings.Fields(commands.Text())
		switch words[0] {
		case "target":
			conn.Close()
			conn = open(words[1])
		case "fail":
			calls(number(words[2]), failing(number(words[1])), patience, true)
		case "call", "try":
			timeout := patience
			if len(words) > 2 {
				timeout = float64(number(words[2]))
			}
			calls(number(words[1]), nil, timeout, words[0] == "call")
		default:
			log.Fatalf("unknown command %q", commands.Text())
		}
	}
}
