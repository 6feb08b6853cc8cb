/* A rank of Open MPI: does what its Unix socket says, as ../crew.rs describes. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static int turn(FILE *said, int rank, int size, long bytes, int calls)
{
    int elements = (int)(bytes / 4);
    float *vector = malloc((size_t)bytes);
    int right = vector != NULL;
    for (int at = 0; right && at < elements; at++)
        vector[at] = (float)((rank + 1) * (at % 7 + 1));
    if (right)
        MPI_Allreduce(MPI_IN_PLACE, vector, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; right && at < elements; at++)
        right = vector[at] == (float)(size * (size + 1) / 2 * (at % 7 + 1));
    if (!right) {
        fprintf(said, "the result is wrong\n");
        return fflush(said);
    }
    double began = MPI_Wtime();
    for (int call = 0; call < calls; call++)
        MPI_Allreduce(MPI_IN_PLACE, vector, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    fprintf(said, "%.9f\n", MPI_Wtime() - began);
    free(vector);
    return fflush(said);
}

int main(int argc, char **argv)
{
    int rank, size, calls;
    long bytes;
    char line[64];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int end = socket(AF_UNIX, SOCK_STREAM, 0);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path)
        MPI_Abort(MPI_COMM_WORLD, 2);
    strcpy(address.sun_path, argv[1]);
    if (connect(end, (struct sockaddr *)&address, sizeof address) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    FILE *told = fdopen(end, "r");
    FILE *said = fdopen(dup(end), "w");
    fprintf(said, "%d\n", rank);
    fflush(said);
    while (fgets(line, sizeof line, told) && sscanf(line, "%ld %d", &bytes, &calls) == 2)
        if (turn(said, rank, size, bytes, calls) != 0)
            break;
    MPI_Finalize();
    return 0;
}
