//! The matrix of congestion controls, small: what has to hold for each of them.

use twin::congestion::{Congestion, Course, Line, Matrix};

fn lines(course: Course) -> Vec<Line> {
    let matrix = Matrix {
        algorithms: Congestion::ALL.to_vec(),
        courses: vec![course],
        seeds: 1,
    };
    let lines = matrix.run(&mut |_| {}).expect("all checks pass");
    assert_eq!(lines.len(), Congestion::ALL.len());
    for line in &lines {
        println!("{line:?}");
    }
    lines
}

/// Those whose rates come back slowly once they are cut, and leave some of the link meanwhile.
fn is_slow(algorithm: Congestion) -> bool {
    matches!(algorithm, Congestion::Dcqcn | Congestion::Timely)
}

/// CC-1 to CC-8: eight flows to one host use the link and share it alike. Nobody is paused, but for
/// the fixed window, and for those that begin with all that it lets in.
#[test]
fn an_incast_is_shared_without_pauses() {
    for line in lines(Course::Incast) {
        let (name, it) = (line.algorithm.name(), line.figures);
        let used = if is_slow(line.algorithm) { 0.75 } else { 0.94 };
        assert!(it.utilisation >= used, "{name}: {it:?}");
        assert!(it.jain >= 0.95, "{name}: {it:?}");
        assert!((7.0..15.0).contains(&it.slowdown_p99), "{name}: {it:?}");
        let paused = it.pfc_frames > 0;
        let fixed = line.algorithm == Congestion::Fixed;
        assert!(paused == fixed || is_slow(line.algorithm), "{name}: {it:?}");
        let queue = if fixed || is_slow(line.algorithm) {
            400.0
        } else {
            200.0
        };
        assert!(it.queue_delay_p99_us <= queue, "{name}: {it:?}");
    }
}

/// CC-1 to CC-8: flows that join get their share.
#[test]
fn a_staircase_is_climbed() {
    for line in lines(Course::Staircase) {
        let (name, it) = (line.algorithm.name(), line.figures);
        let used = if is_slow(line.algorithm) { 0.75 } else { 0.92 };
        assert!(it.utilisation >= used, "{name}: {it:?}");
        assert!(it.jain >= 0.75, "{name}: {it:?}");
    }
}

/// CC-1 to CC-8: flows that do not share a link hardly wait, use most of it, and pause nobody.
#[test]
fn a_permutation_has_room() {
    for line in lines(Course::Permutation) {
        let (name, it) = (line.algorithm.name(), line.figures);
        assert!(it.utilisation >= 0.72, "{name}: {it:?}");
        assert!(it.jain >= 0.9, "{name}: {it:?}");
        assert!(it.slowdown_p50 <= 1.4, "{name}: {it:?}");
        assert!(it.slowdown_p99 <= 2.5, "{name}: {it:?}");
        assert!(it.queue_delay_p99_us <= 30.0, "{name}: {it:?}");
        assert_eq!(it.pfc_frames, 0, "{name}: {it:?}");
    }
}

/// CC-1 to CC-8: in a web search each congestion control has shorter queues and a shorter tail than
/// none at all, and keeps the flows going.
#[test]
fn a_web_search_is_served() {
    let lines = lines(Course::WebSearch);
    let fixed = lines.iter().find(|it| it.algorithm == Congestion::Fixed);
    let fixed = fixed.expect("it is one of them").figures;
    for line in &lines {
        let (name, it) = (line.algorithm.name(), line.figures);
        assert!(it.utilisation >= 0.33, "{name}: {it:?}");
        assert!(it.jain >= 0.6, "{name}: {it:?}");
        assert!(it.slowdown_p50 <= 4.0, "{name}: {it:?}");
        if line.algorithm != Congestion::Fixed {
            assert!(it.slowdown_p99 <= 25.0, "{name}: {it:?}");
            assert!(it.slowdown_p99 < fixed.slowdown_p99, "{name}: {it:?}");
            assert!(
                2.0 * it.queue_delay_p99_us <= fixed.queue_delay_p99_us,
                "{name}: {it:?}"
            );
        }
    }
}
