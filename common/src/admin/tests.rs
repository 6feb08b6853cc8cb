use super::*;
use std::path::PathBuf;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A folder that goes with the test, and a path for a socket two levels below.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run").join("admin.sock");
    (folder, path)
}

/// Answers with what was asked, or why it was not understood.
async fn echo(request: Result<Vec<u8>, TooLong>) -> Vec<u8> {
    match request {
        Ok(line) => [b"asked: ", &line[..]].concat(),
        Err(error) => error.to_string().into_bytes(),
    }
}

/// What the daemon answers until the end of the stream.
async fn ask(path: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).await.expect("it listens");
    // The daemon may stop to read before all is written.
    let _ = stream.write_all(request).await;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

#[test]
fn a_line_is_asked_and_a_line_is_answered() {
    let (_folder, path) = place();
    runtime().block_on(async {
        let listener = Listener::bind(&path, 0o600, "tested").expect("bound");
        let mode = std::fs::metadata(&path).expect("a file").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        tokio::spawn(listener.serve(echo));
        assert_eq!(ask(&path, b"ports\nrest").await, "asked: ports\n");
        let longest = [b"x".repeat(REQUEST_MAX), b"\n".to_vec()].concat();
        assert_eq!(ask(&path, &longest).await.len(), 8 + REQUEST_MAX);
        let answer = ask(&path, &b"x".repeat(2 * REQUEST_MAX)).await;
        assert!(answer.is_empty() || answer.contains("longer"), "{answer}");
    });
}

#[test]
fn the_end_of_the_stream_ends_a_request() {
    let (_folder, path) = place();
    runtime().block_on(async {
        let listener = Listener::bind(&path, 0o660, "tested").expect("bound");
        tokio::spawn(listener.serve(echo));
        let mut stream = UnixStream::connect(&path).await.expect("it listens");
        stream.write_all(b"no newline").await.expect("room");
        stream.shutdown().await.expect("half closed");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert_eq!(answer, "asked: no newline\n");
    });
}

#[test]
fn silent_clients_are_let_go_and_others_wait_for_a_place() {
    let (_folder, path) = place();
    runtime().block_on(async {
        let mut listener = Listener::bind(&path, 0o600, "tested").expect("bound");
        listener.limits = Limits {
            clients: 2,
            timeout: Duration::from_millis(500),
        };
        tokio::spawn(listener.serve(echo));
        let mut silent = Vec::new();
        for _ in 0..2 {
            silent.push(UnixStream::connect(&path).await.expect("it listens"));
        }
        assert_eq!(ask(&path, b"me\n").await, "asked: me\n");
        for stream in &mut silent {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.expect("closed");
            assert!(answer.is_empty());
        }
    });
}

/// MG-7: 400 clients that ask nothing, or a byte now and then, lock nobody out, though none of them
/// has been silent for as long as the time-out.
#[test]
fn half_open_clients_lock_nobody_out() {
    let (_folder, path) = place();
    runtime().block_on(async {
        let mut listener = Listener::bind(&path, 0o600, "tested").expect("bound");
        listener.limits.timeout = Duration::from_secs(3600);
        let served = listener.limits.clients;
        tokio::spawn(listener.serve(echo));
        let mut silent = Vec::new();
        for number in 0..400 {
            let mut stream = UnixStream::connect(&path).await.expect("it listens");
            if number % 2 == 0 {
                let _ = stream.write_all(b"x").await;
            }
            silent.push(stream);
        }
        assert_eq!(ask(&path, b"me\n").await, "asked: me\n");
        // The oldest ones were closed, the youngest are served: but for one, whose place was taken.
        let (old, young) = silent.split_at_mut(400 - served + 1);
        for stream in old {
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.is_empty());
        }
        for stream in young {
            stream.write_all(b"y\n").await.expect("open");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("answered");
            assert!(answer.ends_with("y\n"), "{answer}");
        }
    });
}

/// A client whose request is being answered keeps its place.
#[test]
fn who_waits_for_an_answer_is_not_closed() {
    let (_folder, path) = place();
    runtime().block_on(async {
        let mut listener = Listener::bind(&path, 0o600, "tested").expect("bound");
        listener.limits.clients = 1;
        let go = Arc::new(Notify::new());
        let gate = go.clone();
        tokio::spawn(listener.serve(move |request| {
            let gate = gate.clone();
            async move {
                gate.notified().await;
                echo(request).await
            }
        }));
        let first = ask(&path, b"first\n");
        let second = async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            let answer = ask(&path, b"second\n");
            let release = async {
                for _ in 0..2 {
                    for _ in 0..50 {
                        tokio::task::yield_now().await;
                    }
                    go.notify_one();
                }
            };
            tokio::join!(answer, release).0
        };
        let answers = tokio::join!(first, second);
        assert_eq!(answers.0, "asked: first\n");
        assert_eq!(answers.1, "asked: second\n");
    });
}

