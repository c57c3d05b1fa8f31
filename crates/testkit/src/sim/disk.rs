//! A model of a disk: what is not synced may be lost, torn or reordered when the power fails.
//!
//! A killed process loses nothing: its writes are in the cache, which belongs to the machine. Only
//! [`Disk::power_loss`] forgets, and only what no `sync` has confirmed. Names are separate from
//! contents: a file that was renamed keeps its old name after a power loss unless its folder was
//! synced, too.

use std::collections::BTreeMap;

use super::random::Random;

/// An injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// The device does not answer; how much was written is unknown.
    Io,
    /// No room; nothing was written.
    Full,
}

/// What happens to unsynced data when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of it is gone.
    All,
    /// The beginning of each write is there, the rest is garbage or missing.
    Torn,
    /// Each write by itself is kept, lost or torn, so that later ones can survive earlier ones.
    Mixed,
}

#[derive(Clone, Debug)]
struct Write {
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    seen: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<Write>,
}

#[derive(Clone, Debug)]
enum Naming {
    Made { name: String, content: usize },
    Moved { from: String, to: String },
}

/// A disk with one folder.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    contents: Vec<Content>,
    seen: BTreeMap<String, usize>,
    synced: BTreeMap<String, usize>,
    pending: Vec<Naming>,
    operations: u64,
    broken: BTreeMap<u64, Errno>,
}

impl Disk {
    /// Lets the `n`-th operation from now fail (1 is the next).
    pub fn fail(&mut self, n: u64, errno: Errno) {
        self.broken.insert(self.operations + n, errno);
    }

    fn operate(&mut self) -> Option<Errno> {
        self.operations += 1;
        self.broken.remove(&self.operations)
    }

    /// What a process reads now.
    pub fn read(&self, name: &str) -> Option<&[u8]> {
        self.seen.get(name).map(|&i| self.contents[i].seen.as_slice())
    }

    /// Adds to the end of a file, which is made if it is not there.
    pub fn append(&mut self, name: &str, bytes: &[u8], random: &mut Random) -> Result<(), Errno> {
        let errno = self.operate();
        let kept = match errno {
            None => bytes.len(),
            Some(Errno::Full) => return Err(Errno::Full),
            Some(Errno::Io) => random.below(bytes.len() as u64) as usize,
        };
        let index = self.open(name);
        let content = &mut self.contents[index];
        let at = content.seen.len();
        content.seen.extend_from_slice(&bytes[..kept]);
        content.pending.push(Write { at, bytes: bytes[..kept].to_vec() });
        errno.map_or(Ok(()), Err)
    }

    /// Makes a new file of that name with this content.
    pub fn write(&mut self, name: &str, bytes: &[u8], random: &mut Random) -> Result<(), Errno> {
        self.make(name);
        self.append(name, bytes, random)
    }

    fn open(&mut self, name: &str) -> usize {
        match self.seen.get(name) {
            Some(&index) => index,
            None => self.make(name),
        }
    }

    fn make(&mut self, name: &str) -> usize {
        let content = self.contents.len();
        self.contents.push(Content::default());
        self.seen.insert(name.to_owned(), content);
        self.pending.push(Naming::Made { name: name.to_owned(), content });
        content
    }

