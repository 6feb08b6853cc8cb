/*
 * One process writes into another's memory: RDMA WRITE, whose receiver does nothing, and WRITE with
 * immediate data, which also tells the receiver that it happened. Then it reads its text back, and
 * changes eight bytes of the peer by atomic operations.
 *
 * Built as ping_pong.c says. In a laboratory (`fabric lab up`), where each host has a hostd:
 *
 *   fabric lab exec h4 ./write_with_immediate serve 7001 &
 *   fabric lab exec h1 ./write_with_immediate 10.2.4.2 7001 "some text"
 *
 * The receiver's key travels in the private data of the connection's set-up. The example of this name in
 * Rust can be the server of `--write-only`, and the client of `serve`.
 */
#include <hostd.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of memory that the receiver offers; the last 8 are for atomic operations. */
#define LEN 4096
#define COUNTER (LEN - 8)

/* No call waits longer than this. */
#define TIMEOUT_MS 20000

struct end {
    struct hostd_context *context;
    struct hostd_cq *cq;
    struct hostd_qp *qp;
    struct hostd_mr *mr;
    struct hostd_mr_attr memory;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "write_with_immediate: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static int check(int result, const char *what)
{
    if (result < 0)
        fail(what, hostd_last_error());
    return result;
}

static void open_end(struct end *end, uint32_t access)
{
    struct hostd_qp_init_attr attr = {0};

    check(hostd_open(NULL, 0, &end->context), "hostd_open");
    check(hostd_create_cq(end->context, 8, &end->cq), "hostd_create_cq");
    attr.send_cq = end->cq;
    attr.recv_cq = end->cq;
    attr.max_send_wr = 4;
    attr.max_recv_wr = 1;
    check(hostd_create_qp(end->context, &attr, &end->qp), "hostd_create_qp");
    check(hostd_alloc_mr(end->context, LEN, access, &end->mr), "hostd_alloc_mr");
    check(hostd_query_mr(end->mr, &end->memory), "hostd_query_mr");
}

static void close_end(struct end *end)
{
    check(hostd_destroy_qp(end->qp), "hostd_destroy_qp");
    check(hostd_destroy_cq(end->cq), "hostd_destroy_cq");
    check(hostd_dereg_mr(end->mr), "hostd_dereg_mr");
    check(hostd_close(end->context), "hostd_close");
}

/* The next completion, awaited as in an event loop: the queue is asked to make its descriptor readable,
 * and looked at once more before poll(2), for what came in between. */
static void next(struct end *end, struct hostd_wc *wc)
{
    struct pollfd fd;

    while (check(hostd_poll_cq(end->cq, 1, wc), "hostd_poll_cq") == 0) {
        if (check(hostd_req_notify_cq(end->cq, 0), "hostd_req_notify_cq") == 1)
            continue;
        fd.fd = check(hostd_cq_fd(end->cq), "hostd_cq_fd");
        fd.events = POLLIN;
        if (poll(&fd, 1, TIMEOUT_MS) != 1)
            fail("poll", "nothing completed in time");
    }
    if (wc->status != HOSTD_WC_SUCCESS)
        fail("a request", hostd_wc_status_str(wc->status));
}

static void serve(uint16_t port)
{
    struct end end;
    struct hostd_listener *listener;
    struct hostd_request *request;
    struct hostd_recv_wr receive = {0};
    struct hostd_wc wc;
    unsigned char key[4];
    uint64_t counter;
    int i;

    /* Peers who know the key may do this here; nobody else can. */
    open_end(&end, HOSTD_ACCESS_LOCAL_WRITE | HOSTD_ACCESS_REMOTE_WRITE | HOSTD_ACCESS_REMOTE_READ |
                       HOSTD_ACCESS_REMOTE_ATOMIC);
    check(hostd_listen(end.context, NULL, port, 1, &listener), "hostd_listen");
    printf("listening on port %d\n", check(hostd_listener_port(listener), "hostd_listener_port"));
    fflush(stdout);
    check(hostd_get_request(listener, 3600 * 1000, &request), "hostd_get_request");
    /* The immediate data uses up a receive. The payload goes where the writer says, so the receive needs
     * no memory of its own. */
    check(hostd_post_recv(end.qp, &receive, 1), "hostd_post_recv");
    for (i = 0; i < 4; i++)
        key[i] = (unsigned char)(end.memory.rkey >> 8 * i);
    check(hostd_accept(request, end.qp, key, sizeof key, TIMEOUT_MS, NULL), "hostd_accept");

    /* All that was written before the immediate data arrived is in place when it completes. */
    next(&end, &wc);
    if (wc.opcode != HOSTD_WC_RECV_RDMA_WITH_IMM || !(wc.wc_flags & HOSTD_WC_WITH_IMM) || wc.imm_data > COUNTER)
        fail("the message", "not a write with the length as immediate data");
    printf("%" PRIu32 " bytes: %.*s\n", wc.imm_data, (int)wc.imm_data, (char *)end.memory.memory);
    i = check(hostd_wait_disconnected(end.qp, TIMEOUT_MS), "hostd_wait_disconnected");
    memcpy(&counter, (char *)end.memory.memory + COUNTER, sizeof counter);
    printf("counter %" PRIu64 ", %s\n", counter, hostd_reason_str(i));
    check(hostd_destroy_listener(listener), "hostd_destroy_listener");
    close_end(&end);
}

/* Posts one request of one piece. */
static void post(struct end *end, struct hostd_send_wr *wr, uint64_t addr, uint32_t length)
{
    struct hostd_sge sge = {addr, length, end->memory.lkey};

    wr->sg_list = &sge;
    wr->num_sge = 1;
    wr->send_flags |= HOSTD_SEND_SIGNALED;
    check(hostd_post_send(end->qp, wr, 1), "hostd_post_send");
}

/* Reads the text back, and counts at the peer: 0, 40, 42. */
static void read_and_count(struct end *end, uint32_t rkey, const char *text)
{
    struct hostd_send_wr wr = {0};
    struct hostd_wc wc;
    char *memory = end->memory.memory;
    uint32_t length = (uint32_t)strlen(text);
    uint64_t before;

    wr.rkey = rkey;
    wr.opcode = HOSTD_WR_RDMA_READ;
    memset(memory, 0, LEN);
    post(end, &wr, 0, length);
    next(end, &wc);
    if (memcmp(memory, text, length) != 0)
        fail("the read", "not the text that was written");

    wr.remote_addr = COUNTER;
    wr.opcode = HOSTD_WR_ATOMIC_CMP_AND_SWP;
    wr.compare_add = 0;
    wr.swap = 40;
    post(end, &wr, COUNTER, 8);
    next(end, &wc);
    wr.opcode = HOSTD_WR_ATOMIC_FETCH_AND_ADD;
    wr.compare_add = 2;
    post(end, &wr, COUNTER, 8);
    next(end, &wc);
    memcpy(&before, memory + COUNTER, sizeof before);
    if (wc.opcode != HOSTD_WC_FETCH_ADD || before != 40)
        fail("the counter", "not what was swapped in");
    printf("read back, and counted from %" PRIu64 "\n", before);
}

static void write_to(const char *address, uint16_t port, const char *text, int write_only)
{
    struct end end;
    struct hostd_connected connected;
    struct hostd_send_wr wr = {0};
    struct hostd_wc wc;
    uint32_t length = (uint32_t)strlen(text), half = length / 2;
    uint64_t number;
    int i;

    open_end(&end, HOSTD_ACCESS_LOCAL_WRITE);
    check(hostd_connect(end.qp, address, port, NULL, 0, TIMEOUT_MS, &connected), "hostd_connect");
    if (connected.private_len < 4)
        fail("hostd_connect", "the peer sent no key");
    for (i = 0; i < 4; i++)
        wr.rkey |= (uint32_t)connected.private_data[i] << 8 * i;

    /* The first half silently and inline or from the region, the second half with a notice. */
    memcpy(end.memory.memory, text, length);
    wr.wr_id = 1;
    wr.opcode = HOSTD_WR_RDMA_WRITE;
    wr.send_flags = HOSTD_SEND_SIGNALED;
    if (half <= HOSTD_INLINE_MAX)
        check(hostd_post_send_inline(end.qp, &wr, text, half), "hostd_post_send_inline");
    else
        post(&end, &wr, 0, half);
    wr.wr_id = 2;
    wr.opcode = HOSTD_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = length;
    wr.remote_addr = half;
    post(&end, &wr, half, length - half);
    for (number = 1; number <= 2; number++) {
        next(&end, &wc);
        if (wc.wr_id != number)
            fail("the writes", "requests complete in order");
        printf("write %" PRIu64 " of 2 is done\n", number);
    }
    if (!write_only)
        read_and_count(&end, wr.rkey, text);
    check(hostd_disconnect(end.qp, TIMEOUT_MS), "hostd_disconnect");
    close_end(&end);
}

int main(int argc, char **argv)
{
    int write_only = argc > 1 && strcmp(argv[1], "--write-only") == 0;

    argv += write_only;
    argc -= write_only;
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        serve((uint16_t)strtoul(argv[2], NULL, 10));
    } else if (argc == 4 && strlen(argv[3]) > 0 && strlen(argv[3]) <= COUNTER) {
        write_to(argv[1], (uint16_t)strtoul(argv[2], NULL, 10), argv[3], write_only);
    } else {
        fprintf(stderr, "usage: write_with_immediate serve PORT\n"
                        "       write_with_immediate [--write-only] ADDRESS PORT TEXT\n");
        return 2;
    }
    return EXIT_SUCCESS;
}
