//! Staging and switching without git beside git itself: the same trees, an index that git finds
//! right, and the same files, over many random changes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::gather::{Gathered, gather};
use super::objects::Objects;
use super::stage::Staging;
use super::switch::Switch;
use super::tree::{Detail, status};
use crate::git::{Git, GitSession};

const NAMES: [&str; 13] =
    ["a", "b", "a.b", "a-b", "a0", "b/a", "b/c/d", "b.c/d", "b-c", "b/c.d/e", "x y/z", "deep/er/and/er", "deep/er-x"];
const STEPS: u64 = 60;

/// Two folders with the same files: one is taken by everloop, the other one by git.
struct Pair {
    temp: tempfile::TempDir,
    seed: u64,
}

impl Pair {
    async fn new(format: &str) -> Self {
        let pair = Self { temp: tempfile::tempdir().unwrap(), seed: 1 };
        fs::create_dir(pair.at("tree")).unwrap();
        pair.git("x").bytes(&["init", "-q", "--object-format", format]).await.unwrap();
        for index in ["ours", "theirs"] {
            pair.git(index).bytes(&["read-tree", "--empty"]).await.unwrap();
        }
        pair
    }

    fn at(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn git(&self, index: &str) -> Git {
        let git = Git::operators(self.temp.path()).with("GIT_DIR", self.at("tree/.git"));
        git.over(&self.at("tree"), &self.at(index))
    }

    /// The next random number below `most`.
    fn draw(&mut self, most: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % most
    }

    /// Changes a file somehow.
    fn change(&mut self) {
        let name = NAMES[self.draw(NAMES.len() as u64) as usize];
        let (path, what) = (self.at("tree").join(name), self.draw(8));
        if what == 0 || path.is_dir() {
            fs::remove_file(&path).ok();
            for folder in Path::new(name).ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
                fs::remove_dir(self.at("tree").join(folder)).ok();
            }
            return;
        }
        if fs::create_dir_all(path.parent().unwrap()).is_err() {
            return;
        }
        fs::remove_file(&path).ok();
        if what == 1 {
            symlink(format!("to-{}", self.draw(3)), &path).unwrap();
            return;
        }
        fs::write(&path, format!("{}\n", self.draw(4)).repeat(self.draw(5) as usize)).unwrap();
        if what == 2 {
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
    }

    async fn gathered(&self, index: &str, id_bytes: usize) -> Gathered {
        let look = status(&self.git(index).with("GIT_OPTIONAL_LOCKS", "0"), Detail::Files).await.unwrap();
        // Compared with the index alone: there is no commit.
        let listed = self.git(index).bytes(&["ls-files", "-z", "--deleted", "--modified", "--others"]).await.unwrap();
        let mut paths: Vec<PathBuf> = crate::git::records(&listed).map(crate::git::path_from).collect();
        paths.sort();
        paths.dedup();
        assert!(look.nested.is_empty());
        gather(&self.at("tree"), &self.at(index), paths, (Vec::new(), id_bytes)).unwrap()
    }

    fn staging(&self, id_bytes: usize) -> Staging {
        let objects = Objects::new(&self.at("tree/.git"), id_bytes);
        let (index, before) = (self.at("ours"), self.at("before"));
        Staging { tree: self.at("tree"), index, before, objects, id_bytes }
    }
}

async fn is_right(git: &Git, tree: &str) {
    assert_eq!(git.line(&["write-tree"]).await.unwrap(), tree, "git makes another tree of this index");
    let changed = git.line(&["ls-files", "--deleted", "--modified", "--others"]).await.unwrap();
    assert_eq!(changed, "", "git finds that files differ from this index");
}

#[tokio::test]
async fn random_changes_give_the_trees_that_git_makes() {
    for (format, id_bytes) in [("sha1", 20), ("sha256", 32)] {
        let mut pair = Pair::new(format).await;
        let mut done = 0;
        for step in 0..STEPS {
            for _ in 0..=pair.draw(3) {
                pair.change();
            }
            let theirs = pair.git("theirs");
            theirs.bytes(&["add", "--all"]).await.unwrap();
            let wanted = theirs.line(&["write-tree"]).await.unwrap();
            let gathered = pair.gathered("ours", id_bytes).await;
            match pair.staging(id_bytes).run(&gathered).unwrap() {
                Some(tree) => {
                    assert_eq!(tree, wanted, "step {step}");
                    done += 1;
                }
                // A file came in the place of a folder, or the reverse.
                None => pair.git("ours").bytes(&["add", "--all"]).await.map(|_| ()).unwrap(),
            }
            is_right(&pair.git("ours"), &wanted).await;
        }
        assert!(done > STEPS / 2, "{done} of {STEPS} were staged without git");
        pair.git("ours").bytes(&["fsck", "--strict"]).await.unwrap();
    }
}

#[tokio::test]
async fn switching_gives_the_files_that_git_would_check_out() {
    let mut pair = Pair::new("sha1").await;
    let blobs = GitSession::new(pair.git("ours"), &["cat-file", "--batch"]);
    let mut states: Vec<(PathBuf, String)> = Vec::new();
    for step in 0..STEPS {
        for _ in 0..=pair.draw(3) {
            pair.change();
        }
        let git = pair.git("ours");
        git.bytes(&["add", "--all"]).await.unwrap();
        let tree = git.line(&["write-tree"]).await.unwrap();
        let kept = pair.at(&format!("state-{step}"));
        fs::copy(pair.at("ours"), &kept).unwrap();
        states.push((kept, tree));
        let (to, wanted) = states[pair.draw(states.len() as u64) as usize].clone();
        let switch = Switch { tree: pair.at("tree"), index: pair.at("ours"), to, wanted: wanted.clone(), id_bytes: 20 };
        assert!(switch.run(&blobs).await.unwrap(), "step {step}");
        is_right(&pair.git("ours"), &wanted).await;
        assert!(!has_empty_folder(&pair.at("tree")), "step {step}: an empty folder was left");
    }
}

fn has_empty_folder(folder: &Path) -> bool {
    let items: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|item| item.unwrap().path()).collect();
    let below = |path: &PathBuf| path.is_dir() && !path.is_symlink() && !path.ends_with(".git");
    items.is_empty() || items.iter().filter(|path| below(path)).any(|path| has_empty_folder(path))
}

