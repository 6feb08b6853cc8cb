//! What a start would refuse is refused by the check, where it stands and in the words of the file.

use super::*;

fn faults(text: &str) -> String {
    load(text, &[]).expect_err(text)
}

/// MG-1: what an interface or a socket cannot be called is refused with its place.
#[test]
fn names_that_a_start_would_refuse_are_refused() {
    let pattern = faults("ports = [\"swp1\"]\n[[port]]\nname = \"swp*\"\n");
    let expected = "switchd.toml:3:8: port[0].name: \"swp*\" is a pattern";
    assert!(pattern.starts_with(expected), "{pattern}");
    let socket = |len: usize| {
        let path = format!("/{}", "x".repeat(len - 1));
        load(
            &format!("ports = [\"a\"]\n[admin]\nsocket = \"{path}\"\n"),
            &[],
        )
    };
    assert!(socket(107).is_ok());
    assert_eq!(
        socket(108).unwrap_err(),
        "switchd.toml:3:10: admin.socket: has 108 bytes; the path of a socket has at most 107"
    );
}

/// MG-1: a number that is no queue or no group is told beside every other fault, and of sections
/// that concern no port.
#[test]
fn numbers_of_queues_are_told_with_the_rest() {
    let text = "ports = [\"a\"]\n[[qos.queue]]\nports = [\"b\"]\nqueues = [8]\n\
                [[qos.group]]\nports = [\"b\"]\ngroups = [9]\n[[qos.queue]]\nqueues = [11]\nuet_marks = true\n";
    let told = faults(text);
    for expected in [
        "switchd.toml:4:11: qos.queue[0].queues[0]: 8 is not within 0 to 7",
        "switchd.toml:7:11: qos.group[0].groups[0]: 9 is not within 0 to 7",
        "switchd.toml:9:11: qos.queue[1].queues[0]: 11 is not within 0 to 7",
    ] {
        assert!(told.contains(expected), "{told}");
    }
}

/// MG-1: messages are in the words of the file, and not in those of the program.
#[test]
fn messages_are_in_the_words_of_the_file() {
    let twice = faults("ports = [\"a\"]\n[workers]\ncount = 1\ncount = 2\n");
    assert_eq!(twice, "switchd.toml:4:1: count is there twice");
    let large = faults("ports = [\"a\"]\n[ecmp]\nseed = 99999999999999999999\n");
    assert_eq!(
        large,
        "switchd.toml:3:8: ecmp.seed: 99999999999999999999 is not a whole number from 0 on"
    );
}
