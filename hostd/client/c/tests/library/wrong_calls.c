/* Calls everything in wrong ways, where no hostd runs. */
#include <hostd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `call` fails with `error`, and says why. */
#define FAILS(error, call)                                                                             \
    do {                                                                                               \
        int got = (call);                                                                              \
        if (got != (error) || hostd_last_error()[0] == '\0' || hostd_strerror(got)[0] == '\0') {       \
            printf("line %d: %s is %d and not %d: %s\n", __LINE__, #call, got, (int)(error),           \
                   hostd_last_error());                                                                \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)

#define SAYS(words)                                                                                    \
    do {                                                                                               \
        if (strstr(hostd_last_error(), (words)) == NULL) {                                             \
            printf("line %d: '%s'\n", __LINE__, hostd_last_error());                                   \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)

/* A handle of the kind `type` that never was one. */
#define WRONG(type, number) ((struct type *)(uintptr_t)(number))

static void null_outputs(void)
{
    struct hostd_context *none = NULL;

    FAILS(HOSTD_ERR_ARGUMENT, hostd_open("/nowhere", 0, NULL));
    SAYS("context is NULL");
    FAILS(HOSTD_ERR_ARGUMENT, hostd_query_limits(none, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_query_gids(none, NULL, 1));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_alloc_mr(none, 1, 0, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_query_mr(NULL, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_mr_sge(NULL, 0, 0, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_create_cq(none, 1, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_create_srq(none, 1, 0, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_create_qp(none, NULL, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_query_qp(NULL, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_post_send(NULL, NULL, 1));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_post_send_inline(NULL, NULL, "x", 1));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_set_conn_options(NULL, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_default_conn_options(NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_bind_qp(NULL, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_describe_traffic(NULL, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_change_paths(NULL, NULL, 0));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_connect(NULL, NULL, 1, NULL, 0, 0, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_listen(none, NULL, 1, 1, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_get_request(NULL, 0, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_query_request(NULL, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_group_create(none, NULL, NULL));
}

/* Handles that were never given: none, small numbers, those of other kinds, addresses of memory. */
static void wrong_handles(void *number)
{
    char memory[64] = {0};
    struct hostd_wc wc;
    struct hostd_limits limits;
    struct hostd_mr_attr mr_attr;
    struct hostd_sge sge = {0, 0, 0};
    struct hostd_qp_attr qp_attr;
    struct hostd_qp_init_attr init;
    struct hostd_request_attr request_attr;
    struct hostd_send_wr send;
    struct hostd_recv_wr receive;
    struct hostd_traffic traffic = {0, 0, 0};
    struct hostd_path_change change;
    struct hostd_conn_options options;
    struct hostd_group_attr group_attr;
    struct hostd_group *group = (struct hostd_group *)number;
    struct hostd_context *context = (struct hostd_context *)number;
    struct hostd_mr *mr = (struct hostd_mr *)number;
    struct hostd_cq *cq = (struct hostd_cq *)number;
    struct hostd_qp *qp = (struct hostd_qp *)number;
    struct hostd_srq *srq = (struct hostd_srq *)number;
    struct hostd_listener *listener = (struct hostd_listener *)number;
    struct hostd_request *request = (struct hostd_request *)number;

    memset(&init, 0, sizeof init);
    memset(&send, 0, sizeof send);
    memset(&receive, 0, sizeof receive);
    memset(&change, 0, sizeof change);
    memset(&group_attr, 0, sizeof group_attr);
    FAILS(HOSTD_ERR_HANDLE, hostd_close(context));
    SAYS("struct hostd_context");
    FAILS(HOSTD_ERR_HANDLE, hostd_query_limits(context, &limits));
    FAILS(HOSTD_ERR_HANDLE, hostd_query_gids(context, NULL, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_alloc_mr(context, 1, HOSTD_ACCESS_LOCAL_WRITE, &mr));
    FAILS(HOSTD_ERR_HANDLE, hostd_query_mr(mr, &mr_attr));
    FAILS(HOSTD_ERR_HANDLE, hostd_mr_sge(mr, 0, 1, &sge));
    FAILS(HOSTD_ERR_HANDLE, hostd_dereg_mr(mr));
    FAILS(HOSTD_ERR_HANDLE, hostd_create_cq(context, 1, &cq));
    FAILS(HOSTD_ERR_HANDLE, hostd_destroy_cq(cq));
    FAILS(HOSTD_ERR_HANDLE, hostd_poll_cq(cq, 1, &wc));
    FAILS(HOSTD_ERR_HANDLE, hostd_wait_cq(cq, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_req_notify_cq(cq, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_cq_fd(cq));
    FAILS(HOSTD_ERR_HANDLE, hostd_create_srq(context, 1, 0, &srq));
    FAILS(HOSTD_ERR_HANDLE, hostd_destroy_srq(srq));
    FAILS(HOSTD_ERR_HANDLE, hostd_post_srq_recv(srq, &receive, 1));
    FAILS(HOSTD_ERR_HANDLE, hostd_set_srq_limit(srq, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_wait_srq_limit(srq, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_create_qp(context, &init, &qp));
    FAILS(HOSTD_ERR_HANDLE, hostd_destroy_qp(qp));
    FAILS(HOSTD_ERR_HANDLE, hostd_query_qp(qp, &qp_attr));
    FAILS(HOSTD_ERR_HANDLE, hostd_post_send(qp, &send, 1));
    FAILS(HOSTD_ERR_HANDLE, hostd_post_send_inline(qp, &send, memory, 1));
    FAILS(HOSTD_ERR_HANDLE, hostd_post_recv(qp, &receive, 1));
    FAILS(HOSTD_ERR_HANDLE, hostd_bind_qp(qp, "10.0.0.1"));
    FAILS(HOSTD_ERR_HANDLE, hostd_set_service(qp, HOSTD_SERVICE_UNORDERED));
    FAILS(HOSTD_ERR_HANDLE, hostd_set_congestion(qp, HOSTD_CONGESTION_SWIFT));
    FAILS(HOSTD_ERR_HANDLE, hostd_describe_traffic(qp, &traffic));
    FAILS(HOSTD_ERR_HANDLE, hostd_change_paths(qp, &change, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_connect(qp, "10.0.0.1", 1, NULL, 0, 0, NULL));
    FAILS(HOSTD_ERR_HANDLE, hostd_disconnect(qp, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_wait_disconnected(qp, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_listen(context, NULL, 1, 1, &listener));
    FAILS(HOSTD_ERR_HANDLE, hostd_listener_port(listener));
    FAILS(HOSTD_ERR_HANDLE, hostd_destroy_listener(listener));
    FAILS(HOSTD_ERR_HANDLE, hostd_get_request(listener, 0, &request));
    FAILS(HOSTD_ERR_HANDLE, hostd_query_request(request, &request_attr));
    FAILS(HOSTD_ERR_HANDLE, hostd_accept(request, qp, NULL, 0, 0, NULL));
    FAILS(HOSTD_ERR_HANDLE, hostd_reject(request, NULL, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_create(context, &group_attr, &group));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_destroy(group));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_allreduce(group, NULL, memory, 8, HOSTD_TYPE_F32, HOSTD_OP_SUM));
    SAYS("struct hostd_group");
    FAILS(HOSTD_ERR_HANDLE, hostd_group_reduce(group, NULL, memory, 8, HOSTD_TYPE_F32, HOSTD_OP_SUM, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_broadcast(group, memory, 8, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_allgather(group, NULL, memory, 8));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_barrier(group));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_set_idle(group, NULL, NULL));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_uses_switches(group));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_last_was_switched(group));
    if (hostd_group_fallback(group) != NULL)
        exit(1);
    FAILS(HOSTD_ERR_HANDLE, hostd_group_start_allreduce(group, NULL, memory, 8, HOSTD_TYPE_F32, HOSTD_OP_SUM));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_start_reduce(group, NULL, memory, 8, HOSTD_TYPE_F32, HOSTD_OP_SUM, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_start_broadcast(group, memory, 8, 0));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_start_allgather(group, NULL, memory, 8));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_start_barrier(group));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_poll(group));
    FAILS(HOSTD_ERR_HANDLE, hostd_group_wait(group, 0));
    if (hostd_default_conn_options(&options) != 0 || options.retry_count != 7)
        exit(1);
    FAILS(HOSTD_ERR_HANDLE, hostd_set_conn_options(qp, &options));
}

/* Values that cannot be are found before the handle is looked at. */
static void wrong_values(void)
{
    struct hostd_mr *mr;
    struct hostd_traffic traffic = {0, 9, 0};
    struct hostd_path_change change;
    struct hostd_context *context;
    static const char data[64] = {0};
    union {
        char bytes[64];
        struct hostd_wc wc;
    } room;

    FAILS(HOSTD_ERR_ARGUMENT, hostd_alloc_mr(NULL, 1, 1 << 30, &mr));
    SAYS("access");
    FAILS(HOSTD_ERR_ARGUMENT, hostd_set_service(NULL, 3));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_set_congestion(NULL, 11));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_describe_traffic(NULL, &traffic));
    traffic.pattern = 0;
    traffic.priority = 256;
    FAILS(HOSTD_ERR_ARGUMENT, hostd_describe_traffic(NULL, &traffic));
    memset(&change, 0, sizeof change);
    change.mask = 16;
    FAILS(HOSTD_ERR_ARGUMENT, hostd_change_paths(NULL, &change, 0));
    change.mask = HOSTD_PATHS_GRANULARITY;
    FAILS(HOSTD_ERR_ARGUMENT, hostd_change_paths(NULL, &change, 0));
    SAYS("granularity: 0 is none of 1 to 3");
    change.granularity = 4;
    FAILS(HOSTD_ERR_ARGUMENT, hostd_change_paths(NULL, &change, 0));
    SAYS("granularity: 4 is none of 1 to 3");
    change.granularity = 257;
    FAILS(HOSTD_ERR_ARGUMENT, hostd_change_paths(NULL, &change, 0));
    SAYS("granularity: 257 is none of 1 to 3");
    change.mask = 0;
    change.weight_count = HOSTD_WEIGHTS_MAX + 1;
    FAILS(HOSTD_ERR_ARGUMENT, hostd_change_paths(NULL, &change, 0));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_bind_qp(NULL, "10.0.0"));
    SAYS("'10.0.0' is no IP address");
    FAILS(HOSTD_ERR_ARGUMENT, hostd_connect(NULL, "10.0.0.1", 1, data, 33, 0, NULL));
    SAYS("HOSTD_PRIVATE_MAX");
    FAILS(HOSTD_ERR_ARGUMENT, hostd_connect(NULL, "10.0.0.1", 1, NULL, 1, 0, NULL));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_reject(NULL, data, 64));
    FAILS(HOSTD_ERR_ARGUMENT, hostd_group_allreduce(NULL, NULL, room.bytes, 8, 0, HOSTD_OP_SUM));
    SAYS("type: 0 is none");
    FAILS(HOSTD_ERR_ARGUMENT, hostd_group_allreduce(NULL, NULL, room.bytes, 8, HOSTD_TYPE_F64, 1000));
    SAYS("op: 1000 is none");
    FAILS(HOSTD_ERR_ARGUMENT, hostd_group_start_allreduce(NULL, NULL, room.bytes, 8, HOSTD_TYPE_F64, 1000));
    SAYS("op: 1000 is none");
    FAILS(HOSTD_ERR_ARGUMENT,
          hostd_group_allreduce(NULL, NULL, room.bytes, UINT64_MAX / 8, HOSTD_TYPE_F64, HOSTD_OP_SUM));
    SAYS("too many");
    FAILS(HOSTD_ERR_ARGUMENT, hostd_query_limits(NULL, (struct hostd_limits *)(void *)(room.bytes + 1)));
    SAYS("not aligned");
    FAILS(HOSTD_ERR_NO_DAEMON, hostd_open("/nowhere/hostd.sock", 0, &context));
    SAYS("/nowhere/hostd.sock: the socket does not exist");
    FAILS(HOSTD_ERR_NO_DAEMON, hostd_open("/nowhere/hostd.sock", 60, &context));
    FAILS(HOSTD_ERR_NO_DAEMON, hostd_open("", 0, &context));
    SAYS("cannot reach hostd: the path of its socket is empty");
}

static void texts(void)
{
    if (strcmp(hostd_strerror(-999), "unknown error") != 0 || strcmp(hostd_reason_str(-1), "unknown reason") != 0 ||
        strcmp(hostd_wc_status_str(3), "unknown status") != 0 || strcmp(hostd_strerror(0), "success") != 0)
        exit(1);
    if (hostd_error_class(HOSTD_ERR_REFUSED - HOSTD_REASON_QUOTA) != HOSTD_ERR_REFUSED ||
        hostd_error_reason(HOSTD_ERR_CONNECT - HOSTD_REASON_REJECTED) != HOSTD_REASON_REJECTED ||
        hostd_error_reason(HOSTD_ERR_BUSY) != -1 || hostd_last_rank() != -1 ||
        strcmp(hostd_cause_str(HOSTD_CAUSE_LATE), hostd_strerror(HOSTD_ERR_GROUP)) == 0 ||
        strcmp(hostd_cause_str(13), "unknown cause") != 0 || hostd_error_class(0) != 0)
        exit(1);
    if (strspn(hostd_version(), "0123456789.") != strlen(hostd_version()))
        exit(1);
}

int main(void)
{
    int variable = 0;

    if (hostd_last_error()[0] != '\0')
        return 1;
    null_outputs();
    wrong_handles(NULL);
    wrong_handles((void *)1);
    wrong_handles((void *)UINTPTR_MAX);
    wrong_handles(&variable);
    wrong_values();
    texts();
    printf("all answered\n");
    return 0;
}
