/*
 * hostd.h: queue pairs over many paths, by the daemon hostd.
 *
 * The words are those of libibverbs and librdmacm. docs/c-library.md begins with a whole program;
 * examples/ping_pong.c is one.
 *
 * Results. Functions return zero or a count if they succeed, and a negative error if not: one of
 * enum hostd_error, or such a class less a reason of enum hostd_reason. hostd_strerror() names any
 * of them; hostd_last_error() has what went wrong in this thread, with names and values.
 *
 * Handles. Pointers to structures without members are handles; they point to nothing. One that was
 * given back, never was, or is of another kind is answered with HOSTD_ERR_HANDLE. Objects may be given
 * back in any order: what another object needs stays until that is given back, too.
 *
 * Threads. Handles may be used by all threads. One call at a time may be under way with a queue pair,
 * a completion queue, a shared receive queue, a listener or a group; a second one is answered with
 * HOSTD_ERR_BUSY. After fork() the child opens a context of its own.
 *
 * Time-outs are milliseconds; negative ones have no end. The end of hostd ends every wait, with
 * HOSTD_ERR_DAEMON_GONE.
 *
 * Addresses are text: "10.2.4.2", "fd00:2:4::2". Numbers are in the order of this machine's bytes.
 */
#ifndef HOSTD_H
#define HOSTD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of structures and requests. */
enum hostd_limit {
    HOSTD_ADDRESS_MAX = 48, /* bytes of an address as text, with the zero behind it */
    HOSTD_PRIVATE_MAX = 32, /* bytes of private data */
    HOSTD_SGE_MAX = 16,     /* pieces of memory of a request */
    HOSTD_INLINE_MAX = 256, /* bytes of a request inline */
    HOSTD_WEIGHTS_MAX = 32, /* weights in one change of paths */
    HOSTD_GROUP_MAX = 64,   /* members of a group */
    HOSTD_GROUP_PIECE = 8388608 /* bytes that a collective of a group works on at once */
};

/* ---- Errors ---------------------------------------------------------------------------------- */

enum hostd_error {
    HOSTD_ERR_ARGUMENT = -1,        /* a null pointer, or a value that cannot be */
    HOSTD_ERR_HANDLE = -2,          /* not the handle of such an object, or it was given back */
    HOSTD_ERR_BUSY = -3,            /* another thread is in a call with the object, or a collective of the
                                     * group is under way */
    HOSTD_ERR_NO_DAEMON = -4,       /* no hostd answers at the socket */
    HOSTD_ERR_DAEMON_GONE = -5,     /* hostd ended, or threw the application out */
    HOSTD_ERR_TIMED_OUT = -6,       /* the time given to the call is over */
    HOSTD_ERR_QUEUE_FULL = -7,      /* the queue holds as many requests as it was made for */
    HOSTD_ERR_OUT_OF_RANGE = -8,    /* a range is not inside its memory region */
    HOSTD_ERR_ATOMIC_LENGTH = -9,   /* an atomic operation needs one piece of 8 bytes */
    HOSTD_ERR_SHARED_RECEIVES = -10, /* the queue pair takes receives from a shared queue */
    HOSTD_ERR_TOO_MANY_PIECES = -11, /* more than HOSTD_SGE_MAX */
    HOSTD_ERR_NOT_INLINE = -12,     /* more than HOSTD_INLINE_MAX, or not with this request */
    HOSTD_ERR_PROTOCOL = -13,       /* hostd said something that this library does not know */
    HOSTD_ERR_KERNEL = -14,         /* the kernel refused */
    HOSTD_ERR_MEMORY = -15,         /* shared memory could not be had */
    HOSTD_ERR_DEFECT = -16,         /* a defect of this library; standard error has more */
    /* Classes: the error is the class less the reason. */
    HOSTD_ERR_REFUSED = -100,     /* hostd refused the request */
    HOSTD_ERR_CONNECT = -200,     /* a connection did not come about */
    HOSTD_ERR_DISCONNECTED = -300, /* the connection has ended */
    HOSTD_ERR_GROUP = -400        /* a group has failed or did not form; less an enum hostd_cause */
};

