/*
 * The members of a group add vectors, and go on when all have.
 *
 *   collectives RANK SIZE ADDRESS PORT [COUNT]
 *
 * ADDRESS is the one of rank 0's host, where it waits at PORT. Each rank gives the numbers RANK + 1,
 * RANK + 2, …; what each gets is checked.
 */
#include <hostd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int result, const char *what)
{
    if (result >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, hostd_last_error());
    if (hostd_error_class(result) == HOSTD_ERR_GROUP)
        fprintf(stderr, "rank %d: %s\n", hostd_last_rank(), hostd_cause_str(hostd_error_reason(result)));
    exit(1);
}

static void expect(int right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "%s: a wrong result\n", what);
    exit(1);
}

/* Of all ranks together, at place `at`. */
static double sum(uint32_t size, uint64_t at)
{
    return (double)size * (double)(size + 1) / 2 + (double)size * (double)at;
}

static void fill(double *numbers, uint64_t count, uint32_t rank)
{
    for (uint64_t at = 0; at < count; at++)
        numbers[at] = (double)(rank + 1 + at);
}

static int all_are_sums(const double *numbers, uint64_t count, uint32_t size)
{
    for (uint64_t at = 0; at < count; at++)
        if (numbers[at] != sum(size, at))
            return 0;
    return 1;
}

static void carry_out(struct hostd_group *group, double *own, double *result, uint64_t count,
                      const struct hostd_group_attr *member)
{
    uint32_t rank = member->rank, size = member->size, last = size - 1;

    fill(own, count, rank);
    check(hostd_group_allreduce(group, own, result, count, HOSTD_TYPE_F64, HOSTD_OP_SUM), "allreduce");
    expect(all_are_sums(result, count, size), "allreduce");
    expect(own[0] == rank + 1, "allreduce: what it was given");

    fill(result, count, rank);
    check(hostd_group_allreduce(group, NULL, result, count, HOSTD_TYPE_F64, HOSTD_OP_SUM), "in place");
    expect(all_are_sums(result, count, size), "in place");

    memset(result, 0, count * sizeof *result);
    check(hostd_group_reduce(group, own, rank == last ? result : NULL, count, HOSTD_TYPE_F64, HOSTD_OP_MAX, last),
          "reduce");
    for (uint64_t at = 0; at < count; at++)
        expect(result[at] == (rank == last ? (double)(size + at) : 0), "reduce");
    expect(own[0] == rank + 1 && own[count - 1] == (double)(rank + count), "reduce: what it was given");

    fill(result, count, rank);
    check(hostd_group_broadcast(group, result, count * sizeof *result, last), "broadcast");
    for (uint64_t at = 0; at < count; at++)
        expect(result[at] == (double)(last + 1 + at), "broadcast");
    check(hostd_group_barrier(group), "barrier");
}

int main(int argc, char **argv)
{
    struct hostd_context *context;
    struct hostd_group *group;
    struct hostd_mr *mr;
    struct hostd_mr_attr memory;
    struct hostd_group_attr attr = {0};
    uint64_t count, ranks[HOSTD_GROUP_MAX];
    double *own, *result;

    if (argc < 5) {
        fprintf(stderr, "usage: %s RANK SIZE ADDRESS PORT [COUNT]\n", argv[0]);
        return 2;
    }
    attr.rank = (uint32_t)strtoul(argv[1], NULL, 10);
    attr.size = (uint32_t)strtoul(argv[2], NULL, 10);
    attr.address = argv[3];
    attr.port = (uint16_t)strtoul(argv[4], NULL, 10);
    count = argc > 5 ? strtoull(argv[5], NULL, 10) : 1000;
    if (count == 0)
        return 2;
    check(hostd_open(NULL, 5000, &context), "open");
    check(hostd_group_create(context, &attr, &group), "group");

    /* Any memory, which is copied. */
    own = malloc(count * sizeof *own);
    result = malloc(count * sizeof *result);
    if (own == NULL || result == NULL)
        return 1;
    carry_out(group, own, result, count, &attr);
    /* A region, which is not. */
    check(hostd_alloc_mr(context, 2 * count * sizeof *own, HOSTD_ACCESS_LOCAL_WRITE, &mr), "memory");
    check(hostd_query_mr(mr, &memory), "memory");
    carry_out(group, memory.memory, (double *)memory.memory + count, count, &attr);
    carry_out(group, own, memory.memory, count, &attr);
    carry_out(group, memory.memory, result, count, &attr);

    ranks[attr.rank] = attr.rank;
    check(hostd_group_allgather(group, NULL, ranks, sizeof ranks[0]), "allgather");
    for (uint32_t rank = 0; rank < attr.size; rank++)
        expect(ranks[rank] == rank, "allgather");
    check(hostd_group_destroy(group), "the end");
    printf("rank %u of %u: all exact, %llu elements\n", attr.rank, attr.size, (unsigned long long)count);
    free(own);
    free(result);
    return hostd_close(context) == 0 ? 0 : 1;
}
