//! What a command has done, wherever it ran.

/// What a command has done.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its exit status. After a signal: -1, or in a guest 128 and the number of the signal.
    pub status: i32,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Output {
    /// Whether it ended with status 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.status == 0
    }

    /// Its standard output.
    ///
    /// # Panics
    /// When it has failed; for tests.
    #[track_caller]
    pub fn expect_ok(self) -> String {
        assert!(
            self.ok(),
            "status {}\n{}\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self.stdout
    }
}

impl From<std::process::Output> for Output {
    fn from(output: std::process::Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
