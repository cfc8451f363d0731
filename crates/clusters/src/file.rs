//! One kubeconfig file: reads it within bounds, and notices changes of it or of a file it refers to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::ClusterName;

use crate::error::Unusable;
use crate::kubeconfig::{self, Contexts, Draft, MAX_KEPT_BYTES, Origin};
use crate::polled::{Look, Polled, Settled};
use crate::provider::{Access, ClusterProvider, Fingerprint, Snapshot, Source};
use crate::reference::{
    self, Attributes, Files, Looks, MAX_FILE_BYTES, Reference, attributes, read_bounded,
};
use crate::trust::Trust;

/// The contexts of one kubeconfig file.
#[derive(Debug)]
pub struct KubeconfigFile {
    path: PathBuf,
    contexts: Contexts,
    trust: Trust,
}

impl KubeconfigFile {
    /// The given contexts of the file at `path`, or every context, with the trust of [`Trust::default`].
    pub fn new(path: impl Into<PathBuf>, contexts: Option<Vec<String>>) -> Self {
        let contexts = contexts.map_or(Contexts::All, Contexts::Chosen);
        Self { path: path.into(), contexts, trust: Trust::default() }
    }

    /// The same file, which may do this.
    #[must_use]
    pub fn trusted(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// As a provider that follows the file's changes.
    pub fn provider(self) -> Box<dyn ClusterProvider> {
        let Self { path, contexts, trust } = self;
        let origin = Origin { path, prefix: None, trust };
        Box::new(Polled::new(WatchedFile::new(origin, contexts)))
    }
}

/// A kubeconfig file and its last accepted content.
#[derive(Debug)]
pub(crate) struct WatchedFile {
    origin: Origin,
    contexts: Contexts,
    content: Settled<Fingerprint>,
    looks: Looks,
    drafts: Vec<Draft>,
    /// Whether nothing is missed while it is no kubeconfig: it was one before, or is a file of another kind, its contexts
    /// are chosen, or it came later than this process.
    is_known: bool,
}

impl WatchedFile {
    /// Accepts the first content at once.
    pub(crate) fn new(origin: Origin, contexts: Contexts) -> Self {
        let is_known = matches!(contexts, Contexts::Chosen(_));
        let (content, looks, drafts) = (Settled::trusting(), Looks::default(), Vec::new());
        Self { origin, contexts, content, looks, drafts, is_known }
    }

    /// Accepts nothing until two reads agree: for a file that may still be half written.
    pub(crate) fn cautious(origin: Origin, contexts: Contexts) -> Self {
        let content = Settled::at(Fingerprint::of([]));
        Self { content, is_known: true, ..Self::new(origin, contexts) }
    }

    /// Whether it may name clusters that nobody has read: it could not be read since the start, or not as the
    /// kubeconfig that it may be.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_known && !self.drafts.is_empty()
    }

    /// Reads it, unless it is as it was.
    pub(crate) fn read(&mut self) {
        self.read_after(attributes(&self.origin.path));
    }

    /// The same with its attributes. What cannot be read is tried at each look.
    fn read_after(&mut self, attributes: Option<Attributes>) {
        let is_due = self.looks.is_due(attributes.map(|of_it| vec![of_it]));
        if !is_due && self.content.pending.is_none() {
            return;
        }
        let read = read_bounded(&self.origin.path);
        let seen = match &read {
            Ok(bytes) => Fingerprint::of([b"content".as_slice(), bytes]),
            Err(error) => {
                self.looks = Looks::default();
                Fingerprint::of([b"error".as_slice(), error.to_string().as_bytes()])
            }
        };
        if self.content.observe(seen) {
            self.drafts = self.interpret(read);
        }
    }

