//! [`Profiles`]: where memory is allocated and processor time is spent. Can be used in production at any time.
//!
//! Memory: jemalloc records the stack of one allocation per [`SAMPLE_BYTES`]. The `heap` profile has the stacks whose
//! memory is still in use, the `allocs` profile has all stacks ([`allocations`]). A stack costs about 15 us, so 400 MB
//! of allocations per second cost 0.15 % of a core. Processor time: a signal comes [`CPU_HZ_MAX`] times per second of
//! processor time or less often ([`cpu_hz`]), only while a profile is taken.
//!
//! Names of functions are looked up when a profile is read ([`super::symbols`]). jemalloc has no labels, so the
//! functions in a stack show the purpose of its memory ([`label`]).

use super::stacks::{Stacks, StacksError};
use super::symbols::{NoNames, Symbols, on_names_thread};
use super::{allocations, profiler_memory};
use parking_lot::Mutex;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use strand_diag::profile::{Frame, Profile, Sample};
use strand_engine::ProfileRequest;
use tikv_jemalloc_ctl::{Access, AsName};

/// Maximum number of samples per second of processor time. The number is not round, so that periodic work cannot fall
/// between the samples.
const CPU_HZ_MAX: u32 = 99;
/// Maximum number of microseconds per second that the samples of all cores may take together: 1 % of one core.
const SAMPLING_US_MAX: u32 = 10_000;
/// Microseconds of one sample, more than double of what was measured: 11 us. A worker that took all of a core with
/// GET and SET (pipeline 30) spent 0.11 % of its time in samples at 99 a second: 37 of 34,645 samples of `perf record
/// -e cpu-clock -F 2999 -g` beside `curl 'http://HOST:8379/debug/pprof/profile?seconds=10'`. The names at the end
/// take 50 ms once, at the lowest priority.
const SAMPLE_US: u32 = 25;
/// When a CPU profile was not fetched for this time after its end, it is dropped.
const UNFETCHED: Duration = Duration::from_secs(30);
/// Mean bytes of allocations for one sample. A sampled allocation takes a page range of its own (16 KiB and more),
/// which is 0.4 % of the memory at this rate. jemalloc's configuration sets the rate (`.cargo/config.toml`).
const SAMPLE_BYTES: f64 = (1u64 << 22) as f64;
/// Maximum number of bytes of jemalloc's dump that are read.
const DUMP_BYTES_MAX: u64 = 256 << 20;

/// The CPU profile in progress, and what heap profiles need. Only one CPU profile can be taken at a time.
#[derive(Default)]
pub struct Profiles {
    cpu: Mutex<Option<Running>>,
    /// Locked while a heap profile is made, so that only one profile takes memory at a time.
    heap: Mutex<()>,
}

/// A CPU profile in progress.
struct Running {
    id: u64,
    /// Samples per second of processor time.
    hz: u32,
    guard: ProfilerGuard<'static>,
    began: Instant,
    until: Instant,
}

/// Why there is no profile. The text is an error reply.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Another profile is being taken.
    #[error("BUSY another profile is being taken: try again when it is complete")]
    Busy,
    /// The client does not know the number of the profile that is being taken.
    #[error("ERR no such profile is being taken")]
    Unknown,
    /// The sampling of allocations cannot be turned on or off.
    #[error("ERR the sampling of allocations cannot be changed: {0}")]
    Allocations(tikv_jemalloc_ctl::Error),
    /// The allocator was configured without sampling.
    #[error("ERR the allocator was started without sampling (prof:false)")]
    NoSampling,
    /// The sampling of processor time cannot be started.
    #[error("ERR processor time cannot be sampled: {0}")]
    Start(pprof::Error),
    /// The samples of processor time cannot be read.
    #[error("ERR {0}")]
    Samples(pprof::Error),
    /// The allocator does not write its profile.
    #[error("ERR the allocator's profile cannot be written: {0}")]
    Dump(tikv_jemalloc_ctl::Error),
    /// The file of the allocator's profile cannot be made or read.
    #[error("ERR the allocator's profile cannot be written: {0}")]
    File(io::Error),
    /// The allocator's profile is too long.
    #[error("ERR the allocator's profile has {bytes} bytes, more than {DUMP_BYTES_MAX}")]
    TooLong {
        /// The length of the profile.
        bytes: u64,
    },
    /// The names of the functions cannot be looked up.
    #[error("ERR {0}")]
    Names(NoNames),
    /// The profile cannot be compressed.
    #[error("ERR {0}")]
    Compress(io::Error),
}

