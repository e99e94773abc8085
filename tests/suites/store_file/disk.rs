//! Files and directories that are removed, full, read-only, or of the wrong kind.

use std::fs;
use std::process::{Command, Stdio};

use onelock::{ErrorKind, Grade, LossReason, Release};
use onelock_tests::face::{Client, Face, block_on, on_both};
use onelock_tests::holder::Holder;
use onelock_tests::stage::{SOON, fails, ms, unhurried};
use onelock_tests::wait::wait_until;

use crate::place::Place;

#[test]
fn a_removed_file_is_found_by_its_holder_and_by_those_who_wait() {
    on_both(|face| {
        let place = Place::new();
        let (client, other) = (place.client(face), place.client(face));
        let mut holder = place.holder(face);
        let fence = holder.acquire("a", ms(900), true);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            fs::remove_file(place.file("a.lock")).unwrap();
            let next = waiter.join().unwrap();
            // the counter went with the file; the clock goes on
            assert!(next.fence() > fence);
            wait_until(SOON, "the holder to learn it", || holder.ask("held") == "false");
            assert_eq!(holder.ask("loss"), LossReason::Taken.as_str());
            assert!(next.is_held() && other.lock("a").try_acquire().unwrap().is_none());
            assert_eq!(next.released(), Release::Released);
        });
        // what is released excluded no other process any more
        let lease = client.lock("b").auto_renew(false).acquire().unwrap();
        fs::rename(place.file("b.lock"), place.file("c.lock")).unwrap();
        holder.acquire("b", ms(60_000), true);
        assert_eq!(lease.released(), Release::AlreadyExpired);
        client.close();
        other.close();
    });
}

#[test]
fn a_directory_that_is_gone_is_named_and_may_come_back() {
    let place = Place::new();
    let inner = place.file("inner");
    fs::create_dir(&inner).unwrap();
    let url = format!("file://{}", inner.display());
    let client = Client::build(Face::Blocking, unhurried(), &url).unwrap();
    let lease = client.lock("a").renew_every(ms(150)).acquire().unwrap();
    fs::remove_dir_all(&inner).unwrap();
    assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
    let error = fails(client.lock("b").acquire_within(SOON), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&format!("{} does not exist: make it", inner.display())), "{error}");
    fails(client.check(), ErrorKind::Unavailable);
    fails(client.listing("*"), ErrorKind::Unavailable);
    fs::create_dir(&inner).unwrap();
    assert_eq!(client.lock("b").acquire().unwrap().released(), Release::Released);
    assert_eq!(lease.released(), Release::AlreadyExpired);
    client.close();
}

#[test]
fn where_no_file_can_be_made_the_system_is_quoted() {
    // nobody makes files in /sys, whoever he is
    let options = unhurried();
    let client = Client::build(Face::Blocking, options, "file:///sys/kernel?fs=any").unwrap();
    let error = fails(client.lock("a").try_acquire(), ErrorKind::NotPermitted);
    assert!(error.to_string().contains("/sys/kernel/a.lock"), "{error}");
    client.close();
}

#[test]
fn a_diagnosis_speaks_of_directories() {
    for (url, words) in [
        ("file:///no/such/directory", "name a directory that exists"),
        ("file:///sys/kernel?fs=any", "create and write"),
    ] {
        let look = async { unhurried().build(url).unwrap().diagnose("a").await.unwrap() };
        let findings = block_on(look).findings;
        let failed = findings.iter().find(|finding| finding.error.is_some()).unwrap();
        assert!(failed.todo.contains(words) && !failed.todo.contains("server"), "{failed:?}");
    }
}

#[test]
fn a_file_system_that_other_machines_may_share_is_refused() {
    let client = Client::build(Face::Blocking, unhurried(), "file:///proc").unwrap();
    for error in
        [fails(client.lock("a").try_acquire(), ErrorKind::Unsupported), fails(client.check(), ErrorKind::Unsupported)]
    {
        assert!(
            error.to_string().contains("not known to be local") && error.to_string().contains("?fs=any"),
            "{error}"
        );
    }
    client.close();
}