/* Why a request was refused or a connection ended. */
enum hostd_reason {
    HOSTD_REASON_CLOSED = 0,       /* in good order, or the peer's process ended */
    HOSTD_REASON_BAD_MESSAGE = 1,  /* no request, or at the wrong time */
    HOSTD_REASON_BAD_VERSION = 2,  /* the versions do not understand each other */
    HOSTD_REASON_NOT_PERMITTED = 3, /* the user may not use hostd */
    HOSTD_REASON_QUOTA = 4,        /* a quota would be exceeded */
    HOSTD_REASON_NOT_FOUND = 5,
    HOSTD_REASON_INVALID_ARGUMENT = 6,
    HOSTD_REASON_INVALID_STATE = 7,
    HOSTD_REASON_BAD_MEMORY = 8,   /* the memory cannot be registered */
    HOSTD_REASON_ADDRESS_IN_USE = 9,
    HOSTD_REASON_UNREACHABLE = 10, /* no route to the address */
    HOSTD_REASON_REJECTED = 11,    /* the peer's application refused */
    HOSTD_REASON_TIMED_OUT = 12,   /* the peer does not answer */
    HOSTD_REASON_SHUTTING_DOWN = 13,
    HOSTD_REASON_INTERNAL = 14,
    HOSTD_REASON_PROTOCOL = 15,    /* the application broke the rules of its rings */
    HOSTD_REASON_REFUSED = 16,     /* nobody listens there */
    HOSTD_REASON_IN_USE = 17,      /* other objects depend on the object */
    HOSTD_REASON_BUSY = 18,        /* the peer takes no more requests at present */
    HOSTD_REASON_ACCESS = 19,      /* the peer used memory that it may not use (IBV_EVENT_QP_ACCESS_ERR) */
    HOSTD_REASON_INVALID_REQUEST = 20, /* the peer sent what is not possible (IBV_EVENT_QP_REQ_ERR) */
    HOSTD_REASON_REQUEST_FAILED = 21   /* a request of this side failed: its completion says how */
};

/* Why a group has failed, or did not form. Of the first seven and of HOSTD_CAUSE_UNABLE hostd_last_rank() says
 * whose doing it is. */
enum hostd_cause {
    HOSTD_CAUSE_LOST = 0,         /* its process or its host has ended, or there is no way to it */
    HOSTD_CAUSE_LEFT = 1,         /* it has given the group back before the others */
    HOSTD_CAUSE_LATE = 2,         /* the others waited for it in vain */
    HOSTD_CAUSE_MISSING = 3,      /* it did not join in time */
    HOSTD_CAUSE_MISMATCH = 4,     /* it calls something else than the others */
    HOSTD_CAUSE_ABANDONED = 5,    /* it gave a collective up that was under way */
    HOSTD_CAUSE_PROTOCOL = 6,     /* it sent what no member sends */
    HOSTD_CAUSE_NO_SUCH_RANK = 7, /* rank 0 refuses: the group has no such rank, */
    HOSTD_CAUSE_RANK_TAKEN = 8,   /* another member has this rank, */
    HOSTD_CAUSE_SIZE = 9,         /* the group has another size, */
    HOSTD_CAUSE_SEGMENT = 10,     /* the group has other segments, */
    HOSTD_CAUSE_VERSION = 11,     /* or it speaks another version */
    HOSTD_CAUSE_WORK = 12,        /* a work request of this member failed */
    HOSTD_CAUSE_UNABLE = 13       /* it cannot take part: its own host refuses what it needs */
};

/* Version of the library, as "0.1.0". */
const char *hostd_version(void);

/* What went wrong in the last call of this thread that failed; "" before. Good until the next one that
 * fails. */
const char *hostd_last_error(void);

/* The rank of the member of a group that the last error of this thread names; -1 if it names none. */
int hostd_last_rank(void);

/* What an error means, without particulars. Never NULL; good for ever, as are the next three. */
const char *hostd_strerror(int error);

/* What a reason means. */
const char *hostd_reason_str(int reason);

/* What a cause means. */
const char *hostd_cause_str(int cause);

/* What the status of a completion means. */
const char *hostd_wc_status_str(uint32_t status);

/* The error without its reason: HOSTD_ERR_REFUSED, for instance. Zero for what is no error. */
int hostd_error_class(int error);

/* The reason in an error, or -1 without one. Of HOSTD_ERR_GROUP it is an enum hostd_cause. */
int hostd_error_reason(int error);

/* ---- Context --------------------------------------------------------------------------------- */

/* A session with hostd; ibv_context and its protection domain in one. */
struct hostd_context;

/* What hostd allows this application. */
struct hostd_limits {
    uint64_t memory;      /* bytes that may be registered, rings of queues among them */
    uint64_t message;     /* bytes of one message */
    uint32_t queue_pairs;
    uint32_t reserved;
};

/* An address of hostd's interface (ibv_gid_entry). */
struct hostd_gid {
    char address[48];
    uint32_t index;
    uint32_t prefix_len;
    uint32_t active;  /* 1 if packets can pass there */
    uint32_t reserved;
};