    /// The names of its present clusters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ClusterName> {
        self.drafts.iter().map(|draft| &draft.name)
    }

    /// The bytes that these take, without the files that they refer to.
    pub(crate) fn bytes(&self) -> usize {
        self.drafts.iter().map(|draft| draft.bytes).sum()
    }

    /// Those of its present clusters whose places are wanted. Of those that together take more bytes than there is room
    /// for, the last are down; the others take them away from `room`.
    pub(crate) fn sources(
        &mut self,
        wanted: impl Fn(usize) -> bool,
        room: &mut usize,
    ) -> Vec<Source> {
        let (before, mut left) = (*room, MAX_KEPT_BYTES.min(*room));
        let (most, mut files) = (left, Files::default());
        let wanted = self.drafts.iter_mut().enumerate().filter(|(place, _)| wanted(*place));
        let sources = wanted.map(|(_, draft)| limited(draft, &mut files, &mut left)).collect();
        *room = before - (most - left);
        sources
    }

    fn interpret(&mut self, read: io::Result<Vec<u8>>) -> Vec<Draft> {
        let path = &self.origin.path;
        let parsed = read.map_err(|source| unreadable(path, source)).and_then(|bytes| {
            let parsed = kubeconfig::parse(path, &bytes);
            self.is_known |= parsed.is_ok() || !kubeconfig::may_be_one(&bytes);
            parsed
        });
        match parsed {
            Ok(config) => kubeconfig::drafts(&self.origin, &config, &self.contexts),
            Err(error) => self.down(Arc::new(error)),
        }
    }

    /// Down clusters for a file that cannot be used: those it named last, or else the chosen contexts.
    fn down(&self, error: Arc<Unusable>) -> Vec<Draft> {
        let mut names: Vec<(ClusterName, Arc<str>)> =
            self.drafts.iter().map(|d| (d.name.clone(), Arc::clone(&d.origin))).collect();
        if let (true, Contexts::Chosen(contexts)) = (names.is_empty(), &self.contexts) {
            names.extend(contexts.iter().map(|context| self.origin.named(context)));
        }
        if names.is_empty() {
            names.push(self.origin.nameless());
        }
        let draft = |(name, origin)| Draft::down(name, origin, Arc::clone(&error));
        names.into_iter().map(draft).collect()
    }
}

impl Look for WatchedFile {
    fn label(&self) -> String {
        format!("kubeconfig {}", self.origin.path.display())
    }

    fn look(&mut self) -> Snapshot {
        self.read();
        let sources = self.sources(|_| true, &mut MAX_KEPT_BYTES.clone());
        Snapshot { sources, is_partial: self.is_open(), ..Snapshot::default() }
    }
}

/// The source of a draft. Reads the files that the draft refers to.
pub(crate) fn source(mut draft: Draft) -> Source {
    let mut room = MAX_KEPT_BYTES;
    limited(&mut draft, &mut Files::default(), &mut room)
}

/// The same for one of many. What it takes, in bytes, is no longer in `room`.
fn limited(draft: &mut Draft, files: &mut Files, room: &mut usize) -> Source {
    let (access, fingerprint) = match whole(draft, files, room) {
        Ok((access, fingerprint)) => (Ok(access), fingerprint),
        Err(error) => {
            let fingerprint = Fingerprint::of([b"error".as_slice(), error.reason().as_bytes()]);
            (Err(error), fingerprint)
        }
    };
    let (name, origin) = (draft.name.clone(), Arc::clone(&draft.origin));
    Source { name, origin, fingerprint, access, asked: None }
}

/// How to reach the cluster of a draft, with what the files hold that it refers to.
fn whole(
    draft: &mut Draft,
    files: &mut Files,
    room: &mut usize,
) -> Result<(Access, Fingerprint), Arc<Unusable>> {
    let now = draft.references.iter().map(|reference| attributes(&reference.file)).collect();
    let made = draft.made.take().filter(|_| !draft.looks.is_due(now));
    let made = made.map_or_else(|| embedded(draft, files, *room), Ok)?;
    let (access, fingerprint, bytes) = made.clone();
    draft.made = Some(made);
    *room = room.checked_sub(bytes).ok_or_else(|| too_much(draft, *room))?;
    Ok((access, fingerprint))
}

/// The same from what the files hold now, and the bytes that it takes.
fn embedded(
    draft: &Draft,
    files: &mut Files,
    room: usize,
) -> Result<(Access, Fingerprint, usize), Arc<Unusable>> {
    let ((mut access, mut fingerprint), mut bytes) = (draft.access.clone()?, draft.bytes);
    let Access::Kubeconfig { kubeconfig, granted, .. } = &mut access else {
        return Ok((access, fingerprint, bytes));
    };
    for Reference { field, file } in &draft.references {
        let read = files.read(file, granted.within.as_deref());
        let (content_hash, content) = read.map_err(|source| Unusable::Reference {
            origin: draft.origin.to_string(),
            field,
            file: file.clone(),
            source,
        })?;
        bytes += reference::embedded_bytes(content);
        if bytes > room {
            return Err(too_much(draft, room).into());
        }
        fingerprint = Fingerprint::of([fingerprint.as_ref(), content_hash.as_ref()]);
        reference::embed(Arc::make_mut(kubeconfig), field, content);
    }
    Ok((access, fingerprint, bytes))
}