#[test]
fn a_token_that_cannot_be_written_down_is_not_handed_out() {
    let place = Place::new();
    // what has no room in a file of length 0 is refused as on a full disk, and the signal for it is ignored
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_onelock-holder")]);
    command.args(["Blocking", &place.url()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut full = Holder::of(command);
    full.order("try a 60000");
    let answer = full.any_answer();
    assert!(answer.starts_with("error") && answer.contains("a.lock") && answer.contains("too large"), "{answer}");
    let client = place.client(Face::Blocking);
    let lease = client.lock("a").try_acquire().unwrap().expect("it is free");
    assert_eq!(lease.released(), Release::Released);
    full.order("try a 60000");
    assert!(full.any_answer().starts_with("error"));
    client.close();
}

#[test]
fn what_is_no_file_of_a_lock_is_left_alone() {
    let place = Place::new();
    fs::create_dir(place.file("d.lock")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", place.file("s.lock")).unwrap();
    let made = Command::new("mkfifo").arg(place.file("p.lock")).status().unwrap();
    assert!(made.success());
    let texts = ["# generated\n[[package]]\n".to_owned(), "x".repeat(65)];
    for (name, text) in ["u", "v"].into_iter().zip(&texts) {
        fs::write(place.file(&format!("{name}.lock")), text).unwrap();
    }
    fs::write(place.file("t.lock"), "4711\n").unwrap();
    let client = place.client(Face::Blocking);
    for name in ["d", "s", "p"] {
        fails(client.lock(name).try_acquire(), ErrorKind::WrongKind);
        fails(client.force_release_foreign(name), ErrorKind::WrongKind);
    }
    for (name, text) in ["u", "v"].into_iter().zip(&texts) {
        fails(client.lock(name).try_acquire(), ErrorKind::WrongKind);
        fails(client.lock(name).acquire_within(SOON), ErrorKind::WrongKind);
        assert_eq!(&fs::read_to_string(place.file(&format!("{name}.lock"))).unwrap(), text);
        // and whoever asks next is not kept out by the one that was refused
        let program = Command::new("flock").arg("-n").arg(place.file(&format!("{name}.lock"))).arg("true").status();
        assert!(program.unwrap().success());
    }
    assert!(client.listing("*").unwrap().is_empty());
    // one line of another program is its note of who had the lock
    assert_eq!(client.lock("t").acquire().unwrap().released(), Release::Released);
    client.close();
}

#[test]
fn a_broken_record_costs_the_counter_only() {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let first = client.lock("a").acquire().unwrap();
    let fence = first.fence();
    first.released();
    let mut text = fs::read(place.file("a.lock")).unwrap();
    assert!(String::from_utf8_lossy(&text).contains(&format!("fence={fence}\n")));
    text[100] ^= 1;
    fs::write(place.file("a.lock"), &text).unwrap();
    let second = client.lock("a").acquire().unwrap();
    assert!(second.fence() > fence);
    second.released();
    fs::write(place.file("a.lock"), "").unwrap();
    assert!(client.lock("a").acquire().unwrap().fence() > second.fence());
    client.close();
}

#[test]
fn tokens_grow_though_the_clock_goes_back() {
    let place = Place::new();
    let mut holder = place.holder(Face::Blocking);
    let first = holder.acquire("a", ms(60_000), true);
    holder.ask("release");
    holder.ask("wall -86400");
    assert_eq!(holder.acquire("a", ms(60_000), true), first + 1);
}

#[test]
fn tokens_grow_though_the_clock_was_centuries_ahead() {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let mut holder = place.holder(Face::Blocking);
    holder.ask("wall 9000000000");
    let ahead = holder.acquire("a", ms(60_000), true);
    assert!(ahead < 1 << 53, "every language can count with it");
    assert_eq!(client.inspect("a").unwrap().unwrap().fencing_token, Some(ahead));
    holder.ask("release");
    assert_eq!(client.lock("a").acquire().unwrap().fence(), ahead + 1);
    client.close();
}

#[test]
fn a_synced_counter_is_strict_and_any_other_is_bounded_by_the_clock() {
    let place = Place::new();
    for (query, grade) in [("", Grade::ClockBounded), ("?sync=0", Grade::ClockBounded), ("?sync=1", Grade::Strict)] {
        for face in Face::ALL {
            let client = Client::build(face, unhurried(), &format!("{}{query}", place.url())).unwrap();
            let facts = client.check().unwrap();
            // on an overlay nobody can tell
            let grade = if facts.warnings.is_empty() { grade } else { Grade::ClockBounded };
            assert_eq!(facts.grade, grade, "{facts:?}");
            assert!(facts.server.starts_with("files on "), "{facts:?}");
            let lease = client.lock("a").acquire().unwrap();
            assert!(client.lock("a").try_acquire().unwrap().is_none());
            assert_eq!(lease.released(), Release::Released);
            client.close();
        }
    }
    let memory = Client::build(Face::Blocking, unhurried(), "file:///dev/shm?sync=1").unwrap();
    assert_eq!(memory.check().unwrap().grade, Grade::ClockBounded, "it forgets at a restart");
    memory.close();
}

#[test]
fn files_are_made_with_the_mode_of_the_address_whatever_the_mask() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    for (query, mode) in [("", 0o660), ("?mode=0666", 0o666), ("?mode=600", 0o600)] {
        let client = Client::build(Face::Blocking, unhurried(), &format!("{}{query}", place.url())).unwrap();
        let name = format!("m{mode}");
        client.lock(&name).acquire().unwrap().released();
        let made = fs::metadata(place.file(&format!("{name}.lock"))).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, mode);
        client.close();
    }
}

#[test]
#[allow(unsafe_code, reason = "a program that closes what it did not open")]
fn a_hold_whose_descriptor_somebody_closed_is_lost_and_writes_nowhere() {
    use std::os::fd::AsRawFd;
    on_both(|face| {
        let place = Place::new();
        let (client, mut holder) = (place.client(face), place.holder(face));
        let text = "x".repeat(600);
        fs::write(place.file("notes"), &text).unwrap();
        let notes = fs::OpenOptions::new().write(true).open(place.file("notes")).unwrap();
        let descriptor = |name: &str| {
            let is_it = |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|to| to == place.file(name));
            let found = fs::read_dir("/proc/self/fd").unwrap().flatten().find(is_it).expect("it is open");
            found.file_name().to_str().unwrap().parse::<i32>().unwrap()
        };
        for name in ["renewed", "released"] {
            let ttl = if name == "renewed" { ms(3000) } else { ms(60_000) };
            let lease = client.lock(name).ttl(ttl).acquire().unwrap();
            let raw = descriptor(&format!("{name}.lock"));
            // closes it, and its number is another file's
            // SAFETY: both are open; what owns the first one is to find out.
            assert_eq!(unsafe { libc::dup2(notes.as_raw_fd(), raw) }, raw);
            // the kernel's lock has ended with the file
            holder.acquire(name, ms(60_000), true);
            if name == "renewed" {
                assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
            }
            assert_eq!(lease.released(), Release::AlreadyExpired);
            assert_eq!(fs::read_to_string(place.file("notes")).unwrap(), text);
            // it was not closed a second time
            // SAFETY: the descriptor is this test's own.
            assert_eq!(unsafe { libc::close(raw) }, 0);
        }
        client.close();
    });
}

