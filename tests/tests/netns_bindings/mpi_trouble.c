/*
 * An MPI program in which a rank may be late: mpi_trouble late SECONDS | reduce. Errors are returned.
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
    MPI_Finalize();
    printf("rank %d: done\n", rank);
    return 0;
}