/* Opens a session with the hostd at the socket `path`; NULL: what HOSTD_SOCKET says, or
 * /run/hostd/hostd.sock. Waits so long for a daemon that is not there. */
int hostd_open(const char *path, int timeout_ms, struct hostd_context **context);

/* Gives the session back. It ends when nothing made from it is left. */
int hostd_close(struct hostd_context *context);

int hostd_query_limits(struct hostd_context *context, struct hostd_limits *limits);

/* Fills in at most `count` addresses, and returns how many there are. `gids` may be NULL if `count` is
 * zero. */
int hostd_query_gids(struct hostd_context *context, struct hostd_gid *gids, uint32_t count);

/* ---- Memory ---------------------------------------------------------------------------------- */

/* A memory region: memory that the application and hostd share (ibv_mr). */
struct hostd_mr;

/* What a region allows (ibv_access_flags). */
enum hostd_access {
    HOSTD_ACCESS_LOCAL_WRITE = 1,   /* messages may be placed there */
    HOSTD_ACCESS_REMOTE_WRITE = 2,  /* peers may write there; needs LOCAL_WRITE */
    HOSTD_ACCESS_REMOTE_READ = 4,   /* peers may read there */
    HOSTD_ACCESS_REMOTE_ATOMIC = 8  /* peers may do atomic operations; needs LOCAL_WRITE */
};

struct hostd_mr_attr {
    void *memory;    /* where this process sees it: page aligned, good until hostd_dereg_mr() */
    uint64_t length; /* bytes */
    uint32_t lkey;
    uint32_t rkey;   /* peers need it */
};

/* Bytes of a region, for a request (ibv_sge). `addr` counts from the beginning of the region. */
struct hostd_sge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
};

/* Allocates and registers memory of `length` zero bytes (ibv_reg_mr). For requests, here and at
 * peers, its first byte has address zero. */
int hostd_alloc_mr(struct hostd_context *context, size_t length, uint32_t access, struct hostd_mr **mr);

int hostd_query_mr(struct hostd_mr *mr, struct hostd_mr_attr *attr);

/* The bytes `offset` … `offset + length` of the region, for a request. HOSTD_ERR_OUT_OF_RANGE if they are
 * not inside. */
int hostd_mr_sge(struct hostd_mr *mr, uint64_t offset, uint64_t length, struct hostd_sge *sge);

/* Takes the region back and unmaps its memory. Requests that still name it fail. */
int hostd_dereg_mr(struct hostd_mr *mr);

/* ---- Completions ----------------------------------------------------------------------------- */

/* A completion queue (ibv_cq). */
struct hostd_cq;

/* How a request ended (ibv_wc_status). */
enum hostd_wc_status {
    HOSTD_WC_SUCCESS = 0,
    HOSTD_WC_LOC_LEN_ERR = 1,
    HOSTD_WC_LOC_QP_OP_ERR = 2,
    HOSTD_WC_LOC_PROT_ERR = 4,
    HOSTD_WC_WR_FLUSH_ERR = 5,
    HOSTD_WC_MW_BIND_ERR = 6,
    HOSTD_WC_LOC_ACCESS_ERR = 8,
    HOSTD_WC_REM_INV_REQ_ERR = 9,
    HOSTD_WC_REM_ACCESS_ERR = 10,
    HOSTD_WC_REM_OP_ERR = 11,
    HOSTD_WC_RETRY_EXC_ERR = 12,
    HOSTD_WC_RNR_RETRY_EXC_ERR = 13,
    HOSTD_WC_FATAL_ERR = 19,
    HOSTD_WC_GENERAL_ERR = 21
};

/* What a request was (ibv_wc_opcode). */
enum hostd_wc_opcode {
    HOSTD_WC_SEND = 0,
    HOSTD_WC_RDMA_WRITE = 1,
    HOSTD_WC_RDMA_READ = 2,
    HOSTD_WC_COMP_SWAP = 3,
    HOSTD_WC_FETCH_ADD = 4,
    HOSTD_WC_BIND_MW = 5,
    HOSTD_WC_LOCAL_INV = 6,
    HOSTD_WC_RECV = 128,
    HOSTD_WC_RECV_RDMA_WITH_IMM = 129
};

enum hostd_wc_flags {
    HOSTD_WC_WITH_IMM = 2, /* imm_data is immediate data of the peer */
    HOSTD_WC_WITH_INV = 8  /* imm_data is the own key that the peer's SEND took back */
};