    /// Gives a file another name; what had that name is gone.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        if let Some(errno) = self.operate() {
            return Err(errno);
        }
        if let Some(index) = self.seen.remove(from) {
            self.seen.insert(to.to_owned(), index);
            self.pending.push(Naming::Moved { from: from.to_owned(), to: to.to_owned() });
        }
        Ok(())
    }

    /// Makes a file's content survive. After an error it is unknown how much of it does; a read
    /// shows it.
    pub fn sync(&mut self, name: &str, random: &mut Random) -> Result<(), Errno> {
        let errno = self.operate();
        let Some(&index) = self.seen.get(name) else { return Ok(()) };
        let content = &mut self.contents[index];
        let pending = std::mem::take(&mut content.pending);
        if let Some(errno) = errno {
            if random.one_in(2) {
                put_all(&mut content.synced, &pending);
            }
            content.seen = content.synced.clone();
            return Err(errno);
        }
        put_all(&mut content.synced, &pending);
        Ok(())
    }

    /// Makes the names survive.
    pub fn sync_folder(&mut self) -> Result<(), Errno> {
        if let Some(errno) = self.operate() {
            return Err(errno);
        }
        for naming in std::mem::take(&mut self.pending) {
            rename(&mut self.synced, &naming);
        }
        Ok(())
    }

    /// Whether a power loss could change this file.
    pub fn is_unsafe(&self, name: &str) -> bool {
        let unsynced = |&index: &usize| !self.contents[index].pending.is_empty();
        !self.pending.is_empty() || self.seen.get(name).is_some_and(unsynced)
    }

    /// The power fails.
    pub fn power_loss(&mut self, loss: Loss, random: &mut Random) {
        for content in self.contents.iter_mut().filter(|c| !c.pending.is_empty()) {
            for write in std::mem::take(&mut content.pending) {
                if let Some(bytes) = survive(&write.bytes, loss, random) {
                    put(&mut content.synced, &Write { at: write.at, bytes });
                }
            }
            content.seen = content.synced.clone();
        }
        let keep = random.below(self.pending.len() as u64 + 1) as usize;
        for (n, naming) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            let kept = match loss {
                Loss::All => false,
                // The folder's own journal keeps its order.
                Loss::Torn | Loss::Mixed => n < keep,
            };
            if kept {
                rename(&mut self.synced, &naming);
            }
        }
        self.seen = self.synced.clone();
    }
}

/// What is left of an unsynced write.
fn survive(bytes: &[u8], loss: Loss, random: &mut Random) -> Option<Vec<u8>> {
    let torn = |random: &mut Random| {
        let cut = random.below(bytes.len() as u64 + 1) as usize;
        let mut left = bytes[..cut].to_vec();
        if random.one_in(2) {
            left.extend((cut..bytes.len()).map(|_| random.draw() as u8));
        }
        left
    };
    match loss {
        Loss::All => None,
        Loss::Torn => Some(torn(random)),
        Loss::Mixed => match random.below(3) {
            0 => None,
            1 => Some(bytes.to_vec()),
            _ => Some(torn(random)),
        },
    }
}

fn put_all(content: &mut Vec<u8>, writes: &[Write]) {
    for write in writes {
        put(content, write);
    }
}

fn put(content: &mut Vec<u8>, write: &Write) {
    let end = write.at + write.bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[write.at..end].copy_from_slice(&write.bytes);
}

fn rename(names: &mut BTreeMap<String, usize>, naming: &Naming) {
    match naming {
        Naming::Made { name, content } => {
            names.insert(name.clone(), *content);
        }
        Naming::Moved { from, to } => {
            if let Some(index) = names.remove(from) {
                names.insert(to.clone(), index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_synced_survives_for_sure() {
        let mut random = Random::new(1);
        let mut disk = Disk::default();
        disk.append("log", b"one", &mut random).expect("no error is planned");
        disk.sync("log", &mut random).expect("no error is planned");
        disk.sync_folder().expect("no error is planned");
        disk.append("log", b"two", &mut random).expect("no error is planned");
        assert_eq!(disk.read("log"), Some(&b"onetwo"[..]), "a process sees its own writes");
        disk.power_loss(Loss::All, &mut random);
        assert_eq!(disk.read("log"), Some(&b"one"[..]));
    }

    #[test]
    fn a_name_needs_its_folder_synced() {
        let mut random = Random::new(2);
        let mut disk = Disk::default();
        disk.write("new", b"x", &mut random).expect("no error is planned");
        disk.sync("new", &mut random).expect("no error is planned");
        disk.sync_folder().expect("no error is planned");
        disk.rename("new", "old").expect("no error is planned");
        disk.power_loss(Loss::All, &mut random);
        assert_eq!((disk.read("old"), disk.read("new")), (None, Some(&b"x"[..])));
    }

    #[test]
    fn errors_come_at_the_operation_they_were_planned_for() {
        let mut random = Random::new(3);
        let mut disk = Disk::default();
        disk.fail(2, Errno::Full);
        disk.append("log", b"one", &mut random).expect("the second one fails");
        assert_eq!(disk.append("log", b"two", &mut random), Err(Errno::Full));
        disk.append("log", b"three", &mut random).expect("only the second one fails");
        assert_eq!(disk.read("log"), Some(&b"onethree"[..]));
    }
}
