/*
 * libhostd_pmpi.so: collectives of MPI programs over hostd, without a change of the programs.
 *
 *   mpicc -shared -fPIC -pthread -Wl,-z,now hostd_pmpi.c -o libhostd_pmpi.so -lhostd
 *   mpirun -x LD_PRELOAD=/…/libhostd_pmpi.so program
 *
 * It stands before MPI_Allreduce, MPI_Reduce, MPI_Bcast and MPI_Barrier (the profiling interface of the
 * standard) and leaves to the MPI library what it does not know. docs/mpi.md says what that is.
 *
 * All members of a communicator have to decide alike. Whether it has a group of hostd is agreed on by
 * collectives of the MPI library when the first of these four is called with it. What a call is then
 * depends only on what the standard has all members give alike: operation, type, and of MPI_Bcast nothing
 * at all, for its members may describe the same bytes by different types.
 *
 * A thread looks after groups that nobody is in a call with: when a switch fails, members that have their
 * result may have to give it to others, and may wait for these by MPI meanwhile. It calls nothing of MPI.
 */
#define _POSIX_C_SOURCE 200809L

#include <hostd.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* For how long members wait for each other when a communicator is used for the first time. */
enum { JOIN_MS = 30000 };

/* For how long a collective may stand still, in seconds, unless HOSTD_PMPI_TIMEOUT says so: members that are
 * lost are found without it, and a rank that computes or writes a file is not late. */
enum { TIMEOUT_S = 24 * 3600, TIMEOUT_MAX_S = 4000000 };

/* Calls of `idle` before it sleeps between two, and for how long: others may need the processor. */
enum { EAGER = 200, SLEEP_NS = 20000 };

/* For how long a process whose group did not form leaves other communicators to MPI, in seconds, unless it gives
 * a group back: what was lacking, as a quota, still is. */
enum { AGAIN_S = 600 };

/* How often the thread looks after each group. */
enum { ATTEND_NS = 50000000 };

/* What a communicator has. */
struct member {
    struct hostd_group *group; /* NULL: all is left to the MPI library */
    pthread_mutex_t calling; /* held by who is in a call with the group */
    MPI_Request never; /* a message that nobody sends: to ask for it keeps MPI going */
    char nothing;
    int rank;
    unsigned idle; /* calls in the collective under way */
    int noticed; /* it was said that it does without switches */
    struct member *next;
};

/* Where rank 0 of a communicator waits. */
struct meeting {
    char address[HOSTD_ADDRESS_MAX];
    int32_t port; /* 0: nowhere */
};

static pthread_once_t once = PTHREAD_ONCE_INIT, attending = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hostd_context *context; /* NULL: there is no hostd */
static int keyval = MPI_KEYVAL_INVALID;
static MPI_Comm own; /* of this process alone, for what is never sent */
static struct member *members; /* all with a group */
static pthread_t attendant; /* the thread that looks after them, if `attends` */
static int attends, ending;
static pthread_cond_t ends;
static uint32_t timeout_ms;
static int quiet; /* HOSTD_PMPI_QUIET */
static time_t unwilling; /* until then no group is formed; 0: one may be */

static void complain(const char *what)
{
    fprintf(stderr, "hostd: %s\n", what);
}

/* hostd has failed before anything was done. */
static void leave_to_mpi(void)
{
    char text[640];

    snprintf(text, sizeof text, "%s; MPI's own collectives are used", hostd_last_error());
    complain(text);
}

/* What would have this rank decide unlike the others. */
static void give_up(const char *what)
{
    complain(what);
    PMPI_Abort(MPI_COMM_WORLD, 1);
}

static time_t seconds_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

static void set_unwilling(time_t until)
{
    pthread_mutex_lock(&lock);
    unwilling = until;
    pthread_mutex_unlock(&lock);
}

/* Whether this process would form a group. */
static int is_willing(void)
{
    int willing;

    pthread_mutex_lock(&lock);
    willing = context != NULL && seconds_now() >= unwilling;
    pthread_mutex_unlock(&lock);
    return willing;
}

