//! The header against the code: every function, structure and constant, type by type.

use hostd_client::abi::descriptor::{
    COMPLETION_WITH_IMMEDIATE, COMPLETION_WITH_INVALIDATE, FLAG_FENCE, FLAG_SIGNALED,
    FLAG_SOLICITED, Opcode,
};
use hostd_client::abi::paths::WEIGHTS_MAX;
use hostd_client::abi::{INLINE_MAX, PRIVATE_MAX, SGE_MAX};
use hostd_client::group::{Element, Operation, SIZE_MAX};
use hostd_client::{
    Access, CompletionOpcode, CompletionStatus, Congestion, ErrorCode, Granularity, QueuePair,
    Service, TrafficPattern, TrafficPriority,
};
use std::collections::BTreeMap;
use std::path::Path;

/// What the header declares, each by its name.
pub(crate) struct Header {
    /// Functions without their names: `int(struct hostd_cq*cq,int timeout_ms)`.
    pub(crate) functions: BTreeMap<String, String>,
    /// Members of structures: `uint64_t wr_id;uint32_t status;`.
    structures: BTreeMap<String, String>,
    constants: BTreeMap<String, i64>,
    /// Types of functions that callers give: `void(*hostd_idle)(void*argument)`.
    callbacks: Vec<String>,
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One space between words, and none elsewhere.
fn dense(text: &str) -> String {
    let mut dense = String::new();
    for word in text.split_whitespace() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if dense.ends_with(is_word) && word.starts_with(is_word) {
            dense.push(' ');
        }
        dense.push_str(word);
    }
    for mark in ["*", ",", "(", ")"] {
        dense = dense.replace(&format!(" {mark}"), mark);
    }
    dense.replace("* ", "*").replace(", ", ",")
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        kept.push_str(before);
        rest = after.split_once("*/").expect("the comment ends").1;
    }
    kept + rest
}

impl Header {
    pub(crate) fn read() -> Self {
        let text = without_comments(&read("hostd.h"));
        // What only C++ sees, and what the preprocessor does.
        let text = text.replace("extern \"C\" {\n#endif", "#endif");
        let text = text.replace("#ifdef __cplusplus\n}\n", "");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let text = lines.collect::<Vec<_>>().join("\n");
        let mut header = Self {
            functions: BTreeMap::new(),
            structures: BTreeMap::new(),
            constants: BTreeMap::new(),
            callbacks: Vec::new(),
        };
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let end = match (rest.find(';'), rest.find('{')) {
                (Some(end), None) => end,
                (Some(end), Some(body)) if end < body => end,
                _ => rest.find("};").expect("the body ends") + 1,
            };
            header.take(&rest[..end]);
            rest = rest[end + 1..].trim_start();
        }
        header
    }

    fn take(&mut self, declaration: &str) {
        if let Some(callback) = declaration.strip_prefix("typedef ") {
            self.callbacks.push(dense(callback));
        } else if let Some((head, body)) = declaration.split_once('{') {
            let (kind, name) = head.trim().split_once(' ').expect("a kind and a name");
            let body = body.trim_end_matches('}');
            if kind == "struct" {
                self.structures.insert(name.to_owned(), dense(body));
                return;
            }
            assert_eq!(kind, "enum", "{declaration}");
            for constant in body.split(',') {
                let (name, value) = constant.split_once('=').expect("a value");
                let value = value.trim().parse().expect("a number");
                self.constants.insert(name.trim().to_owned(), value);
            }
        } else if let Some((head, parameters)) = declaration.split_once('(') {
            let at = head.rfind([' ', '*']).expect("a type") + 1;
            let (result, name) = head.split_at(at);
            let function = format!("{}({}", dense(result), dense(parameters));
            self.functions.insert(name.to_owned(), function);
        } else {
            let name = declaration.strip_prefix("struct ").expect("a structure");
            self.structures.insert(name.to_owned(), String::new());
        }
    }
}

/// A member or parameter of Rust as C declares it.
fn in_c(name: &str, kind: &str) -> String {
    if let Some((inner, count)) = kind.strip_prefix('[').and_then(|it| it.split_once(';')) {
        let count = count.trim_end_matches(']').trim();
        return format!("{}[{count}]", in_c(name, inner));
    }
    let simple = c_type(kind);
    dense(&format!("{simple} {name}"))
}

fn c_type(kind: &str) -> String {
    if let Some(inner) = kind.strip_prefix("*mut ") {
        return format!("{}*", c_type(inner));
    }
    if let Some(inner) = kind.strip_prefix("*const ") {
        return format!("const {}*", c_type(inner));
    }
    let known = match kind {
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "usize" => "size_t",
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        // A pointer to a function may be null.
        "Option<HostdAgree>" => "hostd_agree",
        "Option<HostdIdle>" => "hostd_idle",
        _ => return format!("struct {}", snake(kind)),
    };
    known.to_owned()
}

