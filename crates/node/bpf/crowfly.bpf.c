// SPDX-License-Identifier: Apache-2.0
//
// ClusterIP routing at the socket.
//
// connect() and sendmsg() to a frontend are given the address of a backend, so that no packet is ever
// rewritten. recvmsg() and getpeername() give the frontend back, so that programs see the address they
// asked for. sock_release and sockops count how connections end.
//
// The agent writes svc, slots, backends and members; see src/maps/layout.rs for the same layouts in
// Rust. The programs write affinity, reverse, conn, stats and routed. The maps reported and labels are
// the agent's own memory, which outlives it.
//
// Updates: a service has a generation of slots. The agent writes a whole new generation, then replaces
// the service's one entry in svc, and deletes the old generation a while later. A program that was
// overtaken misses a slot and looks the service up again.

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ECONNREFUSED 111
#define EHOSTUNREACH 113
#define PROCEED 1
#define REFUSE 0

// How often a program looks a service up when it was overtaken by an update.
#define LOOKUPS 4

// svc.flags
#define UNREACHABLE 1 // without slots: EHOSTUNREACH instead of ECONNREFUSED

struct address {
	__be32 word[4]; // IPv4 as ::ffff:a.b.c.d
};

struct svc_key {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

struct svc {
	__u32 id;
	__u32 generation; // unique among all services, so a torn read finds no slot
	__u32 count;      // of slots
	__u32 affinity;   // seconds; 0: none
	__u32 flags;
};

struct slot_key {
	__u32 svc;
	__u32 generation;
	__u32 index;
};

// A column of an alias table: a random number below the threshold means `first`.
struct slot {
	__u32 first;
	__u32 second;
	__u32 threshold;
};

struct backend {
	struct address address;
	__be16 port;
	__u16 zero;
};

struct pair {
	__u32 svc;
	__u32 backend;
};

struct affinity_key {
	__u64 netns;
	__u32 svc;
	__u32 zero;
};

struct affinity {
	__u64 used; // ns since boot
	__u32 backend;
	__u32 zero;
};

struct reverse_key {
	__u64 socket;
	struct address address;
	__be16 port;
	__u16 zero;
	__u32 svc; // 0: the frontend that was used last; else: this service was used before, and counted
};

struct reverse {
	struct address address;
	__be16 port;
	__u16 zero;
	struct pair pair;
};

enum state {
	OPENED = 1,     // translated; nothing was heard of the connection yet
	CONNECTING = 2, // TCP: the first packet is on its way, sockops reports the rest
	ESTABLISHED = 3,
	ENDED = 4,
};

// A connected socket.
struct conn {
	struct address frontend;
	struct address backend;
	__be16 frontend_port;
	__be16 backend_port;
	__u16 state;
	__u16 unlisted; // it is not in routed. Programs of before left 0, whether it is or not.
	struct pair pair;
};

struct stats {
	__u64 opened;
	__u64 established;
	__u64 failed;
	__u64 closed;
};

// The counts of a pair that load reports have told, and the label that they are told under.
struct reported {
	__u32 label;
	__u32 zero;
	__u64 opened;
	__u64 failed;
	__u64 closed;
};

// A cluster and a locality in load reports: their names, each ended by a zero.
struct label {
	char text[512];
};

// A connected socket by its cookie, so that the agent can end it when its backend is gone.
struct routed {
	struct pair pair;
	struct address backend;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

// Set by the agent that loads the programs: TCP sockets are in routed as well.
const volatile __u32 ends_tcp = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct svc_key);
	__type(value, struct svc);
} svc SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 524288);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct slot_key);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct backend);
} backends SEC(".maps");

// The backends of services with affinity: a client must not return to one that has left.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct pair);
	__type(value, __u32);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct affinity_key);
	__type(value, struct affinity);
} affinity SEC(".maps");

// Only for sendmsg() on sockets that are not connected, because one of them may use many frontends.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct reverse_key);
	__type(value, struct reverse);
} reverse SEC(".maps");

// Not of each processor: the first connection of a pair would wait for the memory of all of them.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct pair);
	__type(value, struct stats);
} stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct pair);
	__type(value, struct reported);
} reported SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct label);
} labels SEC(".maps");

