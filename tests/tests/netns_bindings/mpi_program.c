/*
 * An MPI program that knows nothing of hostd: every rank prints a digest of what each collective gave it.
 * The same lines come with hostd and without it.
 */
#include <limits.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1500000 };

static int rank, size;

/* FNV-1a. */
static void say(const char *what, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t digest = 14695981039346656037u;

    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ at[i]) * 1099511628211u;
    printf("%d %s %016llx\n", rank, what, (unsigned long long)digest);
}

/* Small whole numbers, whose sums and products are exact. */
static int number(int at)
{
    return (at + rank) % 3 + 1;
}

#define FILL(array, count)                                                                             \
    for (int i = 0; i < (count); i++)                                                                  \
    (array)[i] = number(i)

#define REDUCTIONS(ctype, mpi_type, count, op)                                                         \
    do {                                                                                               \
        ctype *own = malloc((size_t)(count) * sizeof *own), *got = malloc((size_t)(count) * sizeof *got); \
        if (own == NULL || got == NULL)                                                                \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                              \
        FILL(own, count);                                                                              \
        memset(got, 0, (size_t)(count) * sizeof *got);                                                 \
        MPI_Allreduce(own, got, count, mpi_type, op, comm);                                            \
        say("allreduce " #mpi_type " " #op, got, (size_t)(count) * sizeof *got);                       \
        FILL(got, count);                                                                              \
        MPI_Allreduce(MPI_IN_PLACE, got, count, mpi_type, op, comm);                                   \
        say("in place " #mpi_type " " #op, got, (size_t)(count) * sizeof *got);                        \
        memset(got, 0, (size_t)(count) * sizeof *got);                                                 \
        MPI_Reduce(own, got, count, mpi_type, op, 1, comm);                                            \
        say("reduce " #mpi_type " " #op, got, (size_t)(count) * sizeof *got);                          \
        FILL(got, count);                                                                              \
        MPI_Reduce(where == 0 ? MPI_IN_PLACE : got, got, count, mpi_type, op, 0, comm);                \
        say("reduce in place " #mpi_type " " #op, where == 0 ? got : own, (size_t)(count) * sizeof *got); \
        free(own);                                                                                     \
        free(got);                                                                                     \
    } while (0)

static void reductions(MPI_Comm comm)
{
    int where;

    MPI_Comm_rank(comm, &where);
    REDUCTIONS(int, MPI_INT, 1, MPI_SUM);
    REDUCTIONS(double, MPI_DOUBLE, 1000, MPI_SUM);
    REDUCTIONS(double, MPI_DOUBLE, LONGEST, MPI_SUM);
    REDUCTIONS(float, MPI_FLOAT, 30000, MPI_PROD);
    REDUCTIONS(int64_t, MPI_INT64_T, 77, MPI_MIN);
    REDUCTIONS(unsigned, MPI_UNSIGNED, 77, MPI_MAX);
    REDUCTIONS(long, MPI_LONG, 77, MPI_BAND);
    REDUCTIONS(uint32_t, MPI_UINT32_T, 77, MPI_BXOR);
    /* What the MPI library does itself. */
    REDUCTIONS(int, MPI_INT, 77, MPI_LAND);
    REDUCTIONS(short, MPI_SHORT, 77, MPI_SUM);
    REDUCTIONS(double, MPI_DOUBLE, 0, MPI_SUM);
}

static void last_of(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    memcpy(inout, in, (size_t)*count * sizeof(int));
}

/* Operations and types of the program's own, and a message whose members describe it differently. */
static void own_kinds(void)
{
    MPI_Op op;
    MPI_Datatype every_other;
    int own[64], got[64];

    FILL(own, 64);
    MPI_Op_create(last_of, 0, &op);
    memset(got, 0, sizeof got);
    MPI_Allreduce(own, got, 64, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Op_free(&op);

    MPI_Type_vector(32, 1, 2, MPI_INT, &every_other);
    MPI_Type_commit(&every_other);
    if (rank == 1)
        MPI_Bcast(own, 32, MPI_INT, 1, MPI_COMM_WORLD);
    else
        MPI_Bcast(own, 1, every_other, 1, MPI_COMM_WORLD);
    say("broadcast of two types", own, sizeof own);
    MPI_Type_free(&every_other);
}

/* A rank is in a barrier while its message, too long to be sent at once, is received. */
static void message_beside_a_barrier(void)
{
    enum { LENGTH = 4000000 };
    char *text = malloc(LENGTH);
    MPI_Request request;

    if (text == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(text, rank, LENGTH);
    if (rank == 0) {
        memset(text, 'x', LENGTH);
        MPI_Isend(text, LENGTH, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        if (rank == 1)
            MPI_Recv(text, LENGTH, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    say("a message beside a barrier", text, LENGTH);
    free(text);
}

int main(int argc, char **argv)
{
    MPI_Comm half, alone;
    int one;
    static char bytes[300000];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    reductions(MPI_COMM_WORLD);
    own_kinds();
    memset(bytes, rank, sizeof bytes);
    MPI_Bcast(bytes, (int)sizeof bytes, MPI_BYTE, size - 1, MPI_COMM_WORLD);
    say("broadcast", bytes, sizeof bytes);
    message_beside_a_barrier();
    /* Communicators of their own, in another order of the ranks. */
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    reductions(half);
    MPI_Comm_free(&half);
    MPI_Comm_dup(MPI_COMM_WORLD, &half);
    MPI_Barrier(half);
    MPI_Comm_free(&half);
    MPI_Comm_dup(MPI_COMM_SELF, &alone);
    MPI_Allreduce(&rank, &one, 1, MPI_INT, MPI_SUM, alone);
    say("alone", &one, sizeof one);
    MPI_Comm_free(&alone);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