/// `HostdQpAttr` becomes `hostd_qp_attr`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Pairs of name and type: `a: u8, b: *mut T`.
fn pairs(list: &str) -> Vec<String> {
    let list = list.replace('\n', " ");
    let items = list.split(',').map(str::trim).filter(|it| !it.is_empty());
    let items = items.map(|item| {
        let (name, kind) = item.split_once(':').expect("a type");
        in_c(name.trim().trim_start_matches("pub(crate) "), kind.trim())
    });
    items.collect()
}

/// The exported functions of the code, as C would declare them.
fn functions_of_code() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::new();
    for file in std::fs::read_dir(folder).expect("readable").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("text");
        for part in text.split("extern \"C\" fn ").skip(1) {
            let (name, rest) = part.split_once('(').expect("parameters");
            let (parameters, rest) = rest.split_once(')').expect("an end");
            let result = rest.split_once('{').expect("a body").0.trim();
            let result = result.strip_prefix("->").expect("a result").trim();
            let mut list = pairs(parameters).join(",");
            if list.is_empty() {
                "void".clone_into(&mut list);
            }
            let text = format!("{}({list})", dense(&c_type(result)));
            found.insert(name.to_owned(), text);
        }
    }
    found
}

fn structures_of_code() -> BTreeMap<String, String> {
    let text = read("src/layout.rs");
    let mut found = BTreeMap::new();
    for part in text.split("pub(crate) struct Hostd").skip(1) {
        let (name, rest) = part.split_once(" {").expect("members");
        let members = rest.split_once('}').expect("an end").0;
        let members = pairs(members).into_iter().map(|member| member + ";");
        found.insert(snake(&format!("Hostd{name}")), members.collect());
    }
    let (_, opaque) = text.split_once("opaque! {").expect("the opaque ones");
    for name in opaque.split('}').next().expect("an end").split_whitespace() {
        found.insert(snake(name), String::new());
    }
    found
}

/// The constants of the library, under the names of the header.
fn constants_of_code() -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    let mut add = |prefix: &str, list: &[(&str, i64)]| {
        for (name, value) in list {
            all.insert(format!("HOSTD_{prefix}{name}"), *value);
        }
    };
    let length = |length: usize| i64::try_from(length).expect("a small number");
    add(
        "",
        &[
            ("ADDRESS_MAX", 48),
            ("PRIVATE_MAX", length(PRIVATE_MAX)),
            ("SGE_MAX", length(QueuePair::SGE_MAX.min(SGE_MAX))),
            ("INLINE_MAX", length(QueuePair::INLINE_MAX.min(INLINE_MAX))),
            ("WEIGHTS_MAX", length(WEIGHTS_MAX)),
            ("GROUP_MAX", length(SIZE_MAX)),
            ("GROUP_PIECE", 8 << 20),
            ("GROUP_DETERMINISTIC", 1),
            ("GROUP_STAYS", 2),
        ],
    );
    add("ERR_", &ERRORS);
    add(
        "REASON_",
        &[
            ("CLOSED", ErrorCode::Closed as i64),
            ("BAD_MESSAGE", ErrorCode::BadMessage as i64),
            ("BAD_VERSION", ErrorCode::BadVersion as i64),
            ("NOT_PERMITTED", ErrorCode::NotPermitted as i64),
            ("QUOTA", ErrorCode::Quota as i64),
            ("NOT_FOUND", ErrorCode::NotFound as i64),
            ("INVALID_ARGUMENT", ErrorCode::InvalidArgument as i64),
            ("INVALID_STATE", ErrorCode::InvalidState as i64),
            ("BAD_MEMORY", ErrorCode::BadMemory as i64),
            ("ADDRESS_IN_USE", ErrorCode::AddressInUse as i64),
            ("UNREACHABLE", ErrorCode::Unreachable as i64),
            ("REJECTED", ErrorCode::Rejected as i64),
            ("TIMED_OUT", ErrorCode::TimedOut as i64),
            ("SHUTTING_DOWN", ErrorCode::ShuttingDown as i64),
            ("INTERNAL", ErrorCode::Internal as i64),
            ("PROTOCOL", ErrorCode::Protocol as i64),
            ("REFUSED", ErrorCode::Refused as i64),
            ("IN_USE", ErrorCode::InUse as i64),
            ("BUSY", ErrorCode::Busy as i64),
            ("ACCESS", ErrorCode::Access as i64),
            ("INVALID_REQUEST", ErrorCode::InvalidRequest as i64),
            ("REQUEST_FAILED", ErrorCode::RequestFailed as i64),
        ],
    );
    add(
        "ACCESS_",
        &[
            ("LOCAL_WRITE", Access::LOCAL_WRITE.bits().into()),
            ("REMOTE_WRITE", Access::REMOTE_WRITE.bits().into()),
            ("REMOTE_READ", Access::REMOTE_READ.bits().into()),
            ("REMOTE_ATOMIC", Access::REMOTE_ATOMIC.bits().into()),
        ],
    );
    add("WC_", &completions());
    add("WR_", &requests());
    add(
        "SEND_",
        &[
            ("FENCE", FLAG_FENCE.into()),
            ("SIGNALED", FLAG_SIGNALED.into()),
            ("SOLICITED", FLAG_SOLICITED.into()),
        ],
    );
    add("", &paths());
    add("CAUSE_", &CAUSES);
    add("TYPE_", &elements());
    add("OP_", &operations());
    all
}

