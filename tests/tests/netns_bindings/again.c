/* A member of a group whose switches fail: again RANK SIZE ADDRESS PORT AGAIN_MS. It reduces until the group has
 * gone on between the hosts and is back at the switches, or has not come back for a while. AGAIN_MS `never`: it
 * is not to come back. */

#define _POSIX_C_SOURCE 200809L

#include <hostd.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Collectives between the hosts until it does not come back, a millisecond apart. */
#define CALLS 4000
/* And those through the switches until they would have failed. */
#define PATIENCE 60000

static void check(int result, const char *what)
{
    if (result >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, hostd_last_error());
    exit(1);
}

/* One collective of which the result is compared. How many members were with the switches before it: what one
 * of them knows alone says nothing about when the others end. */
static uint32_t reduce(struct hostd_group *group, uint32_t rank, uint32_t size)
{
    const struct timespec pause = {0, 1000000};
    int uses = hostd_group_uses_switches(group);
    uint64_t numbers[2] = {rank + 1, (uint64_t)uses}, sum = (uint64_t)size * (size + 1) / 2;

    check(uses, "uses_switches");
    if (uses != (hostd_group_fallback(group) == NULL)) {
        fprintf(stderr, "%d, and why: %s\n", uses, hostd_group_fallback(group));
        exit(1);
    }
    if (!uses && strstr(hostd_group_fallback(group), "without switches since collective ") == NULL)
        exit(1);
    check(hostd_group_allreduce(group, NULL, numbers, 2, HOSTD_TYPE_U64, HOSTD_OP_SUM), "allreduce");
    if (numbers[0] != sum) {
        fprintf(stderr, "%llu is not the sum\n", (unsigned long long)numbers[0]);
        exit(1);
    }
    /* Not all were there if one was not, and one that begins there may end elsewhere. */
    if (hostd_group_last_was_switched(group) && numbers[1] != size)
        exit(1);
    nanosleep(&pause, NULL);
    return (uint32_t)numbers[1];
}

int main(int argc, char **argv)
{
    struct hostd_context *context;
    struct hostd_group *group;
    struct hostd_group_attr attr = {0};
    uint32_t calls, using;

    if (argc < 6)
        return 2;
    attr.rank = (uint32_t)strtoul(argv[1], NULL, 10);
    attr.size = (uint32_t)strtoul(argv[2], NULL, 10);
    attr.address = argv[3];
    attr.port = (uint16_t)strtoul(argv[4], NULL, 10);
    if (strcmp(argv[5], "never") == 0)
        attr.flags = HOSTD_GROUP_STAYS;
    else
        attr.again_ms = (uint32_t)strtoul(argv[5], NULL, 10);
    check(hostd_open(NULL, 5000, &context), "open");
    check(hostd_group_create(context, &attr, &group), "group");
    using = reduce(group, attr.rank, attr.size);
    printf("through switches: %u\n", using);
    fflush(stdout);
    for (calls = 0; calls < PATIENCE && using > 0; calls++)
        using = reduce(group, attr.rank, attr.size);
    for (calls = 0; calls < CALLS && using < attr.size; calls++)
        using = reduce(group, attr.rank, attr.size);
    printf("through switches: %u\n", using);
    check(hostd_group_destroy(group), "the end");
    return hostd_close(context) == 0 ? 0 : 1;
}
