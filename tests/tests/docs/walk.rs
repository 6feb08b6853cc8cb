//! A walk: the functions that a packet or a message meets, in order, with their files.
//!
//! A page holds one as a table with the columns number, stage, function, path, what happens. It is
//! true if every function is defined in its file, if the code calls the functions in the listed
//! order, and if no file is entered twice but those of the composers.
//!
//! The order is checked by following calls in the order of the text. From one function of the walk
//! the next one has to be reachable: from the rest of its body, or after a return from the rest of
//! its callers' bodies, directly or through functions that the walk does not list. Only a function
//! of the first composer may instead be reached in a new turn, from the first such function of the
//! walk on.
//!
//! Calls are matched by names, without the compiler's knowledge of types, so some wrong orders are
//! not found.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::{Call, Function, Receiver, functions_of, words};
use super::page::Page;

/// The files of the tree, by path.
pub(crate) type Tree = BTreeMap<String, String>;

/// One row of a walk.
#[derive(Debug)]
struct Step {
    line: usize,
    number: String,
    function: String,
    path: String,
}

/// What is wrong with the walk on `page`.
pub(crate) fn check(page: &Page, tree: &Tree) -> Vec<String> {
    let composers = composers(page, tree);
    let steps = steps(page);
    let mut found = Vec::new();
    if steps.len() < 3 || composers.is_empty() {
        found.push(format!("{}: no walk, or no line `Composer:`", page.path));
        return found;
    }
    let functions = functions(&steps, &composers, tree);
    let mut left = BTreeSet::new();
    let mut route = Route::new(&functions, tree);
    // Where a turn begins.
    let mut turn = None;
    for (index, step) in steps.iter().enumerate() {
        let Step { line, function, .. } = step;
        let mut say = |what: String| found.push(format!("{}:{line}: {what}", page.path));
        if step.number != (index + 1).to_string() {
            say(format!("step {} should be {}", step.number, index + 1));
        }
        if !tree.contains_key(&step.path) {
            say(format!("{} does not exist", step.path));
            continue;
        }
        let composed = composers.iter().any(|it| is_within(&step.path, it));
        if left.contains(&step.path) && !composed {
            say(format!("{} is visited twice", step.path));
        }
        if let Some(before) = index.checked_sub(1).map(|at| &steps[at].path)
            && *before != step.path
        {
            left.insert(before.clone());
        }
        let Some(target) = functions.iter().position(|it| step.is(it)) else {
            say(format!("`{function}` is not in {}", step.path));
            continue;
        };
        let begins = is_within(&step.path, &composers[0]);
        let goes = if index == 0 || begins && turn.is_none() {
            route.start(target);
            true
        } else {
            let again = turn.filter(|_| begins);
            route.go(target, &composers)
                || again.is_some_and(|turn| route.restart(turn, target, &composers))
        };
        if begins {
            turn.get_or_insert(target);
        }
        if composed {
            route.listed.insert(target);
        }
        if !goes {
            say(format!(
                "`{function}` is not called from here on: the order is another one"
            ));
        }
    }
    found
}

impl Step {
    fn is(&self, function: &Function) -> bool {
        let (owner, name) = self
            .function
            .rsplit_once("::")
            .unwrap_or(("", &self.function));
        self.path == function.path && owner == function.owner && name == function.name
    }
}

/// Calls that have not returned: each function with the place in its list of calls.
struct Route<'a> {
    functions: &'a [Function],
    by_name: BTreeMap<&'a str, Vec<usize>>,
    /// The words of all files below each folder.
    words: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// The functions of composers that the walk listed so far.
    listed: BTreeSet<usize>,
    stack: Vec<(usize, usize)>,
}

impl<'a> Route<'a> {
    fn new(functions: &'a [Function], tree: &'a Tree) -> Self {
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (number, function) in functions.iter().enumerate() {
            by_name.entry(&function.name).or_default().push(number);
            folders.entry(folder(&function.path)).or_default();
        }
        for (folder, found) in &mut folders {
            let within = |path: &str| is_within(path, &format!("{folder}/"));
            let files = tree.iter().filter(|(path, _)| within(path));
            found.extend(files.flat_map(|(_, text)| words(text)));
        }
        Self {
            functions,
            by_name,
            words: folders,
            listed: BTreeSet::new(),
            stack: Vec::new(),
        }
    }

    /// A thread begins with `function`.
    fn start(&mut self, function: usize) {
        self.stack = vec![(function, 0)];
    }