/* The end of a request (ibv_wc). */
struct hostd_wc {
    uint64_t wr_id;
    uint32_t status;   /* enum hostd_wc_status */
    uint32_t opcode;   /* enum hostd_wc_opcode; undefined unless the status is success */
    uint32_t wc_flags; /* enum hostd_wc_flags */
    uint32_t byte_len; /* bytes received, or written by the peer */
    uint32_t imm_data;
    uint32_t qp_id;    /* hostd_qp_attr.id of the queue pair */
};

/* Creates a completion queue for at least `entries` completions (ibv_create_cq): one for each request
 * that its queue pairs may have outstanding. */
int hostd_create_cq(struct hostd_context *context, uint32_t entries, struct hostd_cq **cq);

int hostd_destroy_cq(struct hostd_cq *cq);

/* Takes at most `count` completions, oldest first, without waiting (ibv_poll_cq), and returns how
 * many. */
int hostd_poll_cq(struct hostd_cq *cq, uint32_t count, struct hostd_wc *wc);

/* Waits for a completion: 1 if there is one, 0 if the time is over. Does not take it. */
int hostd_wait_cq(struct hostd_cq *cq, int timeout_ms);

/* Asks that the descriptor of hostd_cq_fd() becomes readable with the next completion
 * (ibv_req_notify_cq); with `solicited_only`, with the next one that is solicited or did not succeed.
 * Returns 1 if there is a completion already; then nothing was asked. */
int hostd_req_notify_cq(struct hostd_cq *cq, int solicited_only);

/* A descriptor for poll(2) and its like. It belongs to the queue: neither read nor close it. */
int hostd_cq_fd(struct hostd_cq *cq);

/* ---- Queue pairs ----------------------------------------------------------------------------- */

/* A reliable connection's two work queues (ibv_qp of type IBV_QPT_RC). */
struct hostd_qp;

/* A shared receive queue (ibv_srq). */
struct hostd_srq;

/* What a queue pair is made of (ibv_qp_init_attr). */
struct hostd_qp_init_attr {
    struct hostd_cq *send_cq;
    struct hostd_cq *recv_cq;   /* may be the same */
    struct hostd_srq *srq;      /* where receives are taken from; NULL: own ones */
    uint32_t max_send_wr;       /* sends that may be outstanding; 0: 64 */
    uint32_t max_recv_wr;       /* receives that may be posted; 0: 64 */
};

struct hostd_qp_attr {
    uint32_t id;     /* hostd_wc.qp_id */
    uint32_t qp_num; /* on the wire */
};

/* What is posted to a send queue (ibv_wr_opcode). */
enum hostd_wr_opcode {
    HOSTD_WR_RDMA_WRITE = 0,
    HOSTD_WR_RDMA_WRITE_WITH_IMM = 1,
    HOSTD_WR_SEND = 2,
    HOSTD_WR_SEND_WITH_IMM = 3,
    HOSTD_WR_RDMA_READ = 4,
    HOSTD_WR_ATOMIC_CMP_AND_SWP = 5,
    HOSTD_WR_ATOMIC_FETCH_AND_ADD = 6,
    HOSTD_WR_SEND_WITH_INV = 9 /* imm_data is the peer's key that is taken back */
};

enum hostd_send_flags {
    HOSTD_SEND_FENCE = 1,     /* begin when all READs and atomic operations before are done */
    HOSTD_SEND_SIGNALED = 2,  /* complete also when nothing went wrong */
    HOSTD_SEND_SOLICITED = 4  /* the peer's completion is a solicited event */
};

/* A request for the send queue (ibv_send_wr). What the operation does not need is not looked at. */
struct hostd_send_wr {
    uint64_t wr_id;                  /* given back in the completion */
    const struct hostd_sge *sg_list; /* what is sent; of READs and atomics where the answer goes */
    uint32_t num_sge;                /* at most HOSTD_SGE_MAX */
    uint32_t opcode;                 /* enum hostd_wr_opcode */
    uint32_t send_flags;             /* enum hostd_send_flags */
    uint32_t imm_data;
    uint64_t remote_addr;            /* counts from the beginning of the peer's region */
    uint32_t rkey;
    uint32_t reserved;
    uint64_t compare_add;            /* what is compared, or added */
    uint64_t swap;
};

/* A request for a receive queue (ibv_recv_wr). A write with immediate data needs no memory. */
struct hostd_recv_wr {
    uint64_t wr_id;
    const struct hostd_sge *sg_list;
    uint32_t num_sge;
    uint32_t reserved;
};

/* Creates a queue pair (ibv_create_qp). */
int hostd_create_qp(struct hostd_context *context, const struct hostd_qp_init_attr *attr, struct hostd_qp **qp);

int hostd_destroy_qp(struct hostd_qp *qp);

