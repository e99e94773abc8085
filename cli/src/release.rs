//! `onelock release` and `onelock force-release`: releasing what was handed over, taking away what is another's.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use onelock::{Inspection, Origin, Release as Released};

use crate::arguments::{ForceRelease, Release};
use crate::inspect::sheet;
use crate::span::show;
use crate::status::{Failure, Status};
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
    loop {
        let Some(found) = client.inspect(name)? else {
            say(&format!("{}: nobody holds it", shown::name(name)));
            return Ok(Status::Nothing);
        };
        if found.origin == Origin::Other && !options.foreign {
            return Err(Failure::usage(format!(
                "{}: another client's lock, or no lock at all but a cached value with a ttl; if you are sure, say --foreign",
                shown::name(name)
            )));
        }
        // the one that was agreed on, and no other that came meanwhile
        if options.yes || shown_before.as_ref().is_some_and(|before| is_same_hold(before, &found)) {
            break;
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
    }
    let done = if options.foreign { client.force_release_foreign(name)? } else { client.force_release(name)? };
    client.close();
    Ok(if done { Status::Done } else { Status::Nothing })
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
    write!(terminal, "{}\n{}\n\nTake it away? [y/N] ", sheet(name, found), consequence(found)).map_err(cannot)?;
    terminal.flush().map_err(cannot)?;
    let answer = first_line()?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What the old holder will believe, and for how long.
fn consequence(found: &Inspection) -> String {
    let left = found.ttl_left.map_or_else(|| "for ever".to_owned(), |left| format!("for {} at most", show(left)));
    match found.origin {
        _ if found.hold_count == 0 => "It was released, and stands for the rest of its min_hold.".to_owned(),
        Origin::Onelock => format!(
            "The holder goes on until its next renewal tells it, {left} (usually a third of its ttl). Until then two may be\n\
             at work; the next holder's fencing token is higher, so what checks tokens is safe."
        ),
        Origin::Other => "It may be another client's lock, whose holder may never learn of it and go on for any time: two may be at\n\
                          work. It may as well be no lock but a cached value: it is deleted."
            .to_owned(),
        _ => "The holder is another client's: it may never learn of it, and may go on for any time. Two may be at work.".to_owned(),
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
