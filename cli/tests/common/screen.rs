//! A pseudo-terminal, and the command on it.

#![allow(unsafe_code, reason = "a process on a terminal of its own is made with `pre_exec`")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use onelock_tests::wait::wait_until;

use super::{Place, SOON};

/// Both ends of a new terminal.
fn pair() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let (name, termios, size) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: two places for descriptors, which are ours from then on; the other arguments may be left out.
    unsafe {
        assert_eq!(libc::openpty(&raw mut master, &raw mut slave, name, termios, size), 0);
        // what is started meanwhile by another test must not hold it open
        for end in [master, slave] {
            libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

/// A terminal, and the command that runs on it as the leader of its session.
pub struct Screen {
    keys: File,
    shown: Arc<Mutex<String>>,
    pub child: Child,
}

impl Screen {
    pub fn start(place: &Place, arguments: &[&str], output_too: bool) -> Screen {
        Screen::run(place, place.onelock(arguments), output_too)
    }

    pub fn run(place: &Place, mut command: Command, output_too: bool) -> Screen {
        let (master, slave) = pair();
        let end = || Stdio::from(slave.as_fd().try_clone_to_owned().unwrap());
        command.stdin(end()).stderr(end());
        if output_too {
            command.stdout(end());
        } else {
            command.stdout(File::create(place.file("out")).unwrap());
        }
        // SAFETY: two system calls, and no more.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop((command, slave));
        let keys = File::from(master);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut screen, to) = (keys.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // at the end of the session reading fails
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Screen { keys, shown, child }
    }

    pub fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    pub fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    pub fn wait_shown(&self, text: &str) {
        wait_until(SOON, &format!("{text:?} is shown"), || self.shown().contains(text));
    }

    /// Forgets what was shown so far.
    pub fn clear(&self) {
        self.shown.lock().unwrap().clear();
    }

    /// Gives the terminal another size; who runs there is told by a signal.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: a descriptor and a size.
        assert_eq!(unsafe { libc::ioctl(self.keys.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
    }

    /// Whether the terminal shows what is typed and gives whole lines, as at the start.
    pub fn is_as_before(&self) -> bool {
        let mut now = std::mem::MaybeUninit::<libc::termios>::zeroed();
        // SAFETY: a descriptor and a place for its settings, which are numbers.
        let now = unsafe {
            assert_eq!(libc::tcgetattr(self.keys.as_raw_fd(), now.as_mut_ptr()), 0);
            now.assume_init()
        };
        now.c_lflag & (libc::ICANON | libc::ECHO | libc::ISIG) == (libc::ICANON | libc::ECHO | libc::ISIG)
    }

    /// Whether the terminal belongs to the process that was started on it, and to no job of its.
    pub fn has_shell_in_front(&self) -> bool {
        // SAFETY: asks about a descriptor.
        unsafe { libc::tcgetpgrp(self.keys.as_raw_fd()) == self.child.id().cast_signed() }
    }

    pub fn code(self) -> Option<i32> {
        self.status().code()
    }

    pub fn status(mut self) -> ExitStatus {
        wait_until(SOON, "it ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }

    /// A line for a shell on this terminal, which finds the command as `$onelock`.
    pub fn shell(place: &Place, shell: &[&str]) -> Screen {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).env("ONELOCK_URL", place.server.url()).env_remove("ONELOCK_OWNER");
        command.env("onelock", env!("CARGO_BIN_EXE_onelock")).env("PS1", "> ").env_remove("ENV");
        Screen::run(place, command, true)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
