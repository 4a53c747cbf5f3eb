//! What outlives the daemon: its programs, links and maps, pinned in a folder of a bpffs. When the daemon dies the
//! programs go on counting, and the next one takes everything over as it is: it loads and attaches nothing, so no event
//! falls in between. Knows no hook and no map by name; what was attached and loaded is pinned.
//!
//! ```text
//!   folder taken ─┬─ nothing in it ───────────────────▶ load, attach, prove ─▶ pin all, the manifest last
//!                 ├─ a manifest that fits ─▶ open, prove ─▶ taken over
//!                 └─ anything else ─▶ clear ──────────▶ load, attach, prove ─▶ pin all; the reason is kept
//!   stop: clear, the manifest first          killed: everything stays          hand over: everything stays
//! ```
//!
//! The programs of a tracing link cannot be exchanged, and two generations of them side by side would count twice. So
//! programs of another build are not mixed: their state is dropped, and counting starts clean.

pub mod folder;
mod manifest;
mod notes;

use crate::proc::own_namespaces::kernel_monotonic_ns;
use crate::programs::loader::{self, Loaded, chain};
use crate::programs::maps::{Maps, Source};
use crate::programs::tracepoint::{Memory, Options};
use crate::rows::Note;
use aya::Ebpf;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::{CgroupSkb, CgroupSkbAttachType, Iter};
use folder::Folder;
use governor_observation::wording::counted;
use governor_observation::{PinState, PinsView};
use manifest::{Manifest, Settings, Store};
use notes::Notes;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

/// Where to pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinOptions {
    /// The folder; its parent is on a bpffs.
    pub folder: PathBuf,
    /// Not to start where counting cannot be pinned.
    pub required: bool,
}

/// Links of the attached programs, by the program's name in the object. What is dropped detaches, unless it is pinned.
#[derive(Debug, Default)]
pub(crate) struct Links(BTreeMap<String, FdLink>);

impl Links {
    /// Keeps a program attached.
    pub(crate) fn keep(&mut self, program: &str, link: FdLink) {
        self.0.insert(program.to_owned(), link);
    }
}

/// Programs by their name, for those that are run or attached on demand.
pub(crate) enum Programs {
    /// All of an object.
    Loaded(Box<Ebpf>),
    /// Those of [`loader::ON_DEMAND`] that were pinned.
    Pinned {
        /// Where.
        folder: PathBuf,
        /// Opened so far.
        iterators: BTreeMap<String, Iter>,
        /// Opened so far.
        ingress: BTreeMap<String, CgroupSkb>,
    },
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loaded(_) => "Programs::Loaded",
            Self::Pinned { .. } => "Programs::Pinned",
        })
    }
}

impl Programs {
    /// An iterator, loaded.
    ///
    /// # Errors
    /// When there is none of this name.
    pub(crate) fn iterator(&mut self, name: &str) -> io::Result<&mut Iter> {
        match self {
            Self::Loaded(object) => {
                let program = object.program_mut(name);
                let program = program.ok_or_else(|| io::Error::other(format!("the object has no {name}")))?;
                program.try_into().map_err(io::Error::other)
            }
            Self::Pinned { folder, iterators, .. } => match iterators.entry(name.to_owned()) {
                Entry::Occupied(opened) => Ok(opened.into_mut()),
                Entry::Vacant(place) => {
                    let program = Iter::from_pin(folder.join(program_name(name))).map_err(io::Error::other)?;
                    Ok(place.insert(program))
                }
            },
        }
    }

    /// A program for what the sockets of a cgroup receive, loaded.
    ///
    /// # Errors
    /// When there is none of this name.
    pub(crate) fn cgroup_skb(&mut self, name: &str) -> io::Result<&mut CgroupSkb> {
        match self {
            Self::Loaded(object) => {
                let program = object.program_mut(name);
                let program = program.ok_or_else(|| io::Error::other(format!("the object has no {name}")))?;
                program.try_into().map_err(io::Error::other)
            }
            Self::Pinned { folder, ingress, .. } => match ingress.entry(name.to_owned()) {
                Entry::Occupied(opened) => Ok(opened.into_mut()),
                Entry::Vacant(place) => {
                    let path = folder.join(program_name(name));
                    let program = CgroupSkb::from_pin(path, CgroupSkbAttachType::Ingress).map_err(io::Error::other)?;
                    Ok(place.insert(program))
                }
            },
        }
    }
}

/// What is pinned, for as long as this daemon uses it. Dropping it removes everything from the folder.
#[derive(Debug)]
pub(crate) struct Pins {
    view: PinsView,
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    folder: Folder,
    store: Store,
    manifest: Manifest,
    notes: Notes,
}

/// What is pinned beside programs, links and the programs' maps.
type State = (Store, Manifest, Notes);

