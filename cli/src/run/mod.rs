//! A command that runs while a lock is held.
//!
//! | file | is |
//! |---|---|
//! | `child` | the command as a process, and its group |
//! | `guard/` | what the command has started, wherever it is, is ended with it or with `onelock` |
//! | `events` | what may happen meanwhile, in one line: signals, the loss of the lock, the end of the command |
//! | `telling` | says what happens, while nobody may read it |
//! | `terminal` | who may read from the terminal |
//! | `entering` | an `onelock run` inside another one of the same lock |

mod child;
mod entering;
mod events;
mod guard;
mod telling;
mod terminal;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, Instant};

use onelock::blocking::{Client, Lease, Lock};
use onelock::{ErrorKind, Kind, Release};
use signal_hook::consts::SIGCONT;

use self::child::Child;
use self::entering::Inside;
use self::events::{Event, Events};
use self::guard::Guard;
use self::telling::Telling;
use self::terminal::{Keys, Terminal, end_by_key};
use crate::arguments::Run;
use crate::server::{address, builder, refuse_memory};
use crate::span::{Wait, show};
use crate::status::{Failure, Status};
use crate::{say, show};

/// What the command finds in its environment; `None` takes a variable out.
type Environment = Vec<(&'static str, Option<OsString>)>;

/// How often it is looked, at least, whether the hold that was entered is still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The length of a lease, where neither `--ttl` nor `--min-hold` says so.
const TTL: Duration = Duration::from_secs(30);

pub(crate) fn run(options: &Run) -> Result<Status, Failure> {
    let end = held(options)?;
    if let Status::Signal(signal) = end.status {
        end_by_key(signal.into(), end.keys);
    }
    Ok(end.status)
}

/// How it ended, and whom the keys of the terminal reached then.
struct End {
    status: Status,
    keys: Keys,
}

impl End {
    /// By a signal, before there was a command.
    fn early(signal: i32) -> End {
        let keys = Terminal::open().map_or(Keys::Others, |terminal| terminal.keys(None));
        End { status: Status::Signal(signal as u8), keys }
    }
}

fn held(options: &Run) -> Result<End, Failure> {
    let name = options.name.as_encoded_bytes();
    if options.max_hold.is_some_and(|limit| limit.is_zero()) {
        return Err(Failure::usage("--max-hold is 0; leave it out for no limit"));
    }
    refuse_memory(&options.server)?;
    let events = Events::watch().map_err(|error| Failure::new(Status::Software, format!("signals: {error}")))?;
    let label = options.server.label.clone().unwrap_or_else(|| label(options));
    let client = builder(&options.server).label(label).inspectable(true).build_blocking(address(&options.server))?;
    let lock = lock(options, &client, &events);
    let place = entering::Place::new(address(&options.server), options.server.prefix.as_deref());
    let asked = is_of_a_kind(options).then(|| lock.kind());

    match place.handed_down(name, asked) {
        Inside::Nothing => {}
        Inside::Reader => {
            let text =
                format!("{}: the command that this runs in reads; nobody writes before it has ended", show::name(name));
            return Err(Failure::usage(text));
        }
        Inside::Hold(_) if !options.min_hold.is_zero() => {
            let text = "this runs inside the `onelock run` that holds the lock, which alone decides how long it is kept: give \
                        --min-hold to that one";
            return Err(Failure::usage(format!("{}: {text}", show::name(name))));
        }
        Inside::Hold(token) => {
            if entering::stands(client.inspect(name)?.as_ref(), token) {
                told(options, "entered again: it is held by the command that this one runs in");
                let environment = environment(options, None, Some(token));
                let telling = Telling::start();
                let outer = Hold::Outer(client, token);
                return under(options, &events, &environment, outer, &telling).map(|(end, _)| end);
            }
            let text = format!("{}: the hold that this is to enter has ended", show::name(name));
            return Err(Failure::new(Status::Lost, text));
        }
    }

    if options.verbose {
        // what the library warns of; who cannot be asked is told by what follows
        for danger in client.check().iter().flat_map(|facts| &facts.dangers) {
            told(options, danger);
        }
    }
    let lease = match acquire(options, &client, &lock) {
        Ok(lease) => lease,
        Err(failure) => {
            client.close();
            return events.ended_by().map_or(Err(failure), |signal| Ok(End::early(signal)));
        }
    };
    let token = lease.fencing_token().map_or_else(String::new, |token| format!(", fencing token {token}"));
    told(options, &format!("acquired{token}"));
    if let Some(signal) = events.ended_by() {
        // between the grant and the command: there is nobody to pass it on to
        released(options, &client, &lease, &Telling::start())?;
        return Ok(End::early(signal));
    }
    let environment = environment(options, Some((&place, lock.kind())), lease.fencing_token());
    let telling = Telling::start();
    let ended = under(options, &events, &environment, Hold::Own(&lease), &telling);
    let released = released(options, &client, &lease, &telling);
    // the guard is waited for now that the lock is free again
    let end = ended.map(|(end, _)| end);
    let end = end?;
    if end.status == Status::Lost { Ok(end) } else { released.map(|()| end) }
}

/// What names the holder when `--label` does not: the file of the command, or of the first one of a line, without its folder.
/// No more of it: arguments and variables may be secrets.
fn label(options: &Run) -> String {
    let line = options.shell.as_ref().map(|line| line.to_string_lossy());
    let of_line = line.as_ref().and_then(|line| line.split_whitespace().find(|word| !word.contains('=')));
    let first = of_line.map(OsStr::new).or(options.command.first().map(OsString::as_os_str));
    let text = first.map(|word| Path::new(word).file_name().unwrap_or(word).to_string_lossy().into_owned());
    let text: String = text.unwrap_or_default().chars().filter(|letter| !letter.is_control()).take(32).collect();
    if text.is_empty() { "onelock".to_owned() } else { text }
}

fn lock(options: &Run, client: &Client, events: &Events) -> Lock {
    let name = options.name.as_encoded_bytes();
    let lock = match options.limit {
        Some(limit) => client.semaphore(name, limit).count(options.permits),
        None if options.fair => client.fair_lock(name),
        None if options.reentrant => client.reentrant_lock(name),
        None if options.shared => client.rw_lock(name).read(),
        None if options.exclusive => client.rw_lock(name).write(),
        None => client.lock(name),
    };
    let ttl = options.ttl.unwrap_or_else(|| TTL.max(options.min_hold));
    // not `max_hold`: the lock is renewed until the command has ended
    lock.ttl(ttl).min_hold(options.min_hold).interrupt(events.cancel())
}

fn acquire(options: &Run, client: &Client, lock: &Lock) -> Result<Lease, Failure> {
    let name = options.name.as_encoded_bytes();
    let conflict = |status| options.conflict_exit_code.map_or(status, Status::Other);
    let held = |status, text: &dyn Fn() -> String| {
        let status = conflict(status);
        // who calls a conflict a success does not want to hear of it, and the server is not asked for it
        Failure { text: (status.number() != 0).then(text), status }
    };
    let result = match options.wait {
        Wait::For(wait) if wait.is_zero() => {
            let busy = || held(Status::Busy, &|| format!("{}: {}", show::name(name), holder(client, name)));
            return lock.try_acquire()?.ok_or_else(busy);
        }
        wait => {
            let begun = Instant::now();
            if options.verbose {
                match lock.try_acquire() {
                    Ok(Some(lease)) => return Ok(lease),
                    Ok(None) => told(options, &format!("waiting; {}", holder(client, name))),
                    // what is waited for below
                    Err(error) if error.is_retryable() => told(options, &format!("waiting; {error}")),
                    Err(error) => return Err(error.into()),
                }
            }
            match wait {
                Wait::Forever => lock.acquire(),
                Wait::For(wait) => lock.acquire_within(wait.saturating_sub(begun.elapsed())),
            }
        }
    };
    result.map_err(|error| match error.kind() {
        ErrorKind::Busy => held(Status::Busy, &|| error.to_string()),
        ErrorKind::Timeout => held(Status::Timeout, &|| format!("{error}; {}", holder(client, name))),
        _ => error.into(),
    })
}

/// Who holds a lock that could not be taken, as far as it is told.
fn holder(client: &Client, name: &[u8]) -> String {
    match client.inspect(name) {
        Ok(Some(found)) if found.hold_count == 0 => {
            let left = show::optional(found.ttl_left);
            format!("it was released, and stays taken for the rest of its --min-hold ({left})")
        }
        Ok(Some(found)) if found.kind == Kind::Semaphore => format!("{} held", show::holder(&found)),
        Ok(Some(found)) => {
            let since =
                show::held_for(found.owner.as_ref()).map_or_else(String::new, |span| format!(" for {}", show(span)));
            let holder = Some(show::holder(&found)).filter(|holder| holder != "-");
            format!("held by {}{since}", holder.as_deref().unwrap_or("somebody else"))
        }
        // it has gone meanwhile, or is seen by too few
        Ok(None) | Err(_) => "held by somebody else; see `onelock inspect`".to_owned(),
    }
}

/// Whether the options say of which kind the lock is. Who enters again need not.
fn is_of_a_kind(options: &Run) -> bool {
    options.limit.is_some() || options.fair || options.reentrant || options.shared || options.exclusive
}

/// What the command finds in its environment, or does not: a token that is there is of another lock. `held`: what this very
/// process holds; who enters again hands down what it was handed.
fn environment(options: &Run, held: Option<(&entering::Place, Kind)>, token: Option<u64>) -> Environment {
    let mut variables = vec![
        ("ONELOCK_NAME", Some(options.name.clone())),
        ("ONELOCK_FENCING_TOKEN", token.map(|token| token.to_string().into())),
    ];
    if let (Some(token), Some((place, kind))) = (token, held.filter(|_| options.owner)) {
        let handed_down = place.hand_down(options.name.as_encoded_bytes(), kind, token);
        variables.push((entering::VARIABLE, Some(handed_down.into())));
    }
    variables
}

/// What the command runs under.
enum Hold<'a> {
    /// A lock of our own.
    Own(&'a Lease),
    /// That of the `run` around us, with this fencing token.
    Outer(Client, u64),
}

/// Runs the command until it ends, or until it has to. The guard has nothing to do any more, but may still be there.
fn under(
    options: &Run,
    events: &Events,
    environment: &Environment,
    hold: Hold<'_>,
    telling: &Telling,
) -> Result<(End, Guard), Failure> {
    let sender = events.sender();
    let own = if let Hold::Own(lease) = &hold { Some(*lease) } else { None };
    match hold {
        Hold::Own(lease) => lease.on_lost(move |reason| drop(sender.send(Event::Lost(reason.explain().to_owned())))),
        Hold::Outer(client, token) => {
            let every = options.ttl.map_or(LOOK_EVERY, |ttl| LOOK_EVERY.min(ttl / 3));
            let name = options.name.as_encoded_bytes().to_vec();
            let looking = std::thread::Builder::new().name("outer".to_owned()).spawn(move || {
                let why = entering::wait_ended(&client, &name, token, every);
                drop(sender.send(Event::Lost(why)));
            });
            looking.map_err(|error| Failure::new(Status::Software, format!("no thread can be made: {error}")))?;
        }
    }
    let mut child = Child::spawn(options, environment, events)?;
    let mut limit = options.max_hold.map(|span| Instant::now() + span);
    let mut is_told = false;
    let end = |child: &mut Child, why: &str| {
        let (name, grace) = (show::name(options.name.as_encoded_bytes()), show(options.grace));
        // first: nobody may read what is said
        child.end_within(options.grace);
        telling.say(format!("{name}: {why}; the command is ended (SIGTERM, and SIGKILL after {grace})"));
    };
    loop {
        match events.next([limit, child.until()].into_iter().flatten().min()) {
            // one that was stopped does nothing more without the lock: the loss itself may be told only later
            Some(Event::Signal(SIGCONT) | Event::Woken)
                if !child.had_to_end() && own.is_some_and(|lease| !lease.is_held()) =>
            {
                limit = None;
                child.give_back();
                end(&mut child, "the lock was lost: its ttl passed while it was not renewed");
                is_told = true;
            }
            Some(Event::Signal(signal)) => child.pass_on(signal),
            Some(Event::Lost(_)) if is_told => {}
            Some(Event::Woken) => child.give_back(),
            Some(Event::Stopped(signal)) => child.stopped(signal),
            Some(Event::Continued) => child.continued(),
            Some(Event::Lost(why)) => {
                limit = None;
                end(&mut child, &format!("the lock was lost: {why}"));
            }
            Some(Event::Ended(status)) => {
                let keys = child.ended(events, telling);
                let end = End { status: if child.had_to_end() { Status::Lost } else { status }, keys };
                return Ok((end, child.into_guard()));
            }
            // told when it has ended, too, where something may be left
            Some(Event::Gone) => {}
            Some(Event::Unguarded) => {
                let keys = child.unguarded(telling);
                telling.say("the process that guards the command was killed, and the command with it".to_owned());
                let status = if child.had_to_end() { Status::Lost } else { Status::Software };
                return Ok((End { status, keys }, child.into_guard()));
            }
            None if limit.is_some_and(|limit| limit <= Instant::now()) => {
                let span = limit.take().and(options.max_hold).unwrap_or_default();
                end(&mut child, &format!("it ran for longer than --max-hold ({})", show(span)));
            }
            None => child.kill(),
        }
    }
}

/// Releases the lock. An error if it had ended before the command did.
fn released(options: &Run, client: &Client, lease: &Lease, telling: &Telling) -> Result<(), Failure> {
    let name = show::name(options.name.as_encoded_bytes());
    let released = lease.release();
    let result = match released {
        Ok(Release::Released) => {
            if options.verbose {
                telling.say(format!("{name}: released"));
            }
            Ok(())
        }
        Ok(Release::AlreadyExpired | Release::AlreadyReleased) => {
            let text =
                format!("{name}: the lock was lost before the command ended: somebody else may have run meanwhile");
            Err(Failure::new(Status::Lost, text))
        }
        Ok(_) => {
            telling.say(format!(
                "{name}: the server did not confirm that the lock is free; it ends with its ttl at the latest"
            ));
            Ok(())
        }
        Err(error) => {
            telling.say(error.to_string());
            Ok(())
        }
    };
    client.close();
    result
}

fn told(options: &Run, text: &str) {
    if options.verbose {
        say(&format!("{}: {text}", show::name(options.name.as_encoded_bytes())));
    }
}