#[test]
fn a_forced_release_leaves_the_file_to_its_users() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    let mut holder = place.holder(Face::Blocking);
    holder.acquire("a", ms(60_000), true);
    let file = place.file("a.lock");
    let users = || fs::metadata(&file).map(|found| (found.mode() & 0o7777, found.uid(), found.gid())).unwrap();
    // the superuser forces the release of somebody else's lock; everybody else has nobody to give a file to
    let (uid, gid) = if users().1 == 0 { (64_123, 64_124) } else { (users().1, users().2) };
    std::os::unix::fs::chown(&file, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o4640)).unwrap();
    let client = place.client(Face::Blocking);
    let before = fs::metadata(&file).unwrap().ino();
    assert!(client.force_release("a").unwrap());
    assert_ne!(fs::metadata(&file).unwrap().ino(), before);
    assert_eq!(users(), (0o640, uid, gid));
    client.close();
}

#[test]
fn long_and_strange_names_are_listed_as_they_are() {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let names = ["a/b".to_owned(), "..".to_owned(), "\u{e9} %".to_owned(), "k".repeat(400)];
    let leases: Vec<_> = names.iter().map(|name| client.lock(name).acquire().unwrap()).collect();
    let mut expected: Vec<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let mut listed: Vec<_> = client.listing("*").unwrap().into_iter().map(|entry| entry.name).collect();
    expected.sort();
    listed.sort();
    assert_eq!(listed, expected);
    for lease in leases {
        lease.released();
    }
    assert!(client.listing("*").unwrap().is_empty());
    client.close();
}