impl Profiles {
    /// Turns the sampling of allocations on or off.
    ///
    /// # Errors
    /// When the allocator was built without sampling.
    pub fn sample_heap(&self, on: bool) -> Result<(), ProfileError> {
        let counted = if on { allocations::count() } else { Ok(()) };
        counted.and_then(|()| b"prof.active\0".name().write(on)).map_err(ProfileError::Allocations)
    }
    /// Serves DIAG PROFILE. Returns the bytes of the answer.
    ///
    /// # Errors
    /// An error reply.
    pub fn take(&self, ask: ProfileRequest) -> Result<Vec<u8>, ProfileError> {
        profiler_memory::within(|| match ask {
            ProfileRequest::Heap { folded } => self.counted(Counted::Heap, folded),
            ProfileRequest::Allocs { folded } => self.counted(Counted::Allocs, folded),
            ProfileRequest::CpuStart { seconds } => self.start(seconds),
            ProfileRequest::CpuStop { id, folded } => self.stop(id, folded),
        })
    }
    /// Drops a CPU profile that nobody has fetched. Call this about once per second. Does nothing while stacks are
    /// taken, which may take two seconds on a busy machine.
    pub fn tick(&self) {
        let Some(mut running) = self.cpu.try_lock() else { return };
        if running.as_ref().is_some_and(|running| Instant::now() > running.until + UNFETCHED) {
            profiler_memory::within(|| *running = None);
        }
    }
    /// The stacks of threads of this process. See [`super::stacks::take`].
    ///
    /// # Errors
    /// Also while processor time is sampled, because both need the one signal handler.
    pub fn stacks(&self, threads: &[i32], at_once: bool) -> Result<Stacks, StacksError> {
        let running = self.cpu.lock();
        match *running {
            Some(_) => Err(StacksError::Sampled),
            None => profiler_memory::within(|| super::stacks::take(threads, at_once)),
        }
    }
    fn start(&self, seconds: u64) -> Result<Vec<u8>, ProfileError> {
        let mut running = self.cpu.lock();
        if running.is_some() {
            return Err(ProfileError::Busy);
        }
        // Leave these libraries out, because an unwinder in them may deadlock on its own locks.
        let hz = cpu_hz(std::thread::available_parallelism().map_or(1, |cores| cores.get()));
        let builder = ProfilerGuardBuilder::default().frequency(hz as i32);
        let builder = builder.blocklist(&["libc.so", "libgcc", "pthread", "vdso"]);
        let guard = builder.build().map_err(ProfileError::Start)?;
        let began = Instant::now();
        let id = rand_id();
        *running = Some(Running { id, hz, guard, began, until: began + Duration::from_secs(seconds) });
        Ok(id.to_string().into_bytes())
    }
    fn stop(&self, id: u64, folded: bool) -> Result<Vec<u8>, ProfileError> {
        let mut place = self.cpu.lock();
        let is_its = place.as_ref().is_some_and(|running| running.id == id);
        let running = place.take_if(|_| is_its).ok_or(ProfileError::Unknown)?;
        let took = running.began.elapsed();
        let ns = 1_000_000_000 / i64::from(running.hz);
        let report = on_names_thread(move || running.guard.report().build()).map_err(ProfileError::Names)?;
        let report = report.map_err(ProfileError::Samples)?;
        let samples = report.data.iter().map(|(stack, count)| {
            let symbols = stack.frames.iter().flatten();
            let frames: Vec<Frame> = symbols
                .map(|symbol| Frame {
                    function: symbol.name(),
                    file: symbol.filename.as_ref().map(|f| f.display().to_string()).unwrap_or_default(),
                    line: symbol.lineno.unwrap_or(0),
                })
                .collect();
            let count = *count as i64;
            let mut labels = label(&frames);
            labels.insert(0, ("thread", stack.thread_name.clone()));
            Sample { frames, values: vec![count, count * ns], labels }
        });
        let profile = Profile {
            kinds: vec![("samples", "count"), ("cpu", "nanoseconds")],
            samples: samples.collect(),
            period: ("cpu", "nanoseconds", ns),
            time_ns: now_ns() - took.as_nanos() as i64,
            duration_ns: took.as_nanos() as i64,
        };
        encode(&profile, folded)
    }
    fn counted(&self, counted: Counted, folded: bool) -> Result<Vec<u8>, ProfileError> {
        let [profile] = self.read([counted])?;
        encode(&profile, folded)
    }
    /// The memory profiles of one moment: all allocations, folded and as pprof, then the memory in use, folded and as
    /// pprof. The names of the functions are most of the work, so the four take as long as one.
    ///
    /// # Errors
    /// An error reply.
    pub fn memory(&self) -> Result<[Vec<u8>; 4], ProfileError> {
        let [allocs, heap] = self.read([Counted::Allocs, Counted::Heap])?;
        Ok([encode(&allocs, true)?, encode(&allocs, false)?, encode(&heap, true)?, encode(&heap, false)?])
    }
    /// Makes a profile of each kind that is `wanted`.
    fn read<const N: usize>(&self, wanted: [Counted; N]) -> Result<[Profile; N], ProfileError> {
        let Some(_only) = self.heap.try_lock() else { return Err(ProfileError::Busy) };
        if b"opt.prof\0".name().read() != Ok(true) {
            return Err(ProfileError::NoSampling);
        }
        let dump = if wanted.contains(&Counted::Heap) { dump()? } else { String::new() };
        let time_ns = now_ns();
        let named = move || {
            let mut symbols = Symbols::default();
            wanted.map(|counted| {
                let stacks = match counted {
                    Counted::Heap => stacks(&dump),
                    Counted::Allocs => allocations::stacks(),
                };
                let stacks = stacks.into_iter().filter(|(_, [objects, _])| *objects > 0);
                counted
                    .profile(stacks.map(|(addresses, counts)| (symbols.frames(&addresses), counts)), time_ns)
            })
        };
        on_names_thread(named).map_err(ProfileError::Names)
    }
}

