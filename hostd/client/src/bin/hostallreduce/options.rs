//! What can be asked for.

use clap::{Parser, ValueEnum};
use hostd_client::group::{self, Element, Operation, SIZE_MAX};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of the longest vector.
const LEN_MAX: usize = 1 << 28;

/// Vectors up to this length are short: more repetitions.
const SHORT: usize = 8 << 10;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Collective {
    Allreduce,
    Reduce,
    Broadcast,
    Barrier,
    Allgather,
    ReduceScatter,
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    Auto,
    Ring,
    Doubling,
    Chain,
    /// Through the switches, and between the hosts where they cannot.
    Inc,
}

impl From<Algorithm> for group::Algorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Auto => Self::Auto,
            Algorithm::Ring => Self::Ring,
            Algorithm::Doubling => Self::Doubling,
            Algorithm::Chain => Self::Chain,
            Algorithm::Inc => Self::Inc,
        }
    }
}

fn element(text: &str) -> Result<Element, String> {
    let named = |element: &Element| element.label().eq_ignore_ascii_case(text);
    let names = || Element::ALL.map(Element::label).join(", ");
    let found = Element::ALL.into_iter().find(named);
    found.ok_or_else(|| format!("the types are {}", names()))
}

fn operation(text: &str) -> Result<Operation, String> {
    let named = |operation: &Operation| operation.label().eq_ignore_ascii_case(text);
    let names = || Operation::ALL.map(Operation::label).join(", ");
    let found = Operation::ALL.into_iter().find(named);
    found.ok_or_else(|| format!("the operations are {}", names()))
}

/// A number of bytes, with K or M for KiB or MiB.
fn length(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text
            .strip_suffix(['M', 'm'])
            .map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let number: usize = digits
        .parse()
        .map_err(|_| format!("{text:?} is no length"))?;
    let bytes = number
        .checked_mul(unit)
        .filter(|bytes| (1..=LEN_MAX).contains(bytes));
    bytes.ok_or_else(|| format!("{text} is not within 1 byte to 256M"))
}

/// Lengths to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<usize>);

fn sizes(text: &str) -> Result<Sizes, String> {
    if let Some((from, to)) = text.split_once(':') {
        let (from, to) = (length(from)?, length(to)?);
        if from > to {
            return Err(format!("{from} is more than {to}"));
        }
        let doubled = std::iter::successors(Some(from), |size| size.checked_mul(2));
        return Ok(Sizes(doubled.take_while(|size| *size <= to).collect()));
    }
    text.split(',')
        .map(length)
        .collect::<Result<_, _>>()
        .map(Sizes)
}

fn ranks(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=SIZE_MAX).contains(number));
    number.ok_or_else(|| format!("{text} is not within 1 to {SIZE_MAX}"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match Duration::try_from_secs_f64(value).map_err(|error| error.to_string())? {
        none if none.is_zero() => Err("some time has to be given".to_owned()),
        some => Ok(some),
    }
}

/// Measure collectives between hosts over hostd: a process for each rank, all with the same
/// options.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// Rank of this process, from 0 to one less than there are.
    #[arg(long)]
    pub(crate) rank: usize,
    /// Processes that take part, from 1 to 64.
    #[arg(long, value_parser = ranks)]
    pub(crate) ranks: usize,
    /// The host of rank 0; brackets around an IPv6 address may be left out. Not for rank 0.
    #[arg(long)]
    pub(crate) root: Option<String>,
    /// Port at which rank 0 waits for the others.
    #[arg(long, default_value_t = 18_516)]
    pub(crate) port: u16,
    /// What is measured.
    #[arg(long, value_enum, default_value = "allreduce")]
    pub(crate) collective: Collective,
    /// How it is done; auto: through the switches if they can, else by length.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) algorithm: Algorithm,
    /// Reduce in the order of the ranks.
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Type of the elements: i32, i64, u32, u64, f16, bf16, f32 or f64.
    #[arg(long = "type", value_name = "TYPE", default_value = "f32", value_parser = element)]
    pub(crate) element: Element,
    /// What is done to them: sum, product, min, max, and, or, xor.
    #[arg(long, default_value = "sum", value_parser = operation)]
    pub(crate) operation: Operation,
    /// Rank that has or gets the vector of a broadcast or reduce.
    #[arg(long, default_value_t = 0)]
    pub(crate) root_rank: usize,
    /// Bytes of a vector, or of a block of allgather and reduce-scatter: a list with commas, or
    /// FROM:TO for all powers of two times FROM. K and M stand for KiB and MiB.
    #[arg(long, default_value = "4:4M", value_parser = sizes)]
    pub(crate) sizes: Sizes,
    /// Repetitions that are measured; without it 1000 of up to 8 KiB, 100 of more.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: Option<u32>,
    /// Repetitions before those that are measured; without it a tenth of them.
    #[arg(long)]
    pub(crate) warm_up: Option<u32>,
    /// Do not compare results.
    #[arg(long)]
    pub(crate) no_validation: bool,
    /// Bytes that are sent and reduced at once.
    #[arg(long, default_value = "32K", value_parser = length)]
    pub(crate) segment: usize,
    /// Number of the job at the switches, for one that is reserved there (`switchctl inc create`);
    /// drawn at random without it.
    #[arg(long)]
    pub(crate) job: Option<u32>,
    /// Seconds for which members wait for each other.
    #[arg(long, default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Path of hostd's application socket.
    #[arg(long, env = hostd_client::SOCKET_ENV, default_value = hostd_client::SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
}