/* The communicator goes, or the program ends. */
static void leave(struct member *member)
{
    struct member **place;

    pthread_mutex_lock(&lock);
    for (place = &members; *place != NULL; place = &(*place)->next)
        if (*place == member) {
            *place = member->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (member->group == NULL)
        return;
    set_unwilling(0);
    pthread_mutex_destroy(&member->calling);
    hostd_group_destroy(member->group);
    member->group = NULL;
    PMPI_Cancel(&member->never);
    PMPI_Wait(&member->never, MPI_STATUS_IGNORE);
}

static int on_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)extra;
    leave(value);
    free(value);
    return MPI_SUCCESS;
}

/* Goes on with groups that nobody is in a call with. What fails is told by the next call. Communicators that come and
 * go wait for the round, which waits for hostd at worst. */
static void *attend(void *nothing)
{
    struct timespec time;
    struct member *member;

    (void)nothing;
    pthread_mutex_lock(&lock);
    while (!ending) {
        for (member = members; member != NULL; member = member->next)
            if (pthread_mutex_trylock(&member->calling) == 0) {
                hostd_group_poll(member->group);
                pthread_mutex_unlock(&member->calling);
            }
        clock_gettime(CLOCK_MONOTONIC, &time);
        time.tv_nsec += ATTEND_NS;
        time.tv_sec += time.tv_nsec / 1000000000;
        time.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&ends, &lock, &time);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The first group is there. Signals are for the threads of the program. */
static void begin_to_attend(void)
{
    pthread_condattr_t clock;
    sigset_t all, before;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&ends, &clock);
    pthread_condattr_destroy(&clock);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    attends = pthread_create(&attendant, NULL, attend, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!attends)
        complain("no thread: a rank that waits in other calls is no help to those that a lost switch left without results");
}

static void stop_attending(void)
{
    if (!attends)
        return;
    pthread_mutex_lock(&lock);
    ending = 1;
    pthread_cond_signal(&ends);
    pthread_mutex_unlock(&lock);
    pthread_join(attendant, NULL);
}

static void settings(void)
{
    const char *seconds = getenv("HOSTD_PMPI_TIMEOUT"), *silent = getenv("HOSTD_PMPI_QUIET");
    unsigned long number = TIMEOUT_S;
    char *end = NULL;
    char text[256];

    quiet = silent != NULL && *silent != '\0' && strcmp(silent, "0") != 0;
    if (seconds != NULL) {
        number = strtoul(seconds, &end, 10);
        if (*seconds < '0' || *seconds > '9' || *end != '\0' || number < 1 || number > TIMEOUT_MAX_S) {
            snprintf(text, sizeof text, "HOSTD_PMPI_TIMEOUT is '%.64s': it has to be seconds, from 1 to %d", seconds,
                     TIMEOUT_MAX_S);
            give_up(text);
        }
    }
    timeout_ms = (uint32_t)number * 1000;
}

static void open_once(void)
{
    settings();
    if (hostd_open(NULL, 0, &context) < 0) {
        context = NULL;
        leave_to_mpi();
    }
    if (PMPI_Comm_dup(MPI_COMM_SELF, &own) != MPI_SUCCESS ||
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, NULL) != MPI_SUCCESS)
        give_up("MPI makes no communicator or attribute");
}

/* Goes on with messages of MPI while a collective waits: others may wait for them. */
static void idle(void *argument)
{
    struct member *member = argument;
    int flag;

    PMPI_Test(&member->never, &flag, MPI_STATUS_IGNORE);
    if (++member->idle > EAGER) {
        struct timespec time = {0, SLEEP_NS};

        nanosleep(&time, NULL);
    }
}