impl Pins {
    fn none(state: PinState, note: String) -> Self {
        Self { view: PinsView { state, note, ..PinsView::default() }, kept: None }
    }

    fn keep(state: PinState, folder: Folder, (store, manifest, notes): State, note: String) -> Self {
        let view = PinsView {
            state,
            folder: Some(folder.path().display().to_string()),
            counting_since_ns: Some(manifest.began_ns),
            note,
        };
        Self { view, kept: Some(Kept { folder, store, manifest, notes }) }
    }

    /// Whether and since when counting is pinned.
    pub(crate) fn view(&self) -> &PinsView {
        &self.view
    }

    /// What was learned so far, by whichever daemon.
    pub(crate) fn memory(&self) -> Memory {
        self.kept.as_ref().map(|kept| kept.manifest.memory.clone()).unwrap_or_default()
    }

    /// Keeps what was learned for the next daemon.
    pub(crate) fn remember(&mut self, memory: Memory) {
        let Some(Kept { store, manifest, .. }) = &mut self.kept else { return };
        if manifest.memory == memory {
            return;
        }
        manifest.memory = memory;
        if let Err(error) = store.write(manifest) {
            tracing::warn!(error = chain(&error), "what audits corrected is lost at the next restart");
        }
    }

    /// What earlier runs knew of the listeners that are older than the programs, by cookie.
    pub(crate) fn notes(&self) -> BTreeMap<u64, Note> {
        let notes = self.kept.as_ref().map(|kept| kept.notes.all());
        notes.and_then(Result::ok).unwrap_or_default()
    }

    /// Keeps what is known of a listener for the next daemon.
    pub(crate) fn note(&mut self, cookie: u64, note: Note) {
        if let Some(kept) = &mut self.kept
            && let Err(error) = kept.notes.put(cookie, note)
        {
            tracing::debug!(cookie, error = chain(&error), "totals of a listener begin anew at the next restart");
        }
    }

    /// Forgets a listener that has closed.
    pub(crate) fn forget(&mut self, cookie: u64) {
        if let Some(kept) = &mut self.kept {
            kept.notes.remove(cookie);
        }
    }

    /// Leaves everything in the folder.
    pub(crate) fn leave(&mut self) {
        self.kept = None;
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take()
            && let Err(error) = kept.folder.remove()
        {
            tracing::warn!(error = chain(&error), "pins stay; `governorctl doctor --clean` removes them");
        }
    }
}

/// Takes over what an earlier run left, or loads, attaches and pins anew. Either way one connection has been counted.
///
/// # Errors
/// One line that says why the programs cannot count here. Then nothing is attached and nothing pinned.
pub(crate) fn start(options: &Options) -> Result<(Loaded, Pins), String> {
    let Some(PinOptions { folder, .. }) = &options.pins else {
        return Ok((fresh(options, None)?, Pins::none(PinState::Off, String::new())));
    };
    if options.log {
        let note = "the programs were loaded with their debug messages on, which are for this process only";
        return Ok((fresh(options, None)?, Pins::none(PinState::Unavailable, note.to_owned())));
    }
    let folder = match Folder::take(folder) {
        Ok(folder) => folder,
        Err(error) => return Ok((fresh(options, None)?, Pins::none(PinState::Unavailable, chain(&error)))),
    };
    let settings = Settings { max_listeners: options.max_listeners(), best: options.best };
    let clean_because = match adopt(&folder, settings) {
        Ok(Some((loaded, state))) => return Ok((loaded, Pins::keep(PinState::Adopted, folder, state, String::new()))),
        Ok(None) => String::new(),
        Err(reason) => {
            tracing::warn!(reason, "counting starts clean");
            format!("started clean: {reason}")
        }
    };
    if let Err(error) = folder.clear() {
        return Ok((fresh(options, None)?, Pins::none(PinState::Unavailable, chain(&error))));
    }
    begin(options, folder, settings, clean_because)
}

/// Removes what an earlier run left where this one has no use for it; says what it did, if anything.
pub(crate) fn abandon(options: &PinOptions) -> String {
    match Folder::existing(&options.folder) {
        Ok(Some(folder)) => match folder.remove() {
            Ok(names) if names.is_empty() => String::new(),
            Ok(names) => {
                let pins = counted(names.len(), "pin of an earlier start was", "pins of an earlier start were");
                format!("{pins} removed: this tier has no use for them")
            }
            Err(error) => chain(&error),
        },
        Ok(None) => String::new(),
        Err(error) => chain(&error),
    }
}

/// The file of a map.
pub(crate) fn map_name(map: &str) -> String {
    format!("map_{map}")
}

fn program_name(program: &str) -> String {
    format!("program_{program}")
}

fn link_name(program: &str) -> String {
    format!("link_{program}")
}

