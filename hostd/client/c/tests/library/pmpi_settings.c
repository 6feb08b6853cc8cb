
/* Behind the shim itself: what it makes of HOSTD_PMPI_TIMEOUT and HOSTD_PMPI_QUIET. */
static void expect(const char *seconds, int refused, uint32_t wanted)
{
    aborted = 0;
    if (seconds == NULL)
        unsetenv("HOSTD_PMPI_TIMEOUT");
    else
        setenv("HOSTD_PMPI_TIMEOUT", seconds, 1);
    settings();
    if (aborted != refused || (!refused && timeout_ms != wanted)) {
        printf("'%s': aborted %d times, %u ms\n", seconds == NULL ? "(none)" : seconds, aborted, (unsigned)timeout_ms);
        exit(1);
    }
}

static void expect_quiet(const char *value, int wanted)
{
    setenv("HOSTD_PMPI_QUIET", value, 1);
    expect("7", 0, 7000);
    if (quiet != wanted) {
        printf("HOSTD_PMPI_QUIET='%s': %d\n", value, quiet);
        exit(1);
    }
}

int main(void)
{
    static const char *const refused[] = {
        "", "0", "00", "-1", "+5", " 5", "5 ", "5s", "1.5", "1e3", "0x10", "five", "4000001", "4294967297",
        "18446744073709551617", "99999999999999999999999999",
    };
    size_t at;

    expect(NULL, 0, 24u * 3600 * 1000);
    expect("1", 0, 1000);
    expect("030", 0, 30000);
    expect("4000000", 0, 4000000000u);
    for (at = 0; at < sizeof refused / sizeof *refused; at++)
        expect(refused[at], 1, 0);
    expect_quiet("", 0);
    expect_quiet("0", 0);
    expect_quiet("1", 1);
    expect_quiet("yes", 1);
    puts("all settings are as they should be");
    return 0;
}