/// What a memory profile counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// The memory that is in use.
    Heap,
    /// All allocations since the start, also the freed ones.
    Allocs,
}

impl Counted {
    /// The profile of stacks, each with its sampled objects and their bytes. `time_ns` is the time of the profile, in
    /// nanoseconds since 1970.
    fn profile(self, stacks: impl Iterator<Item = (Vec<Frame>, [u64; 2])>, time_ns: i64) -> Profile {
        let names = match self {
            Counted::Heap => ["inuse_objects", "inuse_space"],
            Counted::Allocs => ["alloc_objects", "alloc_space"],
        };
        let samples = stacks.map(|(frames, [objects, bytes])| {
            let (objects, bytes) = unbiased(objects, bytes);
            let labels = label(&frames);
            Sample { frames, values: vec![objects, bytes], labels }
        });
        Profile {
            kinds: vec![(names[0], "count"), (names[1], "bytes")],
            samples: samples.collect(),
            period: ("space", "bytes", SAMPLE_BYTES as i64),
            time_ns,
            duration_ns: 0,
        }
    }
}

/// A number that another client cannot guess.
fn rand_id() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() >> 1
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// Encodes the profile: compressed by gzip, or as folded stacks with the second of the profile's values.
fn encode(profile: &Profile, folded: bool) -> Result<Vec<u8>, ProfileError> {
    if folded {
        return Ok(profile.folded(1).into_bytes());
    }
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(&profile.pprof()).and_then(|()| out.finish()).map_err(ProfileError::Compress)
}