/// Loads and attaches, pins the maps into `folder`, and proves that it counts.
fn fresh(options: &Options, folder: Option<(&Path, &mut Result<(), String>)>) -> Result<Loaded, String> {
    let loaded = loader::load(options, |object| {
        if let Some((folder, pinned)) = folder {
            *pinned = pin_maps(object, folder);
        }
    });
    let loaded = loaded.map_err(|error| chain(&error))?;
    loaded.prove().map_err(|error| chain(&error))?;
    Ok(loaded)
}

/// Loads, attaches, proves and pins. Where it cannot be pinned it counts without.
fn begin(options: &Options, folder: Folder, settings: Settings, note: String) -> Result<(Loaded, Pins), String> {
    let mut pinned = Ok(());
    let mut loaded = match fresh(options, Some((folder.path(), &mut pinned))) {
        Ok(loaded) => loaded,
        Err(reason) => {
            discard(folder);
            return Err(reason);
        }
    };
    match pinned.and_then(|()| pin_rest(&folder, &mut loaded, settings)) {
        Ok(state) => Ok((loaded, Pins::keep(PinState::Pinned, folder, state, note))),
        Err(reason) => {
            // A link that cannot be pinned is closed by the attempt, so all of them are made anew.
            discard(folder);
            drop(loaded);
            Ok((fresh(options, None)?, Pins::none(PinState::Unavailable, reason)))
        }
    }
}

fn discard(folder: Folder) {
    if let Err(error) = folder.remove() {
        tracing::warn!(error = chain(&error), "pins stay");
    }
}

/// Every map that a program may share with this process; the rest (constants) is kept by the programs.
fn pin_maps(object: &Ebpf, folder: &Path) -> Result<(), String> {
    for (name, map) in object.maps().filter(|(name, _)| !name.starts_with('.')) {
        map.pin(folder.join(map_name(name)))
            .map_err(|error| format!("map {name} cannot be pinned: {}", chain(&error)))?;
    }
    Ok(())
}

/// Programs, links and, when all that is done, the manifest.
fn pin_rest(folder: &Folder, loaded: &mut Loaded, settings: Settings) -> Result<State, String> {
    let path = folder.path();
    if let Programs::Loaded(object) = &mut loaded.programs {
        for name in loader::ON_DEMAND {
            let Some(program) = object.program_mut(name).filter(|program| program.fd().is_ok()) else { continue };
            let pinned = program.pin(path.join(program_name(name)));
            pinned.map_err(|error| format!("program {name} cannot be pinned: {}", chain(&error)))?;
        }
    }
    let mut links = Vec::new();
    for (name, link) in std::mem::take(&mut loaded.links.0) {
        let pinned = link.pin(path.join(link_name(&name)));
        let link = pinned.map_err(|error| format!("link {name} cannot be pinned: {}", chain(&error)))?;
        links.push(name.clone());
        loaded.links.0.insert(name, link.into());
    }
    let manifest = Manifest::new(object_digest(), settings, kernel_monotonic_ns(), links, loaded.facts.clone());
    let notes = Notes::create(path).map_err(|error| chain(&error))?;
    let store = Store::create(path, &manifest).map_err(|error| chain(&error))?;
    Ok((store, manifest, notes))
}

/// Opens what lies in the folder; `None` if nothing does.
///
/// # Errors
/// Why it is of no use.
fn adopt(folder: &Folder, settings: Settings) -> Result<Option<(Loaded, State)>, String> {
    let names = folder.names().map_err(|error| chain(&error))?;
    if names.is_empty() {
        return Ok(None);
    }
    if !names.iter().any(|name| name == folder::MANIFEST) {
        return Err("an earlier start or stop was not finished".to_owned());
    }
    let path = folder.path();
    let store = Store::open(path).map_err(|error| chain(&error))?;
    let manifest = store.read().map_err(|error| chain(&error))?;
    if manifest.object != object_digest() {
        return Err(format!("the pinned programs are of another build, that of governord {}", manifest.version));
    }
    if let Some(difference) = manifest.settings.difference(settings) {
        return Err(difference);
    }
    let mut links = Links::default();
    for name in &manifest.links {
        let link = PinnedLink::from_pin(path.join(link_name(name)));
        links.keep(name, link.map_err(|error| format!("link {name} is gone: {}", chain(&error)))?.into());
    }
    let maps = Maps::take(Source::Pins(path)).map_err(|error| chain(&error))?;
    let notes = Notes::open(path).map_err(|error| chain(&error))?;
    let programs = Programs::Pinned { folder: path.to_owned(), iterators: BTreeMap::new(), ingress: BTreeMap::new() };
    let loaded = Loaded { programs, links, maps, facts: manifest.facts.clone(), log: None };
    loaded.prove().map_err(|error| chain(&error))?;
    Ok(Some((loaded, (store, manifest, notes))))
}

/// SHA-256 of the embedded object, in hexadecimal.
fn object_digest() -> String {
    Sha256::digest(loader::OBJECT).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}
