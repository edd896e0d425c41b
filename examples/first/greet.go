// greet.go
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/xds" // registers the scheme xds
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func main() {
	conn, err := grpc.NewClient("xds:///hello", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for range 4 {
		// With generated code this is client.SayHello. A message with one text has the form of a StringValue.
		reply := new(wrapperspb.StringValue)
		err := conn.Invoke(ctx, "/hello.Greeter/SayHello", wrapperspb.String("Go"), reply, grpc.WaitForReady(true))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply.Value)
	}
}