/// Errors: the numbers are this library's own; tests in `src/failure.rs` and `wrong_calls.c` meet
/// most of them.
const ERRORS: [(&str, i64); 20] = [
    ("ARGUMENT", -1),
    ("HANDLE", -2),
    ("BUSY", -3),
    ("NO_DAEMON", -4),
    ("DAEMON_GONE", -5),
    ("TIMED_OUT", -6),
    ("QUEUE_FULL", -7),
    ("OUT_OF_RANGE", -8),
    ("ATOMIC_LENGTH", -9),
    ("SHARED_RECEIVES", -10),
    ("TOO_MANY_PIECES", -11),
    ("NOT_INLINE", -12),
    ("PROTOCOL", -13),
    ("KERNEL", -14),
    ("MEMORY", -15),
    ("DEFECT", -16),
    ("REFUSED", -100),
    ("CONNECT", -200),
    ("DISCONNECTED", -300),
    ("GROUP", -400),
];

/// Causes: as errors; `src/failure.rs` compares them with those of the library.
const CAUSES: [(&str, i64); 14] = [
    ("LOST", 0),
    ("LEFT", 1),
    ("LATE", 2),
    ("MISSING", 3),
    ("MISMATCH", 4),
    ("ABANDONED", 5),
    ("PROTOCOL", 6),
    ("NO_SUCH_RANK", 7),
    ("RANK_TAKEN", 8),
    ("SIZE", 9),
    ("SEGMENT", 10),
    ("VERSION", 11),
    ("WORK", 12),
    ("UNABLE", 13),
];

