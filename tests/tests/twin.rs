//! The twin: checkers, determinism, scenarios.

use fabric_tests::twin::scenario::Scenario;
use fabric_tests::twin::simulation::run;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test", &|file| Err(format!("{file}: no files here")))
        .expect("a scenario")
}

const PAIR: &str = r#"
[topology]
kind = "pair"
[[workload]]
kind = "permutation"
size = "1MB"
"#;

#[test]
fn two_hosts_exchange_data() {
    let outcome = run(&scenario(PAIR), 1).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{:#?}", outcome.classes);
    println!("{:?}", outcome.totals);
    assert_eq!(outcome.classes[0].completed, 2);
}
