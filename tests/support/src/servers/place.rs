//! Programs, folders, and ports of servers.

use std::{
    env, fs, io, iter,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process,
    sync::{
        OnceLock,
        atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Returns the build folder, usually `target`: the program of a test or benchmark is
/// `target/<profile>/deps/<name>-<hash>`.
fn target() -> PathBuf {
    let program = env::current_exe().unwrap();
    let target = program.ancestors().nth(3);
    target.expect("a folder of the build").to_owned()
}

/// Returns the name of the running test or benchmark, to which cargo appends a hash.
pub(super) fn test_program() -> String {
    let program = env::current_exe().unwrap();
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.rsplit_once('-').map_or(&*name, |(name, _)| name);
    name.to_owned()
}

/// # Panics
///
/// If no server may be started.
pub(super) fn may_start(name: &str) {
    assert!(
        env::var_os(WHICH).is_none_or(|which| which != "none"),
        "{name} must not be started, because {WHICH} is none: expected a test that starts a program to have `redis`, \
         `memcached` or `processes::` in its path, by which ./test.sh quick leaves it out"
    );
}

/// Returns the program of that name in `target/servers/`, otherwise on the `PATH`.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let fetched = target().join("servers");
    let path = env::var_os("PATH").unwrap_or_default();
    iter::once(fetched)
        .chain(env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// Set by `test.sh`. With the value `all`, programs that are optional elsewhere are required; with
/// `none`, no test may start a server.
const WHICH: &str = "TOLLGATE_TEST_SERVERS";

/// Reports that a test runs without a missing program.
///
/// # Panics
///
/// If it is missing although the tests run under `test.sh`, which provides it.
pub fn required(name: &str, is_there: bool) {
    assert!(
        is_there || env::var_os(WHICH).is_none(),
        "no {name} found, and {WHICH} is set: run ./test.sh, which gets one"
    );
    if !is_there {
        eprintln!("WITHOUT {name}: run ./test.sh once, which gets one");
    }
}

/// Returns the path of a client program; `None` if it is missing, and it is not [`required`].
///
/// # Panics
///
/// If it is missing although it is required, and if no program may be started.
pub fn client(name: &str) -> Option<PathBuf> {
    may_start(name);
    let found = program(name);
    required(name, found.is_some());
    found
}

/// Returns a port of the loopback that is free and that this process has not returned before.
///
/// It is not one of the ports for outgoing connections, as port 0 would be. Otherwise, while a
/// server is down, a client that retries its port could get the same port as its source port and
/// connect to itself.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Concurrent processes start far from each other.
    let next = NEXT.get_or_init(|| {
        let start = process::id().wrapping_mul(7919) % u32::from(COUNT);
        AtomicU16::new(start as u16)
    });
    (0..COUNT)
        .map(|_| FIRST + next.fetch_add(1, Relaxed) % COUNT)
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .unwrap_or_else(|| panic!("expected a free port from {FIRST} on, {COUNT} were tried"))
}

/// Opens a connection on which each network operation may take `limit`.
pub(super) fn connect(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A new folder, removed on drop.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static ALL: OnceLock<PathBuf> = OnceLock::new();
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let all = ALL.get_or_init(|| {
            let all = data();
            sweep(&all);
            all
        });
        let name = format!("{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
        let path = all.join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn empty_but_for(&self, kept: &Path) {
        for entry in fs::read_dir(&self.0).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else if path != kept {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the folder of all data: in memory, if there is room. Servers that wait for the disk at
/// each write are as slow as other work on that disk makes them.
fn data() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |memory| memory.f_bavail * memory.f_frsize);
    // Each etcd reserves 128 MB.
    if room < 4 << 30 {
        return target().join("tmp/servers");
    }
    let user = fs::metadata("/proc/self").unwrap().uid();
    memory.join(format!("tollgate-servers-{user}"))
}

/// Removes the folders of processes that were killed, or that kept a server in a `static`.
fn sweep(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
