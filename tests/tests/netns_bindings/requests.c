/* Collectives that are begun and gone on with: requests RANK SIZE ADDRESS PORT. */

#define _POSIX_C_SOURCE 200809L

#include <hostd.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Elements of a vector of two pieces. */
enum { LONG = 1200000 };

static uint32_t rank, size;
static struct hostd_group *group;

static int check(int result, const char *what)
{
    if (result >= 0)
        return result;
    fprintf(stderr, "%u: %s: %s\n", rank, what, hostd_last_error());
    exit(1);
}

static void expect(int right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "%u: %s: not as it should be\n", rank, what);
    exit(1);
}

static void rest(long milliseconds)
{
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};

    nanosleep(&time, NULL);
}

/* Polls until what was begun is over. */
static void poll_to_the_end(const char *what)
{
    while (check(hostd_group_poll(group), what) == 0)
        continue;
}

static void reductions(double *own, double *result, int in_region)
{
    const char *what = in_region ? "in a region" : "elsewhere";
    uint32_t last = size - 1;
    double sum = (double)size * (size + 1) / 2;

    for (int at = 0; at < LONG; at++)
        own[at] = rank + 1.0;
    check(hostd_group_start_allreduce(group, own, result, LONG, HOSTD_TYPE_F64, HOSTD_OP_SUM), what);
    expect(hostd_group_barrier(group) == HOSTD_ERR_BUSY, "a call meanwhile");
    expect(hostd_group_start_barrier(group) == HOSTD_ERR_BUSY, "another one meanwhile");
    expect(strstr(hostd_last_error(), "under way") != NULL, "its text");
    poll_to_the_end(what);
    for (int at = 0; at < LONG; at++)
        expect(result[at] == sum, what);
    memset(result, 0, LONG * sizeof *result);
    check(hostd_group_start_reduce(group, own, rank == last ? result : NULL, LONG, HOSTD_TYPE_F64, HOSTD_OP_MAX, last),
          what);
    check(hostd_group_wait(group, -1), what);
    expect(result[0] == (rank == last ? size : 0) && own[LONG - 1] == rank + 1.0, what);
    check(hostd_group_start_broadcast(group, own, LONG * sizeof *own, 1), what);
    check(hostd_group_wait(group, -1), what);
    expect(own[0] == 2 && own[LONG - 1] == 2, what);
}

static void late_member(void)
{
    uint32_t *blocks = calloc(size, sizeof *blocks);
    int result;

    expect(blocks != NULL, "memory");
    if (rank == size - 1)
        rest(500);
    check(hostd_group_start_allgather(group, &rank, blocks, sizeof rank), "allgather");
    result = hostd_group_wait(group, 0);
    expect(rank == size - 1 || result == HOSTD_ERR_TIMED_OUT, "a wait that is too short");
    expect(rank == size - 1 || hostd_group_poll(group) == 0, "it goes on");
    check(hostd_group_wait(group, -1), "allgather");
    for (uint32_t at = 0; at < size; at++)
        expect(blocks[at] == at, "allgather");
    free(blocks);
    check(hostd_group_start_barrier(group), "barrier");
    check(hostd_group_wait(group, 60000), "barrier");
    expect(hostd_group_poll(group) == 1 && hostd_group_wait(group, 0) == 0, "nothing is under way");
    check(hostd_group_barrier(group), "a call after it");
}

/* The last member gives up what is under way: the others learn who did. */
static void given_up(void)
{
    int expected = HOSTD_ERR_GROUP - HOSTD_CAUSE_ABANDONED;

    /* Not before the others have done what was before. */
    if (rank == size - 1)
        rest(2000);
    check(hostd_group_start_barrier(group), "the last one");
    if (rank == size - 1) {
        check(hostd_group_destroy(group), "the end");
        return;
    }
    expect(hostd_group_wait(group, -1) == expected, hostd_last_error());
    expect(hostd_last_rank() == (int)size - 1, "whose doing it is");
    expect(hostd_group_poll(group) == expected, "the same again");
    expect(hostd_group_start_barrier(group) == expected, "and again");
    check(hostd_group_destroy(group), "the end");
}

int main(int argc, char **argv)
{
    struct hostd_context *context;
    struct hostd_group_attr attr;
    struct hostd_mr *mr;
    struct hostd_mr_attr memory;
    double *own = malloc(LONG * sizeof *own), *result = malloc(LONG * sizeof *result);

    if (argc < 5 || own == NULL || result == NULL)
        return 2;
    memset(&attr, 0, sizeof attr);
    rank = attr.rank = (uint32_t)strtoul(argv[1], NULL, 10);
    size = attr.size = (uint32_t)strtoul(argv[2], NULL, 10);
    attr.address = argv[3];
    attr.port = (uint16_t)strtoul(argv[4], NULL, 10);
    check(hostd_open(NULL, 5000, &context), "open");
    check(hostd_group_create(context, &attr, &group), "group");
    expect(hostd_group_poll(group) == 1, "nothing is under way at first");
    reductions(own, result, 0);
    check(hostd_alloc_mr(context, 2 * LONG * sizeof *own, HOSTD_ACCESS_LOCAL_WRITE, &mr), "memory");
    check(hostd_query_mr(mr, &memory), "memory");
    reductions(memory.memory, (double *)memory.memory + LONG, 1);
    late_member();
    given_up();
    free(own);
    free(result);
    printf("rank %u: all as it should be\n", rank);
    return hostd_close(context) == 0 ? 0 : 1;
}
