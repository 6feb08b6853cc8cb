//! What is shown of what is off.

use super::*;

/// MG-7: what is off is not shown as if there were nothing to show: the section is named.
#[test]
fn what_is_off_is_said_with_its_section() {
    let mut bench = Bench::new("ports = [\"p*\"]\n[qos.watchdog]\nenabled = false\n");
    for (topic, section) in [
        (Topic::Csig, "csig"),
        (Topic::Int, "int"),
        (Topic::Pfcwd, "qos.watchdog"),
        (Topic::Flows, "flows"),
        (Topic::Iqcn, "iqcn"),
        (Topic::Schedulers, "scheduling"),
        (Topic::Jobs, "compute"),
    ] {
        let said = bench.asked(topic).expect_err(section);
        let end = format!(": see [{section}] in the configuration");
        assert!(said.ends_with(&end), "{topic:?}: {said}");
    }
    let mut bench = Bench::new(LOSSLESS);
    assert!(matches!(bench.show(Topic::Pfcwd), Answer::Pfcwd(rows) if !rows.is_empty()));
}