#[tokio::test]
async fn a_switch_to_other_files_than_wanted_is_left_to_git() {
    let mut pair = Pair::new("sha1").await;
    pair.change();
    pair.git("ours").bytes(&["add", "--all"]).await.unwrap();
    let blobs = GitSession::new(pair.git("ours"), &["cat-file", "--batch"]);
    let (tree, index, to) = (pair.at("tree"), pair.at("ours"), pair.at("ours"));
    let switch = Switch { tree, index, to, wanted: "0".repeat(40), id_bytes: 20 };
    assert!(!switch.run(&blobs).await.unwrap());
}

#[tokio::test]
async fn attributes_and_large_files_are_left_to_git() {
    let pair = Pair::new("sha1").await;
    fs::write(pair.at("tree/large"), vec![b'x'; 9 << 20]).unwrap();
    let gathered = pair.gathered("ours", 20).await;
    assert_eq!(pair.staging(20).run(&gathered).unwrap(), None);
    fs::remove_file(pair.at("tree/large")).unwrap();
    fs::write(pair.at("tree/.gitattributes"), "* text\n").unwrap();
    let gathered = pair.gathered("ours", 20).await;
    assert_eq!(pair.staging(20).run(&gathered).unwrap(), None);
    pair.git("ours").bytes(&["add", "--all"]).await.unwrap();
    fs::write(pair.at("tree/a"), "x\r\n").unwrap();
    let gathered = pair.gathered("ours", 20).await;
    assert_eq!(pair.staging(20).run(&gathered).unwrap(), None, "attributes in the index");
}