#[test]
fn a_socket_in_use_is_left_alone_and_one_left_behind_is_replaced() {
    let (_folder, path) = place();
    runtime().block_on(async {
        let first = Listener::bind(&path, 0o600, "tested").expect("bound");
        let error = Listener::bind(&path, 0o600, "tested").expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), "another tested listens there");
        drop(first);
        assert!(path.exists(), "left behind");
        Listener::bind(&path, 0o600, "tested").expect("replaced");
        std::fs::remove_file(&path).expect("there");
        std::fs::write(&path, "precious").expect("writable");
        let error = Listener::bind(&path, 0o600, "tested").expect_err("no socket");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
    });
}

/// A folder that is missing is made, one in which it would lie is not: the error names it.
#[test]
fn one_folder_is_made_for_a_socket_and_no_more() {
    let outer = tempfile::tempdir().expect("a temporary folder");
    runtime().block_on(async {
        let path = outer.path().join("run/admin.sock");
        Listener::bind(&path, 0o600, "tested").expect("bound");
        let folder = std::fs::metadata(outer.path().join("run")).expect("made");
        let mode = folder.permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{mode:o}");
        let path = outer.path().join("typo/run/admin.sock");
        let error = Listener::bind(&path, 0o600, "tested").expect_err("no folder");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let folder = path.parent().expect("it has one").display();
        let wanted = format!("the folder {folder} cannot be made: ");
        assert!(error.to_string().starts_with(&wanted), "{error}");
        assert!(!outer.path().join("typo").exists());
    });
}

/// MG-1: the folder may be entered by those whom the socket admits, whatever umask the daemon was
/// started with.
#[test]
fn the_umask_does_not_close_the_folder_of_a_socket() {
    const CHILD: &str = "COMMON_ADMIN_FOLDER";
    if let Some(path) = std::env::var_os(CHILD) {
        make_folder_of(Path::new(&path)).expect("made");
        return;
    }
    let (_folder, path) = place();
    let this = std::env::current_exe().expect("a program");
    let name = "admin::tests::the_umask_does_not_close_the_folder_of_a_socket";
    // A umask is a whole process's.
    let status = std::process::Command::new("sh")
        .args(["-c", "umask 077; exec \"$0\" --exact \"$1\""])
        .arg(this)
        .arg(name)
        .env(CHILD, &path)
        .status();
    assert!(status.expect("it runs").success());
    let made = std::fs::metadata(path.parent().expect("it has one")).expect("it is there");
    assert_eq!(made.permissions().mode() & 0o7777, 0o755);
}

/// What a request that takes time holds ends when its client goes away, and not when the client
/// only sends no more.
#[test]
fn a_request_ends_with_its_client() {
    let (_folder, path) = place();
    runtime().block_on(async {
        let (gone, mut left) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
        struct Guard(tokio::sync::mpsc::UnboundedSender<&'static str>);
        impl Drop for Guard {
            fn drop(&mut self) {
                let _ = self.0.send("dropped");
            }
        }
        let listener = Listener::bind(&path, 0o660, "tested").expect("bound");
        let handler = move |_| {
            let guard = Guard(gone.clone());
            async move {
                tokio::time::sleep(Duration::from_secs(600)).await;
                drop(guard);
                Vec::new()
            }
        };
        tokio::spawn(listener.serve(handler));
        let mut stream = UnixStream::connect(&path).await.expect("it listens");
        stream.write_all(b"trace\n").await.expect("room");
        stream.shutdown().await.expect("half closed");
        let waits = timeout(LOOK * 5, left.recv()).await;
        assert!(waits.is_err(), "the client waits for its answer");
        drop(stream);
        let ended = timeout(Duration::from_secs(60), left.recv()).await;
        assert_eq!(ended, Ok(Some("dropped")));
    });
}

/// A long answer is for a slow client, too, as long as it takes some of it now and then.
#[test]
fn a_slow_client_has_all_of_its_answer() {
    const LEN: usize = 8 << 20;
    let (_folder, path) = place();
    runtime().block_on(async {
        let mut listener = Listener::bind(&path, 0o600, "tested").expect("bound");
        listener.limits.timeout = Duration::from_secs(2);
        tokio::spawn(listener.serve(|_| async { vec![b'x'; LEN] }));
        let mut stream = UnixStream::connect(&path).await.expect("it listens");
        stream.write_all(b"all\n").await.expect("room");
        let mut part = vec![0; LEN / 30];
        let mut taken = 0;
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            taken += stream.read_exact(&mut part).await.expect("it goes on");
        }
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.expect("it goes on");
        assert_eq!(taken + rest.len(), LEN + 1);
    });
}
