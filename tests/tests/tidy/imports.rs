//! Which file imports which: `use` declarations and paths within code, resolved to the file that
//! defines what they name.
//!
//! Not an import: `mod x;`, and what a facade passes on (`pub use` of something further down, where
//! the facade does not use the name itself). An import through a facade counts as one of the file
//! behind it. Tests are left out. Methods that are called without naming their type are not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::none;
use super::source::{Source, Token, closing, sources, tokens};

/// An import: the files (as indices of the sources) and the line (from 1) that holds it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) line: usize,
    /// The path as written, resolved up to its first segment.
    pub(crate) path: String,
}

/// What is known of a tree of files: the imports, and the files that belong to no crate.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    pub(crate) all: Vec<Import>,
    pub(crate) orphans: Vec<usize>,
}

/// A name that a `use` declaration brings into a module.
#[derive(Debug, Clone)]
struct Use {
    /// `None` for everything that is in `path`.
    name: Option<String>,
    path: Vec<String>,
    line: usize,
    /// Whether others see it, too.
    passed_on: bool,
}

/// A module: a file or a part of one.
#[derive(Debug)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    uses: Vec<Use>,
    /// Paths of two or more segments in the code.
    paths: Vec<(Vec<String>, usize)>,
    /// Single words in the code.
    words: BTreeSet<String>,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    ItemOf(usize),
}

/// How many facades may lead to one another.
const DEPTH: usize = 16;

impl Imports {
    /// Reads the imports within every crate of `sources`.
    pub(crate) fn of(sources: &[Source]) -> Imports {
        let files: BTreeMap<&str, usize> = sources
            .iter()
            .enumerate()
            .map(|(number, source)| (source.path.as_str(), number))
            .collect();
        let mut found = Imports::default();
        let mut reached = BTreeSet::new();
        for (root, _) in sources.iter().enumerate().filter(|(_, s)| is_root(&s.path)) {
            let mut tree = Tree {
                sources,
                files: &files,
                modules: Vec::new(),
            };
            tree.read_file(root, None);
            reached.extend(tree.modules.iter().map(|module| module.file));
            tree.imports(&mut found.all);
        }
        found.all.sort();
        found.all.dedup();
        found.orphans = (0..sources.len())
            .filter(|number| !reached.contains(number) && !sources[*number].is_test())
            .collect();
        found
    }

    /// Groups of files that import one another, each sorted.
    pub(crate) fn circles(&self, files: usize) -> Vec<Vec<usize>> {
        let mut next = vec![BTreeSet::new(); files];
        for import in &self.all {
            next[import.from].insert(import.to);
        }
        let reachable: Vec<BTreeSet<usize>> = (0..files).map(|from| reach(&next, from)).collect();
        let mut circles = BTreeSet::new();
        for file in 0..files {
            let circle: Vec<usize> = reachable[file]
                .iter()
                .copied()
                .filter(|other| reachable[*other].contains(&file))
                .collect();
            if !circle.is_empty() {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }
}

/// Files that imports lead to from `from`; itself only if they lead back.
fn reach(next: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        open.extend(next[file].iter().copied().filter(|to| found.insert(*to)));
    }
    found
}

/// Whether a crate begins with the file at `path`.
fn is_root(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let end = folder.rsplit('/').next().unwrap_or_default();
    match name {
        "lib.rs" | "main.rs" => end == "src" || folder.contains("/src/bin/"),
        "build.rs" => end != "src",
        _ => (end == "bin" && folder.ends_with("src/bin")) || end == "examples",
    }
}

/// The modules of one crate.
struct Tree<'a> {
    sources: &'a [Source],
    files: &'a BTreeMap<&'a str, usize>,
    modules: Vec<Module>,
}