    /// Goes on to the next call of `target`. Once a listed function of a composer has returned to
    /// another composer only a direct call counts, unless `target` is of a composer itself. `false`
    /// if there is no such call; then nothing has changed.
    fn go(&mut self, target: usize, composers: &[String]) -> bool {
        let place = |function: usize| {
            let path = &self.functions[function].path;
            composers.iter().find(|it| is_within(path, it))
        };
        let mut stack = self.stack.clone();
        let mut seen = BTreeSet::new();
        while let Some((function, at)) = stack.pop() {
            if let Some(chain) = self.find(function, at, target, &mut seen) {
                stack.extend(chain);
                self.stack = stack;
                return true;
            }
            let caller = stack.last().and_then(|(caller, _)| place(*caller));
            let returns = self.listed.contains(&function) && place(function) != caller;
            if returns && place(target).is_none() {
                // All others count as looked through.
                seen.extend(0..self.functions.len());
            }
        }
        false
    }

    /// Begins another turn and goes on to `target`.
    fn restart(&mut self, turn: usize, target: usize, composers: &[String]) -> bool {
        let before = std::mem::replace(&mut self.stack, vec![(turn, 0)]);
        let found = turn == target || self.go(target, composers);
        if !found {
            self.stack = before;
        }
        found
    }

    /// The first chain of calls to `target` from the calls of `function` that begin at `place`.
    fn find(
        &self,
        function: usize,
        place: usize,
        target: usize,
        seen: &mut BTreeSet<usize>,
    ) -> Option<Vec<(usize, usize)>> {
        let calls = self.functions[function].calls.iter().enumerate();
        for (at, call) in calls.skip(place) {
            let called = self.called(function, call, target);
            if called.contains(&target) {
                return Some(vec![(function, at + 1), (target, 0)]);
            }
            for next in called {
                if seen.insert(next)
                    && let Some(chain) = self.find(next, 0, target, seen)
                {
                    let mut whole = vec![(function, at + 1)];
                    whole.extend(chain);
                    return Some(whole);
                }
            }
        }
        None
    }

    /// The functions that a call may mean: those whose type is called like the receiver, and
    /// `target` if there are none. The caller's folder has to name their type or module.
    fn called(&self, from: usize, call: &Call, target: usize) -> Vec<usize> {
        let caller = &self.functions[from];
        let named = self.by_name.get(call.name.as_str());
        let named = named.map_or(&[][..], Vec::as_slice);
        let of = |right: &dyn Fn(&Function) -> bool| -> Vec<usize> {
            let right = |number: &usize| right(&self.functions[*number]);
            named.iter().copied().filter(right).collect()
        };
        let words = &self.words[folder(&caller.path)];
        match &call.of {
            Receiver::None => {
                let free = of(&|it| it.owner.is_empty());
                let near = |it: &usize| folder(&self.functions[*it].path) == folder(&caller.path);
                let (near, far): (Vec<usize>, Vec<usize>) = free.into_iter().partition(near);
                if !near.is_empty() {
                    return near;
                }
                let known = |it: &usize| words.contains(module(&self.functions[*it].path));
                far.into_iter().filter(known).collect()
            }
            Receiver::Type(name) if name == "Self" => of(&|it| it.owner == caller.owner),
            Receiver::Type(name) => of(&|it| it.owner == *name),
            Receiver::Value(name) if name == "self" => of(&|it| it.owner == caller.owner),
            Receiver::Value(name) => {
                let last = name.rsplit('_').next().unwrap_or_default();
                let known = of(&|it| words.contains(it.owner.as_str()));
                let only = |right: &dyn Fn(&str) -> bool| -> Vec<usize> {
                    let right = |it: &&usize| right(&snake(&self.functions[**it].owner));
                    known.iter().filter(right).copied().collect()
                };
                let found = [
                    only(&|owner| stem(owner) == stem(name)),
                    only(&|owner| owner.split('_').any(|part| stem(part) == stem(last))),
                    known.iter().copied().filter(|it| *it == target).collect(),
                ];
                let mut found = found.into_iter();
                found.find(|found| !found.is_empty()).unwrap_or_default()
            }
        }
    }
}

/// `SendQueue` as `send_queue`.
fn snake(name: &str) -> String {
    let mut found = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !found.is_empty() {
            found.push('_');
        }
        found.push(c.to_ascii_lowercase());
    }
    found
}

/// The word without the end of a plural.
fn stem(word: &str) -> &str {
    word.strip_suffix('s').unwrap_or(word)
}

/// Whether `path` is `place` or in this folder, which ends with a `/`.
fn is_within(path: &str, place: &str) -> bool {
    path == place || place.ends_with('/') && path.starts_with(place)
}

