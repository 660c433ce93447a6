//! Child processes that end with this process, however it ends.

use std::{
    io,
    path::Path,
    process::{Child, Command},
    sync::{OnceLock, mpsc},
    thread,
};

/// Returns a command that the kernel kills when the thread that started it ends, if `setpriv`
/// (util-linux) is installed. `setpriv` executes the program in the same process.
pub(super) fn bound_to_us(program: &Path) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let bound = ["--pdeathsig", "KILL"];
    let works = SETPRIV.get_or_init(|| {
        let status = Command::new("setpriv").args(bound).arg("true").status();
        status.is_ok_and(|status| status.success())
    });
    if !works {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(bound).arg(program);
    command
}

/// Starts a process from a thread that lives as long as this process, because a handle may outlive
/// the thread of its test.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, ordered) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in ordered {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, answered) = mpsc::channel();
    spawner.send((command, answer)).unwrap();
    answered.recv().unwrap()
}