/// Returns the text of jemalloc's heap dump. jemalloc can write a dump only to a file, so this uses one file in
/// memory for all dumps: a full or slow disk does not matter.
fn dump() -> Result<String, ProfileError> {
    static FILE: OnceLock<(File, &'static [u8])> = OnceLock::new();
    let (file, path) = match FILE.get() {
        Some(made) => made,
        None => {
            let made = memfd_create("heap-profile", MemfdFlags::CLOEXEC);
            let file: File = made.map_err(|e| ProfileError::File(e.into()))?.into();
            // jemalloc's interface requires a name with a static lifetime.
            let path = format!("/proc/self/fd/{}\0", file.as_raw_fd()).into_bytes().leak();
            FILE.get_or_init(|| (file, path))
        }
    };
    b"prof.dump\0".name().write(*path).map_err(ProfileError::Dump)?;
    let length = file.metadata().map_err(ProfileError::File)?.len();
    let mut text = vec![0; usize::try_from(length.min(DUMP_BYTES_MAX)).unwrap_or(0)];
    let read = match length <= DUMP_BYTES_MAX {
        true => file.read_exact_at(&mut text, 0).map_err(ProfileError::File),
        false => Err(ProfileError::TooLong { bytes: length }),
    };
    // This frees the memory of the file.
    file.set_len(0).map_err(ProfileError::File)?;
    read.map(|()| String::from_utf8_lossy(&text).into_owned())
}

/// The addresses of a stack, and its sampled objects and their bytes.
pub(super) type Stack = (Vec<usize>, [u64; 2]);

/// The stacks of a dump: `@ ADDRESS...`, and after it `t*: OBJECTS: BYTES [...]`, the memory in use.
fn stacks(text: &str) -> Vec<Stack> {
    let mut found = Vec::new();
    let mut addresses: Option<Vec<usize>> = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(stack) = line.strip_prefix("@ ") {
            let address = |word: &str| usize::from_str_radix(word.trim_start_matches("0x"), 16).ok();
            addresses = Some(stack.split(' ').filter_map(address).collect());
        } else if let Some(counts) = line.strip_prefix("t*:")
            && let Some(addresses) = addresses.take()
        {
            let numbers = counts.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
            let mut both = [0; 2];
            both.iter_mut().zip(numbers).for_each(|(place, number): (&mut u64, u64)| *place = number);
            found.push((addresses, both));
        } else if line.starts_with("MAPPED_LIBRARIES") {
            break;
        }
    }
    found
}

/// Samples per second of processor time, so that the samples take [`SAMPLING_US_MAX`] when all `cores` are busy.
fn cpu_hz(cores: usize) -> u32 {
    let cores = u32::try_from(cores).unwrap_or(u32::MAX).max(1);
    (SAMPLING_US_MAX / SAMPLE_US / cores).clamp(1, CPU_HZ_MAX)
}

/// Scales a sample to all allocations that the sample stands for. An allocation is sampled with the probability 1 -
/// e^(-size / rate).
fn unbiased(objects: u64, bytes: u64) -> (i64, i64) {
    if objects == 0 {
        return (0, 0);
    }
    let size = bytes as f64 / objects as f64;
    let times = 1.0 / (1.0 - (-size / SAMPLE_BYTES).exp()).max(f64::MIN_POSITIVE);
    ((objects as f64 * times) as i64, (bytes as f64 * times) as i64)
}

/// The purpose of a part of the program, by the prefix of its functions' names. The innermost match decides.
const PURPOSES: [(&str, &str); 12] = [
    ("strand_keyspace::", "data"),
    ("strand_commands::", "data"),
    ("strand_search::", "search"),
    ("strand_http::", "http"),
    ("strand_wire::", "clients"),
    ("strand_diag::", "diag"),
    ("strand_engine::diag::", "diag"),
    ("strand_engine::timing::", "diag"),
    ("strand_engine::persist::", "persistence"),
    ("strand_engine::pubsub::", "messages"),
    ("strand_engine::", "clients"),
    ("strand::", "driver"),
];
/// Prefix of the name of a family of commands.
const FAMILIES: &str = "strand_commands::families::";