impl Tree<'_> {
    fn read_file(&mut self, file: usize, parent: Option<usize>) -> usize {
        let module = self.add(file, parent);
        let path = &self.sources[file].path;
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = match name.strip_suffix(".rs").unwrap_or(name) {
            "mod" => folder.to_owned(),
            _ if parent.is_none() => folder.to_owned(),
            stem => format!("{folder}/{stem}"),
        };
        let code = tokens(&self.sources[file].shipped);
        self.read(&code, module, &folder);
        module
    }

    fn add(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.modules.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            uses: Vec::new(),
            paths: Vec::new(),
            words: BTreeSet::new(),
        });
        self.modules.len() - 1
    }

    /// Reads the tokens of `module`, whose own modules are in `folder`.
    fn read(&mut self, code: &[Token], module: usize, folder: &str) {
        let mut at = 0;
        while at < code.len() {
            at = match &code[at..] {
                [mark, name, end, ..] if mark.is("mod") && name.is_word() && end.is(";") => {
                    self.read_child(&name.text, module, folder);
                    at + 3
                }
                [mark, name, begin, ..] if mark.is("mod") && name.is_word() && begin.is("{") => {
                    let end = closing(code, at + 2);
                    let child = self.add(self.modules[module].file, Some(module));
                    self.modules[module]
                        .children
                        .insert(name.text.clone(), child);
                    self.read(
                        &code[at + 3..end],
                        child,
                        &format!("{folder}/{}", name.text),
                    );
                    end + 1
                }
                // Who may see an item is no path within the code.
                [mark, begin, within, ..] if mark.is("pub") && begin.is("(") && within.is("in") => {
                    closing(code, at + 1) + 1
                }
                [mark, ..] if mark.is("use") => {
                    let end = (at..code.len()).find(|at| code[*at].is(";"));
                    let end = end.unwrap_or(code.len());
                    let passed_on = at > 0 && (code[at - 1].is("pub") || code[at - 1].is(")"));
                    let mut flat = Vec::new();
                    flatten(&code[at + 1..end], &[], &mut flat);
                    let uses = flat.into_iter().map(|(path, name, line)| Use {
                        name,
                        path,
                        line,
                        passed_on,
                    });
                    self.modules[module].uses.extend(uses);
                    end + 1
                }
                [word, ..] if word.is_word() => self.read_path(code, at, module),
                _ => at + 1,
            };
        }
    }

    fn read_child(&mut self, name: &str, module: usize, folder: &str) {
        let places = [
            format!("{folder}/{name}.rs"),
            format!("{folder}/{name}/mod.rs"),
        ];
        let file = places.iter().find_map(|path| self.files.get(path.as_str()));
        if let Some(file) = file {
            let child = self.read_file(*file, Some(module));
            self.modules[module].children.insert(name.to_owned(), child);
        }
    }

    /// Reads the path that begins at `at`; returns what follows it.
    fn read_path(&mut self, code: &[Token], at: usize, module: usize) -> usize {
        let mut path = vec![code[at].text.clone()];
        let mut end = at + 1;
        while let [colons, word, ..] = &code[end..]
            && colons.is("::")
            && word.is_word()
        {
            path.push(word.text.clone());
            end += 2;
        }
        let own = at == 0 || !(code[at - 1].is("::") || code[at - 1].is("."));
        let module = &mut self.modules[module];
        if own && path.len() > 1 {
            module.paths.push((path, code[at].line));
        } else if own {
            module.words.extend(path);
        }
        end
    }

    fn imports(&self, found: &mut Vec<Import>) {
        for (number, module) in self.modules.iter().enumerate() {
            for it in &module.uses {
                if let Some(Target::ItemOf(to)) = self.target_of_use(number, it)
                    && !self.is_facade(number, it, to)
                {
                    self.import(number, to, it.line, &it.path, found);
                }
            }
            for (path, line) in &module.paths {
                if let Some(Target::ItemOf(to)) = self.resolve(number, path, DEPTH) {
                    self.import(number, to, *line, path, found);
                }
            }
        }
    }

    /// What a `use` leads to; everything of a module is an item of it.
    fn target_of_use(&self, module: usize, it: &Use) -> Option<Target> {
        match self.resolve(module, &it.path, DEPTH)? {
            Target::Module(of) if it.name.is_none() => Some(Target::ItemOf(of)),
            target => Some(target),
        }
    }

    /// Whether `module` passes on an item of `to`, further down, and has no other use for it.
    fn is_facade(&self, module: usize, it: &Use, to: usize) -> bool {
        let mut above = self.modules[to].parent;
        while let Some(parent) = above
            && parent != module
        {
            above = self.modules[parent].parent;
        }
        let used = it.name.as_ref().is_some_and(|name| {
            let own = &self.modules[module];
            own.words.contains(name) || own.paths.iter().any(|(path, _)| path[0] == *name)
        });
        it.passed_on && above.is_some() && !used
    }

    fn import(
        &self,
        from: usize,
        to: usize,
        line: usize,
        path: &[String],
        found: &mut Vec<Import>,
    ) {
        let (from, to) = (self.modules[from].file, self.modules[to].file);
        if from != to {
            found.push(Import {
                from,
                to,
                line,
                path: path.join("::"),
            });
        }
    }

    /// What `path`, written in `module`, leads to within this crate.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.descend(0, rest, depth),
            "self" => self.descend(module, rest, depth),
            "super" => {
                let mut above = self.modules[module].parent?;
                let mut rest = rest;
                while let Some((next, after)) = rest.split_first()
                    && next == "super"
                {
                    above = self.modules[above].parent?;
                    rest = after;
                }
                self.descend(above, rest, depth)
            }
            name => match self.lookup(module, name, depth)? {
                Target::Module(inner) => self.descend(inner, rest, depth),
                item @ Target::ItemOf(_) => Some(item),
            },
        }
    }

    /// What `rest` leads to from inside `module`.
    fn descend(&self, module: usize, rest: &[String], depth: usize) -> Option<Target> {
        let Some((next, after)) = rest.split_first() else {
            return Some(Target::Module(module));
        };
        match self.lookup(module, next, depth) {
            Some(Target::Module(inner)) => self.descend(inner, after, depth),
            Some(item) => Some(item),
            // Either an item of the module, or something of another crate that it passes on.
            None if self.is_foreign(module, next) => None,
            None => Some(Target::ItemOf(module)),
        }
    }

    /// A name of `module` that is a module, or an item of another one.
    fn lookup(&self, module: usize, name: &str, depth: usize) -> Option<Target> {
        let own = &self.modules[module];
        if let Some(child) = own.children.get(name) {
            return Some(Target::Module(*child));
        }
        let depth = depth.checked_sub(1)?;
        let named = |it: &&Use| it.name.as_deref() == Some(name) && it.path[0] != name;
        if let Some(it) = own.uses.iter().find(named) {
            return self.resolve(module, &it.path, depth);
        }
        None
    }

    /// Whether `name` comes from another crate into `module`.
    fn is_foreign(&self, module: usize, name: &str) -> bool {
        let uses = &self.modules[module].uses;
        uses.iter().any(|it| it.name.as_deref() == Some(name))
    }
}

