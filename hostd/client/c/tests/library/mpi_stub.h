/* As much of mpi.h as the shim needs to be compiled without an MPI library. What it calls ends the program, but
 * PMPI_Abort, which takes a note. */
typedef int MPI_Comm, MPI_Datatype, MPI_Op, MPI_Request;
typedef long long MPI_Count;

enum { MPI_SUCCESS, MPI_ERR_OTHER };
enum { MPI_COMM_NULL, MPI_COMM_WORLD, MPI_COMM_SELF, MPI_KEYVAL_INVALID = -1 };
enum { MPI_SUM = 1, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR };
enum {
    MPI_BYTE = 1, MPI_CHAR, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_UNSIGNED, MPI_UNSIGNED_LONG,
    MPI_UNSIGNED_LONG_LONG, MPI_INT32_T, MPI_INT64_T, MPI_UINT32_T, MPI_UINT64_T, MPI_FLOAT, MPI_DOUBLE
};
#define MPI_IN_PLACE ((void *)-1)
#define MPI_STATUS_IGNORE ((void *)0)
#define MPI_COMM_NULL_COPY_FN ((void *)0)

static int aborted;

int PMPI_Abort(MPI_Comm comm, int code)
{
    (void)comm, (void)code;
    return ++aborted;
}

#define NEVER(name) int name() { abort(); }
NEVER(PMPI_Allreduce)
NEVER(PMPI_Barrier)
NEVER(PMPI_Bcast)
NEVER(PMPI_Cancel)
NEVER(PMPI_Comm_call_errhandler)
NEVER(PMPI_Comm_create_keyval)
NEVER(PMPI_Comm_dup)
NEVER(PMPI_Comm_get_attr)
NEVER(PMPI_Comm_rank)
NEVER(PMPI_Comm_set_attr)
NEVER(PMPI_Comm_size)
NEVER(PMPI_Comm_test_inter)
NEVER(PMPI_Finalize)
NEVER(PMPI_Initialized)
NEVER(PMPI_Irecv)
NEVER(PMPI_Pack)
NEVER(PMPI_Reduce)
NEVER(PMPI_Test)
NEVER(PMPI_Type_size)
NEVER(PMPI_Type_size_x)
NEVER(PMPI_Unpack)
NEVER(PMPI_Wait)