fn too_much(draft: &Draft, limit_bytes: usize) -> Unusable {
    Unusable::TooMuch { origin: draft.origin.to_string(), limit_bytes }
}

/// Why a kubeconfig cannot be read.
pub(crate) fn unreadable(path: &Path, source: io::Error) -> Unusable {
    let path = path.to_owned();
    if source.kind() == io::ErrorKind::FileTooLarge {
        return Unusable::TooLarge { path, limit_bytes: MAX_FILE_BYTES };
    }
    Unusable::Read { path, source }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::reference::READ_EVERY;

    fn config(context: &str, extra: &str) -> String {
        format!(
            "clusters: [{{name: c, cluster: {{server: 'https://h:1'{extra}}}}}]\n\
             contexts: [{{name: {context}, context: {{cluster: c}}}}]\n"
        )
    }

    fn at(path: PathBuf, contexts: Contexts) -> WatchedFile {
        WatchedFile::new(Origin { path, prefix: None, trust: Trust::stranger() }, contexts)
    }

    fn seen(file: &mut WatchedFile) -> Vec<Source> {
        file.look().sources
    }

    /// Reads twice, so that a change counts, and lists the clusters.
    fn look(file: &mut WatchedFile) -> String {
        seen(file);
        let sources = seen(file);
        let line = |s: &Source| match &s.access {
            Ok(_) => format!("{}=ok", s.name),
            Err(error) => format!("{}={}", s.name, error.reason()),
        };
        sources.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_file_that_breaks_takes_down_the_clusters_it_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.yaml");
        let mut file = at(path.clone(), Contexts::All);
        assert!(look(&mut file).starts_with("k=cannot read"));
        fs::write(&path, config("east", "")).unwrap();
        assert_eq!(look(&mut file), "east=ok");
        fs::write(&path, "clusters: {").unwrap();
        assert!(look(&mut file).starts_with("east="), "{}", look(&mut file));
        assert!(look(&mut file).contains("is not a kubeconfig: "));
        fs::remove_file(&path).unwrap();
        assert!(look(&mut file).starts_with("east=cannot read"));
        fs::write(&path, config("west", "")).unwrap();
        assert_eq!(look(&mut file), "west=ok");
    }

    #[test]
    fn a_half_written_file_is_not_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.yaml");
        fs::write(&path, config("east", "")).unwrap();
        let mut file = at(path.clone(), Contexts::All);
        let before = seen(&mut file);
        fs::write(&path, &config("west", "")[..20]).unwrap();
        assert_eq!(seen(&mut file), before);
        fs::write(&path, config("west", "")).unwrap();
        assert_eq!(seen(&mut file), before);
        assert_eq!(seen(&mut file)[0].name.as_str(), "west");
    }

    #[test]
    fn a_file_is_read_when_its_attributes_change_a_few_times_more_and_then_seldom() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.yaml");
        let mut file = at(path.clone(), Contexts::All);
        // Each time, another file is there.
        let mut reads = |attributes, looks| {
            let is_read = |n: &u32| {
                fs::write(&path, config(&format!("c{n}"), "")).unwrap();
                file.content = Settled::trusting();
                file.drafts.clear();
                file.read_after(attributes);
                !file.drafts.is_empty()
            };
            (0..looks).filter(is_read).collect::<Vec<_>>()
        };
        assert_eq!(reads(Some(([1; 3], [1, 1])), 45), [0, 1, 2, 3, 20, 40]);
        assert_eq!(reads(Some(([1; 3], [1, 2])), 10), [0, 1, 2, 3]);
        assert_eq!(reads(None, 6), [0, 1, 2, 3, 4, 5], "it may be missing");
    }

    #[test]
    fn what_cannot_be_read_is_tried_at_each_look_and_read_once_it_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.yaml");
        let mut file = at(path.clone(), Contexts::All);
        let attributes = Some(([1; 3], [1; 2]));
        (0..READ_EVERY - 1).for_each(|_| file.read_after(attributes));
        fs::write(&path, config("east", "")).unwrap();
        (0..2).for_each(|_| file.read_after(attributes));
        assert_eq!(file.names().next().unwrap().as_str(), "east");
    }

    #[test]
    fn a_change_that_the_attributes_do_not_show_counts_when_it_is_seen_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.yaml");
        let mut file = at(path.clone(), Contexts::All);
        fs::write(&path, config("east", "")).unwrap();
        let attributes = Some(([1; 3], [1; 2]));
        (0..READ_EVERY).for_each(|_| file.read_after(attributes));
        fs::write(&path, config("west", "")).unwrap();
        file.read_after(attributes);
        assert_eq!(file.names().next().unwrap().as_str(), "east");
        file.read_after(attributes);
        assert_eq!(file.names().next().unwrap().as_str(), "west");
    }

    #[test]
    fn a_referenced_file_counts_as_part_of_the_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.yaml");
        fs::write(&path, config("east", ", certificate-authority: ca.crt")).unwrap();
        let mut file = at(path, Contexts::All);
        let missing = look(&mut file);
        assert!(missing.contains("cannot read its certificate-authority"), "{missing}");
        fs::write(dir.path().join("ca.crt"), "one").unwrap();
        assert_eq!(look(&mut file), "east=ok");
        let before = seen(&mut file);
        fs::write(dir.path().join("ca.crt"), "two").unwrap();
        assert_ne!(seen(&mut file), before);
    }

    #[test]
    fn a_referenced_file_is_read_when_it_changes_a_few_times_more_and_then_seldom() {
        let dir = tempfile::tempdir().unwrap();
        let (path, authority) = (dir.path().join("k.yaml"), dir.path().join("ca.crt"));
        fs::write(&path, config("east", ", certificate-authority: ca.crt")).unwrap();
        fs::write(&authority, "one").unwrap();
        let mut file = at(path, Contexts::All);
        // What was made of it before is exchanged each time.
        let planted = Fingerprint::of([b"planted".as_slice()]);
        let mut is_read = |_: &u32| {
            let made = file.drafts.first_mut().and_then(|draft| draft.made.as_mut());
            made.into_iter().for_each(|made| made.1 = planted);
            seen(&mut file)[0].fingerprint != planted
        };
        assert_eq!((0..30).filter(&mut is_read).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 21]);
        fs::write(&authority, "another").unwrap();
        assert_eq!((0..6).filter(&mut is_read).collect::<Vec<_>>(), [0, 1, 2, 3]);
        fs::remove_file(&authority).unwrap();
        assert_eq!((0..6).filter(&mut is_read).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_many_contexts_share_is_bounded_in_all_and_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.yaml");
        let contexts: Vec<_> =
            (0..200).map(|n| format!("{{name: c{n}, context: {{cluster: c}}}}")).collect();
        let config = format!(
            "clusters: [{{name: c, cluster: {{server: 'https://h', certificate-authority: ca.crt}}}}]\n\
             contexts: [{}]\n",
            contexts.join(", ")
        );
        fs::write(&path, config).unwrap();
        fs::write(dir.path().join("ca.crt"), vec![b'x'; 900_000]).unwrap();
        let sources = seen(&mut at(path, Contexts::All));
        let error = |source: &Source| source.access.as_ref().err().map(|error| error.reason());
        let kept = sources.iter().filter(|source| error(source).is_none()).count();
        assert_eq!(kept, MAX_KEPT_BYTES / 1_200_300);
        let text = sources.last().and_then(error).unwrap();
        assert!(text.contains("c199") && text.contains("what many contexts share"), "{text}");
    }

    #[test]
    fn sizes_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("big");
        fs::write(&path, vec![b'#'; MAX_FILE_BYTES as usize + 1]).unwrap();
        let mut file = at(path, Contexts::All);
        assert!(look(&mut file).contains("is larger than 1048576 bytes"));
    }

    #[test]
    fn chosen_contexts_are_down_while_the_file_is_missing() {
        let chosen = Contexts::Chosen(vec!["a".into(), "b".into()]);
        let mut file = at("/nowhere/k.yaml".into(), chosen);
        let names: Vec<_> = seen(&mut file).iter().map(|s| s.name.to_string()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
