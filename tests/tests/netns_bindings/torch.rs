//! PyTorch over hostd beside PyTorch over gloo.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lab::observe::assert_healthy;
use lab::privileged;

use crate::ends::Rig;
use crate::groups::{FORMING, RANKS, host, outcomes, with_config, without_leaf};
use crate::python;

/// How much two losses may differ: sums are added in other orders.
const TOLERANCE: f64 = 1e-5;

/// Runs the ranks of a training with a backend; what each has printed.
fn run(rig: &Rig, backend: &str, more: &[&str]) -> Vec<String> {
    let all = outputs(rig, backend, more).into_iter();
    all.map(|(said, _)| said).collect()
}

/// Starts a rank.
fn start(rig: &Rig, backend: &str, more: &[&str], rank: usize) -> Child {
    let store = rig.system().join(format!("store-{backend}"));
    let mut words = python("tests/tests/netns_bindings/train.py");
    words.push(backend.to_owned());
    words.extend([rank, RANKS].map(|number| number.to_string()));
    words.push(store.display().to_string());
    words.extend(more.iter().map(|&word| word.to_owned()));
    // All in one namespace, for gloo; the daemon differs.
    let mut command = rig.command("h1", &words);
    command
        .env("HOSTD_SOCKET", rig.socket(host(rank)))
        .env("GLOO_SOCKET_IFNAME", "lo")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The same, with what stood in standard error.
fn outputs(rig: &Rig, backend: &str, more: &[&str]) -> Vec<(String, String)> {
    let started = (0..RANKS).map(|rank| start(rig, backend, more, rank));
    let outputs = outcomes(started.collect()).into_iter();
    let texts = outputs.map(|output| {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{backend}: {said}{wrong}");
        (said, wrong)
    });
    texts.collect()
}

/// Trains with a backend; the losses that rank 0 has printed.
fn train(rig: &Rig, backend: &str) -> Vec<f64> {
    let mut losses = Vec::new();
    for said in run(rig, backend, &[]) {
        assert!(said.ends_with("trained\n"), "{backend}: {said}");
        let found = said.lines().filter_map(|line| line.strip_prefix("loss "));
        losses.extend(found.map(|loss| loss.parse::<f64>().unwrap()));
    }
    losses
}

/// HT-50: DistributedDataParallel trains with the backend "hostd" as it does with gloo: the losses
/// of all steps are equal within 1e-5. Other collectives of tensors have exact results. Between the
/// hosts, and through the switches.
#[test]
fn distributed_data_parallel_trains_as_with_gloo() {
    if !privileged() {
        return;
    }
    Rig::both_ways("torch", compare);
}

fn compare(rig: &Rig) {
    let added = rig.added();
    let expected = train(rig, "gloo");
    assert_eq!(rig.added(), added, "by gloo");
    let before = rig.sent("h1");
    let losses = train(rig, "hostd");
    let sent = rig.sent("h1") - before;
    // 10,504 parameters of 4 bytes in each of 40 steps.
    assert!(sent > 1_000_000, "{sent} bytes by hostd");
    rig.assert_reduced(added);
    assert_eq!((expected.len(), losses.len()), (40, 40));
    assert!(expected[39] < expected[0] / 2.0, "{expected:?}");
    for (step, (loss, other)) in losses.iter().zip(&expected).enumerate() {
        let apart = (loss - other).abs();
        assert!(apart <= TOLERANCE, "step {step}: {loss} and {other}");
    }
    println!("the last loss is {} with both", losses[39]);
    rig.with_lab(|lab| assert_healthy(lab, &FORMING));
}

/// HT-50: a rank that ends in the middle of a training is named to the others by an error in their
/// backward pass, at once. Between the hosts, and through the switches.
#[test]
fn a_lost_rank_ends_the_training_of_the_others() {
    if !privileged() {
        return;
    }
    Rig::both_ways("lost", |rig| {
        let added = rig.added();
        for (rank, said) in run(rig, "hostd", &["lost"]).iter().enumerate() {
            let named = said.contains("in step 20: ") && said.contains("rank 3 is lost");
            assert_eq!(named, rank != 3, "{rank}: {said}");
        }
        rig.assert_reduced(added);
        rig.with_lab(|lab| assert_healthy(lab, &FORMING));
    });
}

/// HT-50: the backend warns, once and at rank 0, that it does without the switches that were to be
/// used.
#[test]
fn a_training_without_switches_warns_once() {
    if !privileged() {
        return;
    }
    let rig = Rig::computing("torchwrn");
    without_leaf(&rig, "h2");
    let line = "RuntimeWarning: hostd: collectives go on between the hosts: without switches since";
    for (rank, (_, wrong)) in outputs(&rig, "hostd", &[]).iter().enumerate() {
        let warned = wrong.matches(line).count();
        assert_eq!(warned, usize::from(rank == 0), "{rank}: {wrong}");
    }
}

/// HT-50: a rank whose own hostd refuses what it needs to form the process group is named to the
/// others before any of them waits.
#[test]
fn a_process_group_that_cannot_form_keeps_nobody_waiting() {
    if !privileged() {
        return;
    }
    let rig = Rig::computing("torchquo");
    with_config(&rig, host(0), |all| {
        let quota = "[application.quota]\nqueue_pairs = 2\n";
        let quota: toml::Table = quota.parse().unwrap();
        let application = all["application"].as_table_mut().unwrap();
        application.extend(quota["application"].as_table().unwrap().clone());
    });
    let begun = Instant::now();
    let all = outcomes(
        (0..RANKS)
            .map(|rank| start(&rig, "hostd", &[], rank))
            .collect(),
    );
    let took = begun.elapsed();
    for (rank, output) in all.iter().enumerate() {
        let wrong = String::from_utf8_lossy(&output.stderr);
        let named = wrong.contains("rank 0 cannot take part: its own host refuses");
        assert!(
            !output.status.success() && named == (rank != 0),
            "{rank}: {wrong}"
        );
    }
    assert!(took < Duration::from_secs(25), "{took:?}");
}