// Not an LRU: a socket that fell out of it would never be ended. One too many is routed all the same.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u64);
	__type(value, struct routed);
} routed SEC(".maps");

// Freed with its socket: nothing to evict, nothing to size.
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, int);
	__type(value, struct conn);
} conn SEC(".maps");

static __always_inline struct stats *stats_of(struct pair *pair)
{
	struct stats *found = bpf_map_lookup_elem(&stats, pair);

	if (found)
		return found;
	struct stats none = {};
	bpf_map_update_elem(&stats, pair, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&stats, pair);
}

// Atomic, because all processors count in one place.
static __always_inline void add_one(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

static __always_inline void count_opened(struct pair *pair)
{
	struct stats *counters = stats_of(pair);

	if (counters)
		add_one(&counters->opened);
}

// Datagrams of a socket that is not connected. Their end is never told: they count as new, and not as active.
static __always_inline void count_datagrams(struct pair *pair)
{
	struct stats *counters = stats_of(pair);

	if (counters) {
		add_one(&counters->opened);
		add_one(&counters->closed);
	}
}

// The end of what a socket was connected to. It is counted once.
static __always_inline void end(struct conn *was, int failed)
{
	struct stats *counters;

	if (was->state == ENDED)
		return;
	was->state = ENDED;
	counters = stats_of(&was->pair);
	if (!counters)
		return;
	if (failed)
		add_one(&counters->failed);
	else
		add_one(&counters->closed);
}

static __always_inline int may_be_ended(__u32 protocol)
{
	return protocol == IPPROTO_UDP || ends_tcp;
}

// Takes a socket out of routed. `ends_tcp` does not decide, because programs with another value may have added it.
static __always_inline void forget(struct conn *was, void *ctx)
{
	if (was->unlisted)
		return;
	__u64 socket = bpf_get_socket_cookie(ctx);
	bpf_map_delete_elem(&routed, &socket);
	was->unlisted = 1;
}

static __always_inline int same(const struct address *a, const struct address *b)
{
	// Not memcmp: clang would call a function that does not exist here.
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

static __always_inline struct address mapped(__be32 ip4)
{
	struct address address = {};

	address.word[2] = bpf_htonl(0xffff);
	address.word[3] = ip4;
	return address;
}

static __always_inline __u32 mix(__u64 number)
{
	number ^= number >> 33;
	number *= 0xff51afd7ed558ccdULL;
	number ^= number >> 33;
	number *= 0xc4ceb9fe1a85ec53ULL;
	number ^= number >> 33;
	return number;
}

// The backend that this client (its network namespace) used last, if it may use it still.
static __always_inline __u32 remembered(struct svc *service, struct affinity_key *key, __u64 now)
{
	struct affinity *last = bpf_map_lookup_elem(&affinity, key);

	// Another processor may have used the entry after `now`, so that the difference of both may be negative. The sum
	// does not overflow: it is below 2^63 for a century after boot, because a timeout has 32 bits of seconds.
	if (!last || last->used + (__u64)service->affinity * 1000000000ULL <= now)
		return 0;
	// Read once: the kernel may use the memory of an evicted element for another client's, with a backend of another
	// service, so a second read may find one that was not looked up.
	__u32 backend = *(volatile __u32 *)&last->backend;
	struct pair member = { .svc = service->id, .backend = backend };
	if (!bpf_map_lookup_elem(&members, &member))
		return 0;
	return backend;
}

static __always_inline int is_same_svc(const struct svc *a, const struct svc *b)
{
	return a->id == b->id && a->generation == b->generation && a->count == b->count &&
	       a->affinity == b->affinity && a->flags == b->flags;
}

struct choice {
	struct pair pair;
	struct backend backend;
};

enum verdict {
	NO_SERVICE = 0,
	CHOSEN = 1,
	NO_BACKEND = 2,
	NO_LOCAL_BACKEND = 3,
};

// Chooses a backend. `a` and `b` are random numbers; a socket that is not connected gives the same ones
// each time, so that its datagrams stay together.
static __always_inline enum verdict choose(struct svc_key *key, __u64 netns, __u32 a, __u32 b,
					   struct choice *choice)
{
	for (int i = 0; i < LOOKUPS; i++) {
		struct svc *found = bpf_map_lookup_elem(&svc, key);

		if (!found)
			return NO_SERVICE;
		struct svc service = *found;
		// The kernel may use the memory of a replaced element for another service at once, while this copies
		// it. So the copy counts only if a second look finds the same, in every field, because a service keeps
		// its generation when others of them change. Slots and backends need no second look, because the agent
		// deletes them a while after their last use.
		found = bpf_map_lookup_elem(&svc, key);
		if (!found || !is_same_svc(found, &service))
			continue;
		if (!service.count)
			return service.flags & UNREACHABLE ? NO_LOCAL_BACKEND : NO_BACKEND;

		__u32 id = 0;
		__u64 now = 0;
		struct affinity_key client = { .netns = netns, .svc = service.id };
		if (service.affinity) {
			now = bpf_ktime_get_ns();
			id = remembered(&service, &client, now);
		}
		if (!id) {
			struct slot_key at = {
				.svc = service.id,
				.generation = service.generation,
				.index = ((__u64)a * service.count) >> 32,
			};
			struct slot *slot = bpf_map_lookup_elem(&slots, &at);
			if (!slot)
				continue;
			id = b < slot->threshold ? slot->first : slot->second;
		}
		struct backend *backend = bpf_map_lookup_elem(&backends, &id);
		if (!backend)
			continue;
		choice->backend = *backend;
		choice->pair.svc = service.id;
		choice->pair.backend = id;
		if (service.affinity) {
			struct affinity used = { .used = now, .backend = id };
			bpf_map_update_elem(&affinity, &client, &used, BPF_ANY);
		}
		return CHOSEN;
	}
	return NO_BACKEND;
}

static __always_inline int refuse(enum verdict verdict)
{
	bpf_set_retval(verdict == NO_LOCAL_BACKEND ? -EHOSTUNREACH : -ECONNREFUSED);
	return REFUSE;
}

static __always_inline int is_routed(struct bpf_sock_addr *ctx)
{
	return ctx->protocol == IPPROTO_TCP || ctx->protocol == IPPROTO_UDP;
}

static __always_inline struct svc_key key_of(struct bpf_sock_addr *ctx, struct address address)
{
	struct svc_key key = {
		.address = address,
		.port = ctx->user_port,
		.protocol = ctx->protocol,
	};

	return key;
}

static __always_inline enum verdict connect_to(struct bpf_sock_addr *ctx, struct address address,
					       struct choice *choice)
{
	struct svc_key key = key_of(ctx, address);
	enum verdict verdict = choose(&key, bpf_get_netns_cookie(ctx), bpf_get_prandom_u32(),
				      bpf_get_prandom_u32(), choice);
	struct bpf_sock *sk = ctx->sk;
	struct conn *now;

	if (!sk)
		return verdict;
	now = bpf_sk_storage_get(&conn, sk, 0, 0);
	if (now) {
		// A socket that is connected again: UDP to another peer, TCP after a failure.
		end(now, ctx->protocol == IPPROTO_TCP && now->state == OPENED);
		if (verdict != CHOSEN) {
			forget(now, ctx);
			bpf_sk_storage_delete(&conn, sk);
			return verdict;
		}
	}
	if (verdict != CHOSEN)
		return verdict;
	int is_new = !now;
	if (is_new)
		now = bpf_sk_storage_get(&conn, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!now)
		return verdict; // no memory: routed, not counted
	now->frontend = address;
	now->frontend_port = key.port;
	now->backend = choice->backend.address;
	now->backend_port = choice->backend.port;
	now->pair = choice->pair;
	now->state = OPENED;
	count_opened(&now->pair);
	if (may_be_ended(ctx->protocol)) {
		__u64 socket = bpf_get_socket_cookie(ctx);
		struct routed to = {
			.pair = choice->pair,
			.backend = choice->backend.address,
			.port = choice->backend.port,
			.protocol = ctx->protocol,
		};
		bpf_map_update_elem(&routed, &socket, &to, BPF_ANY);
		now->unlisted = 0;
	} else if (is_new) {
		now->unlisted = 1;
	} else {
		forget(now, ctx);
	}
	return verdict;
}

static __always_inline enum verdict send_to(struct bpf_sock_addr *ctx, struct address address,
					    struct choice *choice)
{
	struct svc_key key = key_of(ctx, address);
	__u64 socket = bpf_get_socket_cookie(ctx);
	// Equal numbers each time, for a socket and a frontend.
	__u64 seed = socket ^ ((__u64)key.port << 48) ^ ((__u64)address.word[3] << 8);
	__u32 a = mix(seed);
	__u32 b = mix(seed + 0x9e3779b97f4a7c15ULL);
	enum verdict verdict = choose(&key, bpf_get_netns_cookie(ctx), a, b, choice);

	if (verdict != CHOSEN)
		return verdict;
	struct reverse_key from = {
		.socket = socket,
		.address = choice->backend.address,
		.port = choice->backend.port,
	};
	struct reverse *known = bpf_map_lookup_elem(&reverse, &from);
	if (known && known->port == key.port && same(&known->address, &address) &&
	    known->pair.svc == choice->pair.svc)
		return verdict;
	struct reverse to = { .address = address, .port = key.port, .pair = choice->pair };
	int is_counted = 0;
	if (known) {
		// Another frontend led to this backend. Both are remembered, so that each is counted once.
		struct reverse before = *known;
		from.svc = before.pair.svc;
		bpf_map_update_elem(&reverse, &from, &before, BPF_ANY);
		from.svc = choice->pair.svc;
		is_counted = !!bpf_map_lookup_elem(&reverse, &from);
		from.svc = 0;
	}
	bpf_map_update_elem(&reverse, &from, &to, BPF_ANY);
	if (!is_counted)
		count_datagrams(&to.pair);
	return verdict;
}

// The frontend that a peer's address stands for.
static __always_inline int frontend_of(struct bpf_sock_addr *ctx, struct address peer,
				       struct address *address, __be16 *port)
{
	__be16 peer_port = ctx->user_port;
	struct bpf_sock *sk = ctx->sk;
	struct conn *connected = sk ? bpf_sk_storage_get(&conn, sk, 0, 0) : 0;

	if (connected && connected->backend_port == peer_port && same(&connected->backend, &peer)) {
		*address = connected->frontend;
		*port = connected->frontend_port;
		return 1;
	}
	if (ctx->protocol != IPPROTO_UDP)
		return 0;
	struct reverse_key from = {
		.socket = bpf_get_socket_cookie(ctx),
		.address = peer,
		.port = peer_port,
	};
	struct reverse *known = bpf_map_lookup_elem(&reverse, &from);
	if (!known)
		return 0;
	*address = known->address;
	*port = known->port;
	return 1;
}

static __always_inline struct address address6(struct bpf_sock_addr *ctx)
{
	struct address address;

	address.word[0] = ctx->user_ip6[0];
	address.word[1] = ctx->user_ip6[1];
	address.word[2] = ctx->user_ip6[2];
	address.word[3] = ctx->user_ip6[3];
	return address;
}

static __always_inline void set6(struct bpf_sock_addr *ctx, struct address *address, __be16 port)
{
	ctx->user_ip6[0] = address->word[0];
	ctx->user_ip6[1] = address->word[1];
	ctx->user_ip6[2] = address->word[2];
	ctx->user_ip6[3] = address->word[3];
	ctx->user_port = port;
}

static __always_inline void set4(struct bpf_sock_addr *ctx, struct address *address, __be16 port)
{
	ctx->user_ip4 = address->word[3];
	ctx->user_port = port;
}

SEC("cgroup/connect4")
int crowfly_connect4(struct bpf_sock_addr *ctx)
{
	struct choice choice = {};

	if (!is_routed(ctx))
		return PROCEED;
	enum verdict verdict = connect_to(ctx, mapped(ctx->user_ip4), &choice);
	if (verdict == NO_SERVICE)
		return PROCEED;
	if (verdict != CHOSEN)
		return refuse(verdict);
	set4(ctx, &choice.backend.address, choice.backend.port);
	return PROCEED;
}

SEC("cgroup/connect6")
int crowfly_connect6(struct bpf_sock_addr *ctx)
{
	struct choice choice = {};

	if (!is_routed(ctx))
		return PROCEED;
	enum verdict verdict = connect_to(ctx, address6(ctx), &choice);
	if (verdict == NO_SERVICE)
		return PROCEED;
	if (verdict != CHOSEN)
		return refuse(verdict);
	set6(ctx, &choice.backend.address, choice.backend.port);
	return PROCEED;
}

SEC("cgroup/sendmsg4")
int crowfly_sendmsg4(struct bpf_sock_addr *ctx)
{
	struct choice choice = {};

	if (ctx->protocol != IPPROTO_UDP)
		return PROCEED;
	enum verdict verdict = send_to(ctx, mapped(ctx->user_ip4), &choice);
	if (verdict == NO_SERVICE)
		return PROCEED;
	if (verdict != CHOSEN)
		return refuse(verdict);
	set4(ctx, &choice.backend.address, choice.backend.port);
	return PROCEED;
}

SEC("cgroup/sendmsg6")
int crowfly_sendmsg6(struct bpf_sock_addr *ctx)
{
	struct choice choice = {};

	if (ctx->protocol != IPPROTO_UDP)
		return PROCEED;
	enum verdict verdict = send_to(ctx, address6(ctx), &choice);
	if (verdict == NO_SERVICE)
		return PROCEED;
	if (verdict != CHOSEN)
		return refuse(verdict);
	set6(ctx, &choice.backend.address, choice.backend.port);
	return PROCEED;
}

static __always_inline int show4(struct bpf_sock_addr *ctx)
{
	struct address address;
	__be16 port;

	if (frontend_of(ctx, mapped(ctx->user_ip4), &address, &port))
		set4(ctx, &address, port);
	return PROCEED;
}

static __always_inline int show6(struct bpf_sock_addr *ctx)
{
	struct address address;
	__be16 port;

	if (frontend_of(ctx, address6(ctx), &address, &port))
		set6(ctx, &address, port);
	return PROCEED;
}

SEC("cgroup/recvmsg4")
int crowfly_recvmsg4(struct bpf_sock_addr *ctx)
{
	return show4(ctx);
}

SEC("cgroup/recvmsg6")
int crowfly_recvmsg6(struct bpf_sock_addr *ctx)
{
	return show6(ctx);
}

SEC("cgroup/getpeername4")
int crowfly_getpeername4(struct bpf_sock_addr *ctx)
{
	return show4(ctx);
}

SEC("cgroup/getpeername6")
int crowfly_getpeername6(struct bpf_sock_addr *ctx)
{
	return show6(ctx);
}

// UDP ends here. TCP ends in sockops, unless its first packet could not be sent.
SEC("cgroup/sock_release")
int crowfly_sock_release(struct bpf_sock *ctx)
{
	struct conn *was = bpf_sk_storage_get(&conn, ctx, 0, 0);

	if (!was)
		return PROCEED;
	if (was->state == OPENED)
		end(was, ctx->protocol == IPPROTO_TCP);
	forget(was, ctx);
	return PROCEED;
}

SEC("sockops")
int crowfly_sockops(struct bpf_sock_ops *ctx)
{
	__u32 op = ctx->op;
	struct bpf_sock *sk;
	struct conn *is;

	// Each connection calls this some ten times, and three of them tell something.
	if (op != BPF_SOCK_OPS_TCP_CONNECT_CB && op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB &&
	    (op != BPF_SOCK_OPS_STATE_CB || ctx->args[1] != BPF_TCP_CLOSE))
		return 1;
	sk = ctx->sk;
	if (!sk)
		return 1;
	is = bpf_sk_storage_get(&conn, sk, 0, 0);
	if (!is)
		return 1;
	if (op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
		if (is->state == OPENED)
			is->state = CONNECTING;
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags |
						       BPF_SOCK_OPS_STATE_CB_FLAG);
	} else if (op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) {
		if (is->state != CONNECTING)
			return 1;
		is->state = ESTABLISHED;
		struct stats *counters = stats_of(&is->pair);
		if (counters)
			add_one(&counters->established);
	} else {
		end(is, is->state == CONNECTING);
		forget(is, ctx);
	}
	return 1;
}

// No helper that is used here asks for the GPL.
char _license[] SEC("license") = "Apache-2.0";