/// Path, name that it gets (`None` for `*`) and line.
type Flat = (Vec<String>, Option<String>, usize);

/// The paths of a `use` tree below `prefix`.
fn flatten(tree: &[Token], prefix: &[String], found: &mut Vec<Flat>) {
    let mut path = prefix.to_vec();
    let mut at = 0;
    while at < tree.len() {
        let token = &tree[at];
        if token.is("{") {
            let end = closing(tree, at);
            let mut begin = at + 1;
            let mut depth = 0_usize;
            for (now, inner) in tree.iter().enumerate().take(end).skip(at + 1) {
                match inner.text.as_str() {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    "," if depth == 0 => {
                        flatten(&tree[begin..now], &path, found);
                        begin = now + 1;
                    }
                    _ => {}
                }
            }
            flatten(&tree[begin..end], &path, found);
            return;
        }
        if token.is("*") {
            found.push((path, None, token.line));
            return;
        }
        if token.is("as") {
            let name = tree.get(at + 1).map(|name| name.text.clone());
            found.push((path, name, token.line));
            return;
        }
        if token.is("self") && !path.is_empty() {
            // `a::{self}` names `a`.
        } else if token.is_word() {
            path.push(token.text.clone());
        }
        at += 1;
    }
    if let (Some(name), Some(token)) = (path.last().cloned(), tree.last()) {
        found.push((path, Some(name), token.line));
    }
}