int hostd_query_qp(struct hostd_qp *qp, struct hostd_qp_attr *attr);

/* Posts `count` requests of the array `wr`, as many as there is room for, and returns how many
 * (ibv_post_send). HOSTD_ERR_QUEUE_FULL if there is no room for the first; what is wrong with a later one
 * is told when it comes first. Before a connection was asked for, sends are refused. */
int hostd_post_send(struct hostd_qp *qp, const struct hostd_send_wr *wr, uint32_t count);

/* Posts a SEND or an RDMA WRITE of the bytes at `data` (IBV_SEND_INLINE). They need no region and may
 * change as soon as this returns. The request's own pieces are not looked at. */
int hostd_post_send_inline(struct hostd_qp *qp, const struct hostd_send_wr *wr, const void *data, uint32_t length);

/* Posts receives (ibv_post_recv), as hostd_post_send() does. */
int hostd_post_recv(struct hostd_qp *qp, const struct hostd_recv_wr *wr, uint32_t count);

/* Creates a shared receive queue (ibv_create_srq). With fewer than `limit` receives
 * hostd_wait_srq_limit() returns; zero: never. */
int hostd_create_srq(struct hostd_context *context, uint32_t entries, uint32_t limit, struct hostd_srq **srq);

int hostd_destroy_srq(struct hostd_srq *srq);

int hostd_post_srq_recv(struct hostd_srq *srq, const struct hostd_recv_wr *wr, uint32_t count);

/* Sets the limit again, for one more return of hostd_wait_srq_limit() (ibv_modify_srq). */
int hostd_set_srq_limit(struct hostd_srq *srq, uint32_t limit);

/* 1 if the limit was reached (IBV_EVENT_SRQ_LIMIT_REACHED), 0 if the time is over. */
int hostd_wait_srq_limit(struct hostd_srq *srq, int timeout_ms);

/* ---- Connections ----------------------------------------------------------------------------- */

/* Where connections are waited for (rdma_listen). */
struct hostd_listener;

/* A peer that wants to connect. */
struct hostd_request;

/* How a connection retries (rdma_conn_param). */
struct hostd_conn_options {
    uint8_t timeout;             /* local ACK time-out 4.096 us * 2^timeout, 1-31; 0: for ever; who connects decides */
    uint8_t retry_count;         /* time-outs without progress before the queue pair fails, 0-7; who connects decides */
    uint8_t rnr_retry;           /* tries of the peer when no receive is posted, 0-6; 7: for ever */
    uint8_t min_rnr_timer;       /* how long it waits then, code 0-31 */
    uint8_t responder_resources; /* READs and atomics of the peer at a time, 0-128 */
    uint8_t initiator_depth;     /* the same of this side */
};

/* In which order messages are given out. Both ends ask; the earlier one here is what both get. */
enum hostd_service {
    HOSTD_SERVICE_ORDERED = 0,   /* each message after those before it */
    HOSTD_SERVICE_UNORDERED = 1, /* each once, as soon as it is whole */
    HOSTD_SERVICE_IDEMPOTENT = 2 /* the same, for messages that may be carried out twice */
};

/* What steers how fast a queue pair sends; which there are at a host is its operator's matter. */
enum hostd_congestion {
    HOSTD_CONGESTION_AUTO = 0, /* FIXED until a switch marks or trims a packet, then NSCC */
    HOSTD_CONGESTION_FIXED = 1,
    HOSTD_CONGESTION_NSCC = 2,       /* by delay, marks and trims */
    HOSTD_CONGESTION_SWIFT = 3,      /* by delay */
    HOSTD_CONGESTION_SWIFT_CSIG = 4, /* by delay and congestion signals */
    HOSTD_CONGESTION_DCTCP = 5,      /* by marks */
    HOSTD_CONGESTION_DCQCN = 6,      /* by notifications (CNPs), also with plain peers */
    HOSTD_CONGESTION_TIMELY = 7,     /* by how delay changes */
    HOSTD_CONGESTION_POSEIDON = 8,   /* by congestion signals */
    HOSTD_CONGESTION_HPCC = 9,       /* by telemetry */
    HOSTD_CONGESTION_RTTCC = 10      /* by delay of probes of its own */
};

enum hostd_pattern {
    HOSTD_PATTERN_UNKNOWN = 0,
    HOSTD_PATTERN_PAIRS = 1,       /* one to one, as in a ring */
    HOSTD_PATTERN_MANY_TO_ONE = 2, /* many send to the peer at a time */
    HOSTD_PATTERN_ALL_TO_ALL = 3
};

