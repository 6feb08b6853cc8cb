/* Mistakes of a program with a running hostd. */
#include <hostd.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMEOUT_MS 20000

/* `call` is `wanted`, and what failed says why. */
#define IS(wanted, call)                                                                               \
    do {                                                                                               \
        int got = (call);                                                                              \
        if (got != (wanted) || (got < 0 && hostd_last_error()[0] == '\0')) {                           \
            printf("line %d: %s is %d and not %d: %s\n", __LINE__, #call, got, (int)(wanted),          \
                   hostd_last_error());                                                                \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)

#define REFUSED(reason) (HOSTD_ERR_REFUSED - (reason))

static struct hostd_context *context;
static struct hostd_cq *cq;

static struct hostd_qp *new_qp(struct hostd_srq *srq)
{
    struct hostd_qp_init_attr attr = {0};
    struct hostd_qp *qp;

    attr.send_cq = cq;
    attr.recv_cq = cq;
    attr.srq = srq;
    attr.max_send_wr = 4;
    attr.max_recv_wr = 4;
    IS(0, hostd_create_qp(context, &attr, &qp));
    return qp;
}

static void memory(void)
{
    struct hostd_mr *mr, *other;
    struct hostd_mr_attr attr;
    struct hostd_sge sge;
    struct hostd_limits limits;

    IS(REFUSED(HOSTD_REASON_INVALID_ARGUMENT), hostd_alloc_mr(context, 0, 0, &mr));
    IS(REFUSED(HOSTD_REASON_INVALID_ARGUMENT), hostd_alloc_mr(context, 1, HOSTD_ACCESS_REMOTE_WRITE, &mr));
    IS(0, hostd_query_limits(context, &limits));
    IS(REFUSED(HOSTD_REASON_QUOTA), hostd_alloc_mr(context, (size_t)limits.memory + 1, 0, &mr));
    IS(0, hostd_alloc_mr(context, 4096, HOSTD_ACCESS_LOCAL_WRITE, &mr));
    IS(0, hostd_query_mr(mr, &attr));
    memset(attr.memory, 0xaa, attr.length);
    IS(0, hostd_mr_sge(mr, 4096, 0, &sge));
    IS(HOSTD_ERR_OUT_OF_RANGE, hostd_mr_sge(mr, 4096, 1, &sge));
    IS(HOSTD_ERR_OUT_OF_RANGE, hostd_mr_sge(mr, UINT64_MAX, 2, &sge));
    /* Of another kind, given back, and given back with its place in use again. */
    IS(HOSTD_ERR_HANDLE, hostd_destroy_cq((struct hostd_cq *)(void *)mr));
    IS(0, hostd_dereg_mr(mr));
    IS(HOSTD_ERR_HANDLE, hostd_dereg_mr(mr));
    IS(0, hostd_alloc_mr(context, 4096, 0, &other));
    IS(HOSTD_ERR_HANDLE, hostd_query_mr(mr, &attr));
    IS(0, hostd_dereg_mr(other));
}

/* Requests that cannot be, before and after a connection was asked for. */
static void requests(const char *address)
{
    struct hostd_qp *qp = new_qp(NULL);
    struct hostd_sge sges[HOSTD_SGE_MAX + 1];
    struct hostd_send_wr wr = {0};
    struct hostd_recv_wr receives[3];
    struct hostd_connected connected;
    static const char data[HOSTD_INLINE_MAX + 1] = {0};
    int posted = 0, result;

    memset(sges, 0, sizeof sges);
    memset(receives, 0, sizeof receives);
    wr.opcode = HOSTD_WR_SEND;
    IS(REFUSED(HOSTD_REASON_INVALID_STATE), hostd_post_send(qp, &wr, 1));
    IS(0, hostd_post_send(qp, NULL, 0));
    wr.opcode = 7;
    IS(HOSTD_ERR_ARGUMENT, hostd_post_send(qp, &wr, 1));
    wr.opcode = HOSTD_WR_SEND;
    wr.send_flags = 8;
    IS(HOSTD_ERR_ARGUMENT, hostd_post_send(qp, &wr, 1));
    wr.send_flags = 0;
    IS(HOSTD_ERR_CONNECT - HOSTD_REASON_REFUSED,
       hostd_connect(qp, address, 1, NULL, 0, TIMEOUT_MS, &connected));
    wr.num_sge = 1;
    IS(HOSTD_ERR_ARGUMENT, hostd_post_send(qp, &wr, 1));
    wr.sg_list = sges;
    wr.num_sge = HOSTD_SGE_MAX + 1;
    IS(HOSTD_ERR_TOO_MANY_PIECES, hostd_post_send(qp, &wr, 1));
    IS(HOSTD_ERR_NOT_INLINE, hostd_post_send_inline(qp, &wr, data, sizeof data));
    wr.num_sge = 1;
    wr.opcode = HOSTD_WR_ATOMIC_FETCH_AND_ADD;
    IS(HOSTD_ERR_ATOMIC_LENGTH, hostd_post_send(qp, &wr, 1));
    IS(HOSTD_ERR_NOT_INLINE, hostd_post_send_inline(qp, &wr, data, 8));
    IS(0, hostd_destroy_qp(qp));

    qp = new_qp(NULL);
    /* Of three receives the second one is wrong: one is posted, and then that is said. */
    receives[1].num_sge = 1;
    IS(1, hostd_post_recv(qp, receives, 3));
    IS(HOSTD_ERR_ARGUMENT, hostd_post_recv(qp, receives + 1, 2));
    receives[1].num_sge = 0;
    while ((result = hostd_post_recv(qp, receives, 3)) > 0 && posted < 1000)
        posted += result;
    IS(HOSTD_ERR_QUEUE_FULL, result);
    IS(0, hostd_destroy_qp(qp));
    IS(HOSTD_ERR_HANDLE, hostd_post_recv(qp, receives, 1));
}

static void shared(void)
{
    struct hostd_srq *srq;
    struct hostd_qp *qp;
    struct hostd_recv_wr receive = {0};

    IS(REFUSED(HOSTD_REASON_INVALID_ARGUMENT), hostd_create_srq(context, 4, 100, &srq));
    IS(0, hostd_create_srq(context, 8, 0, &srq));
    qp = new_qp(srq);
    IS(HOSTD_ERR_SHARED_RECEIVES, hostd_post_recv(qp, &receive, 1));
    IS(1, hostd_post_srq_recv(srq, &receive, 1));
    IS(0, hostd_wait_srq_limit(srq, 10));
    IS(0, hostd_set_srq_limit(srq, 8));
    IS(1, hostd_wait_srq_limit(srq, TIMEOUT_MS));
    /* The queue pair goes on with it. */
    IS(0, hostd_destroy_srq(srq));
    IS(HOSTD_ERR_HANDLE, hostd_post_srq_recv(srq, &receive, 1));
    IS(0, hostd_destroy_qp(qp));
}

static void *wait_a_second(void *unused)
{
    int result;

    (void)unused;
    /* The other thread may be in a call just now. */
    do {
        result = hostd_wait_cq(cq, 1000);
    } while (result == HOSTD_ERR_BUSY);
    IS(0, result);
    return NULL;
}

/* While one thread waits another one is told so. */
static void threads(void)
{
    pthread_t thread;
    struct hostd_wc wc;
    time_t begun = time(NULL);

    if (pthread_create(&thread, NULL, wait_a_second, NULL) != 0)
        exit(1);
    while (hostd_cq_fd(cq) != HOSTD_ERR_BUSY) {
        if (time(NULL) > begun + 10) {
            printf("the wait of another thread is not seen\n");
            exit(1);
        }
    }
    IS(HOSTD_ERR_BUSY, hostd_poll_cq(cq, 1, &wc));
    IS(HOSTD_ERR_BUSY, hostd_req_notify_cq(cq, 0));
    pthread_join(thread, NULL);
    IS(0, hostd_poll_cq(cq, 1, &wc));
}

static struct hostd_listener *listener;

static void *reject_once(void *unused)
{
    struct hostd_request *request;
    struct hostd_request_attr attr;
    struct hostd_qp *qp = new_qp(NULL);

    (void)unused;
    IS(0, hostd_get_request(listener, TIMEOUT_MS, &request));
    IS(0, hostd_query_request(request, &attr));
    if (memcmp(attr.private_data, "question", 8) != 0)
        exit(1);
    IS(HOSTD_ERR_ARGUMENT, hostd_accept(request, qp, NULL, 1, 0, NULL));
    IS(HOSTD_ERR_HANDLE, hostd_accept(request, NULL, NULL, 0, 0, NULL));
    /* It is still there. */
    IS(0, hostd_reject(request, "answer", 6));
    IS(HOSTD_ERR_HANDLE, hostd_reject(request, NULL, 0));
    IS(HOSTD_ERR_HANDLE, hostd_query_request(request, &attr));
    IS(0, hostd_destroy_qp(qp));
    return NULL;
}

static void connections(void)
{
    struct hostd_gid gids[4];
    struct hostd_connected connected;
    struct hostd_qp *qp = new_qp(NULL);
    struct hostd_request *request;
    pthread_t thread;
    int port;

    if (hostd_query_gids(context, gids, 4) < 1 || hostd_query_gids(context, NULL, 0) < 1)
        exit(1);
    IS(0, hostd_listen(context, gids[0].address, 0, 4, &listener));
    port = hostd_listener_port(listener);
    IS(HOSTD_ERR_TIMED_OUT, hostd_get_request(listener, 20, &request));
    IS(HOSTD_ERR_TIMED_OUT, hostd_connect(qp, gids[0].address, (uint16_t)port, NULL, 0, 50, NULL));
    /* The request that this one was. */
    IS(0, hostd_get_request(listener, TIMEOUT_MS, &request));
    IS(0, hostd_reject(request, NULL, 0));
    IS(0, hostd_destroy_qp(qp));

    qp = new_qp(NULL);
    if (pthread_create(&thread, NULL, reject_once, NULL) != 0)
        exit(1);
    IS(HOSTD_ERR_CONNECT - HOSTD_REASON_REJECTED,
       hostd_connect(qp, gids[0].address, (uint16_t)port, "question", 8, TIMEOUT_MS, &connected));
    if (memcmp(connected.private_data, "answer", 6) != 0 || connected.rej == 0)
        exit(1);
    pthread_join(thread, NULL);
    IS(0, hostd_destroy_qp(qp));
    IS(0, hostd_destroy_listener(listener));
    IS(HOSTD_ERR_HANDLE, hostd_get_request(listener, 0, &request));
}

static void count_calls(void *argument)
{
    ++*(int *)argument;
}

/* What cannot be does a group no harm. */
static void groups(void)
{
    struct hostd_group_attr attr = {0};
    struct hostd_group *group;
    struct hostd_listener *listener;
    struct hostd_context *other;
    uint64_t numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int calls = 0;

    IS(HOSTD_ERR_ARGUMENT, hostd_group_create(context, &attr, &group));
    attr.size = HOSTD_GROUP_MAX + 1;
    IS(HOSTD_ERR_ARGUMENT, hostd_group_create(context, &attr, &group));
    attr.size = 2;
    attr.flags = 4;
    IS(HOSTD_ERR_ARGUMENT, hostd_group_create(context, &attr, &group));
    attr.flags = 0;
    attr.segment = 1001;
    IS(HOSTD_ERR_ARGUMENT, hostd_group_create(context, &attr, &group));
    attr.segment = 0;
    attr.rank = 1;
    IS(HOSTD_ERR_ARGUMENT, hostd_group_create(context, &attr, &group));
    attr.rank = 0;
    /* Nobody joins: the listener is used up. */
    IS(0, hostd_listen(context, NULL, 0, 4, &listener));
    attr.listener = listener;
    attr.join_timeout_ms = 50;
    IS(HOSTD_ERR_GROUP - HOSTD_CAUSE_MISSING, hostd_group_create(context, &attr, &group));
    if (hostd_last_rank() != 1 || hostd_error_reason(HOSTD_ERR_GROUP - HOSTD_CAUSE_MISSING) != HOSTD_CAUSE_MISSING)
        exit(1);
    IS(HOSTD_ERR_HANDLE, hostd_listener_port(listener));
    IS(HOSTD_ERR_HANDLE, hostd_group_create(context, &attr, &group));
    IS(0, hostd_open(NULL, TIMEOUT_MS, &other));
    IS(0, hostd_listen(other, NULL, 0, 4, &attr.listener));
    IS(HOSTD_ERR_ARGUMENT, hostd_group_create(context, &attr, &group));
    IS(0, hostd_close(other));

    attr.size = 1;
    attr.listener = NULL;
    IS(0, hostd_group_create(context, &attr, &group));
    IS(HOSTD_ERR_ARGUMENT, hostd_group_allreduce(group, numbers, numbers + 1, 4, HOSTD_TYPE_U64, HOSTD_OP_SUM));
    IS(HOSTD_ERR_ARGUMENT, hostd_group_allreduce(group, numbers, NULL, 4, HOSTD_TYPE_U64, HOSTD_OP_SUM));
    IS(HOSTD_ERR_ARGUMENT, hostd_group_allreduce(group, NULL, numbers, 4, HOSTD_TYPE_F64, HOSTD_OP_XOR));
    IS(HOSTD_ERR_ARGUMENT, hostd_group_reduce(group, NULL, numbers, 4, HOSTD_TYPE_U64, HOSTD_OP_SUM, 1));
    IS(HOSTD_ERR_ARGUMENT, hostd_group_broadcast(group, numbers, 8, 1));
    IS(HOSTD_ERR_ARGUMENT, hostd_group_broadcast(group, NULL, 8, 0));
    IS(HOSTD_ERR_ARGUMENT, hostd_group_allgather(group, NULL, numbers, UINT64_MAX));
    if (numbers[0] != 1 || numbers[4] != 5)
        exit(1);
    IS(0, hostd_group_set_idle(group, count_calls, &calls));
    IS(0, hostd_group_allreduce(group, numbers, numbers + 4, 4, HOSTD_TYPE_U64, HOSTD_OP_SUM));
    if (numbers[0] != 1 || numbers[4] != 1 || numbers[7] != 4)
        exit(1);
    IS(0, hostd_group_allreduce(group, NULL, NULL, 0, HOSTD_TYPE_U64, HOSTD_OP_SUM));
    IS(0, hostd_group_barrier(group));
    IS(0, hostd_group_destroy(group));
    IS(HOSTD_ERR_HANDLE, hostd_group_barrier(group));
}

/* Waits until hostd is killed: every call says so then, and all can be given back. */
static int outlive(void)
{
    struct hostd_mr *mr;
    struct hostd_cq *other;

    IS(0, hostd_open(NULL, TIMEOUT_MS, &context));
    IS(0, hostd_create_cq(context, 32, &cq));
    IS(0, hostd_alloc_mr(context, 4096, 0, &mr));
    printf("waiting\n");
    fflush(stdout);
    IS(HOSTD_ERR_DAEMON_GONE, hostd_wait_cq(cq, -1));
    IS(HOSTD_ERR_DAEMON_GONE, hostd_create_cq(context, 32, &other));
    IS(HOSTD_ERR_DAEMON_GONE, hostd_query_gids(context, NULL, 0));
    IS(0, hostd_dereg_mr(mr));
    IS(0, hostd_destroy_cq(cq));
    IS(0, hostd_close(context));
    printf("all answered\n");
    return 0;
}

int main(int argc, char **argv)
{
    struct hostd_qp *qp;
    struct hostd_wc wc;

    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "outlive") == 0)
        return outlive();
    IS(0, hostd_open(NULL, TIMEOUT_MS, &context));
    IS(0, hostd_create_cq(context, 32, &cq));
    memory();
    requests(argv[1]);
    shared();
    connections();
    threads();
    groups();
    /* What others need is given back first, and they go on. */
    qp = new_qp(NULL);
    IS(0, hostd_close(context));
    IS(HOSTD_ERR_HANDLE, hostd_close(context));
    IS(0, hostd_poll_cq(cq, 1, &wc));
    IS(0, hostd_destroy_cq(cq));
    IS(0, hostd_set_service(qp, HOSTD_SERVICE_UNORDERED));
    IS(0, hostd_set_congestion(qp, HOSTD_CONGESTION_SWIFT));
    IS(REFUSED(HOSTD_REASON_INVALID_ARGUMENT), hostd_set_congestion(qp, HOSTD_CONGESTION_HPCC));
    IS(0, hostd_destroy_qp(qp));
    printf("all answered\n");
    return 0;
}
