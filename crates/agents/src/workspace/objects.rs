//! Writes objects of a repository without git: loose ones, as git itself writes them. Reading is left
//! to git, so what is checked is what the repository holds.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use everloop_core::hex::hex;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Bytes of an object's name in repositories of the usual format.
const SHA1_BYTES: usize = 20;

/// Bytes of a random part of a file's name.
const NAME_BYTES: usize = 8;

/// The objects of a repository.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    dir: PathBuf,
    id_bytes: usize,
}

impl Objects {
    /// The objects in the git folder `common`, whose names have so many bytes.
    pub fn new(common: &Path, id_bytes: usize) -> Self {
        Self { dir: common.join("objects"), id_bytes }
    }

    /// Writes an object, unless it is there, and returns its name.
    pub fn put(&self, kind: &str, content: &[u8]) -> io::Result<String> {
        let head = format!("{kind} {}\0", content.len());
        let id = self.name(&[head.as_bytes(), content]);
        let (folder, name) = id.split_at(2);
        let folder = self.dir.join(folder);
        let path = folder.join(name);
        if path.exists() {
            return Ok(id);
        }
        if let Err(e) = fs::create_dir(&folder)
            && e.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(e);
        }
        // A crash leaves a file that git's own cleaning removes.
        let mut random = [0; NAME_BYTES];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let temporary = folder.join(format!("tmp_obj_{}", hex(&random)));
        let written = write(&temporary, &[head.as_bytes(), content]).and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            // The first error says more than one about the leftover.
            fs::remove_file(&temporary).ok();
        }
        written.map(|()| id)
    }

    fn name(&self, parts: &[&[u8]]) -> String {
        fn digest<D: Digest>(parts: &[&[u8]]) -> String {
            hex(&parts.iter().fold(D::new(), D::chain_update).finalize())
        }
        if self.id_bytes == SHA1_BYTES { digest::<Sha1>(parts) } else { digest::<Sha256>(parts) }
    }
}

fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)?;
    let mut packed = ZlibEncoder::new(file, Compression::fast());
    for part in parts {
        packed.write_all(part)?;
    }
    packed.finish()?.flush()
}

/// The bytes of an object's name.
pub(super) fn raw_id(id: &str) -> Option<Vec<u8>> {
    let pairs = id.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Git;

    #[tokio::test]
    async fn objects_have_the_names_and_the_content_that_git_gives_them() {
        for format in ["sha1", "sha256"] {
            let temp = tempfile::tempdir().unwrap();
            let git = Git::operators(temp.path());
            git.bytes(&["init", "-q", "--object-format", format]).await.unwrap();
            let id_bytes = if format == "sha1" { 20 } else { 32 };
            let objects = Objects::new(&temp.path().join(".git"), id_bytes);
            let content = "some text\n".repeat(1000);
            let id = objects.put("blob", content.as_bytes()).unwrap();
            assert_eq!(objects.put("blob", content.as_bytes()).unwrap(), id, "twice");
            let theirs = git.fed(&["hash-object", "--stdin"], content.as_bytes()).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&theirs.stdout).trim(), id);
            assert_eq!(git.line(&["cat-file", "blob", &id]).await.unwrap(), content.trim_end_matches('\n'));
            git.bytes(&["fsck", "--strict"]).await.unwrap();
            assert_eq!(hex(&raw_id(&id).unwrap()), id);
        }
    }
}
