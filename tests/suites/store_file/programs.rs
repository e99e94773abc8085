//! Other programs that lock the same file: flock(1) and Python's filelock.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use onelock::{ErrorKind, Origin, Release};
use onelock_tests::face::{Face, on_both};
use onelock_tests::servers::spawn;
use onelock_tests::stage::{SOON, fails};
use onelock_tests::wait::wait_until;

use crate::place::Place;

/// Another program that understands lines.
struct Program {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command) -> Program {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command).unwrap();
        let (orders, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Program { child, orders, answers }
    }

    fn filelock(file: &Path) -> Program {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let peers = std::env::var_os("ONELOCK_PEERS").map_or_else(|| root.join("../.tools/peers"), Into::into);
        let fetched = Command::new(root.join("../tools/peers.sh")).arg("filelock").status().unwrap();
        assert!(fetched.success(), "filelock cannot be fetched");
        let mut command = Command::new("python3");
        command.arg(root.join("peers/file_lock.py")).arg(file).env("PYTHONPATH", peers.join("filelock"));
        Program::start(command)
    }

    /// flock(1) with the lock in its hands, until its input ends.
    fn flock(options: &[&str], file: &Path) -> Program {
        let mut command = Command::new("flock");
        command.args(options).arg(file).args(["sh", "-c", "echo locked; cat >/dev/null"]);
        let mut program = Program::start(command);
        assert_eq!(program.answer(), "locked");
        program
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    fn ends(mut self) {
        drop(self.orders.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn flock_is_kept_out_and_keeps_others_out() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let file = place.file("a.lock");
        let lease = client.lock("a").acquire().unwrap();
        let status = Command::new("flock").args(["-n", "-E", "77"]).arg(&file).arg("true").status().unwrap();
        assert_eq!(status.code(), Some(77));
        // it waits for us
        let mut waiting = Command::new("flock");
        waiting.arg(&file).args(["echo", "got it"]);
        let mut waiting = Program::start(waiting);
        assert_eq!(lease.released(), Release::Released);
        assert_eq!(waiting.answer(), "got it");
        waiting.ends();
        for options in [&[][..], &["-s"]] {
            let program = Program::flock(options, &file);
            assert!(client.lock("a").try_acquire().unwrap().is_none(), "{options:?}");
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
                wait_until(SOON, "the waiter", || client.stats().waiting == 1);
                program.ends();
                assert_eq!(waiter.join().unwrap().released(), Release::Released);
            });
        }
        client.close();
    });
}

#[test]
fn the_holder_that_is_another_program_is_shown_as_such() {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let program = Program::flock(&[], &place.file("a.lock"));
    let seen = client.inspect("a").unwrap().unwrap();
    assert_eq!((seen.origin, seen.fencing_token, seen.ttl_left), (Origin::Other, None, None));
    assert!(client.lock("a").is_locked().unwrap() && client.listing("*").unwrap().is_empty());
    // only who says that he means it takes it away
    fails(client.force_release("a"), ErrorKind::WrongKind);
    assert!(client.force_release_foreign("a").unwrap());
    assert!(client.lock("a").try_acquire().unwrap().is_some());
    program.ends();
    client.close();
}

#[test]
fn a_program_that_follows_a_killed_holder_is_not_taken_for_it() {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let mut holder = place.holder(Face::Blocking);
    holder.acquire("a", std::time::Duration::from_secs(3600), true);
    assert_eq!(client.inspect("a").unwrap().unwrap().origin, Origin::Onelock);
    fails(client.reentrant_lock("a").try_acquire(), ErrorKind::WrongKind);
    // the file still says who it was
    holder.kill();
    let program = Program::flock(&[], &place.file("a.lock"));
    let seen = client.inspect("a").unwrap().unwrap();
    assert_eq!((seen.origin, seen.fencing_token, seen.ttl_left), (Origin::Other, None, None));
    assert!(client.reentrant_lock("a").try_acquire().unwrap().is_none());
    fails(client.force_release("a"), ErrorKind::WrongKind);
    assert!(client.lock("a").try_acquire().unwrap().is_none());
    program.ends();
    client.close();
}

#[test]
fn the_text_of_another_program_stays_while_it_has_the_lock() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let file = place.file("a.lock");
        std::fs::write(&file, "4711 is the number of somebody's process\n").unwrap();
        let program = Program::flock(&[], &file);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            // whoever closes the file has it try again
            wait_until(SOON, "its attempts", || {
                assert_eq!(std::fs::read_to_string(&file).unwrap(), "4711 is the number of somebody's process\n");
                client.stats().commands_sent >= 6
            });
            program.ends();
            waiter.join().unwrap().released();
        });
        client.close();
    });
}

#[test]
fn filelock_is_kept_out_and_keeps_others_out() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let mut program = Program::filelock(&place.file("a.lock"));
        let lease = client.lock("a").acquire().unwrap();
        let fence = lease.fence();
        assert_eq!(program.ask("try"), "busy");
        program.order("acquire");
        assert_eq!(lease.released(), Release::Released);
        assert_eq!(program.answer(), "ok");
        assert!(client.lock("a").try_acquire().unwrap().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            assert_eq!(program.ask("release"), "ok");
            let next = waiter.join().unwrap();
            assert!(next.fence() > fence);
            assert_eq!(program.ask("try"), "busy");
            next.released();
        });
        // dead holders of both kinds
        assert_eq!(program.ask("acquire"), "ok");
        drop(program);
        assert_eq!(client.lock("a").acquire_within(SOON).unwrap().released(), Release::Released);
        client.close();
    });
}

#[test]
fn filelock_and_both_faces_count_to_the_same_number() {
    let place = Place::new();
    let counter = place.file("counter");
    std::fs::write(&counter, "0").unwrap();
    let mut program = Program::filelock(&place.file("count.lock"));
    program.order(&format!("count {} 200", counter.display()));
    std::thread::scope(|scope| {
        for face in Face::ALL {
            let (place, counter) = (&place, &counter);
            scope.spawn(move || {
                let client = place.client(face);
                for _ in 0..200 {
                    let lease = client.lock("count").acquire().unwrap();
                    let number: u64 = std::fs::read_to_string(counter).unwrap().parse().unwrap();
                    std::fs::write(counter, (number + 1).to_string()).unwrap();
                    assert_eq!(lease.released(), Release::Released);
                }
                client.close();
            });
        }
    });
    assert_eq!(program.answer(), "ok");
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), "600");
}
