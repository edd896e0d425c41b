# The `crowfly` command in an image without a shell. Build it with: docker build -t crowfly:0.1.0 .

FROM rust:1.89-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo install --locked --path crates/cli --root /out

FROM gcr.io/distroless/cc-debian12
COPY --from=build /out/bin/crowfly /usr/local/bin/crowfly
ENTRYPOINT ["/usr/local/bin/crowfly"]
CMD ["--help"]