/// The name of the module in a file.
fn module(path: &str) -> &str {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.rsplit('/').next().unwrap_or_default()
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The files, and folders, in which a walk may be more than once.
fn composers(page: &Page, tree: &Tree) -> Vec<String> {
    let text = tree.get(&page.path).map_or("", String::as_str);
    let line = text.lines().find(|line| line.starts_with("Composer: "));
    let quoted = line.unwrap_or_default().split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

fn steps(page: &Page) -> Vec<Step> {
    let bare = |cell: &String| cell.trim_matches('`').to_owned();
    let rows = page.rows.iter();
    rows.filter_map(|(line, cells)| match cells.as_slice() {
        [number, _, function, path, _] if number.parse::<u32>().is_ok() => Some(Step {
            line: *line,
            number: number.clone(),
            function: bare(function),
            path: bare(path),
        }),
        _ => None,
    })
    .collect()
}

/// The functions of all files beside those of the walk, and of its composers.
fn functions(steps: &[Step], composers: &[String], tree: &Tree) -> Vec<Function> {
    let folders: BTreeSet<&str> = steps.iter().map(|step| folder(&step.path)).collect();
    let files = tree.iter().filter(|(path, _)| {
        let composer = composers.iter().any(|it| is_within(path, it));
        path.ends_with(".rs") && (composer || folders.contains(folder(path)))
    });
    files
        .flat_map(|(path, text)| functions_of(path, text))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: &str = "impl<Q: Io<A>> Worker<Q> {
    pub fn turn(&mut self) {
        let parsed = parser::Parser::parse();
        self.rest();
    }

    fn rest(&self) {
        free(self.queue.dequeue());
    }

    fn again(&self) {}
}
";
    const PARSER: &str = "use table::look_up;
pub struct Parser;
impl Parser {
    pub fn parse() -> u8
    where
        u8: Copy,
    {
        look_up()
    }
}
";
    const TABLE: &str = "// fn gone() {}
pub fn look_up<T>() {}
fn alone() {}
impl Drop for Queue {
    fn dequeue(&mut self) {}
}
";

    fn walk(rows: &[(&str, &str)]) -> Vec<String> {
        let mut text = "Composer: `w/`.\n".to_owned();
        for (number, (function, path)) in (1..).zip(rows) {
            text.push_str(&format!("| {number} | a | `{function}` | `{path}` | x |\n"));
        }
        let page = Page::new("docs/none.md", &text);
        let files = [
            ("docs/none.md", text.as_str()),
            ("w/mod.rs", WORKER),
            ("w/names.rs", "use Parser; use Queue;"),
            ("p/parser.rs", PARSER),
            ("t/table.rs", TABLE),
        ];
        let tree = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        check(&page, &tree.into())
    }

    const GOOD: [(&str, &str); 4] = [
        ("Worker::turn", "w/mod.rs"),
        ("Parser::parse", "p/parser.rs"),
        ("look_up", "t/table.rs"),
        ("Worker::rest", "w/mod.rs"),
    ];

    #[test]
    fn walks_in_order_are_right() {
        assert_eq!(walk(&GOOD), [""; 0]);
        let through = [GOOD[0], GOOD[1], ("Queue::dequeue", "t/table.rs")];
        assert_eq!(
            walk(&through),
            [""; 0],
            "through a function that is not listed"
        );
        let turn = [GOOD[0], GOOD[3], GOOD[0], GOOD[1]];
        assert_eq!(walk(&turn), [""; 0], "another turn");
    }

    #[test]
    fn wrong_walks_are_found() {
        for (place, wrong) in [
            (0, ("Worker::turned", "w/mod.rs")),
            (1, ("Other::parse", "p/parser.rs")),
            (2, ("gone", "t/table.rs")),
            (2, ("alone", "t/table.rs")),
            (2, ("look_up", "t/other.rs")),
            (3, ("Worker::again", "w/mod.rs")),
        ] {
            let mut rows = GOOD;
            rows[place] = wrong;
            assert_ne!(walk(&rows), [""; 0], "{wrong:?}");
        }
        let order = "docs/none.md:5: `Parser::parse` is not called from here on: \
                     the order is another one";
        let dequeue = ("Queue::dequeue", "t/table.rs");
        assert_eq!(walk(&[GOOD[0], GOOD[3], dequeue, GOOD[1]]), [order]);
        let twice = walk(&[GOOD[0], GOOD[1], GOOD[2], GOOD[0], GOOD[1]]);
        assert_eq!(twice, ["docs/none.md:6: p/parser.rs is visited twice"]);
    }
}
