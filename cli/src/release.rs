//! `onelock release` and `onelock force-release`: releasing what was handed over, taking away what is another's.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use onelock::{Inspection, Kind, Origin, Release as Released};

use crate::arguments::{ForceRelease, Release};
use crate::inspect::sheet;
use crate::span::show;
use crate::status::{Failure, Status};
use crate::top::terminal_size;
use crate::width::wrapped;
use crate::{say, server, show as shown};

pub(crate) fn release(options: &Release) -> Result<Status, Failure> {
    let name = options.name.as_encoded_bytes();
    let proof = match options.proof.as_str() {
        "-" => first_line()?,
        proof => proof.to_owned(),
    };
    let client = server::client(&options.server)?;
    // proofs of several kinds look alike
    let Some(found) = client.inspect(name)? else {
        return Err(Failure::new(Status::Nothing, format!("{}: nobody holds it", shown::name(name))));
    };
    let lease = match client.lock_of(found.kind, name).attach(&proof) {
        Err(error) if error.kind() == onelock::ErrorKind::Lost => {
            return Err(Failure::new(Status::Nothing, error.to_string()));
        }
        attached => attached?,
    };
    let outcome = lease.release()?;
    client.close();
    match outcome {
        Released::Released => Ok(Status::Done),
        other => Err(Failure::new(Status::Nothing, format!("{}: {}", shown::name(name), other.as_str()))),
    }
}

pub(crate) fn force(options: &ForceRelease) -> Result<Status, Failure> {
    let name = options.name.as_encoded_bytes();
    let client = server::client(&options.server)?;
    let mut shown_before = None;
    let taken = loop {
        let Some(found) = client.inspect(name)? else {
            say(&format!("{}: nobody holds it", shown::name(name)));
            return Ok(Status::Nothing);
        };
        if found.origin == Origin::Other && !options.foreign {
            let value = if found.ttl_left.is_some() { "a cached value" } else { "a value that stays for ever" };
            return Err(Failure::usage(format!(
                "{}: another client's lock, or no lock at all but {value}; if you are sure, say --foreign",
                shown::name(name)
            )));
        }
        // the one that was agreed on, and no other that came meanwhile
        if options.yes || shown_before.as_ref().is_some_and(|before| is_same_hold(before, &found)) {
            break found;
        }
        if !(stdin().is_terminal() && stderr().is_terminal()) {
            return Err(Failure::usage("there is no terminal to ask on; say --yes if you are sure"));
        }
        if shown_before.is_some() {
            say("it has another holder now");
        }
        if !agreed(name, &found)? {
            say("nothing was done");
            return Ok(Status::Nothing);
        }
        shown_before = Some(found);
    };
    let done = if options.foreign { client.force_release_foreign(name)? } else { client.force_release(name)? };
    client.close();
    let name = shown::name(name);
    if !done {
        say(&format!("{name}: it was over before it could be taken away"));
        return Ok(Status::Nothing);
    }
    say(&format!("{name}: {}", outcome(&taken)));
    Ok(Status::Done)
}

/// Whether both looks saw the same hold: a new one has a fencing token, an owner or a time of its own.
fn is_same_hold(before: &Inspection, now: &Inspection) -> bool {
    let of = |seen: &Inspection| {
        let owner =
            seen.owner.as_ref().map(|owner| (owner.label.clone(), owner.pid, owner.host.clone(), owner.since_ms));
        (seen.kind, seen.fencing_token, owner, seen.foreign_holder.clone())
    };
    of(before) == of(now)
}

/// Shows who holds it and what follows, and asks.
fn agreed(name: &[u8], found: &Inspection) -> Result<bool, Failure> {
    let cannot = |error: std::io::Error| Failure::new(Status::Software, format!("the terminal: {error}"));
    let mut terminal = stderr().lock();
    let follows = wrapped(&consequence(found), terminal_size(&terminal).0);
    write!(terminal, "{}\n{follows}\n\nTake it away? [y/N] ", sheet(name, found)).map_err(cannot)?;
    terminal.flush().map_err(cannot)?;
    let answer = first_line()?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Who loses it, what they believe, for how long, and who is next.
fn consequence(found: &Inspection) -> String {
    let left = found.ttl_left.map_or_else(|| "for ever".to_owned(), |left| format!("for {} at most", show(left)));
    let count = found.hold_count;
    let first = match (found.origin, found.kind) {
        _ if count == 0 => "It was released, and stands for the rest of its min_hold.".to_owned(),
        (Origin::Onelock, Kind::Semaphore) => format!(
            "Permits cannot be taken away one by one: {} taken away, whoever holds {}. Each holder goes on until its next \
             renewal tells it (usually a third of its ttl). Until then more may be at work than there are permits.",
            if count == 1 { "the one that is held is".to_owned() } else { format!("all {count} that are held are") },
            if count == 1 { "it" } else { "them" },
        ),
        (Origin::Onelock, Kind::Read) if count > 1 => format!(
            "Readers cannot be taken out one by one: all {count} lose it. Each goes on until its next renewal tells it, {left} \
             (usually a third of its ttl). Until then a writer may be at work beside them; its fencing token is higher, so what \
             checks tokens is safe."
        ),
        (Origin::Onelock, _) => format!(
            "The holder goes on until its next renewal tells it, {left} (usually a third of its ttl). Until then two may be at \
             work; the next holder's fencing token is higher, so what checks tokens is safe."
        ),
        (Origin::Other, _) => {
            "It may be another client's lock, whose holder may never learn of it and go on for any time: two \
                               may be at work. It may as well be no lock but a value: it is deleted."
                .to_owned()
        }
        (_, Kind::Read) if count > 1 => format!(
            "All {count} readers lose it. They are another client's: they may never learn of it, and may go on for any time, with \
             a writer beside them."
        ),
        _ => {
            "The holder is another client's: it may never learn of it, and may go on for any time. Two may be at work."
                .to_owned()
        }
    };
    match found.waiting {
        None | Some(0) => first,
        Some(1) => format!("{first} One waits for it, and takes it at once."),
        Some(waiting) => format!("{first} {waiting} wait for it, and whose turn it is takes it at once."),
    }
}

/// What was done, in a few words.
fn outcome(taken: &Inspection) -> String {
    let holder = taken.owner.as_ref().map(shown::client);
    match (taken.origin, taken.kind, taken.hold_count) {
        (_, _, 0) => "free; it had been released".to_owned(),
        (_, Kind::Semaphore, count) => format!("the permits that were held ({count}) were taken away"),
        (_, Kind::Read, count @ 2..) => format!("taken away from {count} readers"),
        (Origin::Onelock, ..) => {
            let at_most = taken.ttl_left.map_or_else(String::new, |left| format!(", {} at most", show(left)));
            let holder = holder.unwrap_or_else(|| "its holder".to_owned());
            format!("taken away from {holder}, which its next renewal tells it{at_most}")
        }
        (Origin::Other, ..) => "deleted".to_owned(),
        _ => "taken away; its holder may never learn of it".to_owned(),
    }
}

fn first_line() -> Result<String, Failure> {
    let mut line = String::new();
    stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::new(Status::Usage, format!("standard input: {error}")))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