fn elements() -> [(&'static str, i64); 8] {
    [
        ("I32", Element::I32 as i64),
        ("I64", Element::I64 as i64),
        ("U32", Element::U32 as i64),
        ("U64", Element::U64 as i64),
        ("F16", Element::F16 as i64),
        ("BF16", Element::Bf16 as i64),
        ("F32", Element::F32 as i64),
        ("F64", Element::F64 as i64),
    ]
}

fn operations() -> [(&'static str, i64); 7] {
    [
        ("SUM", Operation::Sum as i64),
        ("PRODUCT", Operation::Product as i64),
        ("MIN", Operation::Min as i64),
        ("MAX", Operation::Max as i64),
        ("AND", Operation::And as i64),
        ("OR", Operation::Or as i64),
        ("XOR", Operation::Xor as i64),
    ]
}

fn completions() -> [(&'static str, i64); 25] {
    [
        ("SUCCESS", CompletionStatus::Success as i64),
        ("LOC_LEN_ERR", CompletionStatus::LocalLength as i64),
        ("LOC_QP_OP_ERR", CompletionStatus::LocalQpOperation as i64),
        ("LOC_PROT_ERR", CompletionStatus::LocalProtection as i64),
        ("WR_FLUSH_ERR", CompletionStatus::Flushed as i64),
        ("MW_BIND_ERR", CompletionStatus::WindowBind as i64),
        ("LOC_ACCESS_ERR", CompletionStatus::LocalAccess as i64),
        (
            "REM_INV_REQ_ERR",
            CompletionStatus::RemoteInvalidRequest as i64,
        ),
        ("REM_ACCESS_ERR", CompletionStatus::RemoteAccess as i64),
        ("REM_OP_ERR", CompletionStatus::RemoteOperation as i64),
        ("RETRY_EXC_ERR", CompletionStatus::RetryExceeded as i64),
        (
            "RNR_RETRY_EXC_ERR",
            CompletionStatus::RnrRetryExceeded as i64,
        ),
        ("FATAL_ERR", CompletionStatus::Fatal as i64),
        ("GENERAL_ERR", CompletionStatus::General as i64),
        ("SEND", CompletionOpcode::Send as i64),
        ("RDMA_WRITE", CompletionOpcode::Write as i64),
        ("RDMA_READ", CompletionOpcode::Read as i64),
        ("COMP_SWAP", CompletionOpcode::CompareSwap as i64),
        ("FETCH_ADD", CompletionOpcode::FetchAdd as i64),
        ("BIND_MW", CompletionOpcode::BindWindow as i64),
        ("LOCAL_INV", CompletionOpcode::LocalInvalidate as i64),
        ("RECV", CompletionOpcode::Receive as i64),
        (
            "RECV_RDMA_WITH_IMM",
            CompletionOpcode::ReceiveWriteImmediate as i64,
        ),
        ("WITH_IMM", COMPLETION_WITH_IMMEDIATE.into()),
        ("WITH_INV", COMPLETION_WITH_INVALIDATE.into()),
    ]
}

fn requests() -> [(&'static str, i64); 8] {
    [
        ("RDMA_WRITE", Opcode::Write as i64),
        ("RDMA_WRITE_WITH_IMM", Opcode::WriteWithImmediate as i64),
        ("SEND", Opcode::Send as i64),
        ("SEND_WITH_IMM", Opcode::SendWithImmediate as i64),
        ("RDMA_READ", Opcode::Read as i64),
        ("ATOMIC_CMP_AND_SWP", Opcode::CompareSwap as i64),
        ("ATOMIC_FETCH_AND_ADD", Opcode::FetchAdd as i64),
        ("SEND_WITH_INV", Opcode::SendWithInvalidate as i64),
    ]
}

fn paths() -> [(&'static str, i64); 28] {
    [
        ("SERVICE_ORDERED", Service::Ordered as i64),
        ("SERVICE_UNORDERED", Service::Unordered as i64),
        ("SERVICE_IDEMPOTENT", Service::Idempotent as i64),
        ("CONGESTION_AUTO", Congestion::Auto as i64),
        ("CONGESTION_FIXED", Congestion::Fixed as i64),
        ("CONGESTION_NSCC", Congestion::Nscc as i64),
        ("CONGESTION_SWIFT", Congestion::Swift as i64),
        ("CONGESTION_SWIFT_CSIG", Congestion::SwiftCsig as i64),
        ("CONGESTION_DCTCP", Congestion::Dctcp as i64),
        ("CONGESTION_DCQCN", Congestion::Dcqcn as i64),
        ("CONGESTION_TIMELY", Congestion::Timely as i64),
        ("CONGESTION_POSEIDON", Congestion::Poseidon as i64),
        ("CONGESTION_HPCC", Congestion::Hpcc as i64),
        ("CONGESTION_RTTCC", Congestion::Rttcc as i64),
        ("PATTERN_UNKNOWN", TrafficPattern::Unknown as i64),
        ("PATTERN_PAIRS", TrafficPattern::Pairs as i64),
        ("PATTERN_MANY_TO_ONE", TrafficPattern::ManyToOne as i64),
        ("PATTERN_ALL_TO_ALL", TrafficPattern::AllToAll as i64),
        ("PRIORITY_NORMAL", TrafficPriority::Normal as i64),
        ("PRIORITY_LOW", TrafficPriority::Low as i64),
        ("PRIORITY_HIGH", TrafficPriority::High as i64),
        ("GRANULARITY_FLOW", Granularity::Flow as i64),
        ("GRANULARITY_FLOWLET", Granularity::Flowlet as i64),
        ("GRANULARITY_PACKET", Granularity::Packet as i64),
        ("PATHS_GRANULARITY", 1),
        ("PATHS_REORDER_PACKETS", 2),
        ("PATHS_REORDER_TIME", 4),
        ("PATHS_FLOWLET_TIMEOUT", 8),
    ]
}

/// HT-4: the header says what the code is.
#[test]
fn header_and_code_agree() {
    let header = Header::read();
    assert_eq!(header.functions, functions_of_code());
    assert_eq!(header.structures, structures_of_code());
    assert_eq!(header.constants, constants_of_code());
    // `HostdAgree` of `src/layout.rs` and `HostdIdle` of `src/member.rs`.
    let expected = [
        "int(*hostd_agree)(void*argument,int able)",
        "void(*hostd_idle)(void*argument)",
    ];
    assert_eq!(header.callbacks, expected);
    let created = &header.functions["hostd_create_cq"];
    let expected = "int(struct hostd_context*context,uint32_t entries,struct hostd_cq**cq)";
    assert_eq!(created, expected);
}