/// The labels of a stack: `family` of commands, if there is one, and `purpose`.
fn label(frames: &[Frame]) -> Vec<(&'static str, String)> {
    // A method of a trait is shown as `<crate::Type as Trait>::method`.
    let names = || frames.iter().map(|frame| frame.function.trim_start_matches(['<', '&']));
    let family = names().find_map(|name| name.strip_prefix(FAMILIES)?.split("::").next());
    let purpose = names().find_map(|name| {
        let longest = PURPOSES.iter().filter(|(begins, _)| name.starts_with(begins));
        longest.max_by_key(|(begins, _)| begins.len()).map(|(_, purpose)| *purpose)
    });
    let mut labels = Vec::new();
    labels.extend(family.map(|family| ("family", family.to_string())));
    labels.push(("purpose", purpose.unwrap_or("other").to_string()));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_all_cores_take_a_hundredth_of_one_core() {
        assert_eq!([1, 2, 4, 8, 64].map(cpu_hz), [99, 99, 99, 50, 6]);
        for cores in 1..=SAMPLING_US_MAX / SAMPLE_US {
            let us = cpu_hz(cores as usize) * cores * SAMPLE_US;
            assert!(us <= SAMPLING_US_MAX, "{cores} cores: {us} us");
        }
        // More cores than any machine has.
        assert_eq!(cpu_hz(usize::MAX), 1);
    }

    #[test]
    fn a_heap_dump_is_parsed_and_other_text_gives_no_stacks() {
        let text = "heap_v2/4194304\n  t*: 3: 600 [9: 900]\n  t0: 3: 600 [9: 900]\n@ 0x10 0x2f\n  t*: 2: 400 [5: 1000]\n  \
                    t0: 2: 400 [5: 1000]\n@ zz 0x3\n  t*: x\n\nMAPPED_LIBRARIES:\n@ 0x99\n  t*: 1: 1 [1: 1]\n";
        assert_eq!(stacks(text), [(vec![0x10, 0x2f], [2, 400]), (vec![3], [0; 2])]);
        assert!(stacks("\u{fffd}@@\nt*:").is_empty());
    }

    #[test]
    fn profile_names_its_values() {
        let stack = |name: &str, counts| (vec![Frame { function: name.into(), ..Frame::default() }], counts);
        let large = 1 << 30;
        let stacks = || [stack("a", [1, large]), stack("b", [3, 3 * large])].into_iter();
        for (counted, kind) in [(Counted::Heap, "inuse_space"), (Counted::Allocs, "alloc_space")] {
            let profile = counted.profile(stacks(), 7);
            assert_eq!((profile.kinds[1], profile.time_ns), ((kind, "bytes"), 7));
            assert_eq!(profile.folded(1), format!("other;b {}\nother;a {large}\n", 3 * large));
        }
    }

    #[test]
    fn small_samples_stand_for_many_and_large_ones_for_themselves() {
        let (objects, bytes) = unbiased(2, 200);
        assert!(
            (83_000..85_000).contains(&objects) && (8_300_000..8_500_000).contains(&bytes),
            "{objects} {bytes}"
        );
        assert_eq!(unbiased(1, 1 << 30), (1, 1 << 30));
        assert_eq!(unbiased(0, 0), (0, 0));
    }

    #[test]
    fn labels_name_the_family_and_the_purpose_of_a_stack() {
        let frames = |names: &[&str]| -> Vec<Frame> {
            names.iter().map(|name| Frame { function: name.to_string(), ..Frame::default() }).collect()
        };
        let labels = label(&frames(&[
            "alloc::raw_vec::grow",
            "<strand_keyspace::list::List as core::clone::Clone>::clone",
            "strand_commands::families::lists::push::run",
            "strand_engine::session::run",
        ]));
        assert_eq!(labels, [("family", "lists".to_string()), ("purpose", "data".to_string())]);
        assert_eq!(
            label(&frames(&["strand_engine::persist::aof::write"])),
            [("purpose", "persistence".to_string())]
        );
        assert_eq!(label(&frames(&["main"])), [("purpose", "other".to_string())]);
    }
}