enum hostd_priority {
    HOSTD_PRIORITY_NORMAL = 0,
    HOSTD_PRIORITY_LOW = 1, /* may wait for others */
    HOSTD_PRIORITY_HIGH = 2 /* others may wait for it */
};

/* What is sent on a queue pair; zeros say nothing. */
struct hostd_traffic {
    uint32_t block;    /* bytes of the pieces in which it is sent */
    uint32_t pattern;  /* enum hostd_pattern */
    uint32_t priority; /* enum hostd_priority */
};

enum hostd_granularity {
    HOSTD_GRANULARITY_FLOW = 1,
    HOSTD_GRANULARITY_FLOWLET = 2,
    HOSTD_GRANULARITY_PACKET = 3
};

/* Which members of struct hostd_path_change count. */
enum hostd_path_mask {
    HOSTD_PATHS_GRANULARITY = 1,
    HOSTD_PATHS_REORDER_PACKETS = 2,
    HOSTD_PATHS_REORDER_TIME = 4,
    HOSTD_PATHS_FLOWLET_TIMEOUT = 8
};

/* What is to become other on a connection that carries data. */
struct hostd_path_change {
    uint8_t add[32];     /* sub-paths that come into force: path p is bit p mod 8 of byte p / 8 */
    uint8_t remove[32];  /* sub-paths that carry no new packets any more */
    uint8_t weight_paths[32]; /* paths that get the weights below, */
    uint8_t weights[32];      /* 1 to 100, */
    uint32_t weight_count;    /* as many as this says */
    uint32_t mask;            /* enum hostd_path_mask */
    uint32_t granularity;     /* enum hostd_granularity */
    uint16_t reorder_packets; /* packets by which one may be overtaken before it is taken for lost */
    uint16_t reorder_time_us; /* microseconds of the same, 100 to 65,535 */
    uint16_t flowlet_timeout_us; /* a pause that ends a flowlet */
    uint16_t reserved;
};

/* What was agreed on with the peer. */
struct hostd_connected {
    char peer[48];
    uint8_t private_data[32]; /* of the peer's application; also of one that rejected */
    uint32_t private_len;
    uint32_t mtu;         /* payload bytes of a packet */
    uint32_t paths;       /* sub-paths in force; 1 for plain RoCEv2 */
    uint32_t granularity; /* enum hostd_granularity */
    uint32_t rej;         /* reason code of a REJ message; zero without one */
};

struct hostd_request_attr {
    char peer[48];
    uint8_t private_data[32];
    uint32_t private_len;
};

/* Before a connection: how it retries; `options` begins as hostd_default_conn_options() says. */
int hostd_default_conn_options(struct hostd_conn_options *options);
int hostd_set_conn_options(struct hostd_qp *qp, const struct hostd_conn_options *options);

/* Before a connection: the address that it comes from, one of hostd_query_gids() (rdma_bind_addr). */
int hostd_bind_qp(struct hostd_qp *qp, const char *address);

/* Before a connection: the service that its messages get (enum hostd_service). */
int hostd_set_service(struct hostd_qp *qp, uint32_t service);

/* Before a connection: what steers how fast it sends (enum hostd_congestion). HOSTD_ERR_REFUSED: hostd does not offer it. */
int hostd_set_congestion(struct hostd_qp *qp, uint32_t congestion);

/* At any time: what is sent on the queue pair. */
int hostd_describe_traffic(struct hostd_qp *qp, const struct hostd_traffic *traffic);

/* Changes the sub-paths of a connection, and waits until the peer has made the change, too. */
int hostd_change_paths(struct hostd_qp *qp, const struct hostd_path_change *change, int timeout_ms);

/* Connects to a listener (rdma_connect), which gets the private data. Post receives for the peer's first
 * messages before. `connected` may be NULL; after HOSTD_ERR_CONNECT it has the peer's private data and
 * `rej`. */
int hostd_connect(struct hostd_qp *qp, const char *address, uint16_t port, const void *private_data,
                  uint32_t private_len, int timeout_ms, struct hostd_connected *connected);

/* Waits for connections to `port`, zero lets hostd choose; at `address`, NULL: at all. At most `backlog`
 * requests wait for an answer. */
int hostd_listen(struct hostd_context *context, const char *address, uint16_t port, uint16_t backlog,
                 struct hostd_listener **listener);

/* The port, also when hostd chose it. */
int hostd_listener_port(struct hostd_listener *listener);

/* Peers whose requests nobody took are rejected. */
int hostd_destroy_listener(struct hostd_listener *listener);

/* Waits for a connection request (rdma_get_request). */
int hostd_get_request(struct hostd_listener *listener, int timeout_ms, struct hostd_request **request);

