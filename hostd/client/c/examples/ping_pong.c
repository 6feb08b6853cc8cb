/*
 * Two processes send one message to and fro: SEND and RECV, the simplest use of a queue pair.
 *
 * With what `make install` has installed:
 *
 *   cc -std=c11 ping_pong.c -o ping_pong $(pkg-config --cflags --libs hostd)
 *
 * In a laboratory (`fabric lab up`), where each host has a hostd:
 *
 *   fabric lab exec h4 ./ping_pong serve 7000 &
 *   fabric lab exec h1 ./ping_pong 10.2.4.2 7000 1000
 *
 * The peer may as well be the example `ping_pong` in Rust: both send the same messages.
 */
#include <hostd.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a message. */
#define LEN 64

/* No call waits longer than this. */
#define TIMEOUT_MS 20000

/* What one side needs: a queue pair, memory to send from and to receive into, and the queue in which
 * hostd says what has been done. */
struct end {
    struct hostd_context *context;
    struct hostd_cq *cq;
    struct hostd_qp *qp;
    struct hostd_mr *mr;
    struct hostd_mr_attr memory;
};

/* Ends the program if a call failed; what it returned if not. */
static int check(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "ping_pong: %s: %s\n", what, hostd_last_error());
        exit(EXIT_FAILURE);
    }
    return result;
}

static void open_end(struct end *end)
{
    struct hostd_qp_init_attr attr = {0};

    check(hostd_open(NULL, 0, &end->context), "hostd_open");
    /* Every request that may be outstanding needs a place for its completion. */
    check(hostd_create_cq(end->context, 8, &end->cq), "hostd_create_cq");
    attr.send_cq = end->cq;
    attr.recv_cq = end->cq;
    attr.max_send_wr = 4;
    attr.max_recv_wr = 4;
    check(hostd_create_qp(end->context, &attr, &end->qp), "hostd_create_qp");
    /* The first half is sent, the second half is received into. LOCAL_WRITE lets hostd place messages
     * there; without REMOTE_WRITE peers cannot address the memory themselves. */
    check(hostd_alloc_mr(end->context, 2 * LEN, HOSTD_ACCESS_LOCAL_WRITE, &end->mr), "hostd_alloc_mr");
    check(hostd_query_mr(end->mr, &end->memory), "hostd_query_mr");
}

static void close_end(struct end *end)
{
    check(hostd_destroy_qp(end->qp), "hostd_destroy_qp");
    check(hostd_destroy_cq(end->cq), "hostd_destroy_cq");
    check(hostd_dereg_mr(end->mr), "hostd_dereg_mr");
    check(hostd_close(end->context), "hostd_close");
}

/* Tells hostd where the next message goes. Receives are posted early: a SEND whose receiver has none has
 * to be repeated. */
static void post_receive(struct end *end)
{
    struct hostd_sge sge = {LEN, LEN, end->memory.lkey};
    struct hostd_recv_wr wr = {0};

    wr.sg_list = &sge;
    wr.num_sge = 1;
    check(hostd_post_recv(end->qp, &wr, 1), "hostd_post_recv");
}

/* The number stands in the first 8 bytes of the message, least significant first. */
static void send_number(struct end *end, uint64_t number)
{
    unsigned char *bytes = end->memory.memory;
    struct hostd_sge sge = {0, LEN, end->memory.lkey};
    struct hostd_send_wr wr = {0};
    int i;

    for (i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
    wr.wr_id = number;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = HOSTD_WR_SEND;
    wr.send_flags = HOSTD_SEND_SIGNALED;
    check(hostd_post_send(end->qp, &wr, 1), "hostd_post_send");
}

/* Waits for a message and tells its number; 0 if the peer has closed the connection. */
static int receive_number(struct end *end, uint64_t *number)
{
    const unsigned char *bytes = (unsigned char *)end->memory.memory + LEN;
    struct hostd_wc wc;
    int i;

    for (;;) {
        while (check(hostd_poll_cq(end->cq, 1, &wc), "hostd_poll_cq") == 0) {
            if (check(hostd_wait_cq(end->cq, TIMEOUT_MS), "hostd_wait_cq") == 0) {
                fprintf(stderr, "ping_pong: no message came\n");
                exit(EXIT_FAILURE);
            }
        }
        /* The connection has ended, and the receive that was posted comes back unused. */
        if (wc.status == HOSTD_WC_WR_FLUSH_ERR)
            return 0;
        if (wc.status != HOSTD_WC_SUCCESS) {
            fprintf(stderr, "ping_pong: a request failed: %s\n", hostd_wc_status_str(wc.status));
            exit(EXIT_FAILURE);
        }
        /* If not, one of our own messages has arrived: its bytes may be overwritten from now on. */
        if (wc.opcode == HOSTD_WC_RECV)
            break;
    }
    *number = 0;
    for (i = 0; i < 8; i++)
        *number |= (uint64_t)bytes[i] << 8 * i;
    return 1;
}

static void serve(uint16_t port)
{
    struct end end;
    struct hostd_listener *listener;
    struct hostd_request *request;
    struct hostd_connected connected;
    uint64_t number;

    open_end(&end);
    check(hostd_listen(end.context, NULL, port, 1, &listener), "hostd_listen");
    printf("listening on port %d\n", check(hostd_listener_port(listener), "hostd_listener_port"));
    fflush(stdout);
    check(hostd_get_request(listener, 3600 * 1000, &request), "hostd_get_request");
    /* Before the connection stands: the peer may send at once. */
    post_receive(&end);
    check(hostd_accept(request, end.qp, NULL, 0, TIMEOUT_MS, &connected), "hostd_accept");
    printf("connected to %s\n", connected.peer);
    while (receive_number(&end, &number)) {
        post_receive(&end);
        send_number(&end, number);
    }
    printf("the peer has closed the connection\n");
    check(hostd_destroy_listener(listener), "hostd_destroy_listener");
    close_end(&end);
}

static void ping(const char *address, uint16_t port, uint64_t rounds)
{
    struct end end;
    struct hostd_connected connected;
    uint64_t number, back;

    open_end(&end);
    check(hostd_connect(end.qp, address, port, NULL, 0, TIMEOUT_MS, &connected), "hostd_connect");
    printf("connected over %" PRIu32 " path(s)\n", connected.paths);
    for (number = 0; number < rounds; number++) {
        post_receive(&end);
        send_number(&end, number);
        if (!receive_number(&end, &back) || back != number) {
            fprintf(stderr, "ping_pong: not the message that was sent\n");
            exit(EXIT_FAILURE);
        }
    }
    printf("%" PRIu64 " rounds of %d bytes\n", rounds, LEN);
    check(hostd_disconnect(end.qp, TIMEOUT_MS), "hostd_disconnect");
    close_end(&end);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        serve((uint16_t)strtoul(argv[2], NULL, 10));
    } else if (argc == 4 && strcmp(argv[1], "serve") != 0) {
        ping(argv[1], (uint16_t)strtoul(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    } else {
        fprintf(stderr, "usage: ping_pong serve PORT | ping_pong ADDRESS PORT ROUNDS\n");
        return 2;
    }
    return EXIT_SUCCESS;
}
