/*
 * An MPI program in which something goes wrong: mpi_trouble late SECONDS | reduce | deaf NAMESPACE
 * INTERFACE. Errors are returned.
 */
#define _POSIX_C_SOURCE 200809L

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, size;

static void check(int result, const char *what)
{
    if (result == MPI_SUCCESS)
        return;
    printf("rank %d: %s has failed\n", rank, what);
    fflush(stdout);
    _exit(0);
}

static void reduce(void)
{
    long sum = 0, own = rank + 1;

    check(MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    if (sum != (long)size * (size + 1) / 2)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

/*
 * The host of the odd ranks, which is this namespace, gets no long frames by this interface any more, so the
 * switch's results of a broadcast do not reach it; those of the even ones are there at once. They wait by MPI then
 * for what the odd ones send once they have theirs, too.
 */
static void deaf(const char *namespace, const char *interface)
{
    static unsigned char data[8192];
    char line[120];
    int at, word = 0, other = rank ^ 1;

    if (rank == 1) {
        snprintf(line, sizeof line, "ip -n %s link set dev %s mtu 1200", namespace, interface);
        if (system(line) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    for (at = 0; at < (int)sizeof data; at++)
        data[at] = rank == 0 ? (unsigned char)(at % 251) : 0;
    check(MPI_Bcast(data, sizeof data, MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
    for (at = 0; at < (int)sizeof data; at++)
        if (data[at] != at % 251)
            MPI_Abort(MPI_COMM_WORLD, 1);
    if (rank % 2 == 0)
        check(MPI_Recv(&word, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
    else
        check(MPI_Send(&word, 1, MPI_INT, other, 0, MPI_COMM_WORLD), "MPI_Send");
    reduce();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int call = 0; call < 20; call++)
        reduce();
    if (argc > 2 && strcmp(argv[1], "late") == 0) {
        struct timespec time = {atoi(argv[2]), 0};

        if (rank == size - 1)
            nanosleep(&time, NULL);
        check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    }
    if (argc > 3 && strcmp(argv[1], "deaf") == 0)
        deaf(argv[2], argv[3]);
    MPI_Finalize();
    printf("rank %d: done\n", rank);
    return 0;
}