int hostd_query_request(struct hostd_request *request, struct hostd_request_attr *attr);

/* Accepts with a queue pair (rdma_accept), and waits until the connection stands. The request is used up
 * whatever comes of it, unless the error is HOSTD_ERR_ARGUMENT, HOSTD_ERR_HANDLE or HOSTD_ERR_BUSY. */
int hostd_accept(struct hostd_request *request, struct hostd_qp *qp, const void *private_data,
                 uint32_t private_len, int timeout_ms, struct hostd_connected *connected);

/* Turns the peer down (rdma_reject), which gets the private data; the request is used up. */
int hostd_reject(struct hostd_request *request, const void *private_data, uint32_t private_len);

/* Closes the connection (rdma_disconnect), and waits until it is closed. */
int hostd_disconnect(struct hostd_qp *qp, int timeout_ms);

/* Waits until the connection has ended, and returns why (enum hostd_reason). HOSTD_ERR_TIMED_OUT if it has
 * not. */
int hostd_wait_disconnected(struct hostd_qp *qp, int timeout_ms);

/* ---- Groups ---------------------------------------------------------------------------------- */

/* A member's part of a group of processes that call collectives together: all of them the same ones, in
 * the same order, with vectors of the same length. A call returns when its result is there, or with an error.
 * After HOSTD_ERR_GROUP, HOSTD_ERR_DAEMON_GONE and the like the group has failed, at all members; each
 * later call says the same. After HOSTD_ERR_ARGUMENT, HOSTD_ERR_HANDLE and HOSTD_ERR_BUSY nothing was done. */
struct hostd_group;

enum hostd_group_flags {
    HOSTD_GROUP_DETERMINISTIC = 1, /* reduce in the order of the ranks; the same at all members.
                                    * Without it switches add in the order of arrival: all members have
                                    * the same bits, but sums and products of floats may differ in the
                                    * last ones from call to call */
    HOSTD_GROUP_STAYS = 2          /* of rank 0: once switches have failed the group, it stays between the
                                    * hosts for ever, and `again_ms` does not count */
};

/* What a member that can talk to the others by other means says to all: whether it is `able` to take part, for
 * its own host does not refuse what that needs. It returns when all have said so: the lowest rank that is not
 * able, or -1 if all are. */
typedef int (*hostd_agree)(void *argument, int able);

/* What a member joins with. Zeros choose what is usual, unless it says otherwise. */
struct hostd_group_attr {
    uint32_t rank;                   /* of this member */
    uint32_t size;                   /* members, 1 to HOSTD_GROUP_MAX; the same at all */
    const char *address;             /* of rank 0's host; rank 0 itself does not need it */
    struct hostd_listener *listener; /* of rank 0: where it waits for the others, and used up by that;
                                      * NULL: at `port` */
    uint16_t port;                   /* where rank 0 waits */
    uint16_t reserved;
    uint32_t flags;                  /* enum hostd_group_flags */
    uint32_t join_timeout_ms;        /* for how long members wait for each other to join; 0: 30 s */
    uint32_t timeout_ms;             /* for how long a collective may stand still; 0: 30 s */
    uint32_t segment;                /* bytes that are sent and reduced at once, a multiple of 8 from 1 KiB to
                                      * 1 MiB and the same at all members; 0: 32 KiB */
    uint32_t again_ms;               /* of rank 0: for how long a group that the switches failed stays between
                                      * the hosts before it tries them again, twice as long after each
                                      * attempt in vain, up to 64 times; 0: 1 s */
    hostd_agree agree;               /* called once with `agree_argument` by hostd_group_create, unless a pointer, the
                                      * context or the address is wrong: so no member waits for one that cannot
                                      * come. All members or none have it, and rank 0 a listener then; it must not
                                      * call with the group. NULL: none waits for more than `join_timeout_ms` */
    void *agree_argument;
};

/* Elements of vectors, in the order of this machine's bytes. */
enum hostd_type {
    HOSTD_TYPE_I32 = 1,
    HOSTD_TYPE_I64 = 2,
    HOSTD_TYPE_U32 = 3,
    HOSTD_TYPE_U64 = 4,
    HOSTD_TYPE_F16 = 5,  /* IEEE 754 binary16 */
    HOSTD_TYPE_BF16 = 6, /* the upper half of a binary32 */
    HOSTD_TYPE_F32 = 7,
    HOSTD_TYPE_F64 = 8
};