/// A group of files that import one another can only be read together.
#[test]
fn no_files_import_one_another_in_a_circle() {
    let all = sources();
    let imports = Imports::of(all);
    let path = |file: usize| all[file].path.as_str();
    let mut found = Vec::new();
    for circle in imports.circles(all.len()) {
        found.push(format!("{} files:", circle.len()));
        let mut shown = BTreeSet::new();
        for it in &imports.all {
            let within = circle.contains(&it.from) && circle.contains(&it.to);
            if within && shown.insert((it.from, it.to)) {
                let (from, to) = (path(it.from), path(it.to));
                found.push(format!("  {from}:{}: {} ({to})", it.line, it.path));
            }
        }
    }
    none("files import one another in a circle", found);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> (Vec<Source>, Imports) {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::new((*path).to_owned(), (*text).to_owned()))
            .collect();
        let imports = Imports::of(&sources);
        (sources, imports)
    }

    /// Imports as "from > to", by the names of the files.
    fn shown(files: &[(&str, &str)]) -> Vec<String> {
        let (sources, imports) = of(files);
        let name = |file: usize| sources[file].path.trim_start_matches("x/src/").to_owned();
        let all = imports.all.iter();
        all.map(|import| format!("{} > {}", name(import.from), name(import.to)))
            .collect()
    }

    #[test]
    fn declarations_and_paths_lead_to_files() {
        let found = shown(&[
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a.rs", "use crate::b::{self, B, inner::{D as E}};"),
            (
                "x/src/b/mod.rs",
                "pub mod inner; pub struct B; fn f() { super::c::g(1) }",
            ),
            ("x/src/b/inner.rs", "use std::fmt; pub struct D;"),
            (
                "x/src/c.rs",
                "use crate::b; fn g(_: u8) -> b::inner::D { std::mem::take() }",
            ),
        ]);
        assert_eq!(
            found,
            [
                "a.rs > b/mod.rs",
                "a.rs > b/inner.rs",
                "b/mod.rs > c.rs",
                "c.rs > b/inner.rs"
            ]
        );
    }

    #[test]
    fn facades_are_seen_through_and_are_no_imports() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b;"),
            ("x/src/a.rs", "use crate::b::D;"),
            ("x/src/b/mod.rs", "mod inner; pub use inner::D;"),
            ("x/src/b/inner.rs", "use crate::a; pub struct D;"),
        ];
        assert_eq!(shown(&files), ["a.rs > b/inner.rs"]);
        let mut uses = files;
        uses[2].1 = "mod inner; pub use inner::D; struct Own(D);";
        assert_eq!(shown(&uses), ["a.rs > b/inner.rs", "b/mod.rs > b/inner.rs"]);
        let mut sideways = files;
        sideways[2].1 = "mod inner; pub use crate::a::A;";
        assert!(shown(&sideways).contains(&"b/mod.rs > a.rs".to_owned()));
    }

    #[test]
    fn tests_visibility_and_other_crates_are_no_imports() {
        let found = shown(&[
            ("x/src/lib.rs", "mod a; mod b;"),
            (
                "x/src/a.rs",
                "pub(in crate::b) struct A; use other::b::B;\n#[cfg(test)]\nmod tests {\n use crate::b::C;\n}\n",
            ),
            ("x/src/b.rs", "use serde::a; fn f() { a::g() }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn circles_are_groups_of_files_that_reach_each_other() {
        let (sources, imports) = of(&[
            ("x/src/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("x/src/a.rs", "use crate::b::B;"),
            ("x/src/b.rs", "use crate::c::C;"),
            ("x/src/c.rs", "use crate::a::A; use crate::d::D;"),
            ("x/src/d.rs", ""),
        ]);
        assert_eq!(imports.circles(sources.len()), [[1, 2, 3]]);
    }

    #[test]
    fn a_file_that_no_module_declares_is_an_orphan() {
        let (_, imports) = of(&[
            ("x/src/lib.rs", "mod a;"),
            ("x/src/a.rs", ""),
            ("x/src/b.rs", ""),
        ]);
        assert_eq!(imports.orphans, [2]);
    }
}