impl Options {
    /// What one process can find wrong with its options before it waits for the others.
    ///
    /// # Errors
    /// What to change.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (rank, ranks, root_rank) = (self.rank, self.ranks, self.root_rank);
        if rank >= ranks {
            let last = ranks - 1;
            return Err(format!(
                "--rank {rank}: with --ranks {ranks} the last one is {last}"
            ));
        }
        if root_rank >= ranks {
            return Err(format!(
                "--root-rank {root_rank}: there are --ranks {ranks}, from 0 on"
            ));
        }
        if rank > 0 && self.root.is_none() {
            return Err("--root is missing: the host of rank 0".to_owned());
        }
        let reduces = [
            Collective::Allreduce,
            Collective::Reduce,
            Collective::ReduceScatter,
        ];
        if reduces.contains(&self.collective) {
            self.check_elements()?;
        }
        Ok(())
    }

    /// What is reduced are whole elements, of a type that the operation takes.
    fn check_elements(&self) -> Result<(), String> {
        let (operation, element) = (self.operation, self.element);
        let name = element.label();
        if !operation.takes(element) {
            let operation = operation.label();
            return Err(format!("--operation {operation} is not for --type {name}"));
        }
        let width = element.len();
        match self.lengths().iter().find(|size| *size % width != 0) {
            Some(size) => Err(format!(
                "--sizes {size}: an element of --type {name} has {width} bytes"
            )),
            None => Ok(()),
        }
    }

    /// Lengths to measure; a barrier has none.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        match self.collective {
            Collective::Barrier => vec![0],
            _ => self.sizes.0.clone(),
        }
    }

    /// Repetitions in all, and how many of them come first and are not measured.
    pub(crate) fn repetitions(&self, size: usize) -> (u32, u32) {
        let usual = if size <= SHORT { 1000 } else { 100 };
        let measured = self.iterations.unwrap_or(usual);
        (
            measured,
            self.warm_up.unwrap_or_else(|| measured.div_ceil(10)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn read(words: &[&str]) -> Result<Options, clap::Error> {
        let line = [
            "hostallreduce",
            "--rank",
            "1",
            "--ranks",
            "4",
            "--root",
            "h",
        ];
        Options::try_parse_from(line.iter().chain(words))
    }

    /// HT-50: what cannot be measured is refused, and so is an algorithm that there is not.
    #[test]
    fn options_have_bounds() {
        Options::command().debug_assert();
        for (words, kind) in [
            (&["--sizes", "8:4"][..], ErrorKind::ValueValidation),
            (&["--sizes", "0"], ErrorKind::ValueValidation),
            (&["--sizes", "257M"], ErrorKind::ValueValidation),
            (&["--sizes", "4,x"], ErrorKind::ValueValidation),
            (&["--algorithm", "tree"], ErrorKind::InvalidValue),
            (&["--collective", "scan"], ErrorKind::InvalidValue),
            (&["--type", "f8"], ErrorKind::ValueValidation),
            (&["--operation", "avg"], ErrorKind::ValueValidation),
            (&["--iterations", "0"], ErrorKind::ValueValidation),
            (&["--timeout", "0"], ErrorKind::ValueValidation),
        ] {
            let error = read(words).expect_err("refused");
            assert_eq!(error.kind(), kind, "{words:?}: {error}");
        }
        let alone = ["hostallreduce", "--rank", "0", "--ranks", "65"];
        assert!(Options::try_parse_from(alone).is_err());
    }

    /// HT-50: what cannot come about is told at once, and how, before anybody is waited for.
    #[test]
    fn options_that_contradict_each_other_are_told_at_once() {
        for (words, about) in [
            (&["--root-rank", "4"][..], "--root-rank 4"),
            (&["--operation", "xor"], "--operation xor"),
            (&["--sizes", "8,6"], "--sizes 6"),
            (&["--type", "i64"], "--sizes 4"),
            (
                &["--collective", "reduce-scatter", "--sizes", "2"],
                "--sizes 2",
            ),
        ] {
            let told = read(words).expect("each is fine").check();
            let told = told.expect_err("refused");
            assert!(told.starts_with(about), "{words:?}: {told}");
        }
        for words in [
            &["--operation", "xor", "--type", "u32"][..],
            &["--collective", "broadcast", "--sizes", "3"],
            &["--collective", "barrier", "--sizes", "3"],
        ] {
            assert_eq!(read(words).expect("fine").check(), Ok(()), "{words:?}");
        }
        let line = ["hostallreduce", "--ranks", "4", "--rank"];
        for (rank, about) in [("4", "--rank 4"), ("3", "--root is missing")] {
            let options = Options::try_parse_from(line.iter().chain(&[rank])).expect("fine");
            let told = options.check().expect_err("refused");
            assert!(told.starts_with(about), "{told}");
        }
    }

    #[test]
    fn lengths_are_ranges_or_lists() {
        let options = read(&["--sizes", "4:64"]).expect("a range");
        assert_eq!(options.lengths(), [4, 8, 16, 32, 64]);
        let options = read(&["--sizes", "12,1K,3M", "--type", "BF16"]).expect("a list");
        assert_eq!(options.lengths(), [12, 1 << 10, 3 << 20]);
        assert_eq!(options.element, Element::Bf16);
        assert_eq!(options.repetitions(8), (1000, 100));
        assert_eq!(options.repetitions(1 << 20), (100, 10));
        let options = read(&["--collective", "barrier"]).expect("a barrier");
        assert_eq!(options.lengths(), [0]);
    }
}