/* How two elements become one. Integers wrap; the minimum and the maximum of floats are NaN if one is. */
enum hostd_op {
    HOSTD_OP_SUM = 1,
    HOSTD_OP_PRODUCT = 2,
    HOSTD_OP_MIN = 3,
    HOSTD_OP_MAX = 4,
    HOSTD_OP_AND = 5, /* of integers only, like those below */
    HOSTD_OP_OR = 6,
    HOSTD_OP_XOR = 7
};

/* Forms a group as rank 0, or joins it, and waits until all members have joined. */
int hostd_group_create(struct hostd_context *context, const struct hostd_group_attr *attr,
                       struct hostd_group **group);

/* Gives this member's part back. That is no failure for collectives that it has taken part in. */
int hostd_group_destroy(struct hostd_group *group);

/* What hostd_group_set_idle() takes. */
typedef void (*hostd_idle)(void *argument);

/* Has `idle` called with `argument` over and over while a call with the group waits, which then does not
 * sleep: for other work that must go on, or to sleep shortly. It must not call with the group. NULL: calls
 * sleep until something comes, as they do at first. */
int hostd_group_set_idle(struct hostd_group *group, hostd_idle idle, void *argument);

/* Whether collectives go through switches now, or will as soon as one is called that switches can do: 1; or
 * between the hosts: 0. */
int hostd_group_uses_switches(struct hostd_group *group);

/* Whether the last collective went through switches, to its end: 1; or between the hosts, or there is none yet:
 * 0. Not all can, also while hostd_group_uses_switches() is 1. */
int hostd_group_last_was_switched(struct hostd_group *group);

/* Why collectives go between the hosts though switches were to do them, as a text for people; NULL if they
 * go through switches, or were not meant to: no host knows a leaf. Also NULL if the handle is none. It is
 * known once a collective was called that switches can do. The text lasts until this thread's next call of
 * this function. */
const char *hostd_group_fallback(struct hostd_group *group);

/* Gives each member in `to` what comes of the vectors of all, which are in `from`, or in `to` itself if
 * `from` is NULL. Vectors in regions of the group's context are worked on where they are; others, which
 * may be any memory, are copied through a region of the group. The two must not overlap. `element` is an enum
 * hostd_type, `operation` an enum hostd_op. */
int hostd_group_allreduce(struct hostd_group *group, const void *from, void *to, uint64_t count, uint32_t element,
                          uint32_t operation);

/* The same, but the member `root` alone gets it. The others' vectors stay as they are; they need no `to`. */
int hostd_group_reduce(struct hostd_group *group, const void *from, void *to, uint64_t count, uint32_t element,
                       uint32_t operation, uint32_t root);

/* Gives each member the bytes of `root`. */
int hostd_group_broadcast(struct hostd_group *group, void *data, uint64_t bytes, uint32_t root);

/* Gives each member in `to` the blocks of all, by rank. `from` is the own one, of `bytes` bytes; NULL: it
 * stands in its place already. Blocks are copied through a region of the group. */
int hostd_group_allgather(struct hostd_group *group, const void *from, void *to, uint64_t bytes);

/* Waits until all members have called it. */
int hostd_group_barrier(struct hostd_group *group);

/* The same collectives, begun: these return at once. The collective goes on while hostd_group_poll() or
 * hostd_group_wait() is called, by any thread, and at no other time. One is under way at a time: until it is
 * over, others fail with HOSTD_ERR_BUSY, and `from`, `to` and `data` must stay and be left alone.
 * hostd_group_destroy() before that makes the group fail, at all members (HOSTD_CAUSE_ABANDONED). */
int hostd_group_start_allreduce(struct hostd_group *group, const void *from, void *to, uint64_t count,
                                uint32_t element, uint32_t operation);
int hostd_group_start_reduce(struct hostd_group *group, const void *from, void *to, uint64_t count,
                             uint32_t element, uint32_t operation, uint32_t root);
int hostd_group_start_broadcast(struct hostd_group *group, void *data, uint64_t bytes, uint32_t root);
int hostd_group_start_allgather(struct hostd_group *group, const void *from, void *to, uint64_t bytes);
int hostd_group_start_barrier(struct hostd_group *group);

/* Does what can be done without waiting. 1: the collective is over, or none is under way; 0: it goes on. An
 * error is that of the collective, which is over then. While none is under way it gives other members what
 * switches that failed have left them without: who waits for them otherwise than by the group calls it some
 * times a second. */
int hostd_group_poll(struct hostd_group *group);

/* Waits until the collective is over; sleeps, or calls `idle`, meanwhile. HOSTD_ERR_TIMED_OUT: it goes on. Any
 * other error is that of the collective, which is over then. A negative time-out has no end. */
int hostd_group_wait(struct hostd_group *group, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
