//! Distributions of flow sizes that were measured in real networks.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// A distribution of flow sizes, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// Queries and background transfers of a web search cluster (Alizadeh et al., "Data Center
    /// TCP", SIGCOMM 2010, figure 4), in the points by which the HPCC paper (SIGCOMM 2019)
    /// evaluates.
    WebSearch,
    /// A Hadoop cluster (Roy et al., "Inside the Social Network's (Datacenter) Network", SIGCOMM
    /// 2015, figure 6), in the points of the HPCC paper.
    Hadoop,
    /// Training of a large language model, put together from published parameters: chunks of
    /// gradient buckets (25 MiB, PyTorch DDP's default, reduced in rings of 8), activations between
    /// pipeline stages (sequence 2048 × hidden size 12288 × 2 bytes in 8 tensor-parallel parts:
    /// GPT-3 in Megatron-LM, SC 2021), and small messages of control and barriers.
    Training,
}

/// Bytes and the part of all flows that have at most so many, in thousandths.
type Point = (u64, u32);

const WEB_SEARCH: &[Point] = &[
    (1, 0),
    (10_000, 150),
    (20_000, 200),
    (30_000, 300),
    (50_000, 400),
    (80_000, 530),
    (200_000, 600),
    (1_000_000, 700),
    (2_000_000, 800),
    (5_000_000, 900),
    (10_000_000, 970),
    (30_000_000, 1000),
];

const HADOOP: &[Point] = &[
    (1, 0),
    (100, 10),
    (200, 20),
    (300, 50),
    (350, 150),
    (400, 200),
    (500, 300),
    (600, 400),
    (700, 500),
    (1_000, 600),
    (2_000, 670),
    (7_000, 700),
    (30_000, 720),
    (50_000, 820),
    (80_000, 870),
    (120_000, 900),
    (300_000, 950),
    (1_000_000, 975),
    (2_000_000, 990),
    (10_000_000, 1000),
];

const TRAINING: &[Point] = &[
    (64, 0),
    (4_096, 150),
    (65_536, 200),
    (131_072, 230),
    // The first bucket of PyTorch DDP has 1 MiB.
    (131_073, 260),
    (3_276_799, 270),
    (3_276_800, 870),
    (6_291_455, 880),
    (6_291_456, 1000),
];

impl Sizes {
    fn points(self) -> &'static [Point] {
        match self {
            Self::WebSearch => WEB_SEARCH,
            Self::Hadoop => HADOOP,
            Self::Training => TRAINING,
        }
    }

    /// Draws a size in bytes: between two points all sizes are alike.
    pub fn draw(self, random: &mut Pcg64Mcg) -> u64 {
        const STEPS: u64 = 1 << 20;
        let drawn = random.next_u64() % (1000 * STEPS);
        let points = self.points();
        let above = points
            .iter()
            .position(|(_, part)| drawn < u64::from(*part) * STEPS)
            .unwrap_or(points.len() - 1)
            .max(1);
        let ((low, from), (high, to)) = (points[above - 1], points[above]);
        let (from, to) = (u64::from(from) * STEPS, u64::from(to) * STEPS);
        let along = u128::from(high - low) * u128::from(drawn - from) / u128::from(to - from);
        low + u64::try_from(along).expect("less than the distance")
    }

    /// The mean, in bytes.
    pub fn mean(self) -> u64 {
        let parts = self.points().windows(2).map(|pair| {
            let [(low, from), (high, to)] = [pair[0], pair[1]];
            (low + high) / 2 * u64::from(to - from)
        });
        parts.sum::<u64>() / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_has_the_shape_of_the_table() {
        for (sizes, median) in [
            (Sizes::WebSearch, 50_000..80_000),
            (Sizes::Hadoop, 600..701),
            (Sizes::Training, 3_276_799..3_276_801),
        ] {
            let mut random = Pcg64Mcg::new(1);
            let mut drawn: Vec<u64> = (0..100_000).map(|_| sizes.draw(&mut random)).collect();
            drawn.sort_unstable();
            assert!(
                median.contains(&drawn[50_000]),
                "{sizes:?}: {}",
                drawn[50_000]
            );
            let mean = drawn.iter().sum::<u64>() / 100_000;
            let expected = sizes.mean();
            assert!(
                mean.abs_diff(expected) < expected / 20,
                "{sizes:?}: {mean}, {expected}"
            );
            assert!(drawn[0] >= sizes.points()[0].0);
            assert!(drawn[99_999] <= sizes.points().last().expect("some").0);
        }
    }
}