/* Whether all members say yes. */
static int all(MPI_Comm comm, int yes)
{
    int agreed = 0;

    return PMPI_Allreduce(&yes, &agreed, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && agreed;
}

/* Members that form a group, and whether this one has said that it is able to. */
struct meeting_of {
    MPI_Comm comm;
    int rank, said;
};

/* What hostd asks before it has anybody wait: the lowest rank whose own hostd refuses what it needs; -1: none. */
static int agree(void *argument, int able)
{
    struct meeting_of *of = argument;
    int odd = able ? INT_MAX : of->rank, lowest = of->rank;

    of->said = 1;
    if (PMPI_Allreduce(&odd, &lowest, 1, MPI_INT, MPI_MIN, of->comm) != MPI_SUCCESS)
        return of->rank;
    return lowest == INT_MAX ? -1 : lowest;
}

/* Rank 0 waits at a port that hostd chooses. */
static struct hostd_listener *wait_there(struct meeting *meeting)
{
    struct hostd_listener *listener = NULL;
    struct hostd_gid gids[16];
    int count = hostd_query_gids(context, gids, 16), at;

    memset(meeting, 0, sizeof *meeting);
    if (count < 0 || hostd_listen(context, NULL, 0, HOSTD_GROUP_MAX, &listener) < 0) {
        leave_to_mpi();
        return NULL;
    }
    for (at = 0; at < count && at < 16; at++)
        if (gids[at].active && strncmp(gids[at].address, "fe80:", 5) != 0) {
            memcpy(meeting->address, gids[at].address, sizeof meeting->address);
            meeting->port = hostd_listener_port(listener);
            return listener;
        }
    hostd_destroy_listener(listener);
    complain("hostd has no address that is up; MPI's own collectives are used");
    return NULL;
}

/* Has all members of the communicator meet; NULL at all of them if that fails at one. */
static struct hostd_group *meet(MPI_Comm comm, int rank, int size)
{
    struct hostd_group_attr attr;
    struct hostd_listener *listener = NULL;
    struct hostd_group *group = NULL;
    struct meeting meeting;
    struct meeting_of of = {comm, rank, 0};
    int came = 0;

    memset(&meeting, 0, sizeof meeting);
    if (rank == 0)
        listener = wait_there(&meeting);
    if (PMPI_Bcast(&meeting, (int)sizeof meeting, MPI_BYTE, 0, comm) != MPI_SUCCESS || meeting.port <= 0)
        return NULL;
    memset(&attr, 0, sizeof attr);
    attr.rank = (uint32_t)rank;
    attr.size = (uint32_t)size;
    attr.address = meeting.address;
    attr.port = (uint16_t)meeting.port;
    attr.listener = listener;
    attr.join_timeout_ms = JOIN_MS;
    attr.timeout_ms = timeout_ms;
    attr.agree = agree;
    attr.agree_argument = &of;
    came = hostd_group_create(context, &attr, &group) == 0;
    if (!of.said)
        agree(&of, 0);
    if (!came) {
        leave_to_mpi();
        if (listener != NULL) /* unless it was used up */
            hostd_destroy_listener(listener);
    }
    if (all(comm, came))
        return group;
    if (came)
        hostd_group_destroy(group);
    set_unwilling(seconds_now() + AGAIN_S);
    return NULL;
}

/* What the communicator has, made when this is asked for the first time; NULL: MPI's own. */
static struct member *member_of(MPI_Comm comm)
{
    struct member *member = NULL;
    int found = 0, inter = 0, size = 0;

    /* A program of MPI sessions has not what is opened here: neither MPI_COMM_SELF nor an end that is told. */
    PMPI_Initialized(&found);
    if (!found)
        return NULL;
    pthread_once(&once, open_once);
    if (PMPI_Comm_get_attr(comm, keyval, &member, &found) != MPI_SUCCESS)
        return NULL;
    if (found)
        return member->group != NULL ? member : NULL;
    /* The same at all members, unlike what follows. */
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_size(comm, &size);
    if (inter || size < 2 || size > HOSTD_GROUP_MAX)
        return NULL;
    member = calloc(1, sizeof *member);
    if (member == NULL || PMPI_Comm_set_attr(comm, keyval, member) != MPI_SUCCESS) {
        give_up("no memory for a communicator");
        return NULL;
    }
    if (all(comm, is_willing())) {
        PMPI_Comm_rank(comm, &member->rank);
        member->group = meet(comm, member->rank, size);
    }
    if (member->group != NULL) {
        PMPI_Irecv(&member->nothing, 1, MPI_BYTE, 0, 0, own, &member->never);
        hostd_group_set_idle(member->group, idle, member);
        pthread_mutex_init(&member->calling, NULL);
        pthread_mutex_lock(&lock);
        member->next = members;
        members = member;
        pthread_mutex_unlock(&lock);
        pthread_once(&attending, begin_to_attend);
    }
    return member->group != NULL ? member : NULL;
}

/* The enum hostd_type of a type of MPI, or 0. */
static uint32_t type_of(MPI_Datatype type)
{
    static const struct {
        uint32_t four, eight;
    } kinds[] = {{HOSTD_TYPE_I32, HOSTD_TYPE_I64}, {HOSTD_TYPE_U32, HOSTD_TYPE_U64}, {HOSTD_TYPE_F32, HOSTD_TYPE_F64}};
    int kind, size = 0;

    if (type == MPI_INT || type == MPI_LONG || type == MPI_LONG_LONG || type == MPI_INT32_T || type == MPI_INT64_T)
        kind = 0;
    else if (type == MPI_UNSIGNED || type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG ||
             type == MPI_UINT32_T || type == MPI_UINT64_T)
        kind = 1;
    else if (type == MPI_FLOAT || type == MPI_DOUBLE)
        kind = 2;
    else
        return 0;
    PMPI_Type_size(type, &size);
    return size == 4 ? kinds[kind].four : size == 8 ? kinds[kind].eight : 0;
}

/* The enum hostd_op of an operation of MPI, or 0. */
static uint32_t op_of(MPI_Op op, uint32_t type)
{
    int is_float = type == HOSTD_TYPE_F32 || type == HOSTD_TYPE_F64;

    if (op == MPI_SUM)
        return HOSTD_OP_SUM;
    if (op == MPI_PROD)
        return HOSTD_OP_PRODUCT;
    if (op == MPI_MIN)
        return HOSTD_OP_MIN;
    if (op == MPI_MAX)
        return HOSTD_OP_MAX;
    if (op == MPI_BAND)
        return is_float ? 0 : HOSTD_OP_AND;
    if (op == MPI_BOR)
        return is_float ? 0 : HOSTD_OP_OR;
    if (op == MPI_BXOR)
        return is_float ? 0 : HOSTD_OP_XOR;
    return 0;
}

/* Says once that switches do not carry collectives out though they were to. */
static void notice(struct member *member)
{
    const char *why;
    char text[640];

    if (member->rank != 0 || member->noticed || quiet || (why = hostd_group_fallback(member->group)) == NULL)
        return;
    member->noticed = 1;
    snprintf(text, sizeof text, "collectives go on between the hosts: %s", why);
    complain(text);
}

/* A call with the group begins. */
static void begin(struct member *member)
{
    pthread_mutex_lock(&member->calling);
    member->idle = 0;
}

/* It is over: what MPI is told. When a group has failed it is too late for MPI's own collectives: others may be done. */
static int told(MPI_Comm comm, struct member *member, int result, const char *what)
{
    char text[640];

    notice(member);
    pthread_mutex_unlock(&member->calling);
    if (result >= 0)
        return MPI_SUCCESS;
    snprintf(text, sizeof text, "%s: %s", what, hostd_last_error());
    complain(text);
    PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

/* The member whose group carries a reduction out; NULL: MPI's own. */
static struct member *reducer(MPI_Comm comm, MPI_Count count, MPI_Datatype datatype, MPI_Op op, uint32_t *type,
                              uint32_t *what)
{
    struct member *member;

    if (comm == MPI_COMM_NULL || (member = member_of(comm)) == NULL)
        return NULL;
    *type = type_of(datatype);
    *what = *type == 0 ? 0 : op_of(op, *type);
    return *what != 0 && count > 0 ? member : NULL;
}

/* What a member does for MPI_Allreduce, and for MPI_Reduce. */
static int allreduce(struct member *member, const void *from, void *to, MPI_Count count, uint32_t type, uint32_t what,
                     MPI_Comm comm)
{
    if (from == MPI_IN_PLACE)
        from = NULL;
    begin(member);
    return told(comm, member, hostd_group_allreduce(member->group, from, to, (uint64_t)count, type, what),
                "MPI_Allreduce");
}

static int reduce(struct member *member, const void *from, void *to, MPI_Count count, uint32_t type, uint32_t what,
                  int root, MPI_Comm comm)
{
    if (from == MPI_IN_PLACE)
        from = NULL;
    begin(member);
    return told(comm, member,
                hostd_group_reduce(member->group, from, to, (uint64_t)count, type, what, (uint32_t)root),
                "MPI_Reduce");
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    uint32_t type, what;
    struct member *member = reducer(comm, count, datatype, op, &type, &what);

    if (member == NULL)
        return PMPI_Allreduce(from, to, count, datatype, op, comm);
    return allreduce(member, from, to, count, type, what, comm);
}

int MPI_Reduce(const void *from, void *to, int count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm)
{
    uint32_t type, what;
    struct member *member = reducer(comm, count, datatype, op, &type, &what);

    if (member == NULL || root < 0)
        return PMPI_Reduce(from, to, count, datatype, op, root, comm);
    return reduce(member, from, to, count, type, what, root, comm);
}

/* Packed, as what other members describe otherwise. */
static int broadcast_packed(struct member *member, void *data, int count, MPI_Datatype datatype, int bytes, int root,
                            MPI_Comm comm)
{
    char *packed = malloc((size_t)bytes);
    int at = 0, result;

    if (packed == NULL)
        return PMPI_Abort(comm, 1);
    if (member->rank == root)
        PMPI_Pack(data, count, datatype, packed, bytes, &at, comm);
    begin(member);
    result = hostd_group_broadcast(member->group, packed, (uint64_t)bytes, (uint32_t)root);
    result = told(comm, member, result, "MPI_Bcast");
    at = 0;
    if (result == MPI_SUCCESS && member->rank != root)
        result = PMPI_Unpack(packed, bytes, &at, data, count, datatype, comm);
    free(packed);
    return result;
}

/* The member whose group carries a broadcast out, and its bytes; NULL: MPI's own. */
static struct member *broadcaster(MPI_Comm comm, MPI_Count count, MPI_Datatype datatype, int root, MPI_Count *bytes)
{
    struct member *member = comm == MPI_COMM_NULL ? NULL : member_of(comm);
    MPI_Count size = 0;

    if (member == NULL || root < 0 || count <= 0)
        return NULL;
    PMPI_Type_size_x(datatype, &size);
    /* The bytes of a message are the same at all members, whatever the types are. */
    if (size <= 0 || size > INT32_MAX / count)
        return NULL;
    *bytes = size * count;
    return member;
}

static int broadcast(struct member *member, void *data, MPI_Count count, MPI_Datatype datatype, MPI_Count bytes,
                     int root, MPI_Comm comm)
{
    if (type_of(datatype) == 0 && datatype != MPI_BYTE && datatype != MPI_CHAR)
        return broadcast_packed(member, data, (int)count, datatype, (int)bytes, root, comm);
    begin(member);
    return told(comm, member, hostd_group_broadcast(member->group, data, (uint64_t)bytes, (uint32_t)root),
                "MPI_Bcast");
}

int MPI_Bcast(void *data, int count, MPI_Datatype datatype, int root, MPI_Comm comm)
{
    MPI_Count bytes;
    struct member *member = broadcaster(comm, count, datatype, root, &bytes);

    if (member == NULL)
        return PMPI_Bcast(data, count, datatype, root, comm);
    return broadcast(member, data, count, datatype, bytes, root, comm);
}

#if MPI_VERSION >= 4
/* The same with large counts, which mpi4py 4 calls where they are. */
int MPI_Allreduce_c(const void *from, void *to, MPI_Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    uint32_t type, what;
    struct member *member = reducer(comm, count, datatype, op, &type, &what);

    if (member == NULL)
        return PMPI_Allreduce_c(from, to, count, datatype, op, comm);
    return allreduce(member, from, to, count, type, what, comm);
}

int MPI_Reduce_c(const void *from, void *to, MPI_Count count, MPI_Datatype datatype, MPI_Op op, int root,
                 MPI_Comm comm)
{
    uint32_t type, what;
    struct member *member = reducer(comm, count, datatype, op, &type, &what);

    if (member == NULL || root < 0)
        return PMPI_Reduce_c(from, to, count, datatype, op, root, comm);
    return reduce(member, from, to, count, type, what, root, comm);
}

int MPI_Bcast_c(void *data, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm)
{
    MPI_Count bytes;
    struct member *member = broadcaster(comm, count, datatype, root, &bytes);

    if (member == NULL)
        return PMPI_Bcast_c(data, count, datatype, root, comm);
    return broadcast(member, data, count, datatype, bytes, root, comm);
}
#endif

int MPI_Barrier(MPI_Comm comm)
{
    struct member *member = comm == MPI_COMM_NULL ? NULL : member_of(comm);

    if (member == NULL)
        return PMPI_Barrier(comm);
    begin(member);
    return told(comm, member, hostd_group_barrier(member->group), "MPI_Barrier");
}

int MPI_Finalize(void)
{
    while (members != NULL)
        leave(members);
    stop_attending();
    return PMPI_Finalize();
}
